"""Products with quantized weights and what is done in one step with them, against their meaning in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from golem_vulkan.lowering import table
from golem_vulkan.target import Target

from golem_core import Columns, Graph, KVRing, Planner, Reference, Weight
from golem_core.files import TYPES

TOLERANCE = 2e-4
KINDS = ["Q8_0", "Q4_K", "PQ2_0"]
SCALES = {"Q4_K": (0, 2)}
"""Where a block's float16 scales stand, if not at its start only."""


def weight(name: str, kind: str, *shape: int) -> Weight:
    """Random quants with scales of moderate size."""
    dice = np.random.default_rng(len(name) + shape[0])
    if kind == "F32":
        return Weight(name, kind, shape, dice.normal(size=shape).astype(np.float32).reshape(-1).view(np.uint8))
    block = TYPES[kind]
    blocks = dice.integers(0, 256, (int(np.prod(shape)) // block.block, block.nbytes), dtype=np.uint8)
    for at in SCALES.get(kind, (0,)):
        scale = dice.uniform(0.5, 1, len(blocks)) / 64
        blocks[:, at : at + 2] = scale.astype(np.float16)[:, None].view(np.uint8)
    return Weight(name, kind, shape, blocks.reshape(-1))


def check(device, g: Graph, columns: Columns, context: int = 64, tolerance: float = TOLERANCE) -> None:
    run = device.compile(g, context=context, width=len(columns), scored=len(columns))
    got = run.run(columns)
    want = Reference(g, slots=1, context=context, round_input=device.round_input).run(columns)
    for name in want:
        error = np.abs(got[name] - want[name]).max() / np.abs(want[name]).max()
        assert error <= max(tolerance, device.product_tolerance), name
    run.close()


def columns(n: int, scored: list[int] | None = None) -> Columns:
    return Columns(np.arange(n) % 8, np.arange(n), np.zeros(n), scored or [])


def kernels(g: Graph, width: int) -> list[str]:
    """Those of a device without cooperative matrices."""
    rows = {"all": width, "scored": 1, "runs": 1}
    target = Target(subgroup=32, most_threads=1024, matrices=False, processor=False, context=64, capacity=rows)
    return [step.kernel for step in Planner(g, table(target), rows).plan().steps]


@pytest.mark.parametrize("kind", KINDS)
def test_many_columns(device, kind):
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 768))
    g.output("y", g.linear(x, weight("w", kind, 70, 768), weight("b", "F32", 70)))
    assert f"gemm_bytes_{kind}" in kernels(g, 40)
    assert f"matvec_{kind}" in kernels(g, 16)
    check(device, g, columns(40))


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_gated(device, kind, width):
    """Its result is read as 8-bit blocks by a product, or as it is."""
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 512))
    gate, up, down = weight("gate", kind, 256, 512), weight("upward", kind, 256, 512), weight("down", kind, 40, 256)
    g.output("read as blocks", g.linear(g.silu(g.linear(x, gate)) * g.linear(x, up), down))
    g.output("turned round", g.linear(x, up) * g.gelu(g.linear(x, gate)))
    assert kernels(g, width).count(f"gated_{kind}") == 2
    assert f"gated_{kind}" not in kernels(g, 8)
    check(device, g, columns(width))


def test_gates_that_are_not_alike(device):
    """Matrices of two types, biases, inputs of their own, and what others read as well, are multiplied one by one."""
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 256))
    a, b = weight("a", "Q8_0", 64, 256), weight("b", "Q4_K", 64, 256)
    up = g.linear(x, a)
    for name, y in {
        "types": g.silu(g.linear(x, a)) * g.linear(x, b),
        "bias": g.silu(g.linear(x, a, weight("bias", "F32", 64))) * g.linear(x, a),
        "read": g.silu(g.linear(x, a)) * up,
        "inputs": g.silu(g.linear(x, a)) * g.linear(g.scale(x, by=2.0), a),
    }.items():
        g.output(name, y)
    g.output("up", up)
    assert not {name for name in kernels(g, 1) if name.startswith("gated")}
    check(device, g, columns(2))


def test_the_last_block_of_a_wide_pass(device):
    """Where only a few of many columns are scored, products are as narrow as these."""
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 256))
    x = g.rms_norm(x + g.linear(x, weight("w", "Q8_0", 256, 256)), weight("n", "F32", 256), eps=1e-6)
    y = g.silu(g.linear(x, weight("gate", "Q8_0", 64, 256))) * g.linear(x, weight("up", "Q8_0", 64, 256))
    g.output("y", g.take(y))
    for matrices in (False, True):
        rows = {"all": 64, "scored": 2, "runs": 1}
        target = Target(subgroup=32, most_threads=1024, matrices=matrices, processor=False, context=64, capacity=rows)
        Planner(g, table(target), rows).plan()
    check(device, g, columns(40, [7, 39]))


@pytest.mark.parametrize("context", [64, 512], ids=["one share", "several shares"])
def test_attention_that_a_product_reads(device, context):
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 128))
    heads = lambda name, n: g.view(g.linear(x, weight(name, "F32", 64 * n, 128)), (n, 64))
    state = g.store(heads("key", 1), heads("value", 1), KVRing(1, 64))
    y = g.attend(heads("query", 4), state, scale=0.1)
    g.output("y", g.linear(g.view(y, (256,)), weight("w", "Q8_0", 40, 256)))
    check(device, g, columns(3), context, 1e-2)  # keys and values are float16, and what is rounded may fall otherwise


@pytest.mark.parametrize("inner", ["sum", "normed sum", "alone"])
def test_norms_that_are_read_in_two_forms(device, inner):
    """A product reads 8-bit blocks, what is added to it float32; both are written in one step."""
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 128))
    product, norm = g.linear(x, weight("w", "Q8_0", 128, 128)), weight("n", "F32", 128)
    if inner == "normed sum":
        product = g.rms_norm(product, norm, eps=1e-6)
    total = x if inner == "alone" else x + product
    y = g.layer_norm(total, norm, weight("b", "F32", 128), eps=1e-6)
    if inner == "normed sum":
        y = g.rms_norm(total, norm, eps=1e-6)
    g.output("y", y + g.linear(y, weight("v", "Q8_0", 128, 128)))
    first = 0 if inner == "alone" else 2
    assert kernels(g, 3)[1 + first :] == ["norm", "matvec_Q8_0", "entrywise"]
    check(device, g, columns(3), tolerance=1e-2)  # what is rounded to 8 bits may fall otherwise
