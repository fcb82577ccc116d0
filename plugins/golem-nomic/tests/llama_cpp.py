"""What llama.cpp's server embeds texts as: a program for a process of its own.

`python llama_cpp.py MODEL REQUEST`: the answer to the JSON REQUEST is written as JSON to standard output.
"""

from __future__ import annotations

import json
import os
import sys


def main(model: str, request: str) -> None:
    import xllamacpp  # pyright: ignore[reportMissingImports]

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 2048
    parameters.n_parallel = 1
    parameters.embedding = True
    parameters.warmup = False
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 2
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    answer = xllamacpp.Server(parameters).handle_embeddings(json.loads(request))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the server's threads would not end


if __name__ == "__main__":
    main(*sys.argv[1:])
