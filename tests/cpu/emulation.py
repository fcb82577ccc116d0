"""A CPU device whose kernels are compiled for Arm, linked with a small driver and run by qemu.

Before a program runs, everything that it may point to is copied into one file, addresses adjusted; the driver maps
that file, runs the program and leaves the results in it.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.cpu import assembly
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.library import Library
from golem_core.cpu.lists import Lists
from golem_core.cpu.passes import CpuPass
from golem_core.cpu.rings import RingMemory
from golem_core.cpu.target import Target
from golem_core.graph.planner import Step

QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
COMPILER = shutil.which("aarch64-linux-gnu-gcc")
BASE = 0x20_0000_0000
"""Where the driver maps the file."""
DRIVER = """
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef void (*kernel)(int64_t, int64_t, int64_t);
%(declarations)s
static const kernel kernels[] = {%(names)s};
extern void run_program(int64_t, int64_t, int64_t, int64_t, int64_t);

int main(int argc, char **argv) { /* file, its size, where the program is in it, its rows */
    void *base = (void *)%(base)dLL;
    int64_t size = atoll(argv[2]), rows = atoll(argv[4]);
    int file = open(argv[1], O_RDWR);
    if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != base) return 1;
    int64_t *row = (int64_t *)((char *)base + atoll(argv[3]));
    for (int64_t i = 0; i < rows; i++) row[3 * i] = (int64_t)kernels[row[3 * i]];
    int64_t counter = 0;
    run_program((int64_t)row, rows, 0, 1, (int64_t)&counter);
    return 0;
}
"""


class ArmLibrary(Library):
    """Kernels by number instead of by address."""

    def __init__(self, target: Target):
        super().__init__(target)
        self.names: list[str] = []

    def load(self, names: set[str]) -> dict[str, int]:
        self.names += sorted(names - set(self.names))
        return {name: self.names.index(name) for name in names}

    def code(self, name: str) -> bytes:
        return self.cached(name) or self.compile_and_keep(name)


class Assembly(assembly.Assembly):
    """Remembers what programs point to."""

    last: assembly.Assembly | None = None

    def __init__(self, *args: Any):
        super().__init__(*args)
        Assembly.last = self


class Emulator:
    """Stands for a team of one thread."""

    def __init__(self, device: ArmDevice, folder: Path, processor: str):
        self.device, self.folder, self.processor = device, folder, processor
        self.linked: list[str] = []

    def link(self) -> Path:
        names, program = self.device.library.names, self.folder / "program"
        if names != self.linked:
            objects = []
            for name in [*names, "run_program"]:
                objects.append(self.folder / f"{name}.o")
                if not objects[-1].exists():
                    objects[-1].write_bytes(self.device.library.code(name))
            source = self.folder / "driver.c"
            declarations = "\n".join(f"extern void {name}(int64_t, int64_t, int64_t);" for name in names)
            source.write_text(DRIVER % {"declarations": declarations, "names": ", ".join(names), "base": BASE})
            assert COMPILER
            subprocess.run([COMPILER, "-O1", "-static", "-o", program, source, *objects], check=True)
            self.linked = list(names)
        return program

    def run(self, program: np.ndarray) -> None:
        if not len(program):
            return
        image = Image([program, *arrays_in([self.device, self.device.compiled, Assembly.last])])
        for address in program[:, 1]:
            image.relocate(int(address))
        table = image.words(program.ctypes.data, program.size).reshape(-1, 3)
        table[:, 1] = [image.moved(int(address)) for address in program[:, 1]]
        path, runner = self.folder / "image", self.link()
        image.bytes.tofile(path)
        place = image.moved(program.ctypes.data) - BASE
        assert QEMU
        subprocess.run(
            [QEMU, "-cpu", self.processor, runner, path, *map(str, (image.bytes.size, place, len(program)))], check=True
        )
        image.take_back(np.fromfile(path, np.uint8), keep=[program])


class ArmDevice(CpuDevice):
    def __init__(self, target: Target, processor: str, folder: Path):
        super().__init__(threads=1)
        self.library, self.compiled = ArmLibrary(target), None
        self.team = Emulator(self, folder, processor)

    def compile(self, *args: Any, **options: Any) -> CpuPass:
        self.compiled = None
        self.close()
        self.compiled = super().compile(*args, **options)
        return self.compiled

    def take_turns(self, steps: list[Step]) -> None:
        """One after the other: the driver knows no tables within tables."""
        self.team.run(Assembly(self, {}).program(steps))


def arrays_in(found: Any, seen: set[int] | None = None) -> Iterator[np.ndarray]:
    """Every array that can be reached from an object of the device."""
    seen = set() if seen is None else seen
    if isinstance(found, np.ndarray):
        if found.nbytes and found.flags.c_contiguous:  # others are views of what is found anyway
            yield found
    elif isinstance(found, (list, tuple)):
        for each in found:
            yield from arrays_in(each, seen)
    elif isinstance(found, dict):
        for each in found.values():
            yield from arrays_in(each, seen)
    elif isinstance(found, (CpuDevice, CpuPass, assembly.Assembly, RingMemory, Lists)) and id(found) not in seen:
        seen.add(id(found))
        yield from arrays_in(vars(found), seen)


class Image:
    """Copies of arrays at the addresses that the driver sees them at."""

    def __init__(self, arrays: list[np.ndarray]):
        spans = sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays)
        self.spans: list[tuple[int, int]] = []
        for start, stop in spans:
            if self.spans and start < self.spans[-1][1]:
                start, stop = self.spans[-1][0], max(stop, self.spans.pop()[1])
            self.spans.append((start, stop))
        self.starts = [start for start, _ in self.spans]
        self.places, at = [], 0
        for start, stop in self.spans:
            at += (start - at) % 64
            self.places.append(at)
            at += stop - start + 64
        self.bytes = np.zeros(-(-at // 4096) * 4096, np.uint8)
        for (start, stop), place in zip(self.spans, self.places, strict=True):
            self.bytes[place : place + stop - start] = memory(start, stop - start)

    def moved(self, address: int) -> int:
        """The driver's address for one of ours; other numbers stay as they are."""
        i = bisect_right(self.starts, address) - 1
        if i >= 0 and address <= self.spans[i][1]:
            return BASE + self.places[i] + address - self.starts[i]
        assert not 1 << 44 < address < 1 << 48, f"{address:#x} points to nothing known"
        return address

    def words(self, address: int, count: int) -> np.ndarray:
        place = self.moved(address) - BASE
        return self.bytes[place : place + 8 * count].view(np.int64)

    def relocate(self, block: int) -> None:
        """Adjusts the addresses in a step's block of arguments."""
        i = bisect_right(self.starts, block) - 1
        block_words = self.words(block, (self.spans[i][1] - block) // 8)
        block_words[:] = [self.moved(int(word)) for word in block_words]

    def take_back(self, results: np.ndarray, keep: list[np.ndarray]) -> None:
        kept = [array.copy() for array in keep]
        for (start, stop), place in zip(self.spans, self.places, strict=True):
            ours, theirs = memory(start, stop - start), results[place : place + stop - start]
            if not np.array_equal(self.bytes[place : place + stop - start], theirs):
                ours[:] = theirs
        for array, before in zip(keep, kept, strict=True):
            array[:] = before


def memory(address: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
