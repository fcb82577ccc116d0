"""The vocabulary of forward passes: each op a typed shape rule, and beside it its meaning in numpy.

The meanings are float32 throughout, plainly written and slow; devices are held to them.  `run` gives
a meaning the column facts of the rows at hand and the states of the pass.
"""

from __future__ import annotations

from math import erf, pi, sqrt
from typing import TYPE_CHECKING

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph.attention import attend as attend
from golem_core.graph.attention import attend_columns as attend_columns
from golem_core.graph.attention import store as store
from golem_core.graph.convolution import conv1d as conv1d
from golem_core.graph.convolution import prepend as prepend
from golem_core.graph.mixture import combine as combine
from golem_core.graph.mixture import expert_linear as expert_linear
from golem_core.graph.mixture import lookup as lookup
from golem_core.graph.mixture import route as route
from golem_core.graph.pictures import conv2d as conv2d
from golem_core.graph.pictures import upsample as upsample
from golem_core.graph.recurrence import causal_conv1d as causal_conv1d
from golem_core.graph.recurrence import delta_net as delta_net
from golem_core.graph.rotation import rope as rope
from golem_core.graph.rotation import rope_at as rope_at
from golem_core.graph.rotation import rope_frequencies as rope_frequencies
from golem_core.graph.value import RUNS, SCORED, Value, check, op, result

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph
    from golem_core.graph.reference import Run

f32 = np.float32


# ---------------------------------------------------------------- tables and products


@op(facts=("token",))
def embed(g: Graph, table: Weight) -> Value:
    """Row `token` of `table` (entries, width), for every column -> (width,)."""
    check(len(table.shape) == 2, f"{table.name} is no table")
    return result((table.width,))


@embed.define
def _(run: Run, table):
    return table[run.token]


@op(facts=("position",))
def embed_position(g: Graph, table: Weight) -> Value:
    """Row `position` of `table` (entries, width), for every column: learned positions -> (width,).

    A position beyond the table's end stands for its last row.
    """
    check(len(table.shape) == 2, f"{table.name} is no table")
    return result((table.width,))


@embed_position.define
def _(run: Run, table):
    return table[np.minimum(run.position, len(table) - 1)]


@op()
def table_rows(g: Graph, table: Weight, ids: Value) -> Value:
    """Rows `ids` (count,), whole numbers held in float32, of `table` (entries, width) -> (count, width).

    A number beyond the table's ends stands for its first or last row.
    """
    check(len(table.shape) == 2, f"{table.name} is no table")
    check(len(ids.shape) == 1, "the ids are no plain row")
    return result((*ids.shape, table.width))


@table_rows.define
def _(run: Run, table, ids):
    return table[np.clip(ids.astype(int), 0, len(table) - 1)]


@op(facts=("inputs",))
def input(g: Graph, name: str, shape: tuple[int, ...]) -> Value:
    """The float32 row of every column that the pass is given as `Columns.inputs[name]` -> shape."""
    check(name not in g.inputs, "there is an input of that name already")
    check(len(shape) > 0 and min(shape) > 0, "a row has no entries")
    g.inputs[name] = tuple(shape)
    return result(tuple(shape))


@input.define
def _(run: Run, name, shape):
    return run.input(name)


@op()
def linear(g: Graph, x: Value, weight: Weight, bias: Weight | None = None) -> Value:
    """`weight` (out, in) times the whole row of `x`, plus `bias` (out,) -> (out,)."""
    check(len(weight.shape) == 2, f"{weight.name} is no matrix")
    check(x.size == weight.width, f"{weight.name} takes {weight.width} features, a row of {x} has {x.size}")
    check(bias is None or bias.shape == (weight.rows,), "the bias has not one entry per output")
    return result((weight.rows,))


@linear.define
def _(run: Run, x, weight, bias):
    y = x.reshape(-1, weight.shape[1]) @ weight.T
    return y if bias is None else y + bias


# ---------------------------------------------------------------- norms


@op()
def rms_norm(g: Graph, x: Value, weight: Weight | None = None, *, eps: float) -> Value:
    """x / sqrt(mean(x^2) + eps) over the last axis, times `weight` (last axis,) if there is one (arXiv:1910.07467)."""
    check(weight is None or weight.shape == (x.shape[-1],), f"the last axis has {x.shape[-1]} entries")
    return result(x.shape)


@rms_norm.define
def _(run: Run, x, weight, eps):
    y = x / np.sqrt(np.mean(x * x, -1, keepdims=True, dtype=np.float64) + eps).astype(f32)
    return y if weight is None else y * weight


@op()
def layer_norm(g: Graph, x: Value, weight: Weight | None = None, bias: Weight | None = None, *, eps: float) -> Value:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) over the last axis, times `weight`, plus `bias` (last axis,).

    (arXiv:1607.06450; the variance is that of the entries at hand, divided by their number.)
    """
    for w in (weight, bias):
        check(w is None or w.shape == (x.shape[-1],), f"the last axis has {x.shape[-1]} entries")
    return result(x.shape)


@layer_norm.define
def _(run: Run, x, weight, bias, eps):
    y = x - np.mean(x, -1, keepdims=True, dtype=np.float64).astype(f32)
    y = y / np.sqrt(np.mean(y * y, -1, keepdims=True, dtype=np.float64) + eps).astype(f32)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@op()
def l2_norm(g: Graph, x: Value, *, eps: float) -> Value:
    """x / sqrt(sum(x^2) + eps) over the last axis."""
    return result(x.shape)


@l2_norm.define
def _(run: Run, x, eps):
    return x / np.sqrt(np.sum(x * x, -1, keepdims=True, dtype=np.float64) + eps).astype(f32)


@op()
def hadamard(g: Graph, x: Value, *, block: int) -> Value:
    """H x / sqrt(block) for every `block` consecutive entries of the last axis.

    H is Sylvester's matrix: (1), then ((H, H), (H, -H)).  The transform undoes itself.
    """
    check(block > 0 and block & (block - 1) == 0, f"a block of {block} is no power of two")
    check(x.shape[-1] % block == 0, f"the last axis has {x.shape[-1]} entries, no whole number of blocks of {block}")
    return result(x.shape)


@hadamard.define
def _(run: Run, x, block):
    y, half = x.reshape(-1, block), 1
    while half < block:
        pairs = y.reshape(len(y), -1, 2, half)
        y = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).reshape(-1, block)
        half *= 2
    return y.reshape(x.shape) * f32(block**-0.5)


# ---------------------------------------------------------------- elementwise


@op()
def gelu(g: Graph, x: Value, *, exact: bool = False) -> Value:
    """x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), the tanh form; `exact`: x/2 * (1 + erf(x / sqrt(2))).

    (arXiv:1606.08415)
    """
    return result(x.shape)


@gelu.define
def _(run: Run, x, exact):
    if exact:
        wide = x.astype(np.float64)
        return (wide / 2 * (1 + np.vectorize(erf, [np.float64])(wide / sqrt(2)))).astype(f32)
    return f32(0.5) * x * (1 + np.tanh(f32(sqrt(2 / pi)) * (x + f32(0.044715) * x * x * x)))


@op()
def elu(g: Graph, x: Value) -> Value:
    """x where it is positive, exp(x) - 1 elsewhere (arXiv:1511.07289)."""
    return result(x.shape)


@elu.define
def _(run: Run, x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, f32(0))))


@op()
def relu(g: Graph, x: Value) -> Value:
    """max(x, 0)."""
    return result(x.shape)


@relu.define
def _(run: Run, x):
    return np.maximum(x, f32(0))


@op()
def silu(g: Graph, x: Value) -> Value:
    """x / (1 + exp(-x))."""
    return result(x.shape)


@silu.define
def _(run: Run, x):
    return x / (1 + np.exp(-np.clip(x, -80, None)))


@op()
def sigmoid(g: Graph, x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return result(x.shape)


@sigmoid.define
def _(run: Run, x):
    return 1 / (1 + np.exp(-np.clip(x, -80, None)))


@op()
def softplus(g: Graph, x: Value) -> Value:
    """log(1 + exp(x))."""
    return result(x.shape)


@softplus.define
def _(run: Run, x):
    return np.logaddexp(f32(0), x)


@op()
def softcap(g: Graph, x: Value, *, cap: float) -> Value:
    """cap * tanh(x / cap)."""
    check(cap > 0, "the cap is not positive")
    return result(x.shape)


@softcap.define
def _(run: Run, x, cap):
    return f32(cap) * np.tanh(x / f32(cap))


@op()
def scale(g: Graph, x: Value, *, by: float) -> Value:
    """x * by, a number that the graph knows."""
    return result(x.shape)


@scale.define
def _(run: Run, x, by):
    return x * f32(by)


@op()
def clip(g: Graph, x: Value, *, low: float, high: float) -> Value:
    """min(max(x, low), high), numbers that the graph knows; either may be infinite."""
    check(low <= high, "the lower bound is above the upper one")
    return result(x.shape)


@clip.define
def _(run: Run, x, low, high):
    return np.minimum(np.maximum(x, f32(low)), f32(high))


def broadcast(a: Value, b: Value | Weight) -> Value:
    """Values of equal shape, or a weight of one entry or of one per entry of the last axis, as a vector or one row."""
    if isinstance(b, Weight):
        vector = b.shape[-1] in (1, a.shape[-1]) and all(n == 1 for n in b.shape[:-1])
        check(vector, f"{b.name} has neither one entry nor {a.shape[-1]}")
    else:
        check(a.shape == b.shape, f"shapes differ, {list(a.shape)} and {list(b.shape)}")
    return result(a.shape)


@op(spread=("a", "b"))
def add(g: Graph, a: Value, b: Value | Weight) -> Value:
    """a + b; a weight (1,), (last axis,) or (1, last axis) is added to every row.

    Where one value has the rows "runs" and the other columns, every column reads its conversation's row.
    """
    return broadcast(a, b)


def spread(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """b as numpy adds it to every row of a: a weight without its leading axes."""
    return b if b.shape == a.shape else b.reshape(-1)


@add.define
def _(run: Run, a, b):
    return a + spread(a, b)


@op(spread=("a", "b"))
def mul(g: Graph, a: Value, b: Value | Weight) -> Value:
    """a * b; a weight (1,), (last axis,) or (1, last axis) multiplies every row.

    Where one value has the rows "runs" and the other columns, every column reads its conversation's row.
    """
    return broadcast(a, b)


@mul.define
def _(run: Run, a, b):
    return a * spread(a, b)


# ---------------------------------------------------------------- looking at rows differently


@op()
def view(g: Graph, x: Value, shape: tuple[int, ...]) -> Value:
    """The same numbers of a row under another shape."""
    n = 1
    for s in shape:
        n *= s
    check(n == x.size and min(shape) > 0, f"a row has {x.size} entries")
    return result(tuple(shape))


@view.define
def _(run: Run, x, shape):
    return x.reshape(len(x), *shape)


@op()
def transpose(g: Graph, x: Value) -> Value:
    """The first two axes of x (a, b, ...) change places -> (b, a, ...)."""
    check(len(x.shape) > 1, "x has a single axis")
    return result((x.shape[1], x.shape[0], *x.shape[2:]))


@transpose.define
def _(run: Run, x):
    return np.ascontiguousarray(np.swapaxes(x, 1, 2))


@op()
def concat(g: Graph, a: Value, b: Value) -> Value:
    """The entries of a's last axis, then those of b's."""
    check(a.shape[:-1] == b.shape[:-1], f"leading axes differ, {list(a.shape)} and {list(b.shape)}")
    return result((*a.shape[:-1], a.shape[-1] + b.shape[-1]))


@concat.define
def _(run: Run, a, b):
    return np.concatenate([a, b], -1)


@op()
def slice(g: Graph, x: Value, start: int, stop: int) -> Value:
    """Entries start...stop of the last axis."""
    check(0 <= start < stop <= x.shape[-1], f"the last axis has {x.shape[-1]} entries")
    return result((*x.shape[:-1], stop - start))


@slice.define
def _(run: Run, x, start, stop):
    return x[..., start:stop]


@op()
def take(g: Graph, x: Value, rows: str = SCORED) -> Value:
    """The rows of x that belong to the row set `rows`; the planner computes what leads to them for those only.

    "scored": those of the columns that are asked for.  "runs": of each conversation or text of the pass the row of its
    first column in it.
    """
    check(rows in (SCORED, RUNS), "the row sets to take are 'scored' and 'runs'")
    check(x.rows == "all", f"x has the rows {x.rows!r} already")
    return result(x.shape, rows=rows)


@take.define
def _(run: Run, x, rows: str):
    return x[run.columns.scored if rows == SCORED else [here.start for _, here in run.runs]]


@op(facts=("runs",), across=("x",))
def pool(g: Graph, x: Value, how: str) -> Value:
    """One row for each conversation or text of the pass, in the order of its columns: the row set "runs".

    `how`: the "mean" over its columns, added up in their order in float32, its "first" column or its "last".
    """
    check(how in ("mean", "first", "last"), "how is neither 'mean' nor 'first' nor 'last'")
    check(x.rows == "all", f"x has the rows {x.rows!r}, not every column")
    return result(x.shape, rows=RUNS)


@pool.define
def _(run: Run, x, how):
    y = np.empty((len(run.runs), *x.shape[1:]), f32)
    for i, (_, here) in enumerate(run.runs):
        if how == "mean":
            total = np.zeros(x.shape[1:], f32)
            for row in x[here]:
                total = total + row
            y[i] = total / f32(here.stop - here.start)
        else:
            y[i] = x[here.start if how == "first" else here.stop - 1]
    return y
