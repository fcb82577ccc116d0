"""Plans of wide products whose results go through an activation and are multiplied: in the products' own steps, slab
after slab, so that hardly anything lies there in float32."""

from __future__ import annotations

import numpy as np
import pytest
from golem_vulkan.lowering import entrywise, table
from golem_vulkan.lowering.forms import stride
from golem_vulkan.steps import Launch, Nothing
from golem_vulkan.target import Target

from golem_core import Graph, Operand, Plan, Planner, Step, Value, Weight

WIDTH, INNER, COLUMNS = 6144, 16384, 3136
SLAB = 3072
"""Rows of a weight of `WIDTH` entries that are widened at once for so many columns."""
RANK = 32


def plan(graph: Graph, columns: int = COLUMNS) -> Plan:
    rows = {"all": columns, "scored": 16, "runs": 16}
    target = Target(32, 1024, True, False, columns, rows, fragments=True, slab=256 << 20)
    return Planner(graph, table(target), rows).plan()


def weight(name: str, *shape: int) -> Weight:
    return Weight(name, "F16", shape, np.zeros(0, np.uint8))


def kind(step: Step) -> str:
    launch = step.args[0]
    assert isinstance(launch, Launch)
    return next(name for name, number in entrywise.KINDS.items() if number == launch.constants[5])


def products(made: Plan) -> list[Step]:
    return [step for step in made.steps if step.kernel == "gemm_fragments"]


def added(step: Step) -> Operand | Nothing:
    return step.args[6]


def factor(step: Step) -> Operand | Nothing:
    return step.args[7]


def gated_by_themselves(made: Plan) -> list[Step]:
    return [step for step in made.steps if step.kernel == "entrywise" and step.args[0].constants[2] == 2]


class Block:
    """A graph of products that read the same."""

    def __init__(self):
        self.g = Graph()
        self.x = self.g.input("x", (WIDTH,))
        self.low = self.linear("low", 2 * RANK)

    def linear(self, name: str, rows: int = INNER, x: Value | None = None) -> Value:
        x = self.x if x is None else x
        return self.g.linear(x, weight(name, rows, x.size))

    def changed(self, name: str, first: int = 0) -> Value:
        """As by a LoRA."""
        return self.linear(name) + self.linear(f"{name} B", x=self.g.slice(self.low, first, first + RANK))


def test_two_products_are_multiplied_slab_by_slab():
    b = Block()
    gated = b.g.silu(b.linear("gate")) * b.linear("up")
    b.g.output("y", b.linear("down", WIDTH, gated))
    made = plan(b.g)
    steps, pairs = products(made), -(-INNER // SLAB)
    gates, ups, downs = steps[: 2 * pairs : 2], steps[1 : 2 * pairs : 2], steps[2 * pairs :]
    assert {kind(step) for step in gates} == {"silu"} and {kind(step) for step in ups + downs} == {"copy"}
    for i, (gate, up) in enumerate(zip(gates, ups, strict=True)):
        assert gate.args[3].stride == 4 * SLAB and gate.args[3].start == 0
        assert factor(up).buffer is gate.args[3].buffer and factor(up).start == 0
        assert up.args[3].start == i * SLAB * 32, "fragments of sixteen rows by sixteen entries"
        assert up.args[0].constants[6] == entrywise.FORMS["fragments"]
        assert gate.args[8] == up.args[8] == min(SLAB, INNER - i * SLAB)
        assert isinstance(factor(gate), Nothing) and isinstance(added(up), Nothing)
    assert {step.args[2].buffer for step in downs} == {ups[0].args[3].buffer}
    assert not gated_by_themselves(made)
    assert made.arena < 2 * stride(INNER, "f32") * COLUMNS, "there is no room for both in float32"


def test_products_of_fewer_columns_do_not_wait_for_each_other():
    b = Block()
    b.g.output("y", b.linear("down", WIDTH, b.g.silu(b.linear("gate", 512)) * b.linear("up", 512)))
    made = plan(b.g, 512)
    assert len(gated_by_themselves(made)) == 1
    first, second, _ = (step for step in made.steps if step.kernel == "gemm_fragments")
    assert not first.barrier and second.barrier


def test_changes_are_added_before_the_activation_and_before_products_are_multiplied():
    b = Block()
    gated = b.changed("up", RANK) * b.g.gelu(b.changed("gate"))
    b.g.output("y", b.linear("down", WIDTH, gated))
    steps = products(plan(b.g))[1:]
    up, up_change, gate, gate_change = steps[:4]
    assert [kind(step) for step in steps[:4]] == ["copy", "copy", "copy", "gelu"]
    assert added(up_change).buffer is up.args[3].buffer is up_change.args[3].buffer
    assert added(gate_change).buffer is gate.args[3].buffer is not up.args[3].buffer
    assert factor(gate_change).buffer is up.args[3].buffer
    assert all(isinstance(factor(step), Nothing) for step in steps[:3])
    assert gate_change.args[0].constants[6] == entrywise.FORMS["fragments"]
    assert steps[7].args[3].start == SLAB * 32, "and so on with the next slab"


@pytest.mark.parametrize("changed", [False, True])
def test_a_product_is_multiplied_by_something_else(changed):
    b = Block()
    other = b.g.scale(b.linear("other"), by=2.0)
    gate = b.changed("gate") if changed else b.linear("gate")
    b.g.output("y", other * b.g.sigmoid(gate))
    last = products(plan(b.g))[-1]
    assert kind(last) == "sigmoid" and isinstance(added(last), Operand) == changed
    assert factor(last).start == 4 * (INNER - last.args[8]) == last.args[3].start, "in float32"
    assert last.args[3].buffer.output == "y" and last.args[0].constants[6] == entrywise.FORMS["f32"]


def test_what_others_read_as_well_is_made_before_and_parts_by_themselves():
    b = Block()
    up, both = b.linear("up"), b.linear("both")
    half = INNER // 2
    b.g.output("read", b.g.silu(b.linear("gate")) * up + up)
    made = plan(b.g)
    assert not gated_by_themselves(made)
    assert [kind(step) for step in products(made)].count("silu") == -(-INNER // SLAB)
    b.g.output("parts", b.g.silu(b.g.slice(both, 0, half)) * b.g.slice(both, half, INNER))
    assert len(gated_by_themselves(plan(b.g))) == 1


def test_a_product_that_is_made_late_reads_what_was_widened_with_others():
    """Whatever is widened in between lies elsewhere."""
    b = Block()
    up, more, gate = b.linear("up", 512), b.linear("more", 512), b.linear("gate", 512)
    b.g.output("y", b.g.silu(gate) * b.g.scale(b.linear("late", 512, more * up), by=2.0))
    made = plan(b.g)
    places = {s.args[1].weight.name: s.args[2] for s in made.steps if s.kernel == "widen_F16"}
    read = products(made)[-1].args[1]
    assert kind(products(made)[-1]) == "silu"
    assert places["gate"].buffer is places["up"].buffer is read.buffer is not places["late"].buffer
    assert read.start == places["gate"].start not in (places["up"].start, places["more"].start)


def test_workspaces_are_as_many_for_more_blocks_in_which_an_earlier_product_is_made_later():
    def arena(blocks: int) -> int:
        g = Graph()
        x = g.input("x", (WIDTH,))
        for i in range(blocks):
            first, second = (g.linear(x, weight(f"{name}{i}", 512, WIDTH)) for name in "ab")
            x = g.linear(g.silu(first) * g.scale(g.relu(second), by=0.5), weight(f"c{i}", WIDTH, 512))
        g.output("y", x)
        return plan(g).arena

    assert arena(2) == arena(9)


def test_what_is_read_in_another_form_only_does_not_stay_in_float32():
    def arena(read: bool) -> int:
        g = Graph()
        x = g.input("x", (WIDTH,))
        q, k, v = (g.view(g.linear(x, weight(name, WIDTH, WIDTH)), (48, 128)) for name in "qkv")
        turned = g.rope(q, base=1e4), g.rope(k, base=1e4)
        mixed = g.view(g.attend_columns(*turned, v, scale=1.0), (WIDTH,))
        g.output("y", mixed + g.view(v, (WIDTH,)) if read else mixed)
        return plan(g).arena

    assert arena(read=False) <= arena(read=True) - stride(WIDTH, "f32") * COLUMNS // 2
