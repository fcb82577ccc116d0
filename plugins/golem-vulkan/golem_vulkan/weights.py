"""Weights in device memory: uploaded through a staging buffer in pieces and repacked by the device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from golem_core import Weight, refuse_nan
from golem_vulkan.formats import UNIT, device_bytes, layout_of, row_units, units
from golem_vulkan.gpu import Gpu
from golem_vulkan.memory import Arenas, Block
from golem_vulkan.pipelines import Pipelines
from golem_vulkan.recording import COMPUTE, TRANSFER, Copy, Recording
from golem_vulkan.steps import Launch, push_constants

STAGING = 32 << 20
"""Bytes of each of the two buffers through which weights pass."""
REPACKERS = 64
"""Threads of a workgroup, one unit each."""


@dataclass(frozen=True, eq=False)
class Repacked:
    """A weight in device memory.  `planes`: where its planes begin, in steps of 256 bytes; of F8_E4M3, which has none,
    the bits of its scale come first."""

    block: Block
    planes: tuple[int, int, int]


class Stage:
    """One of the two staging buffers: the host fills `upload` while the device works through the other's."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines, size: int):
        self.memory = Arenas(gpu, "upload"), Arenas(gpu, "device")
        self.upload, self.raw = self.memory[0].take(size), self.memory[1].take(size)
        self.recording = Recording(gpu, pipelines)

    def close(self) -> None:
        self.recording.close()
        for arena in self.memory:
            arena.close()


class WeightStore:
    """Every weight once, however many passes read it."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines):
        self.gpu, self.pipelines = gpu, pipelines
        self.arenas = {kind: Arenas(gpu, kind) for kind in ("device", "host")}
        self.matrices: dict[Weight, Repacked] = {}
        self.vectors: dict[Weight, Block] = {}
        self.constants: dict[bytes, Block] = {}

    def take(
        self,
        matrices: Iterable[Weight],
        vectors: Iterable[Weight],
        in_host: Collection[Weight],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Uploads what isn't there yet.  Weights in `in_host` stay in the host's memory, where the device
        reads them.  `progress(done, total)` counts bytes of matrices as they lie in the file."""
        new = [w for w in dict.fromkeys(matrices) if w not in self.matrices]
        small = [w for w in dict.fromkeys(vectors) if w not in self.vectors]
        if not new and not small:
            return
        left = {kind: sum(device_bytes(w) for w in new if (w in in_host) == (kind == "host")) for kind in self.arenas}
        size = min(STAGING, max([1 << 20, *(w.nbytes for w in new)]))
        size = max([size, *(w.row_nbytes for w in new), *(4 * w.width * w.rows for w in small)])
        stages = [Stage(self.gpu, self.pipelines, size) for _ in range(2)]
        total, done, busy = sum(w.nbytes for w in new), 0, False
        try:
            for w in small:
                self.vectors[w] = self.put(w.dequantize().astype(np.float32), stages[0])
            turn = 0
            for w in new:
                kind = "host" if w in in_host else "device"
                need = device_bytes(w)
                left[kind] -= need
                block = self.arenas[kind].take(need, left[kind])
                ends = layout_of(w).planes(units(w))
                at = ends[0] // 256, ends[1] // 256, ends[2] // 256
                known = (int(np.float32(w.scale).view(np.uint32)), 0, 0) if w.type == "F8_E4M3" else at
                each = max(1, size // w.row_nbytes)
                for first in range(0, w.rows, each):
                    count = min(each, w.rows - first)
                    stage, turn = stages[turn], 1 - turn
                    data = w.data[first * w.row_nbytes : (first + count) * w.row_nbytes]
                    refuse_nan(w, data)
                    assert stage.upload.bytes is not None
                    stage.upload.bytes[: data.nbytes] = data
                    if busy:
                        self.gpu.wait()
                    self.repack(w, stage, block, at, first, count)
                    busy = True
                    done += data.nbytes
                    if progress:
                        progress(done, total)
                self.matrices[w] = Repacked(block, known)
        finally:
            if busy:
                self.gpu.wait()
            for stage in stages:
                stage.close()

    def repack(
        self, w: Weight, stage: Stage, block: Block, planes: tuple[int, int, int], first: int, count: int
    ) -> None:
        """Hands over the copy and the repacking of `count` rows from `first`; the caller waits."""
        r, per_row = stage.recording, row_units(w)
        r.begin()
        r.copy([Copy(stage.upload, stage.raw, count * w.row_nbytes)])
        r.barrier(TRANSFER, COMPUTE)
        fields = stage.raw.address, block.address, *planes, first * per_row, count * per_row, w.width
        data = push_constants([Address(fields[0]), Address(fields[1]), *fields[2:]], lambda a: a.value)
        groups = -(-count * per_row // REPACKERS)
        r.dispatch(f"repack_{w.type}", Launch((REPACKERS,), (groups, 1, 1)), data)
        self.gpu.submit(r.end())

    def put(self, array: np.ndarray, stage: Stage) -> Block:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        block = self.arenas["device"].take(data.nbytes, 1 << 20)
        assert stage.upload.bytes is not None
        stage.upload.bytes[: data.nbytes] = data
        stage.recording.begin()
        stage.recording.copy([Copy(stage.upload, block, data.nbytes)])
        self.gpu.run(stage.recording.end())
        return block

    def constant(self, array: np.ndarray) -> Block:
        """The same bytes once."""
        key = array.tobytes()
        if key not in self.constants:
            stage = Stage(self.gpu, self.pipelines, max(len(key), UNIT))
            try:
                self.constants[key] = self.put(array, stage)
            finally:
                stage.close()
        return self.constants[key]

    def close(self) -> None:
        for arena in self.arenas.values():
            arena.close()
        self.matrices, self.vectors, self.constants = {}, {}, {}


@dataclass(frozen=True)
class Address:
    value: int
