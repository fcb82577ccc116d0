"""What a compiled pass has to know of its plan: which facts of the columns it reads, which steps write outputs."""

from __future__ import annotations

from golem_core.graph.planner import Count, Fact, Operand, Plan, Step
from golem_core.graph.value import RUNS

OF_RUNS = ("first", "end", "length", "aligned", "run")
"""Where the run that a row is of lies: its first column, its end, its length, and where it would begin if every run
before took a multiple of 16 columns; and that run's number."""
FACTS = ("token", "position", "last", "slot", "index", *OF_RUNS)
"""What kernels may ask of a row: its column facts, its column's number, and those of its run."""


def reads_runs(plan: Plan) -> bool:
    """Whether any step wants to know which columns belong together."""
    args = [a for step in plan.prologue + plan.steps for a in step.args if isinstance(a, (Fact, Count, Operand))]
    return any(a.rows == RUNS or (isinstance(a, Fact) and a.name in OF_RUNS) for a in args)


def is_output(a: object) -> bool:
    return isinstance(a, Operand) and a.buffer.output is not None


def writes_output(step: Step) -> bool:
    return any(map(is_output, step.args))
