"""Every op on every installed device against its meaning in numpy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from golem_core import Graph, KVRing, Reference, Unsupported
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.passes import CpuPass
from golem_core.graph import ops
from golem_core.graph.value import Op

from .devices import IN_BYTES
from .op_cases import CASES, Case

LACKING = re.compile("has no kernels for (the ops|weights of type)")
"""How a device says what it has no kernels for; the core's own has them all."""


def poison(compiled) -> None:
    """Makes numbers that are none of what a pass must write before it reads, and of the results themselves."""
    if isinstance(compiled, CpuPass):
        for memory in (compiled.arena, compiled.scratch, *(m for each in compiled.outputs for m in each.values())):
            memory.fill(0xFF)


def compare(device, case: Case, **options) -> None:
    g = Graph()
    case.build(g, np.random.default_rng(7))
    slots = 1 + max(int(p.slot.max()) for p in case.passes)
    context = 1 + max(int(p.position.max()) for p in case.passes)
    width = max(len(p) for p in case.passes)
    compiled = device.compile(g, slots=slots, context=context, width=width, scored=width, **options)
    reference = Reference(g, slots=slots, context=context, round_input=device.round_input)
    own = {"f16": case.half_tolerance, "q8_0": case.byte_tolerance}.get(getattr(device, "kv", "f16"))
    tolerance = max(case.tolerance if own is None else own, getattr(device, "product_tolerance", 0.0))
    for columns in case.passes:
        poison(compiled)
        got, want = compiled.run(columns), reference.run(columns)
        assert got.keys() == want.keys()
        for name in want:
            assert got[name].shape == want[name].shape
            if want[name].size:
                error = np.abs(got[name] - want[name]).max() / max(np.abs(want[name]).max(), 1e-9)
                assert error <= tolerance, f"{name} over {len(columns)} columns: {error:.2e}"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_an_op_means_on_a_device_what_it_means_in_numpy(device, case):
    try:
        compare(device, case)
    except Unsupported as lack:
        if isinstance(device, CpuDevice) or not LACKING.search(str(lack)):
            raise
        pytest.skip(f"{device.name}: {lack}")


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.name.startswith(("block", "elementwise", "attend-turned", "layer_norm-fused"))],
    ids=lambda c: c.name,
)
def test_without_fusions_the_same_comes_out(case):
    compare(CpuDevice(threads=2, kv="f32"), case, fuse=False)


@pytest.fixture(scope="module", params=IN_BYTES)
def device_in_bytes(request):
    try:
        opened = IN_BYTES[request.param]()
    except Unsupported as lack:
        pytest.skip(str(lack))
    yield opened
    opened.close()


@pytest.mark.parametrize("case", [c for c in CASES if c.byte_tolerance is not None], ids=lambda c: c.name)
def test_keys_and_values_in_8_bits_are_near_what_they_stand_for(device_in_bytes, case):
    compare(device_in_bytes, case)


@pytest.mark.parametrize(("dim", "refusal"), [(48, "heads of 48 components.*multiples of 32"), (544, "512 at most")])
def test_heads_that_8_bit_blocks_do_not_fit_are_refused_by_name(dim, refusal):
    g = Graph()
    x = g.input("x", (1, dim))
    g.output("y", g.attend(x, g.store(x, x, KVRing(1, dim)), scale=1.0))
    with pytest.raises(Unsupported, match=refusal):
        CpuDevice(threads=1, kv="q8_0").compile(g)


def test_every_op_has_a_row_in_the_table():
    used = set()
    for case in CASES:
        g = Graph()
        case.build(g, np.random.default_rng(0))
        used |= {node.op.name for node in g.nodes}
    assert used == {name for name, x in vars(ops).items() if isinstance(x, Op)}
