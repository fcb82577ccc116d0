"""What kernels write as fragments lies where `shaders/fragments.glsl` and `wide.STRIP` say; devices that multiply no
fragments can write them, too."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest
from golem_vulkan.formats import layout_of, row_units
from golem_vulkan.lowering.forms import HALF_SCALE
from golem_vulkan.lowering.rotation import pairs_of
from golem_vulkan.lowering.wide import STRIP, WIDENED
from golem_vulkan.memory import Arenas
from golem_vulkan.passes import FACTS, HEAD
from golem_vulkan.recording import COMPUTE, HOST, Recording
from golem_vulkan.steps import Launch, push_constants
from golem_vulkan.weights import Address

from golem_core import Graph, Weight

ROOM = 1 << 16


def fragments(x: np.ndarray, together: int = 1) -> np.ndarray:
    """Rows (n, width), n a multiple of 16 * together, as they lie, flat: invocation 4 g + t has entries 4 t to 4 t + 3
    of rows g and g + 8."""
    n, width = x.shape
    found = x.reshape(n // 16, 2, 8, width // 16, 4, 4).transpose(0, 3, 2, 4, 1, 5)
    return found.reshape(-1, together, width // 16, 256).transpose(0, 2, 1, 3).reshape(-1)


def written(device: Any, kernel: str, constants: tuple[int, ...], groups: tuple[int, int], *fields: Any) -> np.ndarray:
    """What a kernel writes where its first field that is None points to, as float16.  Arrays are handed over."""
    with ExitStack() as stack:
        inputs, results = (stack.enter_context(closing(Arenas(device.gpu, kind))) for kind in ("upload", "download"))
        y = results.take(ROOM)
        assert y.bytes is not None
        y.bytes[:] = 0

        def place(field: Any) -> Any:
            if field is None:
                return Address(y.address)
            if not isinstance(field, np.ndarray):
                return field
            block = inputs.take(field.nbytes)
            assert block.bytes is not None
            block.bytes[: field.nbytes] = np.ascontiguousarray(field).reshape(-1).view(np.uint8)
            return Address(block.address)

        recording = stack.enter_context(closing(Recording(device.gpu, device.pipelines)))
        recording.begin()
        data = push_constants([place(field) for field in fields], lambda address: address.value)
        recording.dispatch(kernel, Launch(constants, (*groups, 1)), data)
        recording.barrier(COMPUTE, HOST)
        device.gpu.run(recording.end())
        return y.bytes[:ROOM].view(np.float16).copy()


@pytest.mark.parametrize("together", [1, STRIP])
@pytest.mark.parametrize("kind, width", [("F8_E4M3", 160), ("F16", 128), ("BF16", 32), ("Q8_0", 96)])
def test_widened_weights(device, kind, width, together):
    dice, rows, first = np.random.default_rng(3), 83, 16
    if kind == "Q8_0":
        data = dice.integers(0, 256, (rows, width // 32, 34), np.uint8)
        data[:, :, 1] = 0x1C  # of the scale, float16
    elif kind == "F8_E4M3":
        data = dice.integers(0, 127, (rows, width), np.uint8)
    else:
        data = dice.standard_normal((rows, width), np.float32)
        data = data.astype(np.float16) if kind == "F16" else (data.view(np.uint32) >> 16).astype(np.uint16)
    w = Weight("w", kind, (rows, width), data.reshape(-1).view(np.uint8))
    device.weights.take([w], [], (), None)
    kept, units, wanted = device.weights.matrices[w], row_units(w), rows - first
    sixteens = -(-wanted // 16)
    threads = sixteens * (32 * -(-units // WIDENED) if layout_of(w).floats else 8 * units)
    fields = Address(kept.block.address), None, *kept.planes, rows, units, first, wanted
    got = written(device, f"widen_{layout_of(w).name}", (128, together), (-(-threads // 128), 1), *fields)
    values = w.dequantize()[first:] / (256 if kind == "F8_E4M3" else 1)
    last = np.repeat(values[-1:], 16 * sixteens - wanted, 0)  # the last row again, up to whole sixteens
    nothing = np.zeros((16 * (-sixteens % together), width), np.float32)
    want = fragments(np.concatenate([values, last, nothing]), together)
    np.testing.assert_allclose(got[: want.size].astype(np.float32), want, rtol=1e-3, atol=1e-6)
    assert not got[want.size :].any()


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("normed", [False, True])
def test_turned_heads(device, normed, together):
    dice, columns, heads, dim = np.random.default_rng(4), 16, 3, 32
    g = Graph()
    how = {"frequencies": tuple(0.5 ** np.arange(16)), "axes": (0,) * 8 + (1,) * 8, "pairs": "neighbours"}
    node = g.rope_at(g.input("x", (heads, dim)), g.input("at", (2,)), **how).node
    assert node is not None
    x = dice.standard_normal((columns, heads * dim)).astype(np.float32)
    at = dice.uniform(-9, 9, (columns, 2)).astype(np.float32)
    rows = np.zeros(HEAD + FACTS * columns, np.uint32)
    rows[0] = columns
    weight = dice.standard_normal(dim).astype(np.float32)
    fields = x, at, None, rows, pairs_of(node).array, weight, dim, dim, 1, 4 * heads * dim, 8, 4 * heads * dim, 1e-6
    ways = [(32, 0, 1, 0), (32, 0, together, 0), (32, 3, together, 0)]
    if 4 * device.adapter.subgroup >= dim:  # which then has a head to itself
        ways += [(device.adapter.subgroup, form, together, 1) for form in (0, 3)]
    one, *turned = (
        written(
            device, "rope_at", (size, 1, int(normed), form, each, alone, 0, 0, alone), (heads // each, columns), *fields
        )
        for size, form, each, alone in ways
    )
    size = columns * heads * dim
    plain = turned[0].view(np.float32)[:size].reshape(columns, -1)
    assert np.abs(plain).max() > 1
    np.testing.assert_array_equal(turned[0], one)
    for found, as_fragments in zip(turned[::2], turned[1::2], strict=True):
        rows_found = found.view(np.float32)[:size].reshape(columns, -1)
        np.testing.assert_allclose(rows_found, plain, atol=2e-6, rtol=0)
        halved = (rows_found / np.float32(HALF_SCALE)).astype(np.float16)
        np.testing.assert_array_equal(as_fragments[:size], fragments(halved))
        assert not as_fragments[size:].any()
