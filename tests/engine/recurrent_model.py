"""A model with a recurrent state on a device that runs numpy meanings, and its answers computed from tokens alone.

All numbers are whole and small, so that results are exact whatever the order of additions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace

import fake_device
import numpy as np

from golem_core.engine import Engine
from golem_core.engine.roles import Drafting
from golem_core.files import Weight
from golem_core.graph import Graph, Recurrent, Reference, op, result
from golem_core.sampling import STAGES

SIZE, PRIME = 4, 1009
REFUSED = 13
_dice = np.random.default_rng(3)
TABLE = _dice.integers(1, PRIME, (fake_device.VOCABULARY, SIZE)).astype(np.float32)
HEAD = _dice.integers(-8, 9, (fake_device.VOCABULARY, SIZE)).astype(np.float32)


def weight(name: str, values: np.ndarray) -> Weight:
    return Weight(name, "F32", values.shape, values.reshape(-1).view(np.uint8))


@op(facts=("slot",), across=("x",))
def accumulate(g: Graph, x, state: Recurrent):
    """The state becomes 31 * state + x for each column of its slot in turn, modulo a prime -> the states, by column."""
    return result(x.shape), result((), state=state)


@accumulate.define
def _(run, x, state):
    (kept,) = run.states[state]
    y = np.empty_like(x)
    for slot, columns in run.runs:
        for i in range(columns.start, columns.stop):
            kept[slot] = y[i] = (31 * kept[slot] + x[i]) % PRIME
    return y, state


def build(hidden: bool = False) -> Graph:
    g = Graph()
    y, _ = accumulate(g, g.embed(weight("table", TABLE)), Recurrent((SIZE,)))
    if hidden:
        g.output("hidden", y)
    g.output("logits", g.linear(g.take(y), weight("head", HEAD)))
    return g


@op()
def follow(g: Graph, state, x):
    """31 * state + x, modulo a prime."""
    return result(x.shape)


@follow.define
def _(run, state, x):
    return (31 * state + x) % PRIME


def build_guess(wrong: Sequence[int] = (), head=HEAD) -> Graph:
    """What the state of the position before and a token lead to; after the tokens in `wrong`, something else."""
    table = TABLE.copy()
    table[list(wrong)] += np.arange(1, SIZE + 1) * 307
    g = Graph()
    state = follow(g, g.input("hidden", (SIZE,)), g.embed(weight("table", table)))
    state = g.take(state)
    g.output("hidden", state)
    g.output("logits", g.linear(state, weight("head", head)))
    return g


def continuation(prompt: list[int], count: int) -> list[int]:
    """The greedy answer of `count` tokens."""
    tokens, state = list(prompt), np.zeros(SIZE, np.float32)
    for i in itertools.count():
        state = (31 * state + TABLE[tokens[i]]) % PRIME
        if i >= len(prompt) - 1:
            tokens.append(int((HEAD @ state).argmax()))
        if len(tokens) == len(prompt) + count:
            return tokens[len(prompt) :]
    raise AssertionError


class Pass:
    def __init__(self, graph: Graph, slots: int, context: int, width: int):
        self.reference = Reference(graph, slots=slots, context=context)
        self.width, self.rings, self.saved_bytes = width, (), 4 * SIZE * len(graph.recurrent)
        self.restore, self.keep = self.reference.restore, self.reference.keep
        self.ran: list[int] = []
        """The columns of each run."""
        self.kept = 0
        self.fails = False

    def save(self, slot: int):
        self.kept += 1
        return self.reference.save(slot)

    def run(self, columns):
        if self.fails:
            for states in self.reference.states.values():
                states[0][:] = 77  # what a failed pass leaves behind is anybody's guess
            raise RuntimeError("device lost")
        self.ran.append(len(columns))
        return self.reference.run(columns)


class Device:
    def __init__(self) -> None:
        self.passes: list[Pass] = []

    @property
    def compiled(self) -> Pass:
        return self.passes[-1]

    def compile(self, graph: Graph, *, slots: int, context: int, width: int = 512, scored=None, tentative=0) -> Pass:
        self.passes.append(Pass(graph, slots, context, width))
        return self.compiled


@op()
def refuse(g: Graph, x, number: int):
    """x itself; raises for a row that is the embedding of a certain token."""
    return result(x.shape)


@refuse.define
def _(run, x, number):
    if number in run.token:
        raise ZeroDivisionError(f"token {number} is not to my taste")
    return x


def build_refusing() -> Graph:
    """The same with an op that raises in the middle of a pass, behind the state that it has changed by then."""
    g = Graph()
    y, _ = accumulate(g, g.embed(weight("table", TABLE)), Recurrent((SIZE,)))
    g.output("logits", g.linear(g.take(refuse(g, y, number=REFUSED)), weight("head", HEAD)))
    return g


def engine(device: Device | None = None, build=build, drafting: Drafting | None = None, **sizes) -> Engine:
    model = fake_device.model(build=build, file=SimpleNamespace(), drafting=drafting)
    return Engine(model, device or Device(), stages=STAGES, **({"context": 4096} | sizes))
