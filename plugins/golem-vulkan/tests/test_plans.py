"""Plans for devices that aren't here: with wide subgroups, cooperative matrices and many columns."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from golem_vulkan import kernels
from golem_vulkan.lowering import forms, matrices, table
from golem_vulkan.steps import Launch, Nothing, Planes, push_constants
from golem_vulkan.target import Target

from golem_core import Columns, Graph, Plan, Planner, Weight, open_model, plugins

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from graph.op_cases import CASES, Case

FIXTURES = sorted(
    path for path in Path(__file__).parents[3].glob("*/*/tests/fixtures/*.gguf") if not path.name.startswith("mmproj")
)
WIDTHS = (1, 4, 8, 32, 128, 512)


def plan(graph: Graph, width: int, matrices: bool = True, fragments: bool = False) -> Plan:
    rows = {name: n + -n % 16 if fragments else n for name, n in (("all", width), ("scored", 4), ("runs", 4))}
    rows = {name: min(n, rows["all"]) for name, n in rows.items()}
    target = Target(32, 1024, matrices, processor=False, context=4096, capacity=rows, fragments=fragments)
    return Planner(graph, table(target), rows).plan()


def check(plan: Plan) -> set[str]:
    """Every step names a kernel that there is and has fields that its block takes; the kernels."""
    for step in plan.steps:
        launch, *fields = step.args
        assert isinstance(launch, Launch) and min(launch.groups) > 0
        assert launch.constants[0] <= 1024 and max(launch.groups) <= 65535
        push_constants(fields, lambda a: (0, 0, 0) if isinstance(a, Planes) else 0)
    assert {step.kernel for step in plan.steps} <= set(kernels.variants())
    return {step.kernel for step in plan.steps}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_models_of_every_family_are_planned(path):
    with open_model(path) as file:
        model = plugins.architecture(file.architecture).open(file)
        for width in WIDTHS:
            check(plan(model.build(), width))
        check(plan(model.build(), WIDTHS[-1], fragments=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_op_is_planned_for_fragments(case: Case, monkeypatch):
    monkeypatch.setattr(forms, "FRAGMENTED", forms.SIXTEEN)
    g = Graph()
    case.build(g, np.random.default_rng(7))
    for width in (16, 512):
        check(plan(g, width, fragments=True))


def test_maps_are_widened_where_nothing_else_is():
    g = Graph()
    first = g.conv2d(g.input("map", (32, 48, 384)), weight("w", "BF16", 192, 9 * 384))
    g.output("y", g.conv2d(first, weight("v", "BF16", 96, 9 * 192)))
    made = plan(g, 1, fragments=True)
    assert {"widen_BF16", "conv2d_fragments"} <= check(made)
    rooms = {step.args[2].buffer.size for step in made.steps if step.kernel == "widen_BF16"}
    assert rooms == {2 * 192 * 9 * 384}  # of float16, for the larger of the two


def weight(name: str, kind: str, *shape: int) -> Weight:
    return Weight(name, kind, shape, np.zeros(0, np.uint8))


def products(kind: str) -> Graph:
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 256))
    ids, shares = g.route(g.linear(x, weight("router", "F32", 16, 256)), count=4)
    up = g.expert_linear(x, weight("up", kind, 16, 512, 256), ids)
    down = g.expert_linear(g.silu(up), weight("down", kind, 16, 256, 512), ids)
    y = g.combine(down, shares) + g.linear(x, weight("w", kind, 256, 256))
    g.output("all", g.linear(y, weight("v", kind, 512, 256)))
    g.output("y", g.linear(g.take(y), weight("head", kind, 8, 256)))
    return g


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K", "BF16"])
def test_wide_products_go_to_cooperative_matrices_and_choices_together_by_expert(kind):
    wide, narrow, without = (check(plan(products(kind), *how)) for how in ((512,), (4,), (512, False)))
    assert {f"gemm_{kind}", "order", "matvec_F32"} <= wide  # the last for the router, which has few rows
    assert not {name for name in narrow | without if name in (f"gemm_{kind}", "order")}
    assert f"matvec_{kind}" in narrow
    assert ("gemm_plain_BF16" in without) == (kind == "BF16")


def test_a_block_of_an_encoder_takes_few_steps():
    """Rotations, attention, activations and norms write what products read, norms the sum before them, too."""
    g = Graph()
    (encoder,) = (case for case in CASES if case.name == "encoder")
    encoder.build(g, np.random.default_rng(7))
    made = plan(g, 128)
    check(made)
    first = ["gemm_F16", "rope", "rope", "entrywise", "attend_columns_wide", "gemm_F16", "norm"]
    dense, mixture = ["gemm_F16"] * 2, ["matvec_F32", "route", "order", "gemm_F16", "gemm_F16", "combine"]
    block = [*first, *dense, "norm", *first, *mixture, "norm"]
    assert [step.kernel for step in made.steps][2 : 2 + len(block)] == block
    assert sum(step.barrier for step in made.steps[2 : 2 + len(block)]) == len(block) - 4


def test_products_with_few_columns_share_out_the_entries_of_a_row():
    """As far as there are units in a row, and threads in a workgroup."""
    target = lambda threads: Target(32, threads, True, False, 64, {})
    for columns, rows in ((9, 64), (20, 768), (100, 768), (100, 3072), (100, 9728)):
        tile = matrices.tile_for(columns, rows)
        assert tile.shares > 1
        assert tile.within(target(1024), 64) == tile
        assert tile.within(target(1024), 1).shares == 1
        assert tile.within(target(128), 64).constants(32, 0)[0] <= 128
        assert tile.shares * (tile.columns + tile.rows) * 80 <= 32768  # bytes of shared memory
    assert matrices.tile_for(512, 9728).shares == 1
    assert matrices.expert_tile(106, 8, 768).shares > 1 == matrices.expert_tile(8192, 8, 3072).shares


@pytest.mark.parametrize("kind", ["Q4_0", "BF16", "F8_E4M3"])
def test_products_of_many_columns_read_slabs_of_the_weight_as_fragments(kind):
    """A slab is widened where the product before doesn't read, so the two may overlap."""
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 6144))
    g.output("y", g.linear(x, weight("w", kind, 16400, 6144), weight("b", "F32", 16400)))
    made = plan(g, 3136, fragments=True)
    assert {f"widen_{kind}", "gemm_fragments"} <= check(made)
    steps = [step for step in made.steps if step.kernel in (f"widen_{kind}", "gemm_fragments")]
    widened = [step.args[2] for step in steps if step.kernel.startswith("widen")]
    read = [step.args[1] for step in steps if step.kernel == "gemm_fragments"]
    assert [w.buffer for w in widened] == [r.buffer for r in read]
    assert all(a.buffer is not b.buffer for a, b in itertools.pairwise(widened))
    products = [step for step in steps if step.kernel == "gemm_fragments"]
    assert sum(step.args[8] for step in products) == 16400
    assert not any(step.barrier for step in products[:-1])  # what widens the next slab needn't wait


def test_a_few_rows_of_many_are_gathered_out_of_fragments():
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 256))
    key = g.view(g.linear(x, weight("k", "F16", 64, 256)), (1, 64))
    query = g.view(g.linear(x, weight("q", "F16", 64, 256)), (1, 64))
    g.output("y", g.take(g.view(g.attend_columns(query, key, key, scale=1.0), (64,))))
    kernels_used = check(plan(g, 512, fragments=True))
    assert {"attend_fragments", "gather_fragments", "gemm_fragments"} <= kernels_used


def test_products_that_read_the_same_wait_for_no_other():
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 256))
    query, key, value = (g.linear(x, weight(name, "Q4_0", 512, 256)) for name in "qkv")
    g.output("y", g.linear(query * key * value, weight("o", "Q4_0", 256, 512)))
    steps = [s for s in plan(g, 512, fragments=True).steps if s.kernel in ("widen_Q4_0", "gemm_fragments")]
    assert [s.kernel for s in steps[:6]] == ["widen_Q4_0"] * 3 + ["gemm_fragments"] * 3
    assert not any(s.barrier for s in steps[3:5])
    assert [(s.args[2].buffer, s.args[2].start) for s in steps[:3]] == [
        (s.args[1].buffer, s.args[1].start) for s in steps[3:6]
    ]
    assert len({s.args[2].start for s in steps[:3]}) == 3
    assert steps[6].args[2].buffer is not steps[0].args[2].buffer  # it may overlap with what is multiplied


def test_workspaces_are_as_many_where_some_of_what_reads_the_same_does_not_fit():
    """Of three products that read the same the second finds no room beside the first."""

    def arena(blocks: int) -> int:
        g = Graph()
        x = g.embed(weight("table", "F32", 8, 4096))
        for i in range(blocks):
            shapes = (("gate", 8192), ("up", 8192), ("small", 128))
            gate, up, small = (g.linear(x, weight(f"{name}{i}", "F16", n, 4096)) for name, n in shapes)
            x = x + g.linear(g.silu(gate) * up, weight(f"down{i}", "F16", 4096, 8192))
            x = x + g.linear(small, weight(f"up{i}", "F16", 4096, 128))
        g.output("y", x)
        return plan(g, 192, fragments=True).arena

    assert arena(3) == arena(12) < 4 * (64 << 20)


def test_what_is_added_to_a_product_is_added_where_it_lies():
    g = Graph()
    x = g.embed(weight("table", "F32", 8, 256))
    first = g.linear(x, weight("w", "F16", 512, 256), weight("b", "F32", 512))
    both = first + g.linear(x, weight("v", "F16", 512, 256))
    kept = both + g.linear(both, weight("u", "F16", 512, 512))
    g.output("y", g.scale(kept * both, by=2.0))
    made = plan(g, 512, fragments=True)
    assert 1 not in {step.args[0].constants[2] for step in made.steps if step.kernel == "entrywise"}  # a sum
    first, second, third = (step for step in made.steps if step.kernel == "gemm_fragments")
    assert isinstance(first.args[6], Nothing)
    assert second.args[6].buffer is second.args[3].buffer is first.args[3].buffer
    assert third.args[6].buffer is second.args[3].buffer is not third.args[3].buffer  # others read it, too


def test_a_graph_is_planned_once_for_passes_of_a_size(device):
    g = Graph()
    x = g.embed(Weight("table", "F32", (8, 32), np.ones(1024, np.uint8)))
    g.output("y", x)
    first, second, wider = (device.compile(g, context=64, width=width) for width in (2, 2, 8))
    assert first.plans is second.plans is not wider.plans
    g.output("z", g.scale(x, by=2.0))
    more = device.compile(g, context=64, width=2)
    assert set(more.run(Columns(np.zeros(1), np.zeros(1), np.zeros(1), []))) == {"y", "z"}
    for made in (first, second, wider, more):
        made.close()


def test_the_delta_rule_goes_in_chunks_where_there_are_many_columns():
    case = next(case for case in CASES if case.name.startswith("delta_net-4to8"))
    g = Graph()
    case.build(g, np.random.default_rng(7))
    assert {"delta_net", "delta_factors", "delta_chunks"} <= check(plan(g, 512))
    assert {name for name in check(plan(g, 8)) if name.startswith("delta")} == {"delta_net"}
