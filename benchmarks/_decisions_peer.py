"""Runs Laya's network in PyTorch: reads a JSON list of lengths from each line of standard input, answers with seconds.

It runs under the peer's own Python, with the directory of a checkpoint and a number of threads as its arguments.
Sequences of one request are one batch, padded to the longest, in float32: the fastest of PyTorch's ways on a CPU
without matrix instructions for 16 bits.
"""

import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import ModernBertConfig, ModernBertModel


class Network(torch.nn.Module):
    def __init__(self, folder: Path):
        super().__init__()
        config = ModernBertConfig(**json.loads((folder / "encoder" / "config.json").read_text()))
        config._attn_implementation = "sdpa"
        width = config.hidden_size
        self.encoder = ModernBertModel(config)
        self.type_emb = torch.nn.Embedding(3, width)
        layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.head = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scorer = torch.nn.Sequential(
            torch.nn.LayerNorm(width), torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 1)
        )
        self.act_head = torch.nn.Sequential(torch.nn.Linear(width + 4, 256), torch.nn.GELU(), torch.nn.Linear(256, 2))
        weights = load_file(folder / "model.safetensors")
        self.load_state_dict({name: weight.float() for name, weight in weights.items()})

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        x = self.encoder(ids, attention_mask=mask).last_hidden_state + self.type_emb.weight[0]
        x = self.head(x, src_key_padding_mask=mask == 0)
        rows = torch.gather(x, 1, marks[..., None].expand(-1, -1, x.shape[-1]))
        return self.scorer(rows)


def main() -> None:
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    network = Network(folder).eval()
    print("ready", flush=True)
    for line in sys.stdin:
        lengths = json.loads(line)
        longest = max(lengths)
        ids = torch.randint(10, 250, (len(lengths), longest))
        mask = (torch.arange(longest)[None] < torch.tensor(lengths)[:, None]).long()
        marks = torch.tensor([[8, 14, 20]] * len(lengths))
        start = time.perf_counter()
        with torch.inference_mode():
            network(ids, mask, marks)
        print(time.perf_counter() - start, flush=True)


main()
