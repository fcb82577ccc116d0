"""A Vulkan device: compiles any graph of the vocabulary into recorded command buffers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from golem_core import Graph, Plan, Planner, Unsupported, Weight
from golem_vulkan.adapters import Instance, choose
from golem_vulkan.formats import layout_of
from golem_vulkan.fragments import held
from golem_vulkan.gpu import Gpu
from golem_vulkan.lowering import forms, table
from golem_vulkan.needs import work_out
from golem_vulkan.notices import say_once
from golem_vulkan.passes import VulkanPass, buckets, ring_bytes, ring_length
from golem_vulkan.pipelines import Pipelines
from golem_vulkan.steps import Matrix, Vector
from golem_vulkan.target import Target, groups_of
from golem_vulkan.weights import WeightStore

MOST_SLAB, SLABS = 256 << 20, 64
"""Most bytes of a widened slab of a weight; how many would take the device's memory."""
MOST_PLANNED = 4
"""Sizes of passes whose plans are kept for a graph."""
KV = ("f16", "q8_0")
"""How keys and values can be kept."""
WIDTH = 512
"""Most columns of a pass unless the caller asks for another number."""


class VulkanDevice:
    """The device `number` of those that `golem devices` lists, by default the first.

    `kv`: how keys and values are kept, "f16" or "q8_0".  `host_experts`: the weights of experts stay in the host's
    memory.  `validate`: the validation layer watches, and a pass of which it complains fails.  Raises Unsupported
    naming what is missing.
    """

    name = "vulkan"

    @property
    def product_tolerance(self) -> float:
        """How far products may lie from those of activations rounded by `round_input`, relative to the largest.

        Cooperative matrices read float16.  And where a device's division is not correctly rounded, an activation that
        lies in the middle of two steps of 8 bits may be put on the other one.
        """
        if self.matrices:
            return 2e-2
        return 0.0 if self.adapter.kind == "processor" else 2e-3

    def __init__(
        self,
        number: int | None = None,
        *,
        kv: str = "f16",
        host_experts: bool = False,
        matrices: bool = True,
        validate: bool = False,
        cache: Path | None = None,
    ):
        if kv not in KV:
            raise Unsupported(f"-kv {kv}: vulkan keeps keys and values as {' or '.join(KV)}")
        self.kv = kv
        self.instance = Instance(validate=validate)
        try:
            self.adapter = choose(self.instance.adapters(), number)
            self.gpu = Gpu(self.adapter)
        except BaseException:
            self.instance.close()
            raise
        self.complaints = self.instance.complaints
        self.host_experts = host_experts
        self.matrices = matrices and "cooperativeMatrix" in self.adapter.features
        self.pipelines = Pipelines(self.gpu, cache)
        self.fragments = self.matrices and held(self.gpu, self.pipelines)
        self.weights = WeightStore(self.gpu, self.pipelines)
        self.passes: list[VulkanPass] = []
        self.planned: WeakKeyDictionary[Graph, dict[Any, dict[int, Plan]]] = WeakKeyDictionary()

    def compile(
        self,
        graph: Graph,
        *,
        slots: int = 1,
        context: int = 4096,
        width: int = WIDTH,
        scored: int | None = None,
        tentative: int = 0,
        fuse: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> VulkanPass:
        """Takes over the weights of `graph` (once, however many graphs read them) and makes its states.

        `context` is positions per slot, `width` the most columns of a pass, `scored` (default: one per slot) the most
        of them that are scored, `tentative` the most of a run that may be taken back.  `progress(done, total)` counts
        bytes of weights; before it, a line on standard error tells what memory is needed, once for weights that come
        and go.  Raises Unsupported naming the op or weight that there are no kernels for, GolemError where it doesn't
        fit the device's memory.
        """
        width = min(width, -(-context // 16) * 16 * slots)
        capacity = {"all": width, "scored": min(width, scored or slots), "runs": min(width, slots)}
        plans = self.plans_of(graph, capacity, context, fuse)
        matrices, vectors = weights_of(plans)
        new = [w for w in matrices if w not in self.weights.matrices]
        in_host = {w for w in new if self.host_experts and len(w.shape) == 3}
        rings = sum(2 * ring_bytes(ring, ring_length(ring, context, width), slots, self.kv) for ring in graph.rings)
        needs, free = work_out(graph, plans, new, in_host, rings, slots, tentative), self.gpu.free_memory()
        needs.check(self.adapter, free)
        if progress is not None and new:
            say_once(needs.told(self.adapter, free), needs.named(self.adapter))
        self.weights.take(new, vectors, in_host, progress)
        made = VulkanPass(self, graph, plans, slots, context, capacity, tentative)
        self.passes.append(made)
        return made

    def plans_of(self, graph: Graph, capacity: dict[str, int], context: int, fuse: bool) -> dict[int, Plan]:
        """A plan for each width of a pass; of the same graph made once, however many passes run it."""
        size = len(graph.nodes), len(graph.outputs)
        known, key = self.planned.setdefault(graph, {}), (size, *capacity.values(), context, fuse)
        if key not in known:
            plans = {}
            for bucket in buckets(capacity["all"]):
                rows = {name: min(bucket, count) for name, count in capacity.items()}
                target = self.target(rows, context)
                if self.fragments and bucket >= forms.FRAGMENTED:
                    rows = {name: groups_of(count, forms.SIXTEEN) * forms.SIXTEEN for name, count in rows.items()}
                plans[bucket] = Planner(graph, table(target), rows, fuse=fuse).plan()
            while len(known) >= MOST_PLANNED:
                del known[next(iter(known))]
            known[key] = plans
        return known[key]

    def target(self, rows: dict[str, int], context: int) -> Target:
        return Target(
            self.adapter.subgroup,
            self.adapter.most_threads,
            self.matrices,
            self.adapter.kind == "processor",
            context,
            rows,
            self.fragments,
            kv=self.kv,
            slab=min(MOST_SLAB, self.adapter.memory // SLABS),
        )

    def round_input(self, weight: Weight, x: np.ndarray) -> np.ndarray:
        """Activations x (..., width) as a product with `weight` reads them: in 8-bit blocks for quantized weights."""
        if layout_of(weight).floats:
            return x
        blocks = np.asarray(x, np.float32).reshape(-1, 32)
        most = np.abs(blocks).max(1, keepdims=True)
        inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
        return (np.rint(blocks * inverse) * (most / np.float32(127))).astype(np.float32).reshape(x.shape)

    def free_memory(self) -> int:
        """Bytes that may still be allocated of the device's own memory."""
        return self.gpu.free_memory()

    def close(self) -> None:
        """Lets go of the weights, and of every pass."""
        self.pipelines.save()
        for made in [*self.passes]:
            made.close()
        self.weights.close()
        self.pipelines.close()
        self.gpu.close()
        self.instance.close()


def weights_of(plans: dict[int, Plan]) -> tuple[list[Weight], list[Weight]]:
    """The weights that products read, and those that are read as float32; each once."""
    fields = [a for plan in plans.values() for step in plan.steps for a in step.args]
    matrices = dict.fromkeys(a.weight for a in fields if isinstance(a, Matrix))
    vectors = dict.fromkeys(a.weight for a in fields if isinstance(a, Vector))
    return list(matrices), list(vectors)
