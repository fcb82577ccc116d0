"""What is done with the results of wide products before they are written: they are added to something, go through an
activation, and are multiplied by something, which may be another product's results.

Two products that are multiplied are made slab after slab of both, so that only a slab of either lies there in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from golem_core import Fusion, Match, Operand, Pattern, Planner, Value, Weight, source
from golem_vulkan.lowering import entrywise, tiles, wide
from golem_vulkan.lowering.forms import F32, FRAGMENTS
from golem_vulkan.lowering.wide import Product
from golem_vulkan.target import Target

ACTIVATIONS = ("gelu", "relu", "sigmoid", "silu")


# ---------------------------------------------------------------- sums


def emit_sum(target: Target, p: Planner, m: Match) -> None:
    """A product and what is added to it, where that lies if nobody else reads it."""
    node, (before, _) = m["product"], operands(m)
    assert isinstance(before, Value)
    x, addend = p.read(node["x"], FRAGMENTS), p.read(before)
    y = p.write(m["sum"].results[0], over=addend)
    wide.emit(target, p, [Product(node, x, y, addend)])


def operands(m: Match) -> tuple[Value | Weight, Value]:
    """What is added to the product, and the product."""
    a, b = m["sum"]["a"], m["sum"]["b"]
    return (b, a) if source(a).node is m["product"] else (a, b)


def summable(target: Target, p: Planner, m: Match) -> bool:
    return whole(*operands(m)) and wide.fits(target, m["product"])


def whole(*values: Value | Weight) -> bool:
    """Equally large values, none of them a part of another."""
    sizes = {value.size for value in values if isinstance(value, Value)}
    return len(sizes) == 1 and all(isinstance(v, Value) and source(v).size == v.size for v in values)


# ---------------------------------------------------------------- activations and gates


class Gate:
    """A match: products by the sides of "mul", or of "act" alone.

    A side is a product, or the sum of a product with the change that something makes to it, which is one, too.
    """

    def __init__(self, p: Planner, m: Match):
        self.act, self.root = m["act"], m.get("mul", m["act"])
        self.gate, self.other = ([m[name] for name in names if name in m] for names in SIDES)
        self.factor: Value | Weight | None = None
        if "mul" in m:
            a, b = self.root["a"], self.root["b"]
            self.factor = b if source(a).node is self.act else a
        self.sides = [(self.gate, entrywise.activation(self.act))] + ([(self.other, "copy")] if self.other else [])
        self.sides.sort(key=lambda side: p.order[side[0][0]])

    def fits(self, target: Target) -> bool:
        values = [self.act["x"], self.root.results[0], *(node.results[0] for node in self.gate + self.other)]
        values += [] if self.factor is None else [self.factor]
        return whole(*values) and all(wide.fits(target, node) for node in self.gate + self.other)


SIDES = (("gate", "gate change"), ("up", "up change"))


def emit_gate(target: Target, p: Planner, m: Match) -> None:
    gate = Gate(p, m)
    (form,) = p.forms(gate.root.results[0])
    inputs = {node: p.read(node["x"], FRAGMENTS) for nodes, _ in gate.sides for node in nodes}
    factor = p.read(gate.factor) if isinstance(gate.factor, Value) and not gate.other else None
    y = p.write(gate.root.results[0], form)
    weights = [node["weight"] for node in inputs]
    slab = min(weights[0].rows, tiles.cut(target, p.capacity[y.rows], weights)[1])
    rooms: list[Operand] = []

    def room() -> Operand:
        """For a slab of results."""
        rooms.append(Operand(p.buffer(4 * slab * p.capacity[y.rows]), y.rows, 4 * slab, writes=True))
        return rooms[-1]

    products: list[Product] = []
    for nodes, kind in gate.sides:
        last, addend = nodes is gate.sides[-1][0], None
        if len(nodes) > 1:
            products.append(Product(nodes[0], inputs[nodes[0]], room()))
            addend = replace(rooms[-1], writes=False)
        if last:
            products.append(Product(nodes[-1], inputs[nodes[-1]], y, addend, kind, factor, form))
        else:
            to = room() if addend is None else rooms[-1]
            products.append(Product(nodes[-1], inputs[nodes[-1]], to, addend, kind))
            factor = replace(to, writes=False)
    wide.emit(target, p, products, [each.buffer for each in rooms])
    for each in rooms:
        p.release(each.buffer)


def gateable(target: Target, p: Planner, m: Match) -> bool:
    """Where a product alone does not fill the device, those that are multiplied had better not wait for each other."""
    many = p.capacity[p.node_rows(m["act"])] >= tiles.MANY_COLUMNS
    return (many or "mul" not in m) and Gate(p, m).fits(target)


def sides(names: tuple[str, str]) -> Iterator[Pattern]:
    name, change = names
    yield Pattern(("add",), f"{name} sum", {"a": Pattern(("linear",), name), "b": Pattern(("linear",), change)})
    yield Pattern(("linear",), name)


def gates() -> Iterator[Pattern]:
    """The largest first."""
    for gate in sides(SIDES[0]):
        act = Pattern(ACTIVATIONS, "act", {"x": gate})
        for other in sides(SIDES[1]):
            yield Pattern(("mul",), "mul", {"a": act, "b": other})
        yield Pattern(("mul",), "mul", {"a": act})
    yield Pattern(ACTIVATIONS, "act", {"x": Pattern(("linear",), "gate")})


def fusions(target: Target) -> tuple[Fusion, ...]:
    total = Pattern(("add",), "sum", {"b": Pattern(("linear",), "product")}, keep=True)
    return (
        *(
            Fusion(pattern, frozenset({F32, FRAGMENTS}), partial(emit_gate, target), partial(gateable, target))
            for pattern in gates()
        ),
        Fusion(total, frozenset({F32}), partial(emit_sum, target), partial(summable, target)),
    )
