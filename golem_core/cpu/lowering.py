"""The CPU's table: which kernels an op becomes, in which forms they read values, and which ops go together."""

from __future__ import annotations

from math import prod

import numpy as np

from golem_core.cpu.arguments import Constant, Counter, Matrix, Scratch, Table, Vector
from golem_core.cpu.attention_lowering import AttentionLowering, in_one_block
from golem_core.cpu.convolution_lowering import ConvolutionLowering, scale_of, weight_format
from golem_core.cpu.kernels import orders, products, quantize
from golem_core.files.weights import Weight
from golem_core.graph.looks import source
from golem_core.graph.planner import (
    F32,
    Count,
    Fact,
    Fusion,
    Lowering,
    Match,
    Operand,
    Pattern,
    Planner,
    replace,
)
from golem_core.graph.value import ALL, RUNS, Node, Value

SAME_SETS = 16
"""Rows of activations a multiple of so many lines of cache apart would share a part of the nearest cache's sets, and
products read several rows at once."""


class CpuLowering(AttentionLowering, ConvolutionLowering):
    """The emitters, for a device whose rings hold `kv` ("f16", "f32" or "q8_0")."""

    # ------------------------------------------------------------ forms

    def table(self) -> Lowering:
        entrywise = (
            "add",
            "clip",
            "elu",
            "gelu",
            "mul",
            "relu",
            "scale",
            "sigmoid",
            "silu",
            "slice",
            "softcap",
            "softplus",
        )
        products = (
            "embed",
            "embed_position",
            "input",
            "linear",
            "expert_linear",
            "route",
            "lookup",
            "combine",
            "table_rows",
        )
        norms = ("hadamard", "l2_norm", "layer_norm", "rms_norm", "rope", "rope_at", "transpose")
        others = (
            "attend",
            "attend_columns",
            "causal_conv1d",
            "concat",
            "conv1d",
            "conv2d",
            "delta_net",
            "pool",
            "prepend",
            "store",
            "upsample",
            *norms,
            *products,
        )
        plain = {name: getattr(self, name) for name in (*entrywise, *others)}
        return Lowering(plain, self.fusions(), self.form, self.stride, self.convert, self.gather, runs=True)

    def form(self, node: Node, name: str) -> str:
        if name != "x" or node.op.name not in ("linear", "expert_linear"):
            return F32
        form = weight_format(node["weight"]).form
        parts = node["x"].shape[0] if node.op.name == "expert_linear" and len(node["x"].shape) == 2 else 1
        return form if parts == 1 or form == F32 else f"{form}*{parts}"

    def stride(self, size: int, form: str) -> int:
        if form == F32:
            lines = -(-size // 16)
            return 64 * (lines + (lines % SAME_SETS == 0))
        _, _, parts = form.partition("*")
        return quantize.stride(size // int(parts or 1)) * int(parts or 1)

    def convert(self, p: Planner, value: Value, form: str) -> None:
        kind, _, parts = form.partition("*")
        rows = p.rows[value]
        x, y = p.read(value, rows=rows), p.write(value, form)
        features = value.size // int(parts or 1)
        p.step(
            f"quantize_{kind}",
            x,
            x.stride,
            y,
            y.stride,
            features,
            quantize.stride(features),
            int(parts or 1),
            Count(rows),
        )

    def gather(self, p: Planner, x: Operand, y: Operand) -> None:
        p.step("gather", x, x.stride, y, y.stride, Fact(y.rows, "index"), Count(y.rows))

    # ------------------------------------------------------------ tables and products

    def embed(self, p: Planner, node: Node) -> None:
        self.rows_by("token", p, node)

    def embed_position(self, p: Planner, node: Node) -> None:
        self.rows_by("position", p, node)

    def rows_by(self, fact: str, p: Planner, node: Node) -> None:
        table, y = node["table"], p.write(node.results[0])
        room = Scratch(max(64, weight_format(table).bytes8))
        p.step(
            f"embed_{table.type}", Table(table), Fact(y.rows, fact), y, y.stride, table.rows, table.width,
            Count(y.rows), room, *scale_of(table),
        )  # fmt: skip

    def table_rows(self, p: Planner, node: Node) -> None:
        table, ids, y = node["table"], p.read(node["ids"]), p.write(node.results[0])
        p.step(
            f"table_rows_{table.type}", Table(table), ids, ids.stride, y, y.stride, table.rows, table.width,
            node["ids"].size, Count(y.rows), Scratch(max(64, weight_format(table).bytes8)), *scale_of(table),
        )  # fmt: skip

    def input(self, p: Planner, node: Node) -> None:
        p.prepare("input", node["name"], p.write(node.results[0], before_steps=True))

    def linear(self, p: Planner, node: Node) -> None:
        w = node["weight"]
        x, y = p.read(node["x"], self.form(node, "x")), p.write(node.results[0])
        self.product(p, w, x, y)
        if node["bias"] is not None:
            out = replace(y, writes=False)
            p.step("add_vector", out, y.stride, Vector(node["bias"]), y, y.stride, 1, w.rows, Count(y.rows))

    def expert_linear(self, p: Planner, node: Node) -> None:
        w, ids, form = node["weight"], node["ids"], self.form(node, "x")
        x, y = p.read(node["x"], form), p.write(node.results[0])
        parts = len(node["x"].shape) == 2
        stride = (w.width * 4 if form == F32 else quantize.stride(w.width)) if parts else 0
        self.product(p, w, x, y, self.order(p, ids, w.shape[0], y.rows), stride, ids.size)

    def product(
        self,
        p: Planner,
        w: Weight,
        x: Operand,
        y: Operand,
        order: Operand | None = None,
        stride: int = 0,
        chosen: int = 1,
    ) -> None:
        """A weight times columns; with an order, by `chosen` experts each, whose inputs are `stride` bytes apart."""
        experts, rows = (w.shape[0], w.shape[1]) if order else (1, w.rows)
        p.step(
            f"linear_{w.type}", Matrix(w), x, x.stride, stride, y, y.stride, rows, w.width, Count(y.rows),
            order or 0, experts, Scratch(products.scratch_bytes(p.capacity[y.rows] * chosen)), Counter(),
            *scale_of(w),
        )  # fmt: skip

    def order(self, p: Planner, ids: Value, experts: int, rows: str) -> Operand:
        """The pairs of columns and chosen experts, sorted by expert: one order for all products of a mixture."""

        def emit(y: Operand) -> None:
            x = p.read(ids)
            p.step("expert_order", x, x.stride, y, experts, ids.size, Count(rows))

        return p.share(("order", source(ids), experts), rows, orders.PAIR * ids.size, emit, orders.head_bytes(experts))

    def route(self, p: Planner, node: Node) -> None:
        scores = node["scores"]
        x, ids, shares = p.read(scores), p.write(node.results[0]), p.write(node.results[1])
        room = Scratch(4 * scores.size)
        p.step(
            "route", x, x.stride, ids, ids.stride, shares, shares.stride,
            scores.size, node["count"], Count(ids.rows), room, int(node["normalize"]),
        )  # fmt: skip

    def lookup(self, p: Planner, node: Node) -> None:
        ids, y = p.read(node["ids"]), p.write(node.results[0])
        p.step("lookup", Vector(node["weight"]), ids, ids.stride, y, y.stride, node["ids"].size, Count(y.rows))

    def combine(self, p: Planner, node: Node) -> None:
        x, shares, y = p.read(node["x"]), p.read(node["shares"]), p.write(node.results[0])
        count, features = node["x"].shape
        p.step("combine", x, x.stride, shares, shares.stride, y, y.stride, count, features, Count(y.rows))

    # ------------------------------------------------------------ entry by entry

    def unary(self, p: Planner, node: Node, by: float = 0.0) -> None:
        x = p.read(node["x"])
        y = p.write(node.results[0], over=x)
        p.step(activation_name(node), x, x.stride, y, y.stride, node["x"].size, Count(y.rows), by)

    elu = gelu = relu = sigmoid = silu = softplus = unary

    def scale(self, p: Planner, node: Node) -> None:
        self.unary(p, node, float(node["by"]))

    def softcap(self, p: Planner, node: Node) -> None:
        self.unary(p, node, float(node["cap"]))

    def clip(self, p: Planner, node: Node) -> None:
        x = p.read(node["x"])
        y = p.write(node.results[0], over=x)
        low, high = float(node["low"]), float(node["high"])
        p.step("clip", x, x.stride, y, y.stride, node["x"].size, Count(y.rows), low, high)

    def binary(self, p: Planner, node: Node) -> None:
        a, b, name = node["a"], node["b"], node.op.name
        x = p.read(a)
        if isinstance(b, Weight):
            y = p.write(node.results[0], over=x)
            if prod(b.shape) == 1:
                p.step(f"{name}_number", x, x.stride, Vector(b), y, y.stride, a.size, Count(y.rows))
            else:
                lead = a.size // a.shape[-1]
                p.step(f"{name}_vector", x, x.stride, Vector(b), y, y.stride, lead, a.shape[-1], Count(y.rows))
            return
        z = p.read(b)
        apart = x.buffer is not z.buffer or x.start == z.start
        y = p.write(node.results[0], over=x if apart else None)
        if x.rows == z.rows:
            p.step(name, x, x.stride, z, z.stride, y, y.stride, a.size, Count(y.rows))
        else:
            x, z = (z, x) if x.rows == RUNS else (x, z)
            p.step(
                f"{name}_run", x, x.stride, z, z.stride, Fact(y.rows, "run"), y, y.stride, a.size, Count(y.rows)
            )  # fmt: skip

    add = mul = binary

    def concat(self, p: Planner, node: Node) -> None:
        a, b = node["a"], node["b"]
        x, z, y = p.read(a), p.read(b), p.write(node.results[0])
        p.step(
            "concat", x, x.stride, z, z.stride, y, y.stride, a.size // a.shape[-1], a.shape[-1], b.shape[-1],
            Count(y.rows),
        )  # fmt: skip

    def slice(self, p: Planner, node: Node) -> None:
        x, y, shape = p.read(node["x"]), p.write(node.results[0]), node["x"].shape
        lead, n = node["x"].size // shape[-1], node["stop"] - node["start"]
        p.step("slice", x, x.stride, y, y.stride, lead, shape[-1], node["start"], n, Count(y.rows))

    def transpose(self, p: Planner, node: Node) -> None:
        x, y, (a, b, *rest) = p.read(node["x"]), p.write(node.results[0]), node["x"].shape
        p.step("transpose", x, x.stride, y, y.stride, a, b, prod(rest), Count(y.rows))

    # ------------------------------------------------------------ norms and attention

    def rms_norm(self, p: Planner, node: Node) -> None:
        x, w, shape = p.read(node["x"]), node["weight"], node["x"].shape
        y, lead = p.write(node.results[0], over=x), node["x"].size // shape[-1]
        p.step(
            "rms_norm_weighted" if w else "rms_norm", x, x.stride, Vector(w) if w else 0, y, y.stride,
            lead, shape[-1], Count(y.rows), float(node["eps"]),
        )  # fmt: skip

    def layer_norm(self, p: Planner, node: Node) -> None:
        x, y, shape = p.read(node["x"]), p.write(node.results[0]), node["x"].shape
        lead = node["x"].size // shape[-1]
        p.step(
            "layer_norm", x, x.stride, *scale_and_shift(node), y, y.stride, lead, shape[-1], Count(y.rows),
            float(node["eps"]),
        )  # fmt: skip

    def l2_norm(self, p: Planner, node: Node) -> None:
        x, y, shape = p.read(node["x"]), p.write(node.results[0]), node["x"].shape
        lead = node["x"].size // shape[-1]
        p.step("l2_norm", x, x.stride, y, y.stride, lead, shape[-1], Count(y.rows), float(node["eps"]))

    def hadamard(self, p: Planner, node: Node) -> None:
        x, y, block = p.read(node["x"]), p.write(node.results[0]), node["block"]
        p.step("hadamard", x, x.stride, y, y.stride, node["x"].size // block, block, Count(y.rows), block**-0.5)

    def pool(self, p: Planner, node: Node) -> None:
        x, y = p.read(node["x"], rows=ALL), p.write(node.results[0])
        first, length = Fact(RUNS, "first"), Fact(RUNS, "length")
        p.step(f"pool_{node['how']}", x, x.stride, y, y.stride, node["x"].size, first, length, Count(RUNS))

    # ------------------------------------------------------------ fusions

    def fusions(self) -> tuple[Fusion, ...]:
        outputs = frozenset({F32, "q32", "q256"})
        turned_norm = Pattern(("rope", "rope_at"), "rope", {"x": Pattern(("rms_norm",), "norm")})
        normed_branch = Pattern(("rms_norm",), "post")
        with_post = Pattern(("add",), "sum", {"b": normed_branch}, keep=True)
        without_post = Pattern(("add",), "sum", keep=True)

        def residual(inner: Pattern | None) -> Fusion:
            pattern = Pattern(("rms_norm",), "norm", {"x": inner} if inner else {})
            return Fusion(pattern, outputs, self.emit_residual_norm, self.norms_whole_rows)

        def store_of(inner: Pattern) -> Fusion:
            return Fusion(Pattern(("store",), "store", {"k": inner}), frozenset(), self.emit_store, self.turns_keys)

        return (
            residual(with_post),
            residual(without_post),
            residual(None),
            *(
                Fusion(
                    Pattern(("layer_norm",), "norm", {"x": inner} if inner else {}),
                    outputs,
                    self.emit_residual_layer_norm,
                    self.layer_norm_of_a_row,
                )
                for inner in (without_post, None)
            ),
            Fusion(
                Pattern(("mul",), "mul", {"a": Pattern(("gelu", "relu", "sigmoid", "silu"), "act")}),
                outputs,
                self.emit_gated,
                values_only,
            ),
            store_of(turned_norm),
            store_of(Pattern(("rope", "rope_at"), "rope")),
            Fusion(turned_norm, frozenset({F32}), self.emit_rope, self.weighted_norm),
        )

    @staticmethod
    def weighted_norm(p: Planner, m: Match) -> bool:
        return "norm" not in m or m["norm"]["weight"] is not None

    @staticmethod
    def turns_keys(p: Planner, m: Match) -> bool:
        return in_one_block(m["rope"]) and CpuLowering.weighted_norm(p, m)

    @staticmethod
    def norms_whole_rows(p: Planner, m: Match) -> bool:
        norms = [m[name] for name in ("norm", "post") if name in m]
        if any(n["weight"] is None or len(n["x"].shape) != 1 or n["eps"] != norms[0]["eps"] for n in norms):
            return False
        return "sum" not in m or (isinstance(m["sum"]["b"], Value) and len(m["sum"].results[0].shape) == 1)

    def emit_residual_norm(self, p: Planner, m: Match) -> None:
        norm, total, post = m["norm"], m.get("sum"), m.get("post")
        (form,) = p.forms(norm.results[0])
        width = norm["x"].size
        if total is None:
            x, y, s, mode = p.read(norm["x"]), None, None, 0
        else:
            branch, carried = total["b"], total["a"]
            if post is not None and source(carried).node is post:
                branch, carried = carried, branch
            x = p.read(carried)
            y = p.read(post["x"] if post else branch)
            s = p.write(total.results[0], over=x)
            mode = 2 if post else 1
        out = p.write(norm.results[0], form)
        p.step(
            f"residual{mode}_norm_{form}", x, x.stride, y or 0, y.stride if y else 0,
            Vector(post["weight"]) if post else 0, s or 0, s.stride if s else 0, Vector(norm["weight"]),
            out, out.stride, width, Count(out.rows), Scratch(4 * width), float(norm["eps"]),
        )  # fmt: skip

    @staticmethod
    def layer_norm_of_a_row(p: Planner, m: Match) -> bool:
        sum_of_values = "sum" not in m or isinstance(m["sum"]["b"], Value)
        return len(m["norm"]["x"].shape) == 1 and sum_of_values

    def emit_residual_layer_norm(self, p: Planner, m: Match) -> None:
        norm, total = m["norm"], m.get("sum")
        (form,) = p.forms(norm.results[0])
        width = norm["x"].size
        x, y, s = p.read(total["a"] if total else norm["x"]), None, None
        if total:
            y = p.read(total["b"])
            s = p.write(total.results[0], over=x)
        out = p.write(norm.results[0], form)
        p.step(
            f"residual{1 if total else 0}_layer_norm_{form}", x, x.stride, y or 0, y.stride if y else 0, s or 0,
            s.stride if s else 0, *scale_and_shift(norm), out, out.stride, width, Count(out.rows), Scratch(4 * width),
            float(norm["eps"]),
        )  # fmt: skip

    def emit_gated(self, p: Planner, m: Match) -> None:
        node, act = m["mul"], m["act"]
        (form,) = p.forms(node.results[0])
        other = node["b"] if source(node["a"]).node is act else node["a"]
        x, y = p.read(act["x"]), p.read(other)
        out = p.write(node.results[0], form)
        p.step(
            f"{activation_name(act)}_mul_{form}", x, x.stride, y, y.stride, out, out.stride,
            node.results[0].size, Count(out.rows), Scratch(1024),
        )  # fmt: skip


def activation_name(node: Node) -> str:
    """The kernels' name of what an entrywise op does."""
    return "gelu_exact" if node.args.get("exact") else node.op.name


def scale_and_shift(norm: Node) -> tuple[Vector | Constant, Vector | Constant]:
    """The weight and the bias of a layer norm, ones and zeros where it has none."""
    n, weight, bias = norm["x"].shape[-1], norm["weight"], norm["bias"]
    return (
        Vector(weight) if weight else Constant(np.ones(n, np.float32)),
        Vector(bias) if bias else Constant(np.zeros(n, np.float32)),
    )


def values_only(p: Planner, m: Match) -> bool:
    return isinstance(m["mul"]["a"], Value) and isinstance(m["mul"]["b"], Value)
