"""Convolutions over an axis within a column's row, each op with its meaning; `ops` re-exports them.

A column holds a stretch of a signal, `length` steps of `channels` numbers each.  `prepend` puts the steps before it in
front, so that `conv1d`, which knows its row alone, is causal over the whole conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph.value import Recurrent, Value, check, op, result

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph
    from golem_core.graph.reference import Run


@op(facts=("position", "runs"), across=("x",))
def prepend(g: Graph, x: Value, past: Recurrent, *, start: str = "zeros") -> tuple[Value, Value]:
    """The steps of its conversation before x (length, channels), then those of x -> (before + length, channels).

    `past`, a state of (before, channels), holds the last steps before this pass, oldest first; a column has at least
    as many of its own.  What stands before position 0 is `start`: "zeros", or the "first" step of that column, again
    and again.  -> that, and the state after it.
    """
    check(len(x.shape) == 2 and len(past.shape) == 2, "x or the state is not steps of channels")
    (length, channels), (before, width) = x.shape, past.shape
    check(channels == width, f"the state has {width} channels, x has {channels}")
    check(0 < before <= length, f"the state holds {before} steps, a column has {length}")
    check(start in ("zeros", "first"), "start is neither 'zeros' nor 'first'")
    check(x.rows == "all", "every column of x is needed")
    return result((before + length, channels)), result((), state=past)


@prepend.define
def _(run: Run, x, past, start):
    (states,) = run.states[past]
    before = states.shape[1]
    y = np.concatenate([np.empty((len(x), before, x.shape[2]), np.float32), x], 1)
    for slot, here in run.runs:
        if start == "first" and run.columns.position[here.start] == 0:
            states[slot] = x[here.start, 0]
        y[here, :before] = np.concatenate([states[slot][None], x[here, -before:][:-1]])
        states[slot] = x[here.stop - 1, -before:]
    return y, past


@op()
def conv1d(g: Graph, x: Value, weight: Weight, bias: Weight | None = None, *, stride: int = 1) -> Value:
    """Convolution over the first axis of x (length, channels), without padding -> ((length - taps) // stride + 1, out).

    y[t] = weight times the taps * channels numbers of x from step t * stride on, plus `bias` (out,).  `weight` is
    (out, taps * channels): a row has the first tap's channels, then the second's, and so on.
    """
    check(len(x.shape) == 2 and len(weight.shape) == 2, "x is not steps of channels, or the weight no matrix")
    length, channels = x.shape
    taps, rest = divmod(weight.width, channels)
    check(rest == 0, f"{weight.name} takes {weight.width} numbers, which are no taps of {channels} channels")
    check(0 < taps <= length, f"{weight.name} has {taps} taps, x has {length} steps")
    check(stride > 0, f"the stride is {stride}")
    check(bias is None or bias.shape == (weight.rows,), "the bias has not one entry per output")
    return result(((length - taps) // stride + 1, weight.rows))


@conv1d.define
def _(run: Run, x, weight, bias, stride):
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[1] // x.shape[2], 1)[:, ::stride]
    y = np.swapaxes(windows, 2, 3).reshape(*windows.shape[:2], -1) @ weight.T
    return y if bias is None else y + bias
