"""The whole table of ops on the Vulkan device that is here, against the numpy meanings: without matrices, with them,
and with products of few columns going through fragments, slab by slab, as those of many do.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from golem_vulkan.device import KV, VulkanDevice
from golem_vulkan.lowering import forms, tiles

from golem_core import Graph, Reference

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from graph.op_cases import CASES, Case

SLAB = 1 << 15
"""Bytes of a slab with fragments: less than the largest weights of the table have."""
WAYS = ("without matrices", "with matrices", "with fragments")


def worst(device: VulkanDevice, case: Case) -> tuple[float, str]:
    """The largest error, relative to the largest entry, and where it was."""
    g = Graph()
    case.build(g, np.random.default_rng(7))
    slots = 1 + max(int(p.slot.max()) for p in case.passes)
    context = 1 + max(int(p.position.max()) for p in case.passes)
    width = max(len(p) for p in case.passes)
    compiled = device.compile(g, slots=slots, context=context, width=width, scored=width)
    reference = Reference(g, slots=slots, context=context, round_input=device.round_input)
    found = 0.0, ""
    for columns in case.passes:
        got, want = compiled.run(columns), reference.run(columns)
        for name in want:
            if want[name].size:
                error = float(np.abs(got[name] - want[name]).max() / max(np.abs(want[name]).max(), 1e-9))
                if not error <= found[0]:
                    found = error, f"{name} over {len(columns)} columns"
    compiled.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", help="beginnings of names; by default every case")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--kv", default="f16", choices=KV, help="how keys and values are kept")
    arguments = parser.parse_args()
    for way in arguments.ways:
        matrices = way != "without matrices"
        device, start, count = VulkanDevice(kv=arguments.kv, matrices=matrices), time.perf_counter(), 0
        failed: list[str] = []
        if matrices and not device.matrices:
            print("no cooperative matrices")
            break
        if way == "with fragments":
            if not device.fragments:
                print("no fragments")
                break
            forms.FRAGMENTED = tiles.MANY_COLUMNS = forms.SIXTEEN
            tiles.SLAB = SLAB
        print(device.adapter.summary)
        for case in CASES:
            if arguments.cases and not case.name.startswith(tuple(arguments.cases)):
                continue
            if arguments.kv == "q8_0" and case.byte_tolerance is None:
                continue
            error, where = worst(device, case)
            own = case.half_tolerance if arguments.kv == "f16" else case.byte_tolerance
            allowed = max(own or case.tolerance, device.product_tolerance)
            count += 1
            if not error <= allowed:
                failed.append(f"{case.name}: {error:.2e} of {allowed:.0e} allowed, {where}")
        device.close()
        seconds = time.perf_counter() - start
        print(*failed, f"{way}: {count} cases, {len(failed)} failed, {seconds:.1f} s", sep="\n", flush=True)


if __name__ == "__main__":
    main()
