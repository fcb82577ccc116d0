"""A checkpoint's directory: its settings, its tokenizer and its weights, checked against each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from golem_core import BadFile, Metadata, ModelFile, TensorSpec, Unsupported, check_tensors, open_safetensors, read_json
from golem_laya.answers import Calibration
from golem_laya.questions import KINDS
from golem_laya.sequences import Budget
from golem_laya.tokens import Tokens

HEAD_DIM = 64
"""Size of a head of the two layers behind the encoder."""
ACT_FACTS = 4
"""What the act head reads beside a row."""
ACT_WIDTH = 256
MOST_LAYERS, LONGEST = 1024, 1 << 15
"""Layers of an encoder and tokens of a sequence, many times what is published."""
FLOATS = ("F16", "BF16", "F32")
FULL, SLIDING = "full_attention", "sliding_attention"
"""The kinds of attention, as transformers names them."""


@dataclass(frozen=True)
class Config:
    """Facts of the encoder and of what stands behind it.

    The layers that are `whole` attend to the whole sequence, the others to `window` positions on either side.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    ffn: int
    eps: float
    whole: tuple[bool, ...]
    window: int
    global_base: float
    local_base: float
    head_layers: int

    @classmethod
    def read(cls, directory: Path) -> Config:
        """Raises BadFile for values that contradict each other, Unsupported for what is not computed here."""
        encoder = read_json(directory / "encoder" / "config.json")
        for key in ("norm_bias", "attention_bias", "mlp_bias"):
            if encoder.flag(key, False):
                raise Unsupported(f"{encoder.source}: {key} is true; encoders without biases are known")
        activation = encoder.text("hidden_activation", "gelu")
        if activation != "gelu":
            raise Unsupported(f"{encoder.source}: hidden_activation is {activation!r}; 'gelu' was expected")
        width, heads = _count(encoder, "hidden_size"), _count(encoder, "num_attention_heads")
        if width % heads or width // heads % 2:
            raise BadFile(f"{encoder.source}: num_attention_heads is {heads}, which does not divide {width} into pairs")
        if width % HEAD_DIM:
            raise BadFile(f"{encoder.source}: hidden_size is {width}; a multiple of {HEAD_DIM} was expected")
        layers = _count(encoder, "num_hidden_layers", MOST_LAYERS)
        global_base, local_base = _rope_bases(encoder)
        return cls(
            vocabulary=_count(encoder, "vocab_size"),
            width=width,
            layers=layers,
            heads=heads,
            ffn=_count(encoder, "intermediate_size"),
            eps=encoder.number("norm_eps", float, 1e-5, above=0.0, high=1.0),
            whole=_whole(encoder, layers),
            window=encoder.number("local_attention", int, 128, low=2) // 2,
            global_base=global_base,
            local_base=local_base,
            head_layers=_count(read_json(directory / "rl_agent_config.json"), "head_layers"),
        )

    def tensors(self) -> Iterator[TensorSpec]:
        d, m = self.width, self.ffn
        yield TensorSpec("encoder.embeddings.tok_embeddings.weight", (self.vocabulary, d))
        yield TensorSpec("encoder.embeddings.norm.weight", (d,))
        for i in range(self.layers):
            prefix = f"encoder.layers.{i}"
            if i:
                yield TensorSpec(f"{prefix}.attn_norm.weight", (d,))
            yield TensorSpec(f"{prefix}.attn.Wqkv.weight", (3 * d, d))
            yield TensorSpec(f"{prefix}.attn.Wo.weight", (d, d))
            yield TensorSpec(f"{prefix}.mlp_norm.weight", (d,))
            yield TensorSpec(f"{prefix}.mlp.Wi.weight", (2 * m, d))
            yield TensorSpec(f"{prefix}.mlp.Wo.weight", (d, m))
        yield TensorSpec("encoder.final_norm.weight", (d,))
        yield TensorSpec("type_emb.weight", (len(KINDS), d))
        for j in range(self.head_layers):
            prefix = f"head.layers.{j}"
            yield TensorSpec(f"{prefix}.self_attn.in_proj_weight", (3 * d, d))
            yield TensorSpec(f"{prefix}.self_attn.in_proj_bias", (3 * d,))
            yield from _linear(f"{prefix}.self_attn.out_proj", d, d)
            yield from _linear(f"{prefix}.linear1", 4 * d, d)
            yield from _linear(f"{prefix}.linear2", d, 4 * d)
            yield from _norm(f"{prefix}.norm1", d)
            yield from _norm(f"{prefix}.norm2", d)
        yield from _norm("scorer.0", d)
        yield from _linear("scorer.1", d, d)
        yield from _linear("scorer.3", 1, d)
        yield from _linear("act_head.0", ACT_WIDTH, d + ACT_FACTS)
        yield from _linear("act_head.2", 2, ACT_WIDTH)


@dataclass(frozen=True)
class Checkpoint:
    """Everything of one directory.  `close` lets go of the mapped weights."""

    path: Path
    config: Config
    tokens: Tokens
    budget: Budget
    calibration: Calibration
    file: ModelFile

    @classmethod
    def open(cls, path: str | Path) -> Checkpoint:
        """Raises BadFile or Unsupported naming the file at fault."""
        path = Path(path)
        if not os.path.isdir(path):
            raise BadFile(f"{path}: a directory with model.safetensors, encoder/ and tokenizer/ was expected")
        settings = read_json(path / "rl_agent_config.json")
        budget = Budget(_count(settings, "max_len", LONGEST), _count(settings, "head_max_len"))
        if not 8 <= budget.head < budget.whole:
            raise BadFile(f"{settings.source}: head_max_len is {budget.head}; 8 to max_len {budget.whole} was expected")
        config, calibration = Config.read(path), _calibration(settings)
        tokens = Tokens(path / "tokenizer")
        if tokens.size > config.vocabulary:
            raise BadFile(f"{path}: the tokenizer has {tokens.size} tokens, and the encoder knows {config.vocabulary}")
        file = open_safetensors(path / "model.safetensors", "laya")
        try:
            check_tensors(file, config.tensors(), FLOATS)
        except BaseException:
            file.close()
            raise
        return cls(path, config, tokens, budget, calibration, file)

    def close(self) -> None:
        self.file.close()


def _calibration(settings: Metadata) -> Calibration:
    by_kind = settings.numbers("temperature", float, above=0.0)
    if len(by_kind) != len(KINDS):
        raise settings.bad("temperature", by_kind, f"one number for each of {', '.join(KINDS)} was expected")
    table = settings.get("temperature_by_options", {})
    if not isinstance(table, dict):
        raise settings.bad("temperature_by_options", table, "an object of numbers was expected")
    inner = settings.scoped("temperature_by_options")
    return Calibration(tuple(by_kind), {key: inner.number(key, float, above=0.0) for key in table})


def _count(settings: Metadata, key: str, most: int = 1 << 24) -> int:
    return settings.number(key, int, low=1, high=most)


def every_so_many(layers: int, every: int) -> tuple[bool, ...]:
    """The first of `layers`, and every `every`-th behind it."""
    return tuple(i % every == 0 for i in range(layers))


def _whole(encoder: Metadata, layers: int) -> tuple[bool, ...]:
    """Which layers attend to the whole sequence: as `layer_types` says, or else the first of every so many."""
    if encoder.get("layer_types") is None:
        every = encoder.number("global_attn_every_n_layers", int, 3, low=1)
        return every_so_many(layers, every)
    types = encoder.texts("layer_types")
    if len(types) != layers:
        raise BadFile(f"{encoder.source}: layer_types has {len(types)} entries for {layers} layers")
    for i, kind in enumerate(types):
        if kind not in (FULL, SLIDING):
            raise Unsupported(f"{encoder.source}: layer_types[{i}] is {kind!r}; {FULL!r} or {SLIDING!r} was expected")
    return tuple(kind == FULL for kind in types)


def _rope_bases(encoder: Metadata) -> tuple[float, float]:
    """The bases of layers that attend to everything and of the others: from the nested form where there is one, else
    from the flat one.  A flat local one of null is the global one."""
    if encoder.get("rope_scaling") is not None:
        raise Unsupported(f"{encoder.source}: rope_scaling is {encoder['rope_scaling']!r}; none was expected")
    nested = encoder.get("rope_parameters")
    if nested is not None and not (isinstance(nested, dict) and not nested.keys() - {FULL, SLIDING}):
        raise encoder.bad("rope_parameters", nested, f"an object of {FULL} and {SLIDING} was expected")
    flat = encoder.number("global_rope_theta", float, 160_000.0, above=0.0)
    whole = _rope_base(encoder, FULL, flat)
    if "local_rope_theta" not in encoder or encoder["local_rope_theta"] is not None:
        flat = encoder.number("local_rope_theta", float, 10_000.0, above=0.0)
    return whole, _rope_base(encoder, SLIDING, flat)


def _rope_base(encoder: Metadata, kind: str, flat: float) -> float:
    found = encoder.scoped("rope_parameters").get(kind)
    if found is None:
        return flat
    if not isinstance(found, dict):
        raise encoder.bad(f"rope_parameters.{kind}", found, "an object was expected")
    stated = encoder.scoped("rope_parameters").scoped(kind)
    rope_type = stated.text("rope_type", "default")
    if rope_type != "default":
        raise Unsupported(f"{stated.source}: rope_type is {rope_type!r}; 'default' was expected")
    return stated.number("rope_theta", float, flat, above=0.0)


def _linear(name: str, outputs: int, inputs: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (outputs, inputs))
    yield TensorSpec(f"{name}.bias", (outputs,))


def _norm(name: str, width: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (width,))
    yield TensorSpec(f"{name}.bias", (width,))
