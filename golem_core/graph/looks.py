"""Values that are looks at memory that is there: views, taken rows, and slices of rows without leading axes."""

from __future__ import annotations

from golem_core.graph.value import Value


def source(value: Value) -> Value:
    """The value whose memory `value` looks at."""
    while value.node.op.name in ("view", "take") or is_span(value):
        value = value.node["x"]
    return value


def is_span(value: Value) -> bool:
    """A slice of rows without leading axes is a look at its input, not a copy."""
    return value.node.op.name == "slice" and all(n == 1 for n in value.shape[:-1])


def part(value: Value) -> Value | None:
    """The slice of a wider row that `value` looks at, if it does."""
    while value.node.op.name in ("view", "take"):
        value = value.node["x"]
    return value if is_span(value) else None


def offset(value: Value) -> int:
    """Bytes between the start of a row of its source and the start of a row of `value`."""
    at = 0
    while value.node.op.name in ("view", "take") or is_span(value):
        if value.node.op.name == "slice":
            at += 4 * value.node["start"]
        value = value.node["x"]
    return at
