"""golem beside PyTorch: Krea 2's networks in their real shapes with random weights, and a whole picture.

    python pictures.py                        on a Vulkan device, beside PyTorch in bf16 on CUDA
    python pictures.py --shape tiny --device cpu --peer-device cpu
    python pictures.py --peer-device none     golem alone

The files, 18 GB, are written and removed (`--keep` leaves them).  Both sides read the same files, take turns, and hand
numpy arrays out; each figure is printed as soon as it is known.  `PyTorch` needs torch, diffusers and transformers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _files import lora, write, write_directory
from golem_krea2.checkpoint import Files, tapped
from golem_krea2.dit import DiT
from golem_krea2.encoder import Encoder
from golem_krea2.lora import Lora
from golem_krea2.sampler import sample
from golem_krea2.schedule import below_one, sigmas
from golem_krea2.shapes import DiTShape, EncoderShape, Heads, VaeShape
from golem_krea2.vae import Decoder, unscaled

from golem_core import open_device

PROMPT = "a red fox in the snow at dawn, seen from the side, its breath white in the cold air, behind it birches and "
PROMPT += "low hills, soft light from the left, long shadows, film grain, shallow depth of field, photo, 85 mm lens"
PEER = ("torch", "diffusers", "transformers")
SHAPES = {
    "real": (
        DiTShape(Heads(6144, 48, 12, 128, 16384), Heads(2560, 20, 20, 128, 6912), 28, 12, 16, 256),
        EncoderShape(151936, 2560, 32, 8, 128, 9728, 35),
        VaeShape(96, 16),
    ),
    "tiny": (
        DiTShape(Heads(512, 4, 2, 128, 1024), Heads(256, 2, 2, 128, 512), 2, 3, 16, 256),
        EncoderShape(2048, 256, 4, 2, 128, 512, 8),
        VaeShape(32, 16),
    ),
}


class Report:
    """Prints what is measured, and keeps it for `--json`."""

    def __init__(self, path: Path | None):
        self.path, self.found = path, {}
        self.began = time.perf_counter()

    def __call__(self, key: str, text: str, **values: Any) -> None:
        self.found[key] = values
        print(f"[{time.perf_counter() - self.began:6.1f} s] {key}: {text}", flush=True)
        if self.path is not None:
            self.path.write_text(json.dumps(self.found, indent=1))


class Card:
    """How much of the card's memory is taken, by whoever; 0 without CUDA."""

    def __init__(self, cuda: bool):
        self.cuda = cuda

    def used(self) -> int:
        if not self.cuda:
            return 0
        import torch

        free, total = torch.cuda.mem_get_info()
        return total - free

    @contextmanager
    def taking(self, taken: dict[str, int], name: str):
        before = self.used()
        yield
        taken[name] = taken.get(name, 0) + self.used() - before


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square, relative."""
    gap = got.astype(np.float64) - expected
    return float(np.sqrt(np.mean(gap**2) / np.mean(expected.astype(np.float64) ** 2)))


def timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def rounds(sides: dict[str, Callable[[], Any]], count: int) -> dict[str, float]:
    """The median of each side's seconds, the sides taking turns; a first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(count + 1):
        for name in sides if turn % 2 else reversed(sides):
            seconds = timed(sides[name])
            if turn:
                times[name].append(seconds)
    return {name: statistics.median(each) for name, each in times.items()}


def told(seconds: dict[str, float]) -> str:
    text = ", ".join(f"{name} {each:.4f} s" for name, each in seconds.items())
    return text + (f"; golem is {seconds['PyTorch'] / seconds['golem']:.2f} x as fast" if len(seconds) > 1 else "")


def work(shape: DiTShape, tokens: int, patches: int) -> float:
    """Floating-point operations of a step: products and attention."""
    h, n = shape.main, tokens + patches
    products = 2 * h.width * (3 * h.width + 2 * h.kv * h.dim + 3 * h.ffn)
    return n * shape.blocks * (products + 4 * n * h.width)


def open_golem(name: str) -> Any:
    if name == "cpu":
        return open_device({"device": name})
    from golem_vulkan.device import VulkanDevice

    return VulkanDevice()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="real")
    parser.add_argument("--blocks", type=int, help="main blocks of the transformer, fewer than there are")
    parser.add_argument("--taps", type=int, help="taps of the encoder, fewer than there are; it ends with the last")
    parser.add_argument("--directory", type=Path, help="where the files are written; by default memory or a disk")
    parser.add_argument("--keep", action="store_true", help="leave the files, and read those that are there")
    parser.add_argument("--device", choices=("vulkan", "cpu"), default="vulkan", help="golem's")
    parser.add_argument("--peer-device", choices=("cuda", "cpu", "none"), default="cuda", help="PyTorch's")
    parser.add_argument("--size", default="768x1024", help="WIDTHxHEIGHT of the picture")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="of the encoder, a step and the decoder")
    parser.add_argument("--exact", action="store_true", help="compare a step of both sides with one in float32")
    parser.add_argument("--lora", type=int, metavar="RANK", help="measure a step of golem's with a LoRA, too")
    parser.add_argument("--json", type=Path, help="where the figures go, as far as they are known")
    arguments = parser.parse_args()
    lacking = [name for name in PEER if importlib.util.find_spec(name) is None]
    if arguments.peer_device != "none" and lacking:
        parser.error(f"PyTorch's side needs {', '.join(lacking)}; --peer-device none measures golem alone")
    dit, encoder, vae = SHAPES[arguments.shape]
    dit = replace(dit, blocks=arguments.blocks or dit.blocks, taps=arguments.taps or dit.taps)
    encoder = replace(encoder, layers=tapped(dit.taps)[-1])
    report = Report(arguments.json)
    place = arguments.directory or room(20e9 if arguments.shape == "real" else 0)
    place.mkdir(parents=True, exist_ok=True)
    root = place if arguments.keep else Path(tempfile.mkdtemp(prefix="golem-krea2-", dir=place))
    try:
        if not (arguments.keep and (root / "models/vae").exists()):
            start = time.perf_counter()
            size = write_directory(root, (dit, encoder, vae), PROMPT)
            seconds = time.perf_counter() - start
            report("files", f"{size / 1e9:.2f} GB in {root}, {seconds:.1f} s", bytes=size, seconds=seconds)
        measure(arguments, root, report)
    finally:
        if not arguments.keep:
            shutil.rmtree(root, ignore_errors=True)


def room(needed: float) -> Path:
    """Memory where there is enough of it, else the folder for temporary files."""
    shared = Path("/dev/shm")
    if shared.is_dir() and shutil.disk_usage(shared).free > needed:
        return shared
    return Path(tempfile.gettempdir())


def measure(arguments: argparse.Namespace, root: Path, report: Report) -> None:
    width, height = map(int, arguments.size.split("x"))
    h, w = height // 8, width // 8
    files = Files.open(root)
    ids, start = files.tokens.prompt(PROMPT)
    tokens, patches = len(ids) - start, h // 2 * (w // 2)
    dice = np.random.default_rng(0)
    z = dice.standard_normal((16, h, w)).astype(np.float32)
    cuda, peer = arguments.peer_device == "cuda", arguments.peer_device != "none"
    card, taken = Card(cuda), {}
    report("size", f"{width} x {height}: {tokens} text tokens of {len(ids)}, {patches} patches")

    def attempt(what: Callable[[], None]) -> None:
        """A part that fails is told of, and the others are measured."""
        try:
            what()
        except Exception:
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()

    golem: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    devices: dict[str, Any] = {}

    def load(side: str, into: dict[str, Any], name: str, make: Callable[[], Any]) -> None:
        with card.taking(taken, f"{side} {name}"):
            seconds = timed(lambda: into.update({name: make()}))
        report(f"{side} loads the {name}", f"{seconds:.1f} s", seconds=seconds)

    def on_device(name: str, make: Callable[[Any], Any]) -> Callable[[], Any]:
        def made() -> Any:
            devices[name] = open_golem(arguments.device)
            return make(devices[name])

        return made

    for name, make in (
        ("encoder", lambda device: Encoder(files, device)),
        ("transformer", lambda device: DiT(files, device, columns=tokens + patches)),
        ("decoder", lambda device: Decoder(files, device)),
    ):
        attempt(partial(load, "golem", golem, name, on_device(name, make)))
    if peer:
        import _pytorch
        import diffusers
        import torch
        import transformers

        versions = (
            f"torch {torch.__version__}, diffusers {diffusers.__version__}, transformers {transformers.__version__}"
        )
        report("peer", f"{versions}{', ' + torch.cuda.get_device_name() if cuda else ''}")
        torch.backends.cudnn.benchmark = True
        dtype = torch.bfloat16 if cuda else torch.float32
        for name, kind in (
            ("encoder", _pytorch.Encoder),
            ("transformer", _pytorch.Transformer),
            ("decoder", _pytorch.Decoder),
        ):
            attempt(partial(load, "PyTorch", theirs, name, partial(kind, files, arguments.peer_device, dtype)))

    def sides(ours: Callable[[], Any], other: Callable[[], Any], name: str) -> dict[str, Callable[[], Any]]:
        """Both sides, each with what it takes on the card meanwhile added to what it took before."""

        def ran(which: str, run: Callable[[], Any]) -> Any:
            with card.taking(taken, f"{which} {name}"):
                return run()

        found = {"golem": lambda: ran("golem", ours)}
        return found | ({"PyTorch": lambda: ran("PyTorch", other)} if peer else {})

    conditioning = {"c": dice.standard_normal((tokens, len(files.taps), files.encoder_shape.width)).astype(np.float32)}

    def encoding() -> None:
        found = rounds(
            sides(lambda: golem["encoder"].encode(PROMPT), lambda: theirs["encoder"].encode(ids, start), "encoder"),
            arguments.rounds,
        )
        report("encoder", told(found), **found)
        conditioning["c"] = golem["encoder"].encode(PROMPT)
        if peer:
            gap = difference(conditioning["c"], theirs["encoder"].encode(ids, start))
            report("encoder differs", f"{gap:.2e} relative rms", rms=gap)

    def stepping() -> None:
        c, network = conditioning["c"], golem["transformer"]
        start = time.perf_counter()
        text = network.text(c)
        first = time.perf_counter() - start
        network.forget_texts()
        again = timed(lambda: network.text(c))
        report(
            "text part", f"golem {first:.4f} s, and {again:.4f} s for every prompt after it", first=first, again=again
        )
        found = rounds(
            sides(
                lambda: network.velocity(z, 0.75, text),
                lambda: theirs["transformer"].velocity(z, 0.75, c),
                "transformer",
            ),
            arguments.rounds,
        )
        operations = work(files.dit_shape, tokens, patches)
        rates = {f"{name} TFLOPS": operations / seconds / 1e12 for name, seconds in found.items()}
        rated = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
        report("step", f"{told(found)}; {rated}", **found, operations=operations, **rates)
        if peer:
            ours, other = network.velocity(z, 0.75, text), theirs["transformer"].velocity(z, 0.75, c)
            report("step differs", f"{difference(ours, other):.2e} relative rms", rms=difference(ours, other))

    def decoding() -> None:
        found = rounds(
            sides(lambda: golem["decoder"].decode(z), lambda: theirs["decoder"].decode(z), "decoder"), arguments.rounds
        )
        report("decoder", told(found), **found)
        if peer:
            gap = difference(np.clip(golem["decoder"].raw(unscaled(z)), -1, 1), theirs["decoder"].decode(z))
            report("decoder differs", f"{gap:.2e} relative rms", rms=gap)

    def drawing() -> None:
        levels, made = below_one(sigmas(arguments.steps)), {}

        def draw(encode: Callable[[], np.ndarray], prepare: Any, velocity: Any, decode: Any) -> np.ndarray:
            noise = np.random.default_rng(1)
            fresh = lambda: noise.standard_normal(z.shape).astype(np.float32)
            given = prepare(encode())
            answer = lambda latent, sigma: latent - np.float32(sigma) * velocity(latent, sigma, given)
            for latent in sample(answer, fresh(), levels, fresh):
                last = latent
            return decode(last)

        def ours() -> None:
            network = golem["transformer"]
            network.forget_texts()
            decode = lambda latent: np.clip(golem["decoder"].raw(unscaled(latent)), -1, 1)
            made["golem"] = draw(lambda: golem["encoder"].encode(PROMPT), network.text, network.velocity, decode)

        def other() -> None:
            network = theirs["transformer"]
            encode = lambda: theirs["encoder"].encode(ids, start)
            made["PyTorch"] = draw(encode, lambda c: c, network.velocity, theirs["decoder"].decode)

        found = rounds(sides(ours, other, "transformer"), 1)
        report("picture", f"{arguments.steps} steps: {told(found)}", **found)
        if peer:
            gap = np.sqrt(np.mean((made["golem"] - made["PyTorch"]) ** 2))
            ratio = 20 * float(np.log10(2 / gap))
            report("pictures differ", f"{ratio:.1f} dB of peak signal to noise", psnr=ratio)

    for part in (encoding, stepping, decoding, drawing):
        attempt(part)
    if cuda:
        lines = "; ".join(f"{name} {size / 1e9:.2f} GB" for name, size in taken.items())
        total = {which: sum(v for k, v in taken.items() if k.startswith(which)) for which in ("golem", "PyTorch")}
        ratio = total["golem"] / max(1, total["PyTorch"])
        whole = f"all: golem {total['golem'] / 1e9:.2f} GB, PyTorch {total['PyTorch'] / 1e9:.2f} GB, {ratio:.2f} of it"
        report("memory on the card", f"{lines}; {whole}", **taken)
    if arguments.exact and peer:
        attempt(lambda: compare_with_float32(conditioning["c"], z, golem, theirs, report))
    if arguments.lora:
        path = root / "models/loras/random.safetensors"
        write(path, lora(files.dit_shape, arguments.lora))
        ours, given = (devices["transformer"], golem["transformer"], card), (conditioning["c"], z)
        attempt(lambda: styled(path, files, ours, theirs.get("transformer"), given, report))
    for each in (*golem.values(), *devices.values()):
        each.close()
    files.close()


def styled(
    path: Path,
    files: Files,
    golem: tuple[Any, DiT, Card],
    other: Any,
    given: tuple[np.ndarray, np.ndarray],
    report: Report,
) -> None:
    """What a LoRA costs: reading and putting it on, memory, a step, a step with another strength; and how far a step is
    from one of PyTorch with the LoRA folded into its weights, which it changes."""
    network: dict[str, DiT] = {}
    (device, plain, card), (c, z) = golem, given
    style, taken = Lora.read(path, files), {}
    with card.taking(taken, "LoRA"):
        seconds = timed(lambda: network.update(styled=DiT(files, device, style, columns=len(c) + z[0].size // 4)))
    report("LoRA put on", f"{seconds:.2f} s, {taken['LoRA'] / 1e9:.2f} GB more", seconds=seconds, bytes=taken["LoRA"])
    styled, text = network["styled"], plain.text(c)
    sides = {
        "plain": lambda: plain.velocity(z, 0.75, text),
        "with the LoRA": lambda: styled.velocity(z, 0.75, text, 1.0),
        "another strength": lambda: styled.velocity(z, 0.75, text, 0.5),
    }
    found = rounds(sides, 3)
    report("step with a LoRA", ", ".join(f"{name} {each:.4f} s" for name, each in found.items()), **found)
    before, none = plain.velocity(z, 0.75, text), styled.velocity(z, 0.75, text, 0.0)
    changed = styled.velocity(z, 0.75, styled.text(c))
    gaps = {"strength 0 from plain": difference(none, before), "strength 1 from plain": difference(changed, before)}
    if other is not None:
        other.fold((target, pair.a, pair.b, pair.factor) for target, pair in style.pairs.items())
        gaps["from PyTorch with it folded in"] = difference(changed, other.velocity(z, 0.75, c))
    report("a LoRA's change", ", ".join(f"{name} {gap:.2e}" for name, gap in gaps.items()) + " relative rms", **gaps)
    styled.close()


def compare_with_float32(c: np.ndarray, z: np.ndarray, golem: Any, theirs: Any, report: Report) -> None:
    """A step of both sides beside one of PyTorch in float32, whose weights are the same numbers."""
    import torch

    network = golem["transformer"]
    ours, other = network.velocity(z, 0.75, network.text(c)), theirs["transformer"].velocity(z, 0.75, c)
    theirs["transformer"].model.float()
    theirs["transformer"].dtype = torch.float32
    exact = theirs["transformer"].velocity(z, 0.75, c)
    gaps = {"golem": difference(ours, exact), "PyTorch": difference(other, exact)}
    text = ", ".join(f"{name} {gap:.2e}" for name, gap in gaps.items())
    report("a step from float32", f"{text} relative rms", **gaps)


if __name__ == "__main__":
    main()
