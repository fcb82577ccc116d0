"""Mixtures of experts, each op with its meaning; `ops` re-exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph.value import Value, check, op, result

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph
    from golem_core.graph.reference import Run

f32 = np.float32


@op()
def route(g: Graph, scores: Value, *, count: int, normalize: bool = True) -> tuple[Value, Value]:
    """The `count` largest of the scores (experts,), equal ones in order of their index, and the softmax over them.

    Without `normalize` the softmax is over all scores, so that the shares of the chosen add up to less than one.
    -> ids (count,), whole numbers held in float32, and shares (count,), largest first.
    """
    check(len(scores.shape) == 1 and 0 < count <= scores.shape[0], f"cannot choose {count} of {list(scores.shape)}")
    return result((count,)), result((count,))


@route.define
def _(run: Run, scores, count, normalize):
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    top = np.take_along_axis(scores, ids, 1)
    e = np.exp(top - top[:, :1])
    total = e if normalize else np.exp(scores - top[:, :1])
    return ids.astype(f32), e / total.sum(1, keepdims=True)


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
