"""A forward pass as data: nodes in order, outputs by name, and the column facts that a pass is run with.

A family builds a `Graph` once per kind of pass; nothing here knows a device or a family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph import ops
from golem_core.graph.value import GraphError, KVRing, Node, Recurrent, Value


@dataclass(frozen=True)
class Columns:
    """The column facts of one pass: int64 arrays of shape (n,).

    Columns of one slot lie together and carry ascending, contiguous positions.  `scored` lists the columns, by index,
    whose rows the outputs of row set "scored" have, in that order.  `inputs` has the rows of every input of the
    graph by its name, float32 (n, *shape); a device need not copy an array again that cannot be written to and was
    given in the run before.

    `last` is the last position that a column sees where an op reads it; without any it is the column's own.  It lies
    within the pass, so that its keys are there.

    `tentative` columns, all of one slot, may be taken back: `Pass.keep` says after how many of them the slot's
    recurrent states stand.
    """

    token: np.ndarray
    position: np.ndarray
    slot: np.ndarray
    scored: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    tentative: bool = False
    last: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        for name in ("token", "position", "slot", "scored", "last"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        if not len(self.token) == len(self.position) == len(self.slot):
            raise GraphError("token, position and slot of a pass differ in length")
        if len(self.last) == 0:
            object.__setattr__(self, "last", self.position)
        elif len(self.last) != len(self) or not self.sees_what_is_there():
            raise GraphError("a column's last visible position is none of its slot's in the pass, from its own on")
        if self.tentative and len(self) and (self.slot != self.slot[0]).any():
            raise GraphError("tentative columns are of several slots")
        object.__setattr__(self, "inputs", {name: np.asarray(x, np.float32) for name, x in self.inputs.items()})
        for name, x in self.inputs.items():
            if len(x) != len(self):
                raise GraphError(f"input {name!r}: {len(x)} rows for {len(self)} columns")

    def __len__(self) -> int:
        return len(self.token)

    def sees_what_is_there(self) -> bool:
        """Whether every column's last visible position is its own or that of a later one of its slot in the pass."""
        ahead = self.last - self.position
        target = np.arange(len(self)) + ahead
        inside = (ahead >= 0) & (target < len(self))
        return bool(inside.all()) and bool((self.slot[target] == self.slot).all())


class Graph:
    """Nodes in the order in which they were asked for, so every input stands before its readers.

    Every op of the vocabulary is a method; an op of a plugin's own is called with the graph first.
    """

    add = ops.add
    attend = ops.attend
    attend_columns = ops.attend_columns
    causal_conv1d = ops.causal_conv1d
    clip = ops.clip
    combine = ops.combine
    concat = ops.concat
    conv1d = ops.conv1d
    conv2d = ops.conv2d
    delta_net = ops.delta_net
    elu = ops.elu
    embed = ops.embed
    embed_position = ops.embed_position
    expert_linear = ops.expert_linear
    gelu = ops.gelu
    hadamard = ops.hadamard
    input = ops.input
    l2_norm = ops.l2_norm
    layer_norm = ops.layer_norm
    linear = ops.linear
    lookup = ops.lookup
    mul = ops.mul
    pool = ops.pool
    prepend = ops.prepend
    relu = ops.relu
    rms_norm = ops.rms_norm
    rope = ops.rope
    rope_at = ops.rope_at
    route = ops.route
    scale = ops.scale
    sigmoid = ops.sigmoid
    silu = ops.silu
    slice = ops.slice
    softcap = ops.softcap
    softplus = ops.softplus
    store = ops.store
    table_rows = ops.table_rows
    take = ops.take
    transpose = ops.transpose
    upsample = ops.upsample
    view = ops.view

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: dict[str, Value] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}
        """Name -> shape of one row, of everything that is handed in with a pass."""

    @property
    def rings(self) -> list[KVRing]:
        """The rings that the graph feeds, in the order of their first `store`."""
        return [s for s in self.states if isinstance(s, KVRing)]

    @property
    def recurrent(self) -> list[Recurrent]:
        """The recurrent states, in the order of the ops that keep them."""
        return [s for s in self.states if isinstance(s, Recurrent)]

    @property
    def states(self) -> list[KVRing | Recurrent]:
        """Every state, once, in the order in which the nodes result in them."""
        return list(dict.fromkeys(v.state for node in self.nodes for v in node.results if v.state is not None))

    def check_inputs(self, columns: Columns) -> None:
        """Raises GraphError naming the input that `columns` lack, have in another shape, or should not have."""
        wanted, given = self.inputs, columns.inputs
        for name in (*wanted, *given):
            if name not in given:
                raise GraphError(f"input {name!r}: the pass has no rows for it")
            if name not in wanted:
                raise GraphError(f"input {name!r}: the graph has no such input")
            if given[name].shape[1:] != wanted[name]:
                raise GraphError(
                    f"input {name!r}: rows of shape {list(given[name].shape[1:])}, the graph takes {list(wanted[name])}"
                )

    @property
    def weights(self) -> list[Weight]:
        """Every weight that a node reads, once, in the order of first use."""
        return list(dict.fromkeys(w for node in self.nodes for w in node.weights))

    def output(self, name: str, value: Value) -> None:
        """Makes `value` a result of the pass: a float32 array (rows, *shape) under `name`."""
        if not isinstance(value, Value):
            raise GraphError(f"output {name!r}: {value!r} is no value of a graph")
        if value.state is not None:
            raise GraphError(f"output {name!r}: a state cannot be an output")
        if name in self.outputs:
            raise GraphError(f"output {name!r} is there already")
        self.outputs[name] = value
