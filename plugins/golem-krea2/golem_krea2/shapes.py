"""The sizes of the three networks, read off the shapes of a file's tensors, and every tensor that such sizes need.

The published files have the sizes of the comments; the names are those of ComfyUI's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from golem_core import BadFile, TensorSpec
from golem_krea2.tensors import Tensors

PATCH = 4
"""Latent pixels of a patch."""
LATENT = 16
"""Channels of the codec's latents."""
TEXT_BLOCKS = ("layerwise_blocks", "refiner_blocks")
ATTENTION = ("wq", "wk", "wv", "gate", "wo")
FEED_FORWARD = ("gate", "up", "down")


def block_products(name: str) -> list[str]:
    """The products of a block, without `.weight`."""
    return [f"{name}.attn.{each}" for each in ATTENTION] + [f"{name}.mlp.{each}" for each in FEED_FORWARD]


@dataclass(frozen=True)
class Heads:
    """Attention and feed-forward of a block: `count` query heads and `kv` key heads of `dim`."""

    width: int
    count: int
    kv: int
    dim: int
    ffn: int

    @classmethod
    def read(cls, tensors: Tensors, block: str) -> Heads:
        queries, width = tensors.shape(f"{block}.attn.wq.weight", 2)
        (dim,) = tensors.shape(f"{block}.attn.qknorm.qnorm.scale", 1)
        keys = tensors.shape(f"{block}.attn.wk.weight", 2)[0]
        ffn = tensors.shape(f"{block}.mlp.gate.weight", 2)[0]
        if queries != width or width % dim or keys % dim or width % keys:
            raise BadFile(
                f"{tensors.path}: {block}.attn has {queries} query and {keys} key components of heads of {dim}, which "
                f"do not go together in a width of {width}"
            )
        return cls(width, width // dim, keys // dim, dim, ffn)

    def tensors(self, name: str) -> Iterator[TensorSpec]:
        d, keys, m = self.width, self.kv * self.dim, self.ffn
        for norm in ("prenorm", "postnorm"):
            yield TensorSpec(f"{name}.{norm}.scale", (d,))
        for norm in ("qnorm", "knorm"):
            yield TensorSpec(f"{name}.attn.qknorm.{norm}.scale", (self.dim,))
        shapes = ((d, d), (keys, d), (keys, d), (d, d), (d, d), (m, d), (m, d), (d, m))
        for product, shape in zip(block_products(name), shapes, strict=True):
            yield TensorSpec(f"{product}.weight", shape)


@dataclass(frozen=True)
class DiTShape:
    """Main blocks (28, 48 heads of 128, 12 kv, FFN 16384), text blocks (2560 wide, 20 heads, FFN 6912), 12 taps,
    16 latent channels, a time embedding of 256."""

    main: Heads
    text: Heads
    blocks: int
    taps: int
    channels: int
    time: int

    @classmethod
    def read(cls, tensors: Tensors) -> DiTShape:
        """Raises BadFile naming the tensor that is missing or at odds with the others."""
        features = tensors.shape("first.weight", 2)[1]
        time = tensors.shape("tmlp.0.weight", 2)[1]
        taps = tensors.shape("txtfusion.projector.weight", 2)[1]
        blocks = max(1, tensors.numbered("blocks."))
        main, text = Heads.read(tensors, "blocks.0"), Heads.read(tensors, "txtfusion.layerwise_blocks.0")
        if features % PATCH or time % 2 or main.dim % 16:
            raise BadFile(
                f"{tensors.path}: patches of {features} numbers, a time embedding of {time} and heads of {main.dim} "
                f"are not those of this network"
            )
        return cls(main, text, blocks, taps, features // PATCH, time)

    @property
    def axes(self) -> tuple[int, int, int]:
        """Components of a head that turn with each axis: 32, 48 and 48 of 128."""
        return self.main.dim // 4, 3 * self.main.dim // 8, 3 * self.main.dim // 8

    def tensors(self) -> Iterator[TensorSpec]:
        d, features = self.main.width, PATCH * self.channels
        yield from _affine("first", d, features)
        yield from _affine("tmlp.0", d, self.time)
        yield from _affine("tmlp.2", d, d)
        yield from _affine("tproj.1", 6 * d, d)
        yield TensorSpec("txtmlp.0.scale", (self.text.width,))
        yield from _affine("txtmlp.1", d, self.text.width)
        yield from _affine("txtmlp.3", d, d)
        yield TensorSpec("txtfusion.projector.weight", (1, self.taps))
        for kind in TEXT_BLOCKS:
            for i in range(2):
                yield from self.text.tensors(f"txtfusion.{kind}.{i}")
        for i in range(self.blocks):
            yield TensorSpec(f"blocks.{i}.mod.lin", (6 * d,))
            yield from self.main.tensors(f"blocks.{i}")
        yield TensorSpec("last.norm.scale", (d,))
        yield from _affine("last.linear", features, d)
        yield TensorSpec("last.modulation.lin", (2, d))


@dataclass(frozen=True)
class EncoderShape:
    """The language half of Qwen3-VL-4B: 2560 wide, 32 heads of 128, 8 kv, FFN 9728, 151936 tokens; 35 layers run."""

    vocabulary: int
    width: int
    heads: int
    kv: int
    dim: int
    ffn: int
    layers: int

    @classmethod
    def read(cls, tensors: Tensors, layers: int) -> EncoderShape:
        """`layers`: how many run.  Raises BadFile naming the tensor that is missing or at odds with the others."""
        vocabulary, width = tensors.shape("embed_tokens.weight", 2)
        (dim,) = tensors.shape("layers.0.self_attn.q_norm.weight", 1)
        queries = tensors.shape("layers.0.self_attn.q_proj.weight", 2)[0]
        keys = tensors.shape("layers.0.self_attn.k_proj.weight", 2)[0]
        ffn = tensors.shape("layers.0.mlp.gate_proj.weight", 2)[0]
        if queries % dim or keys % dim or queries % keys or dim % 2:
            raise BadFile(
                f"{tensors.path}: {queries} query and {keys} key components are no heads of {dim} that go together"
            )
        return cls(vocabulary, width, queries // dim, keys // dim, dim, ffn, layers)

    def tensors(self) -> Iterator[TensorSpec]:
        d, queries, keys, m = self.width, self.heads * self.dim, self.kv * self.dim, self.ffn
        yield TensorSpec("embed_tokens.weight", (self.vocabulary, d))
        for i in range(self.layers):
            name = f"layers.{i}"
            for norm, size in (
                ("input_layernorm", d),
                ("post_attention_layernorm", d),
                ("self_attn.q_norm", self.dim),
                ("self_attn.k_norm", self.dim),
            ):
                yield TensorSpec(f"{name}.{norm}.weight", (size,))
            for product, shape in (
                ("self_attn.q_proj", (queries, d)),
                ("self_attn.k_proj", (keys, d)),
                ("self_attn.v_proj", (keys, d)),
                ("self_attn.o_proj", (d, queries)),
                ("mlp.gate_proj", (m, d)),
                ("mlp.up_proj", (m, d)),
                ("mlp.down_proj", (d, m)),
            ):
                yield TensorSpec(f"{name}.{product}.weight", shape)


@dataclass(frozen=True)
class VaeShape:
    """The decoder half: `base` channels (96) at full size, 2 and 4 times as many before, 16 latent channels."""

    base: int
    latent: int

    @classmethod
    def read(cls, tensors: Tensors) -> VaeShape:
        """Raises BadFile naming the tensor that is missing or of no such network."""
        wide, latent = tensors.shape("decoder.conv1.weight", 5)[:2]
        if wide % PATCH:
            raise BadFile(f"{tensors.path}: decoder.conv1.weight has {wide} outputs; a multiple of 4 was expected")
        if latent != LATENT:
            raise BadFile(f"{tensors.path}: decoder.conv1.weight takes {latent} channels; {LATENT} were expected")
        return cls(wide // 4, latent)

    def tensors(self) -> Iterator[TensorSpec]:
        b, z = self.base, self.latent
        yield from _convolution("conv2", z, z, 1)
        yield from _convolution("decoder.conv1", 4 * b, z, 3)
        yield from _residual("decoder.middle.0", 4 * b, 4 * b)
        yield TensorSpec("decoder.middle.1.norm.gamma", (4 * b, 1, 1))
        yield from _flat("decoder.middle.1.to_qkv", 12 * b, 4 * b, 1)
        yield from _flat("decoder.middle.1.proj", 4 * b, 4 * b, 1)
        yield from _residual("decoder.middle.2", 4 * b, 4 * b)
        for i, (channels, outputs) in enumerate(self.steps):
            name = f"decoder.upsamples.{i}"
            if i in UPS:
                yield from _flat(f"{name}.resample.1", outputs, channels, 3)
            else:
                yield from _residual(name, channels, outputs)
        yield TensorSpec("decoder.head.0.gamma", (b, 1, 1, 1))
        yield from _convolution("decoder.head.2", 3, b, 3)

    @property
    def steps(self) -> list[tuple[int, int]]:
        """Channels in and out of each of `decoder.upsamples`: blocks of two convolutions, and at `UPS` the steps to
        twice the size."""
        b = self.base
        first = [(4 * b, 4 * b)] * 3 + [(4 * b, 2 * b)]
        second = [(2 * b, 4 * b), (4 * b, 4 * b), (4 * b, 4 * b), (4 * b, 2 * b)]
        return first + second + [(2 * b, 2 * b)] * 3 + [(2 * b, b)] + [(b, b)] * 3


UPS = (3, 7, 11)


def _affine(name: str, outputs: int, inputs: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (outputs, inputs))
    yield TensorSpec(f"{name}.bias", (outputs,))


def _convolution(name: str, outputs: int, channels: int, taps: int) -> Iterator[TensorSpec]:
    """Over time, height and width."""
    yield TensorSpec(f"{name}.weight", (outputs, channels, taps, taps, taps))
    yield TensorSpec(f"{name}.bias", (outputs,))


def _flat(name: str, outputs: int, channels: int, taps: int) -> Iterator[TensorSpec]:
    """Over height and width."""
    yield TensorSpec(f"{name}.weight", (outputs, channels, taps, taps))
    yield TensorSpec(f"{name}.bias", (outputs,))


def _residual(name: str, channels: int, outputs: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.residual.0.gamma", (channels, 1, 1, 1))
    yield from _convolution(f"{name}.residual.2", outputs, channels, 3)
    yield TensorSpec(f"{name}.residual.3.gamma", (outputs, 1, 1, 1))
    yield from _convolution(f"{name}.residual.6", outputs, outputs, 3)
    if channels != outputs:
        yield from _convolution(f"{name}.shortcut", outputs, channels, 1)
