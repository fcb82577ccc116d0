"""Runs moshi's speech to text in PyTorch: reads a JSON list [streams, frames] from each line of standard input, and
answers with the seconds that it took.

It runs under the peer's own Python, with a checkpoint's directory, a number of threads, "bf16" or "f32" for the
language model (the codec is in float32, as moshi has it), and the frames that the codec encodes at once.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.update(NO_CUDA_GRAPH="1", NO_TORCH_COMPILE="1")

import torch
from moshi.models import loaders
from moshi.models.lm import LMGen, LMModel
from safetensors.torch import load_file

USED = (
    *("dim", "n_q", "dep_q", "card", "text_card", "num_heads", "num_layers", "hidden_scale", "causal", "layer_scale"),
    *("context", "max_period", "gating", "norm", "positional_embedding", "delays", "existing_text_padding_id"),
)


def main() -> None:
    folder, threads, dtype, ahead = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(threads)
    config = json.loads((folder / "config.json").read_text())
    mimi = loaders.get_mimi(None, num_codebooks=config["n_q"])
    mimi.load_state_dict(load_file(folder / "mimi.safetensors"), strict=False)
    kept = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    model = LMModel(  # without memory, so that nothing draws numbers for it
        **{key: config[key] for key in USED},
        depformer_dim=16,
        depformer_num_heads=2,
        depformer_num_layers=1,
        depformer_dim_feedforward=32,
        device=torch.device("meta"),
        dtype=kept,
    )
    weights = {name: weight.to(kept) for name, weight in load_file(folder / "model.safetensors").items()}
    shapes = {name: each.shape for name, each in model.state_dict().items() if name not in weights}
    unused = {name: torch.zeros(shape, dtype=kept) for name, shape in shapes.items()}
    model.load_state_dict(weights | unused, assign=True)
    model.eval()
    frame = mimi.frame_size
    print("ready", flush=True)
    for line in sys.stdin:
        streams, frames = json.loads(line)
        sound = torch.randn(streams, 1, frames * frame) * 0.1
        gen = LMGen(model, use_sampling=False, temp_text=0)
        start = time.perf_counter()
        with torch.inference_mode(), mimi.streaming(streams), gen.streaming(streams):
            for first in range(0, frames, ahead):
                codes = mimi.encode(sound[:, :, first * frame : (first + ahead) * frame])
                for t in range(codes.shape[2]):
                    gen.step(codes[:, :, t : t + 1])
        print(time.perf_counter() - start, flush=True)


main()
