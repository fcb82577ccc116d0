"""Whether a Vulkan device and the CPU go on with the same tokens: a prompt read at once, then token after token.

The file has random weights; the CPU's likeliest token is fed to both.  Both round activations to 8 bits, each in its
own way, so that logits differ as two builds of one program do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from generating import SHAPES, model_file
from golem_llama.model import LlamaConfig, build
from golem_vulkan.device import VulkanDevice

from golem_core import Columns, open_device, open_model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="SHAPE:MIX", help=", ".join(SHAPES))
    parser.add_argument("--directory", type=Path, required=True, help="where the files are made")
    parser.add_argument("--donor", type=Path, required=True, help="a GGUF file of the architecture llama")
    parser.add_argument("--prompt", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=32)
    arguments = parser.parse_args()
    for name in arguments.models:
        shape, _, mix = name.partition(":")
        with open_model(model_file(arguments.directory, shape, mix, arguments.donor)) as file:
            vocabulary = len(file.metadata["tokenizer.ggml.tokens"])
            graph = build(LlamaConfig.read(file, vocabulary), file.weights)
            devices = open_device({"device": "cpu"}), VulkanDevice()
            runs = [device.compile(graph, context=1024, width=128) for device in devices]
            tokens = np.random.default_rng(1).integers(0, vocabulary, arguments.prompt).tolist()
            fed, same, errors = 0, 0, []
            for _ in range(arguments.tokens):
                new = tokens[fed:]
                columns = Columns(new, np.arange(fed, len(tokens)), np.zeros(len(new)), [len(new) - 1])
                theirs, ours = (run.run(columns)["logits"][0].copy() for run in runs)
                theirs, ours, fed = theirs - theirs.mean(), ours - ours.mean(), len(tokens)
                same += int(theirs.argmax() == ours.argmax())
                errors.append(float(np.sqrt(np.mean((ours - theirs) ** 2)) / theirs.std()))
                tokens.append(int(theirs.argmax()))
            print(
                f"{name}: {same} of {arguments.tokens} tokens the same; logits differ by {errors[0]:.4f} of their "
                f"spread behind the prompt, {np.mean(errors):.4f} on the average",
                flush=True,
            )
            for device in devices:
                device.close()


if __name__ == "__main__":
    main()
