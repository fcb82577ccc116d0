"""Attention, over a cache and over the columns of a pass, each with its meaning; `ops` re-exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.value import KVRing, Value, check, op, result

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph
    from golem_core.graph.reference import Run

f32 = np.float32


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


@op(facts=("position", "last", "slot"), across=("cache",))
def attend(
    g: Graph,
    q: Value,
    cache: Value,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    spans: bool = False,
) -> Value:
    """Causal attention of q (heads, dim) over its slot's keys at positions position-window < p <= position.

    With `spans` a column sees on to its last visible position (`Columns.last`), position-window < p <= last: the rows
    of a picture see each other, those after them too.

    Scores are s = q.k * scale, with a `softcap` softcap * tanh(s / softcap), then softmax over the visible positions;
    query head h reads key head h * kv_heads // heads.  -> (heads * dim,)
    """
    check(softcap is None or softcap > 0, "the cap is not positive")
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
def _(run: Run, q, cache, scale, window, softcap, spans):
    keys, values = run.states[cache]
    out = np.empty_like(q)
    group = q.shape[1] // keys.shape[2]
    seen = run.last if spans else run.position
    for i, (slot, at, last) in enumerate(zip(run.slot, run.position, seen, strict=True)):
        low = max(0, at + 1 - window) if window else 0
        k, v = (np.repeat(s[slot, low : last + 1], group, 1) for s in (keys, values))
        score = np.einsum("hd,phd->hp", q[i], k) * f32(scale)
        score = score if softcap is None else f32(softcap) * np.tanh(score / f32(softcap))
        p = np.exp(score - score.max(1, keepdims=True))
        out[i] = np.einsum("hp,phd->hd", p / p.sum(1, keepdims=True), v)
    return out.reshape(len(q), q.shape[1] * q.shape[2])


@op(facts=("position", "slot"), across=("k", "v"))
def attend_columns(g: Graph, q: Value, k: Value, v: Value, *, scale: float, window: int | None = None) -> Value:
    """Attention of q (heads, dim) over the columns of its slot in this pass, before it and after it.

    k and v are (kv heads, dim); query head h reads key head h * kv_heads // heads.  With a `window`, columns more than
    `window` positions away are not read.  -> (heads * dim,)
    """
    check(len(q.shape) == len(k.shape) == 2, "q or k is not split into heads")
    check(k.shape == v.shape and q.shape[1] == k.shape[1], "q, k and v are not heads that go together")
    check(q.shape[0] % k.shape[0] == 0, f"{q.shape[0]} query heads share {k.shape[0]} key heads unevenly")
    check(window is None or window >= 0, "the window is negative")
    check(k.rows == v.rows == "all", "keys and values of every column are needed")
    check(q.rows in ("all", "scored"), f"q has the rows {q.rows!r}, which are no columns")
    return result((q.size,))


@attend_columns.define
def _(run: Run, q, k, v, scale, window):
    out = np.empty_like(q)
    group = q.shape[1] // k.shape[1]
    for slot, here in run.runs:
        rows = np.flatnonzero(run.slot == slot)
        keys, values = (np.repeat(x[here], group, 1) for x in (k, v))
        score = np.einsum("ihd,jhd->hij", q[rows], keys) * f32(scale)
        if window is not None:
            far = abs(run.position[rows][:, None] - run.columns.position[here]) > window
            score[:, far] = -np.inf
        p = np.exp(score - score.max(2, keepdims=True))
        out[rows] = np.einsum("hij,jhd->ihd", p / p.sum(2, keepdims=True), values)
    return out.reshape(len(q), q.shape[1] * q.shape[2])
