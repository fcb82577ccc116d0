"""The vocabulary of forward passes: each op a typed shape rule, and beside it its meaning in numpy.

The meanings are float32 throughout, plainly written and slow; devices are held to them.  `run` gives
a meaning the column facts of the rows at hand and the states of the pass.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph.recurrence import causal_conv1d as causal_conv1d
from golem_core.graph.recurrence import delta_net as delta_net
from golem_core.graph.value import SCORED, KVRing, Value, check, op, result

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph
    from golem_core.graph.reference import Run

f32 = np.float32
span = slice  # the op of that name, below, hides the built-in


# ---------------------------------------------------------------- tables and products


@op(facts=("token",))
def embed(g: Graph, table: Weight) -> Value:
    """Row `token` of `table` (entries, width), for every column -> (width,)."""
    check(len(table.shape) == 2, f"{table.name} is no table")
    return result((table.width,))


@embed.define
def _(run: Run, table):
    return table[run.token]


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


# ---------------------------------------------------------------- norms and rotations


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


@op(facts=("position",))
def rope(
    g: Graph,
    x: Value,
    *,
    base: float,
    dims: int | None = None,
    pairs: str = "halves",
    factors: Weight | None = None,
    scale: float = 1.0,
) -> Value:
    """Rotates pair j of every head of x (heads, dim) by position * scale * base^(-2j/dims) / factors[j].

    The first `dims` components (default: all) form the pairs, (j, j + dims/2) for "halves" and
    (2j, 2j + 1) for "neighbours"; the others pass unchanged.  `factors` is (dims/2,).  (arXiv:2104.09864)
    """
    check(len(x.shape) == 2, "x is not split into heads")
    check(pairs in ("halves", "neighbours"), "pairs is neither 'halves' nor 'neighbours'")
    turned = x.shape[-1] if dims is None else dims
    check(turned % 2 == 0 and 0 < turned <= x.shape[-1], f"cannot rotate {turned} of {x.shape[-1]} components")
    check(factors is None or factors.shape == (turned // 2,), "one factor per pair is needed")
    return result(x.shape)


def rope_frequencies(
    dim: int, *, base: float, dims: int | None, factors: np.ndarray | None, scale: float
) -> np.ndarray:
    """Radians per position of each pair, float64 (dims/2,), for heads of size `dim`."""
    turned = dims or dim
    frequencies = scale * float(base) ** (-np.arange(0, turned, 2, dtype=np.float64) / turned)
    return frequencies if factors is None else frequencies / np.asarray(factors, np.float64)


@rope.define
def _(run: Run, x, base, dims, pairs, factors, scale):
    dims = dims or x.shape[-1]
    angle = run.position[:, None, None] * rope_frequencies(
        x.shape[-1], base=base, dims=dims, factors=factors, scale=scale
    )
    cos, sin = np.cos(angle).astype(f32), np.sin(angle).astype(f32)
    half = dims // 2
    a, b = (span(0, half), span(half, dims)) if pairs == "halves" else (span(0, dims, 2), span(1, dims, 2))
    out = x.copy()
    out[..., a] = x[..., a] * cos - x[..., b] * sin
    out[..., b] = x[..., a] * sin + x[..., b] * cos
    return out


# ---------------------------------------------------------------- attention


@op(facts=("position", "slot"), across=("k", "v"))
def store(g: Graph, k: Value, v: Value, ring: KVRing) -> Value:
    """Writes keys and values (heads, dim) of every column into `ring` at (slot, position) -> the new state."""
    want = (ring.heads, ring.dim)
    check(k.shape == want and v.shape == want, f"the ring holds {list(want)} per position")
    check(k.rows == v.rows == "all", "keys and values of every column are needed")
    return result((), state=ring)


@store.define
def _(run: Run, k, v, ring):
    keys, values = run.states[ring]
    keys[run.slot, run.position], values[run.slot, run.position] = k, v
    return ring


@op(facts=("position", "slot"), across=("cache",))
def attend(g: Graph, q: Value, cache: Value, *, scale: float, window: int | None = None) -> Value:
    """Causal attention of q (heads, dim) over its slot's keys at positions position-window < p <= position.

    Scores are q.k * scale, then softmax over the visible positions; query head h reads key head
    h * kv_heads // heads.  -> (heads * dim,)
    """
    check(cache.ring is not None, "cache is not what `store` results in")
    assert cache.ring is not None
    check(
        len(q.shape) == 2 and q.shape[1] == cache.ring.dim, f"the heads of the cache have {cache.ring.dim} components"
    )
    check(q.shape[0] % cache.ring.heads == 0, f"{q.shape[0]} query heads share {cache.ring.heads} key heads unevenly")
    if cache.ring.window is not None:
        check(window is not None and window <= cache.ring.window, f"the ring keeps only {cache.ring.window} positions")
    return result((q.size,))


@attend.define
def _(run: Run, q, cache, scale, window):
    keys, values = run.states[cache]
    out = np.empty_like(q)
    group = q.shape[1] // keys.shape[2]
    for i, (slot, at) in enumerate(zip(run.slot, run.position, strict=True)):
        low = max(0, at + 1 - window) if window else 0
        k, v = (np.repeat(s[slot, low : at + 1], group, 1) for s in (keys, values))
        score = np.einsum("hd,phd->hp", q[i], k) * f32(scale)
        p = np.exp(score - score.max(1, keepdims=True))
        out[i] = np.einsum("hp,phd->hd", p / p.sum(1, keepdims=True), v)
    return out.reshape(len(q), -1)


# ---------------------------------------------------------------- elementwise


@op()
def gelu(g: Graph, x: Value) -> Value:
    """x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), the tanh form (arXiv:1606.08415)."""
    return result(x.shape)


@gelu.define
def _(run: Run, x):
    return f32(0.5) * x * (1 + np.tanh(f32(sqrt(2 / pi)) * (x + f32(0.044715) * x * x * x)))


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


def broadcast(a: Value, b: Value | Weight) -> Value:
    """Values of equal shape, or a weight of one entry or of one per entry of the last axis."""
    if isinstance(b, Weight):
        check(b.shape in ((1,), (a.shape[-1],)), f"{b.name} has neither one entry nor {a.shape[-1]}")
    else:
        check(a.shape == b.shape, f"shapes differ, {list(a.shape)} and {list(b.shape)}")
    return result(a.shape)


@op()
def add(g: Graph, a: Value, b: Value | Weight) -> Value:
    """a + b; a weight (1,) or (last axis,) is added to every row."""
    return broadcast(a, b)


@add.define
def _(run: Run, a, b):
    return a + b


@op()
def mul(g: Graph, a: Value, b: Value | Weight) -> Value:
    """a * b; a weight (1,) or (last axis,) multiplies every row."""
    return broadcast(a, b)


@mul.define
def _(run: Run, a, b):
    return a * b


# ---------------------------------------------------------------- mixtures of experts


@op()
def route(g: Graph, scores: Value, *, count: int) -> tuple[Value, Value]:
    """The `count` largest of the scores (experts,), equal ones in order of their index, and the softmax over them.

    -> ids (count,), whole numbers held in float32, and shares (count,), largest first.
    """
    check(len(scores.shape) == 1 and 0 < count <= scores.shape[0], f"cannot choose {count} of {list(scores.shape)}")
    return result((count,)), result((count,))


@route.define
def _(run: Run, scores, count):
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    top = np.take_along_axis(scores, ids, 1)
    e = np.exp(top - top[:, :1])
    return ids.astype(f32), e / e.sum(1, keepdims=True)


@op()
def expert_linear(g: Graph, x: Value, weight: Weight, ids: Value) -> Value:
    """For each chosen expert i of a row, weight[ids[i]] (out, in) times x or x[i] -> (count, out)."""
    check(len(weight.shape) == 3, f"{weight.name} is no stack of matrices")
    count = ids.size
    want = ((weight.width,), (count, weight.width))
    check(x.shape in want, f"x is neither {list(want[0])} nor {list(want[1])}")
    return result((count, weight.shape[1]))


@expert_linear.define
def _(run: Run, x, weight, ids):
    count = ids.shape[1]
    x = np.broadcast_to(x[:, None], (len(x), count, x.shape[-1])) if x.ndim == 2 else x
    out = np.empty((len(x), count, weight.shape[1]), f32)
    for row in range(len(x)):
        for i, expert in enumerate(ids[row].astype(int)):
            out[row, i] = weight[expert] @ x[row, i]
    return out


@op()
def lookup(g: Graph, weight: Weight, ids: Value) -> Value:
    """weight[ids] for a vector of one number per expert -> the shape of ids."""
    check(len(weight.shape) == 1, f"{weight.name} is no vector")
    return result(ids.shape)


@lookup.define
def _(run: Run, weight, ids):
    return weight[ids.astype(int)]


@op()
def combine(g: Graph, x: Value, shares: Value) -> Value:
    """The sum of x (count, features) over its first axis, weighted by shares (count,) -> (features,)."""
    check(len(x.shape) == 2 and shares.shape == x.shape[:1], "one share per row of x is needed")
    return result(x.shape[1:])


@combine.define
def _(run: Run, x, shares):
    return np.einsum("nkf,nk->nf", x, shares)


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
def slice(g: Graph, x: Value, start: int, stop: int) -> Value:
    """Entries start...stop of the last axis."""
    check(0 <= start < stop <= x.shape[-1], f"the last axis has {x.shape[-1]} entries")
    return result((*x.shape[:-1], stop - start))


@slice.define
def _(run: Run, x, start, stop):
    return x[..., start:stop]


@op()
def take(g: Graph, x: Value, rows: str = SCORED) -> Value:
    """The rows of x that belong to the row set `rows`; the planner computes what leads to them for those only."""
    check(rows == SCORED, "the only row set to take is 'scored'")
    check(x.rows == "all", f"x has the rows {x.rows!r} already")
    return result(x.shape, rows=rows)


@take.define
def _(run: Run, x, rows: Any):
    return x[run.columns.scored]
