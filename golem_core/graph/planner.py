"""What no device should have to work out again: from a graph to ordered steps over planned memory.

A device brings a `Lowering`: a plain emitter for every op, fusions as patterns, and the forms in which
its kernels read values.  The planner finds the rows that anyone needs, matches the fusions, plans
buffers by liveness, and derives where steps must wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from golem_core.errors import Unsupported
from golem_core.graph.graph import Graph
from golem_core.graph.looks import offset, part, source
from golem_core.graph.memory import Stretches, Touched
from golem_core.graph.plan import F32 as F32
from golem_core.graph.plan import Buffer as Buffer
from golem_core.graph.plan import Count as Count
from golem_core.graph.plan import Fact as Fact
from golem_core.graph.plan import Operand as Operand
from golem_core.graph.plan import Plan as Plan
from golem_core.graph.plan import State as State
from golem_core.graph.plan import Step as Step
from golem_core.graph.value import ALL, RUNS, Node, Recurrent, Value


@dataclass(frozen=True)
class Pattern:
    """A node by its op, and what its inputs must be; an input that is not listed may be anything.

    `keep`: the emitter also writes this node's own result, in float32, so others may read it.  `spread`: one of its
    inputs has the rows "runs", of which every column reads its conversation's; otherwise none has.
    """

    ops: tuple[str, ...]
    name: str
    inputs: Mapping[str, Pattern] = field(default_factory=dict)
    keep: bool = False
    spread: bool = False


Match = dict[str, Node]


@dataclass(frozen=True)
class Fusion:
    """Nodes that one step can do: `emit(planner, match)` does what the root is read for, in one of `forms`; of a root
    that is kept, only float32.  `when(planner, match)` looks at what a pattern cannot say, such as shapes and types of
    weights: where it is False, the nodes stay apart."""

    pattern: Pattern
    forms: frozenset[str]
    emit: Callable[[Planner, Match], None]
    when: Callable[[Planner, Match], bool] = lambda planner, match: True


@dataclass(frozen=True)
class Lowering:
    """A device's table.

    `plain` maps an op's name to an emitter that writes its results in float32.  `form(node, input)` is
    the form in which a node's plain emitter and the fusions rooted at it read an input.  `stride(size,
    form)` is the bytes of one row of `size` elements.  `convert(planner, value, form)` writes another form of a value
    that lies there in float32.  `gather(planner, source, target)` copies the scored rows, or those of the runs' first
    columns.  `runs`: every emitter can be asked for the rows "runs", `gather` too, and where an op spreads an input
    with those rows over columns, its emitter knows it by the operand's rows; otherwise such graphs are refused.
    """

    plain: Mapping[str, Callable[[Planner, Node], None]]
    fusions: tuple[Fusion, ...]
    form: Callable[[Node, str], str]
    stride: Callable[[int, str], int]
    convert: Callable[[Planner, Value, str], None]
    gather: Callable[[Planner, Operand, Operand], None]
    runs: bool = False


def is_recurrent(node: Node) -> bool:
    """A node that goes through every column, whichever of its rows anyone reads."""
    return any(isinstance(v.state, Recurrent) for v in node.results)


class Planner:
    """Plans one graph for passes of at most `capacity[rows]` rows of each row set."""

    def __init__(self, graph: Graph, lowering: Lowering, capacity: Mapping[str, int], *, fuse: bool = True):
        self.graph, self.lowering, self.capacity = graph, lowering, capacity
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.rows: dict[Value, str] = {}
        """Of every source that anyone reads: the rows that it is computed for."""
        self.find_rows()
        self.nodes = [n for n in graph.nodes if self.is_live(n) and not self.is_alias(n)]
        if missing := sorted({n.op.name for n in self.nodes} - set(lowering.plain) | self.missing_for_runs()):
            raise Unsupported(f"the device has no kernels for the ops {', '.join(missing)}")
        self.readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for x in self.sources(node):
                self.readers.setdefault(x, []).append(node)
        self.unread = Counter({value: len(nodes) for value, nodes in self.readers.items()})
        self.fixed = self.fix_outputs()
        self.matches = self.match_all() if fuse else {}
        self.absorbed = {node for root, (_, m) in self.matches.items() for node in m.values() if node is not root}
        self.places: dict[tuple[Value, str, str], Operand] = {}
        self.shared: dict[Any, Operand] = {}
        self.prologue: list[Step] = []
        self.steps: list[Step] = []
        self.memory = Stretches()
        self.since: tuple[Touched, Touched] = (Touched(), Touched())
        self.current: set[Node] = set()

    # ------------------------------------------------------------ what is needed

    def find_rows(self) -> None:
        """Sends the wish for rows up the graph; only inputs read `across` columns are needed for all of them."""

        def want(value: Value, rows: str) -> None:
            rows = RUNS if value.rows == RUNS else rows
            value = source(value)
            if value.state is None:
                same = self.rows.get(value, rows) == rows
                self.rows[value] = rows if same and not is_recurrent(value.node) else ALL

        for value in self.graph.outputs.values():
            want(value, value.rows)
        for node in reversed(self.graph.nodes):
            if self.is_alias(node) or not self.is_live(node):
                continue
            rows = self.node_rows(node)
            self.rows |= {v: rows for v in node.results if v in self.rows}
            for name, x in node.args.items():
                if isinstance(x, Value):
                    want(x, ALL if name in node.op.across else rows)

    def is_alias(self, node: Node) -> bool:
        """Whether the node's result is a look at memory that is there, for which no step is needed."""
        return source(node.results[0]) is not node.results[0]

    def is_live(self, node: Node) -> bool:
        """Whether anyone reads a result of the node, or it writes a state."""
        return any(source(v) in self.rows or v.state is not None for v in node.results)

    def node_rows(self, node: Node) -> str:
        """The rows for which a node is computed."""
        wishes = {self.rows[v] for v in node.results if v in self.rows}
        return wishes.pop() if len(wishes) == 1 else ALL

    def spreads(self, node: Node) -> bool:
        """Whether columns read the row of their run."""
        return self.node_rows(node) != RUNS and any(
            isinstance(node[name], Value) and node[name].rows == RUNS for name in node.op.spread
        )

    def missing_for_runs(self) -> set[str]:
        """What a device that knows nothing of runs' rows lacks."""
        if self.lowering.runs:
            return set()
        taken = {"take(rows='runs')" for n in self.graph.nodes if n.op.name == "take" and n["rows"] == RUNS}
        return taken | {f"{n.op.name} over runs" for n in self.nodes if self.spreads(n)}

    def sources(self, node: Node) -> list[Value]:
        """The values whose memory the node reads, each once, states left out."""
        return list(dict.fromkeys(source(x) for x in node.values if x.state is None))

    def fix_outputs(self) -> dict[Value, Buffer]:
        """Sources that can be computed where the output lies."""
        fixed = {}
        for name, value in self.graph.outputs.items():
            origin = source(value)
            if origin not in fixed and value.rows == self.rows[origin]:
                stride = self.lowering.stride(origin.size, F32)
                fixed[origin] = Buffer(stride * self.capacity[value.rows], output=name)
        return fixed

    # ------------------------------------------------------------ fusions

    def forms(self, value: Value) -> set[str]:
        """The forms in which the nodes that are not fused away, and the outputs, read a source."""
        wanted = {F32} if any(source(v) is value for v in self.graph.outputs.values()) else set()
        for node in self.readers.get(value, ()):
            wanted |= {
                self.lowering.form(node, name) if part(x) is None else F32  # a part is converted by itself
                for name, x in node.args.items()
                if isinstance(x, Value) and source(x) is value
            }
        return wanted

    def match_all(self) -> dict[Node, tuple[Fusion, Match]]:
        """Root -> its fusion; from the end, so that the last op of a chain takes what leads to it."""
        found: dict[Node, tuple[Fusion, Match]] = {}
        taken: set[Node] = set()
        for root in reversed(self.nodes):
            if root in taken:
                continue
            forms = self.forms(root.results[0])
            for fusion in self.lowering.fusions:
                match: Match = {}
                fits = fusion.pattern.keep or (len(forms) <= 1 and forms <= fusion.forms)
                if not fits or not self.matches_at(fusion.pattern, root, match):
                    continue
                if taken.isdisjoint(match.values()) and self.closed(root, match, fusion) and fusion.when(self, match):
                    found[root] = fusion, match
                    taken |= set(match.values())
                    break
        return found

    def matches_at(self, pattern: Pattern, node: Node, match: Match) -> bool:
        """Whether `pattern` fits with `node` as its root; then `match` gets the nodes by the names of the pattern."""
        if node.op.name not in pattern.ops or node in match.values() or self.spreads(node) != pattern.spread:
            return False
        names = list(pattern.inputs)
        orders = [names]
        if node.op.name in ("add", "mul") and names:  # commutative: `a` may be `b`
            orders.append([{"a": "b", "b": "a"}[n] for n in names])
        for order in orders:
            trial = {**match, pattern.name: node}
            for actual, want in zip(order, pattern.inputs.values(), strict=True):
                x = node[actual]
                if not isinstance(x, Value) or not self.matches_at(want, source(x).node, trial):
                    break
            else:
                match.clear()
                match.update(trial)
                return True
        return False

    def closed(self, root: Node, match: Match, fusion: Fusion) -> bool:
        """Nobody outside reads what the step keeps to itself, and nobody before it what it writes besides."""
        inside = set(match.values())
        kept = {match[p.name] for p in walk(fusion.pattern) if p.keep}
        for node in inside - {root}:
            if self.node_rows(node) != self.node_rows(root) or len(node.results) > 1:
                return False
            outside = [r for r in self.readers[node.results[0]] if r not in inside]
            if node in kept:
                if any(self.order[r] < self.order[root] for r in outside):
                    return False
            elif (
                outside
                or node.results[0] in self.fixed
                or any(source(v) is node.results[0] for v in self.graph.outputs.values())
            ):
                return False
        return True

    # ------------------------------------------------------------ for emitters

    def read(self, value: Value, form: str = F32, rows: str | None = None) -> Operand:
        """Where the rows of `value` lie in `form`; by default those that the step at hand is computed for.

        What an op reads across columns is asked for with the rows "all".  Of a value of the rows "runs" it is those.
        """
        origin = source(value)
        rows = rows or (RUNS if value.rows == RUNS else self.step_rows)
        if form != F32 and (cut := part(value)) is not None:
            self.rows.setdefault(cut, self.rows[origin])
            if not any(place[:2] == (cut, form) for place in self.places):
                self.lowering.convert(self, cut, form)
            origin = cut
        key = (origin, form, rows)
        if key not in self.places:
            have = self.places.get((origin, form, ALL))
            if have is None:
                raise AssertionError(f"{origin} was never computed as {form} for the rows {rows!r}")
            self.places[key] = Operand(self.buffer(have.stride * self.capacity[rows]), rows, have.stride, have.start)
            self.lowering.gather(self, have, replace(self.places[key], writes=True))
        place = self.places[key]
        return replace(place, start=place.start + offset(value)) if form == F32 else place

    def write(
        self, value: Value, form: str = F32, over: Operand | None = None, *, before_steps: bool = False
    ) -> Operand:
        """Room for a result.  `over`: an operand of the step whose place it takes if nobody needs that any more.

        `before_steps`: the host writes it, so it must be memory that no step has used before.
        """
        rows = self.rows.get(value, self.step_rows)
        stride = self.lowering.stride(value.size, form)
        if form == F32 and value in self.fixed:
            buffer = self.fixed[value]
        elif over is not None and over.stride == stride and over.rows == rows and self.dies_here(over):
            buffer = over.buffer
            self.places = {k: p for k, p in self.places.items() if p.buffer is not buffer}
        else:
            buffer = self.buffer(stride * self.capacity[rows], fresh=before_steps)
        place = Operand(buffer, rows, stride)
        self.places[value, form, rows] = place
        return replace(place, writes=True)

    def share(self, key: Any, rows: str, stride: int, emit: Callable[[Operand], None], head: int = 0) -> Operand:
        """Something that several steps read and no value stands for; `emit` writes it, once a pass.

        It has `stride` bytes for each of the rows, behind `head` bytes.
        """
        if (key, rows) not in self.shared:
            place = Operand(self.buffer(head + stride * self.capacity[rows]), rows, stride)
            emit(replace(place, writes=True))
            self.shared[key, rows] = place
        return self.shared[key, rows]

    def workspace(self, key: Any, size: int) -> Operand:
        """`size` bytes, the same for all steps that ask by this key: each writes it before another reads it."""
        return self.share((key, size), ALL, -(-size // self.capacity[ALL]), lambda place: None)

    def step(self, kernel: str, *args: Any) -> None:
        """Adds a step; the one before it gets a barrier if this one touches what was written since the last."""
        touched = [a for a in args if isinstance(a, (Operand, State))]
        reads, writes = self.since
        if self.steps and any(a in writes or (a.writes and a in reads) for a in touched):
            self.steps[-1].barrier = True
            reads, writes = self.since = Touched(), Touched()
        for a in touched:
            (writes if a.writes else reads).add(a)
        self.steps.append(Step(kernel, args))

    def prepare(self, name: str, *args: Any) -> None:
        """Adds something that the host does before the first step, such as copying an input."""
        self.prologue.append(Step(name, args))

    # ------------------------------------------------------------ memory

    def buffer(self, size: int, *, fresh: bool = False) -> Buffer:
        """`size` bytes of the arena; `fresh`: that no step has used before."""
        size = -(-size // 64) * 64
        return Buffer(size, self.memory.take(size, fresh=fresh))

    def release(self, buffer: Buffer) -> None:
        """What comes next may use these bytes of the arena."""
        self.memory.give(buffer.offset, buffer.size)

    def dies_here(self, operand: Operand) -> bool:
        """Only the step at hand still reads what lies in the operand's buffer, and it reads whole rows."""
        held = {value for (value, _, _), place in self.places.items() if place.buffer is operand.buffer}
        return (
            operand.buffer.output is None
            and operand.start == 0
            and all(
                value not in self.fixed and self.unread[value] == sum(r in self.current for r in self.readers[value])
                for value in held
            )
        )

    def done(self, nodes: set[Node]) -> None:
        """Counts off what these nodes read and frees what nobody reads any more."""
        for node in nodes:
            for x in self.sources(node):
                self.unread[x] -= 1
        dead = [key for key in self.places if self.unread[key[0]] == 0 and key[0] not in self.fixed]
        dead = [key for key in dead if not any(source(v) is key[0] for v in self.graph.outputs.values())]
        self.forget(dead)

    def forget(self, dead: list[tuple[Value, str, str]]) -> None:
        """Frees what lies in these places."""
        released = {id(self.places[key].buffer): self.places[key].buffer for key in dead}
        for key in dead:
            del self.places[key]
        still = {id(p.buffer) for p in self.places.values()}
        for i, buffer in released.items():
            if i not in still and buffer.output is None:
                self.release(buffer)

    # ------------------------------------------------------------ the walk

    def convert_results(self, node: Node) -> None:
        """Every other form in which anyone reads what lies there in float32, and which no step has written; float32 is
        kept if anyone reads it."""
        for value in node.results:
            if value.state is None and value in self.rows:
                forms, rows = self.forms(value), self.rows[value]
                for form in sorted(forms - {F32}):
                    if (value, form, rows) not in self.places:
                        self.lowering.convert(self, value, form)
                if forms and F32 not in forms and value not in self.fixed and (value, F32, rows) in self.places:
                    self.forget([(value, F32, rows)])

    @property
    def step_rows(self) -> str:
        """The rows for which the step at hand is computed."""
        return next((self.node_rows(n) for n in self.current), ALL)

    def plan(self) -> Plan:
        """Has every node that anyone needs lowered, in order; the steps that came of it, and where the outputs lie.

        To be called once.
        """
        for node in self.nodes:
            if node in self.absorbed:
                continue
            if node in self.matches:
                fusion, match = self.matches[node]
                self.current = set(match.values())
                fusion.emit(self, match)
                for kept in (p for p in walk(fusion.pattern) if p.keep):
                    self.convert_results(match[kept.name])
            else:
                self.current = {node}
                self.lowering.plain[node.op.name](self, node)
                self.convert_results(node)
            self.done(self.current)
        self.current = set()
        outputs = {}
        for name, value in self.graph.outputs.items():
            place = self.read(value, rows=value.rows)
            outputs[name] = place
        if left := [v for v, n in self.unread.items() if n]:
            raise AssertionError(f"nobody lowered what reads {left}")
        if self.steps:
            self.steps[-1].barrier = True
        return Plan(self.prologue, self.steps, self.memory.top, outputs)


def walk(pattern: Pattern):
    yield pattern
    for p in pattern.inputs.values():
        yield from walk(p)
