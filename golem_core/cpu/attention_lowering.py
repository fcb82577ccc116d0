"""The part of the CPU's table that turns heads, keeps keys and values, and attends."""

from __future__ import annotations

import numpy as np

from golem_core.cpu.arguments import Constant, Counter, RingFact, Scratch, Vector
from golem_core.cpu.kernels.cells import block_bytes
from golem_core.cpu.kernels.rotation import name_of
from golem_core.cpu.kernels.scores import PARTS, room_bytes
from golem_core.errors import Unsupported
from golem_core.graph.ops import rope_frequencies
from golem_core.graph.planner import Count, Fact, Match, Operand, Planner, State, replace
from golem_core.graph.value import ALL, RUNS, KVRing, Node

EVERYTHING = 1 << 40
"""The window of attention that sees every position."""


def frequencies_of(node: Node) -> np.ndarray:
    """Of a rotation: what every pair's position or place is multiplied by, float64 (pairs,)."""
    if node.op.name == "rope_at":
        return np.asarray(node["frequencies"], np.float64)
    factors = node["factors"]
    return rope_frequencies(
        node["x"].shape[-1],
        base=node["base"],
        dims=node["dims"],
        factors=None if factors is None else factors.dequantize(),
        scale=node["scale"],
    )


def in_one_block(node: Node) -> bool:
    """Whether the pairs of a rotation lie as those of a single block do."""
    return node.args.get("blocks", 1) == 1 or node["pairs"] == "neighbours"


def ring_facts(ring: KVRing) -> list[RingFact]:
    """What kernels want to know of a ring behind the address of its keys."""
    return [RingFact(ring, name) for name in ("values", "length", "slot_bytes", "chunk", "chunk_bytes")]


class AttentionLowering:
    """Emitters for a device whose rings hold `kv` ("f16", "f32" or "q8_0")."""

    def __init__(self, kv: str):
        self.kv = kv

    def angles(self, p: Planner, node: Node, rows: str) -> tuple[Operand, int, int]:
        """(angles of a rotation, pairs rounded up to a multiple of 4, components turned)."""
        frequencies = frequencies_of(node)
        count = len(frequencies)
        pairs = -(-count // 4) * 4
        padded = np.zeros(pairs, np.float64)
        padded[:count] = frequencies
        stride = -(-pairs * 8 // 64) * 64
        if node.op.name == "rope":

            def emit(y: Operand) -> None:
                p.step("rope_angles", Fact(rows, "position"), Constant(padded), y, y.stride, pairs, Count(rows))

            return p.share(padded.tobytes(), rows, stride, emit), pairs, 2 * count
        axes = np.zeros(pairs, np.int64)
        axes[:count] = node["axes"]

        def emit_at(y: Operand) -> None:
            at = p.read(node["at"], rows=rows)
            p.step(
                "rope_at_angles", at, at.stride, Constant(axes), Constant(padded), y, y.stride, pairs, Count(rows)
            )  # fmt: skip

        key = node["at"], padded.tobytes(), axes.tobytes()
        return p.share(key, rows, stride, emit_at), pairs, 2 * count

    def rope(self, p: Planner, node: Node) -> None:
        self.emit_rope(p, {"rope": node})

    rope_at = rope

    def emit_rope(self, p: Planner, m: Match) -> None:
        node, norm = m["rope"], m.get("norm")
        heads, dim = node["x"].shape
        x = p.read(norm["x"] if norm else node["x"])
        y = p.write(node.results[0])
        table, pairs, turned = self.angles(p, node, y.rows)
        several = not in_one_block(node)
        p.step(
            name_of("rope", "blocks" if several else node["pairs"], norm is not None), x, x.stride, y, y.stride, table,
            table.stride, pairs, turned, Vector(norm["weight"]) if norm else 0, heads, dim, Count(y.rows),
            float(norm["eps"]) if norm else 0.0, *([node["blocks"]] if several else []),
        )  # fmt: skip

    def store(self, p: Planner, node: Node) -> None:
        self.emit_store(p, {"store": node})

    def emit_store(self, p: Planner, m: Match) -> None:
        node, rope, norm = m["store"], m.get("rope"), m.get("norm")
        ring = node["ring"]
        multiple = 32 if self.kv == "q8_0" else 16
        if ring.dim % multiple:
            raise Unsupported(
                f"store: heads of {ring.dim} components; with -kv {self.kv} the CPU takes multiples of {multiple}"
            )
        if self.kv == "q8_0" and ring.dim > 32 * PARTS:
            raise Unsupported(f"store: heads of {ring.dim} components; -kv q8_0 takes {32 * PARTS} at most")
        first = norm or rope
        k = p.read(first["x"] if first else node["k"])
        v = p.read(node["v"])
        table, pairs, turned = self.angles(p, rope, k.rows) if rope else (None, 0, 0)
        p.step(
            name_of(f"store_{self.kv}", rope["pairs"] if rope else None, norm is not None), k, k.stride, v, v.stride,
            State(ring, writes=True), *ring_facts(ring), ring.heads, ring.dim, Fact(k.rows, "position"),
            Fact(k.rows, "slot"), Count(k.rows), table if table else 0, table.stride if table else 0, pairs, turned,
            Vector(norm["weight"]) if norm else 0, Scratch(4 * ring.dim), float(norm["eps"]) if norm else 0.0,
        )  # fmt: skip

    def attend(self, p: Planner, node: Node) -> None:
        ring, (heads, dim), window = node["cache"].ring, node["q"].shape, node["window"]
        q, y = p.read(node["q"]), p.write(node.results[0])
        p.step(
            f"attend_{self.kv}", q, q.stride, State(ring), *ring_facts(ring), y, y.stride,
            Fact(y.rows, "position"), Fact(y.rows, "slot"), heads, ring.heads, dim, window or EVERYTHING,
            Count(y.rows), Scratch(room_bytes(dim)), Counter(),
            Fact(y.rows, "last" if node["spans"] else "position"), float(node["scale"]), float(node["softcap"] or 0),
        )  # fmt: skip

    def attend_columns(self, p: Planner, node: Node) -> None:
        (heads, dim), kv_heads, window = node["q"].shape, node["k"].shape[0], node["window"]
        q, k, v = p.read(node["q"]), p.read(node["k"], rows=ALL), p.read(node["v"], rows=ALL)
        padded = -(-dim // 16) * 16
        positions = -(-p.capacity[ALL] // 16) * 16 + 16 * p.capacity[RUNS]
        head_bytes = positions // 16 * block_bytes("f32", padded)
        keys, values = (p.workspace(("columns", half), kv_heads * head_bytes) for half in ("keys", "values"))
        p.step(
            "pack_columns", k, k.stride, v, v.stride, replace(keys, writes=True), replace(values, writes=True),
            head_bytes, kv_heads, dim, padded, *(Fact(RUNS, name) for name in ("first", "length", "aligned")),
            Count(RUNS),
        )  # fmt: skip
        y = p.write(node.results[0])
        facts = (Fact(y.rows, name) for name in ("slot", "index", "first", "end", "aligned"))
        p.step(
            "attend_columns", q, q.stride, keys, values, head_bytes, y, y.stride, *facts, heads, kv_heads, dim, padded,
            EVERYTHING if window is None else window, Count(y.rows), Scratch(room_bytes(padded)), Counter(),
            float(node["scale"]),
        )  # fmt: skip
