"""Ops that go through the columns of a conversation in order and keep a state of fixed size, each with its meaning.

They read whole runs of columns, so the planner computes them for every column; `ops` re-exports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph.value import Recurrent, Value, check, op, result

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph
    from golem_core.graph.reference import Run


@op(facts=("runs",), across=("x",))
def causal_conv1d(
    g: Graph, x: Value, weight: Weight, window: Recurrent, bias: Weight | None = None
) -> tuple[Value, Value]:
    """Depthwise convolution over the columns of each conversation: every feature with its own taps.

    y[t] = sum over j of weight[:, j] * x[t - taps + 1 + j], plus `bias` (features,); the last tap multiplies the
    column itself.  `weight` is (features, taps); `window`, a state of (taps - 1, features), holds the columns before
    this pass, oldest first.  -> (features,), and the state after it.
    """
    check(len(x.shape) == 1 and len(weight.shape) == 2, "x is no plain row, or the weight no matrix")
    features, taps = weight.shape
    check(x.size == features, f"{weight.name} takes {features} features, a row of {x} has {x.size}")
    check(taps > 1, f"{weight.name} has a single tap, which needs no window")
    check(window.shape == (taps - 1, features), f"the window has the shape {window.shape}, not {(taps - 1, features)}")
    check(bias is None or bias.shape == (features,), "the bias has not one entry per feature")
    check(x.rows == "all", "every column of x is needed")
    return result(x.shape), result((), state=window)


@causal_conv1d.define
def _(run: Run, x, weight, window, bias):
    (windows,) = run.states[window]
    taps, y = weight.shape[1], np.empty_like(x)
    for slot, here in run.runs:
        past = np.concatenate([windows[slot], x[here]])
        n = here.stop - here.start
        y[here] = sum(past[j : j + n] * weight[:, j] for j in range(taps))
        windows[slot] = past[n:]
    return (y if bias is None else y + bias), window


@op(facts=("runs",), across=("q", "k", "v", "decay", "beta"))
def delta_net(
    g: Graph, q: Value, k: Value, v: Value, decay: Value, beta: Value, state: Recurrent, *, scale: float
) -> tuple[Value, Value]:
    """The gated delta rule (arXiv:2412.06464), column after column of each conversation.

    q and k are (key heads, dk), v is (heads, dv), decay and beta (heads,); head h reads key head h mod key heads.
    `state` is a matrix S (dk, dv) for every head:

        S = exp(decay) * S;  S = S + outer(k, beta * (v - S^T k));  y = S^T q * scale

    decay is at most 0.  How a device lays S out is its own affair.  -> (heads, dv), and the state after it.
    """
    check(len(q.shape) == 2 and q.shape == k.shape and len(v.shape) == 2, "q, k and v are not heads that go together")
    (key_heads, dk), (heads, dv) = q.shape, v.shape
    check(heads % key_heads == 0, f"{heads} heads share {key_heads} key heads unevenly")
    check(decay.shape == beta.shape == (heads,), f"decay and beta have not one entry for each of {heads} heads")
    check(state.shape == (heads, dk, dv), f"the state has the shape {state.shape}, not {(heads, dk, dv)}")
    check(q.rows == "all", "every column of q, k and v is needed")
    return result(v.shape), result((), state=state)


@delta_net.define
def _(run: Run, q, k, v, decay, beta, state, scale):
    (states,) = run.states[state]
    repeats = v.shape[1] // q.shape[1]
    q, k = (np.tile(x, (1, repeats, 1)) for x in (q * np.float32(scale), k))
    y = np.empty_like(v)
    for slot, here in run.runs:
        s = states[slot]
        for t in range(here.start, here.stop):
            s = np.exp(decay[t])[:, None, None] * s
            delta = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", s, k[t]))
            s = s + k[t][:, :, None] * delta[:, None, :]
            y[t] = np.einsum("hkv,hk->hv", s, q[t])
        states[slot] = s
    return y, state
