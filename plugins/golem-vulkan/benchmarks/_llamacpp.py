"""Runs llama.cpp through its C API and prints one line of JSON: tokens a second, reading a prompt and generating.

It takes its settings as one JSON object: libraries (a directory), model, slots, rounds, prompt, generated.  With texts
(name: how many, and the tokens of each) in place of the last three it embeds: positions a second of each.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


class Params(ctypes.Structure):
    """Room for a structure of settings, which the library fills and reads; only its first fields are set here."""

    _fields_ = (("words", ctypes.c_uint32 * 128),)


class Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


GPU_LAYERS = 4
"""Word of llama_model_params, behind two pointers, that says how many layers go to the device."""
CONTEXT, BATCH, MICRO_BATCH, SEQUENCES = range(4)
"""Words of llama_context_params."""


def libraries(directory: Path) -> tuple[Any, Any]:
    """llama and ggml, with ggml's backends loaded."""
    ggml_file = next(directory.glob("libggml.*so*"))
    ctypes.CDLL(str(directory / "libggml-base.so"), ctypes.RTLD_GLOBAL)
    ggml = ctypes.CDLL(str(ggml_file), ctypes.RTLD_GLOBAL)
    ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_load_all_from_path(str(directory).encode())
    return ctypes.CDLL(str(next(directory.glob("libllama.*so*"))), ctypes.RTLD_GLOBAL), ggml


def embed(llama: Any, model: Any, params: Params, texts: dict[str, list[int]], rounds: int) -> dict[str, float]:
    most, positions = max(count for count, _ in texts.values()), max(count * n for count, n in texts.values())
    params.words[CONTEXT] = params.words[BATCH] = params.words[MICRO_BATCH] = positions
    params.words[SEQUENCES] = most
    context = llama.llama_init_from_model(model, params)
    if not context:
        sys.exit("there is no context")
    llama.llama_set_embeddings.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    llama.llama_set_embeddings(context, True)
    llama.llama_encode.argtypes = [ctypes.c_void_p, Batch]
    llama.llama_get_embeddings_seq.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    llama.llama_get_embeddings_seq.restype = ctypes.POINTER(ctypes.c_float)
    batch, best = llama.llama_batch_init(positions, 0, 1), dict.fromkeys(texts, 0.0)
    for _ in range(rounds + 1):
        for name, (count, length) in texts.items():
            tokens = np.random.default_rng(1).integers(4, 15_000, count * length)
            for i, token in enumerate(tokens.tolist()):
                batch.token[i], batch.pos[i], batch.logits[i] = token, i % length, 1
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, i // length
            batch.n_tokens = len(tokens)
            start = time.perf_counter()
            if code := llama.llama_encode(context, batch):
                sys.exit(f"llama_encode: {code}")
            for sequence in range(count):
                if not llama.llama_get_embeddings_seq(context, sequence):
                    sys.exit("there are no embeddings")
                llama.llama_get_embeddings_seq(context, sequence)[0]
            best[name] = max(best[name], len(tokens) / (time.perf_counter() - start))
    return best


def main() -> None:
    settings = json.loads(sys.argv[1])
    llama, _ = libraries(Path(settings["libraries"]))
    llama.llama_model_default_params.restype = Params
    llama.llama_context_default_params.restype = Params
    llama.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
    llama.llama_model_load_from_file.restype = ctypes.c_void_p
    llama.llama_init_from_model.argtypes = [ctypes.c_void_p, Params]
    llama.llama_init_from_model.restype = ctypes.c_void_p
    llama.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    llama.llama_batch_init.argtypes = [ctypes.c_int32] * 3
    llama.llama_batch_init.restype = Batch
    llama.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    llama.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    llama.llama_get_memory.argtypes = [ctypes.c_void_p]
    llama.llama_get_memory.restype = ctypes.c_void_p
    llama.llama_memory_clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]

    model_params = llama.llama_model_default_params()
    model_params.words[GPU_LAYERS] = 999
    start = time.perf_counter()
    model = llama.llama_model_load_from_file(settings["model"].encode(), model_params)
    if not model:
        sys.exit("the model cannot be loaded")
    params = llama.llama_context_default_params()
    if "texts" in settings:
        print(json.dumps(embed(llama, model, params, settings["texts"], settings["rounds"])), flush=True)
        return
    slots, prompt, generated = settings["slots"], settings["prompt"], settings["generated"]
    params.words[CONTEXT] = 1024 * slots
    params.words[BATCH] = params.words[MICRO_BATCH] = prompt
    params.words[SEQUENCES] = slots
    context = llama.llama_init_from_model(model, params)
    if not context:
        sys.exit("there is no context")
    best: dict[str, float] = {"load": time.perf_counter() - start}
    batch = llama.llama_batch_init(prompt, 0, 1)
    tokens = np.random.default_rng(1).integers(0, 40000, 2 * prompt)

    def run(parts: list[tuple[int, int, int]]) -> None:
        """Parts are (sequence, first position, columns); logits of the last column of each."""
        n = 0
        for sequence, first, count in parts:
            for i in range(count):
                batch.token[n], batch.pos[n] = int(tokens[n + first]), first + i
                batch.n_seq_id[n], batch.seq_id[n][0], batch.logits[n] = 1, sequence, int(i == count - 1)
                n += 1
        batch.n_tokens = n
        if code := llama.llama_decode(context, batch):
            sys.exit(f"llama_decode: {code}")
        for i in range(n):
            if batch.logits[i]:
                llama.llama_get_logits_ith(context, i)[0]

    for _ in range(settings["rounds"] + 1):
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        start = time.perf_counter()
        run([(0, 0, prompt)])
        rates = {"prompt": prompt / (time.perf_counter() - start)}
        for sequence in range(1, slots):
            run([(sequence, 0, prompt)])
        at = prompt
        for count in sorted({1, slots}):
            start = time.perf_counter()
            for i in range(generated):
                run([(s, (at if s == 0 else prompt) + i, 1) for s in range(count)])
            name = "generating" if count == 1 else f"generating x{count}"
            rates[name] = count * generated / (time.perf_counter() - start)
            at += generated
        best |= {name: max(rate, best.get(name, 0.0)) for name, rate in rates.items()}
    print(json.dumps(best), flush=True)


main()
