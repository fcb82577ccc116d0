"""A forward pass as data: the vocabulary of ops, the graph, its numpy meaning, and the planner of devices."""

from golem_core.graph.device import Device, Pass, Ring
from golem_core.graph.graph import Columns, Graph
from golem_core.graph.reference import Reference, Run
from golem_core.graph.value import ALL, RUNS, SCORED, GraphError, KVRing, Node, Op, Recurrent, Value, op, result

__all__ = [
    "ALL",
    "RUNS",
    "SCORED",
    "Columns",
    "Device",
    "Graph",
    "GraphError",
    "KVRing",
    "Node",
    "Op",
    "Pass",
    "Recurrent",
    "Reference",
    "Ring",
    "Run",
    "Value",
    "op",
    "result",
]
