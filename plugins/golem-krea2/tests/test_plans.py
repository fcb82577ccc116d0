"""The memory that plans of the real DiT take: as much for any number of blocks, and hardly more with a LoRA."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from golem_krea2.dit import step
from golem_krea2.lora import Lora, Pair
from golem_krea2.shapes import DiTShape, Heads

from golem_core import Operand, Plan, Planner, Weight
from golem_core.cpu.lowering import CpuLowering

SHAPE = DiTShape(Heads(6144, 48, 12, 128, 16384), Heads(2560, 20, 20, 128, 6912), 28, 12, 16, 256)
COLUMNS, RANK = 3136, 32


def tensors(shape: DiTShape) -> SimpleNamespace:
    """What `Tensors` gives, without numbers."""
    made: dict[str, Weight] = {}

    def derived(name: str, make) -> Weight:
        if name not in made:
            made[name] = make(name)
        return made[name]

    class Fake(dict):
        def __missing__(self, name: str) -> Weight:
            shape, matrix = shapes[name], len(shapes[name]) == 2 and name.endswith(".weight")
            self[name] = Weight(name, "F8_E4M3" if matrix else "BF16", shape, np.zeros(0, np.uint8))
            return self[name]

        values = staticmethod(lambda name: np.zeros(shapes[name], np.float32))

    shapes = {spec.name: spec.shape for spec in shape.tensors()}
    fake = Fake()
    fake.derived, fake.path = derived, Path("dit")  # type: ignore[attr-defined]
    return fake  # type: ignore[return-value]


def lora(shape: DiTShape) -> Lora:
    """A pair for every product of every block."""
    pairs = {}
    for spec in shape.tensors():
        if (".attn." in spec.name or ".mlp." in spec.name) and len(spec.shape) == 2:
            (outputs, inputs), target = spec.shape, spec.name.removesuffix(".weight")
            pairs[target] = Pair(np.empty((RANK, inputs), np.float16), np.empty((outputs, RANK), np.float16), 1.0)
    return Lora("style", pairs)


def on_cpu(graph) -> Plan:
    capacity = {"all": COLUMNS, "scored": COLUMNS, "runs": 1}
    return Planner(graph, CpuLowering("f16").table(), capacity).plan()


def on_vulkan(graph) -> Plan:
    """As on a card that holds matrices as fragments."""
    pytest.importorskip("golem_vulkan")
    from golem_vulkan.lowering import table
    from golem_vulkan.target import Target

    rows = {"all": COLUMNS, "scored": COLUMNS, "runs": 1}
    target = Target(32, 1024, True, False, COLUMNS, rows, fragments=True, slab=256 << 20)
    return Planner(graph, table(target), rows | {"runs": 16}).plan()


@pytest.mark.parametrize("plan, more, most", [(on_cpu, 1.05, 1.1e9), (on_vulkan, 1.1, 0.46e9)])
def test_a_step_needs_no_more_memory_for_more_blocks_and_hardly_more_with_a_lora(plan, more, most):
    def arena(blocks: int, styled: bool) -> int:
        shape = replace(SHAPE, blocks=blocks)
        return plan(step(shape, tensors(shape), lora(shape) if styled else None)).arena

    plain, styled = ([arena(blocks, with_it) for blocks in (3, 7, 28)] for with_it in (False, True))
    for found in (plain, styled):  # what is free may lie in other pieces
        assert max(found) < 1.05 * min(found)
    assert max(styled) < more * max(plain) < most


def test_what_a_lora_adds_is_added_in_the_product_on_vulkan():
    shape = replace(SHAPE, blocks=2)
    plain, styled = (on_vulkan(step(shape, tensors(shape), it)).steps for it in (None, lora(shape)))
    added = [each for each in styled if each.kernel == "gemm_fragments" and isinstance(each.args[6], Operand)]
    blocks = [spec for spec in shape.tensors() if spec.name.startswith("blocks.") and len(spec.shape) == 2]
    rows = sum(spec.shape[0] for spec in blocks if ".attn." in spec.name or ".mlp." in spec.name)
    assert sum(each.args[8] for each in added) == rows
    # a group's factors and the form in which each product reads its part; nothing is added by itself
    plain, styled = (sum(each.kernel == "entrywise" for each in steps) for steps in (plain, styled))
    assert styled <= plain + (4 + 8) * shape.blocks
