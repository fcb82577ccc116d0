"""From planned steps to the table of kernels and arguments that a team of threads goes through."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.cpu.arguments import Constant, Matrix, Table, Vector
from golem_core.graph.planner import Step

if TYPE_CHECKING:
    from golem_core.cpu.device import CpuDevice


class Assembly:
    """Turns steps into the table that the team runs: kernel addresses and blocks of resolved arguments.

    The blocks live as long as the assembly does, so it must outlive every run of its programs.
    """

    def __init__(self, device: CpuDevice, resolvers: dict[type, Callable[[Any], Any]]):
        self.device = device
        self.kept: list[Any] = []
        self.resolvers: dict[type, Callable[[Any], Any]] = {
            Matrix: lambda a: device.matrices[a.weight].ctypes.data,
            Vector: lambda a: device.vectors[a.weight].ctypes.data,
            Constant: self.keep,
            Table: lambda a: self.keep(Constant(np.ascontiguousarray(a.weight.data))),
            **resolvers,
        }

    def keep(self, a: Constant) -> int:
        self.kept.append(a.array)
        return a.array.ctypes.data

    def resolve(self, a: Any) -> list[int]:
        if isinstance(a, float):
            return [int(np.float32(a).view(np.uint32))]
        if isinstance(a, (int, np.integer)):
            return [int(a)]
        found = self.resolvers[type(a)](a)
        return found if isinstance(found, list) else [found]

    def program(self, steps: list[Step]) -> np.ndarray:
        addresses = self.device.library.load({s.kernel for s in steps})
        rows = []
        for step in steps:
            block = np.array([word for a in step.args for word in self.resolve(a)], np.int64)
            self.kept.append(block)
            rows.append((addresses[step.kernel], block.ctypes.data, int(step.barrier)))
        table = np.array(rows, np.int64).reshape(len(rows), 3)
        return table
