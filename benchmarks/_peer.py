"""Runs llama.cpp's server, from the package xllamacpp, until standard input is closed.

It runs under the peer's own Python and takes its settings as one JSON object: model, port, slots, context (of a
slot), threads, flash ("on", "off" or "auto"), for embeddings batch, the positions of a pass, and for pictures and
recordings projector.
"""

import json
import sys

import xllamacpp


def main() -> None:
    settings = json.loads(sys.argv[1])
    flash = xllamacpp.llama_flash_attn_type
    kinds = {
        "on": flash.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": flash.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "auto": flash.LLAMA_FLASH_ATTN_TYPE_AUTO,
    }
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.port = settings["port"]
    if "projector" in settings:
        params.mmproj.path = settings["projector"]
        params.mmproj_use_gpu = False
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["slots"] * settings["context"]
    params.embedding = "batch" in settings
    params.n_batch = params.n_ubatch = settings.get("batch", 512)
    params.cont_batching = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.flash_attn_type = kinds[settings["flash"]]
    params.cache_ram_mib = 0  # copies of what slots held, which nothing here reads again
    params.n_gpu_layers = 0
    params.ui = False
    server = xllamacpp.Server(params)
    sys.stdin.read()
    del server


main()
