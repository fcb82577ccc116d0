"""A small kernel language: Python functions are traced once into LLVM IR.

Traced values have operators; `for i in loop(n)` is a loop at run time, a plain Python `for` is unrolled
while tracing, and `Var` is a variable.  Addresses are i64 values.  What depends on the processor stands
in `target.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from golem_core.cpu.target import Target

SCALARS = {
    "i1": ir.IntType(1), "i8": ir.IntType(8), "i16": ir.IntType(16), "i32": ir.IntType(32), "i64": ir.IntType(64),
    "f16": ir.HalfType(), "f32": ir.FloatType(), "f64": ir.DoubleType(),
}  # fmt: skip
I32 = SCALARS["i32"]
I64 = SCALARS["i64"]


class Tracer:
    """Where the kernel being traced is written to; one at a time, under the compiler's lock."""

    def __init__(self) -> None:
        self.builder: Any = None
        self.target: Target = None  # type: ignore[assignment]


tracer = Tracer()


def type_of(name: Any) -> Any:
    """'f32x8' is <8 x float>, 'i64' is i64."""
    if not isinstance(name, str):
        return name
    scalar, _, lanes = name.partition("x")
    return ir.VectorType(SCALARS[scalar], int(lanes)) if lanes else SCALARS[scalar]


def lane(t: Any) -> Any:
    return t.element if isinstance(t, ir.VectorType) else t


def is_float(t: Any) -> bool:
    return isinstance(lane(t), (ir.FloatType, ir.HalfType, ir.DoubleType))


def const(t: Any, x: float | int | Iterable[float]) -> Traced:
    """A constant of type `t`; one number stands for every lane."""
    t = type_of(t)
    convert = float if is_float(t) else int
    if isinstance(t, ir.VectorType):
        lanes = list(x) if isinstance(x, Iterable) else [x] * t.count
        return Traced(ir.Constant(t, [convert(e) for e in lanes]))
    return Traced(ir.Constant(t, convert(x)))  # type: ignore[arg-type]


def arithmetic(on_int: str, on_float: str) -> tuple[Callable, Callable]:
    def forward(self: Traced, other: Any) -> Traced:
        a = self.v
        return Traced(getattr(tracer.builder, on_float if is_float(a.type) else on_int)(a, self.coerce(other)))

    def backward(self: Traced, other: Any) -> Traced:
        a = self.v
        return Traced(getattr(tracer.builder, on_float if is_float(a.type) else on_int)(self.coerce(other), a))

    return forward, backward


def comparison(sign: str) -> Callable:
    def compare(self: Traced, other: Any) -> Traced:
        a = self.v
        f = tracer.builder.fcmp_ordered if is_float(a.type) else tracer.builder.icmp_signed
        return Traced(f(sign, a, self.coerce(other)))

    return compare


class Traced:
    """An LLVM value with operators.  Integers are signed; `>>` shifts in zeros, `sar` the sign."""

    def __init__(self, v: Any):
        self._v = v

    @property
    def v(self) -> Any:
        return self._v

    @property
    def type(self) -> Any:
        return self.v.type

    def coerce(self, other: Any) -> Any:
        if isinstance(other, Traced):
            v = other.v
            if isinstance(self.type, ir.VectorType) and v.type == self.type.element:
                return splat(other, self.type.count).v
            return v
        return const(self.type, other).v

    __add__, __radd__ = arithmetic("add", "fadd")
    __sub__, __rsub__ = arithmetic("sub", "fsub")
    __mul__, __rmul__ = arithmetic("mul", "fmul")
    __truediv__, __rtruediv__ = arithmetic("sdiv", "fdiv")
    __floordiv__, _ = arithmetic("sdiv", "fdiv")
    __mod__, _ = arithmetic("srem", "frem")
    __and__, __rand__ = arithmetic("and_", "")
    __or__, __ror__ = arithmetic("or_", "")
    __xor__, __rxor__ = arithmetic("xor", "")
    __lshift__, _ = arithmetic("shl", "")
    __rshift__, _ = arithmetic("lshr", "")
    sar, _ = arithmetic("ashr", "")
    __lt__, __le__, __gt__, __ge__ = map(comparison, ("<", "<=", ">", ">="))
    equals, differs = comparison("=="), comparison("!=")

    def to(self, t: Any) -> Traced:
        """Conversion of the number; integers are signed."""
        a, t, b = self.v, type_of(t), tracer.builder
        s, d = lane(a.type), lane(t)
        if s == d:
            return Traced(a)
        if is_float(s) and is_float(d):
            widths = {"half": 16, "float": 32, "double": 64}
            return Traced((b.fpext if widths[str(s)] < widths[str(d)] else b.fptrunc)(a, t))
        if is_float(s):
            return Traced(b.fptosi(a, t))
        if is_float(d):
            return Traced(b.sitofp(a, t))
        return Traced((b.sext if s.width < d.width else b.trunc)(a, t))

    def zext(self, t: Any) -> Traced:
        return Traced(tracer.builder.zext(self.v, type_of(t)))

    def bits(self, t: Any) -> Traced:
        """The same bits under another type."""
        return Traced(tracer.builder.bitcast(self.v, type_of(t)))


class Var(Traced):
    """A variable; `set`, `+=` and `-=` change it."""

    def __init__(self, v: Traced | int):
        initial = v.v if isinstance(v, Traced) else const("i64", v).v
        with tracer.builder.goto_entry_block():
            self.slot = tracer.builder.alloca(initial.type)
        tracer.builder.store(initial, self.slot)
        self.stored = initial.type

    @property
    def v(self) -> Any:
        return tracer.builder.load(self.slot, typ=self.stored)

    @property
    def type(self) -> Any:
        return self.stored

    def get(self) -> Traced:
        return Traced(self.v)

    def set(self, other: Any) -> None:
        tracer.builder.store(self.coerce(other), self.slot)

    def __iadd__(self, other: Any) -> Var:
        self.set(self + other)
        return self

    def __isub__(self, other: Any) -> Var:
        self.set(self - other)
        return self


def value(x: Any, t: str = "i64") -> Traced:
    return x if isinstance(x, Traced) else const(t, x)


# ---------------------------------------------------------------- vectors


def splat(scalar: Traced, lanes: int) -> Traced:
    t = ir.VectorType(scalar.type, lanes)
    undefined = ir.Constant(t, ir.Undefined)
    b = tracer.builder
    mask = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return Traced(b.shuffle_vector(b.insert_element(undefined, scalar.v, I32(0)), undefined, mask))


def shuffle(a: Traced, b: Traced, lanes: Iterable[int]) -> Traced:
    """Lanes of a, then of b, by number, all known while tracing."""
    picks = list(lanes)
    return Traced(tracer.builder.shuffle_vector(a.v, b.v, ir.Constant(ir.VectorType(I32, len(picks)), picks)))


def select(condition: Traced, x: Traced, y: Any) -> Traced:
    return Traced(tracer.builder.select(condition.v, x.v, x.coerce(y)))


def vmax(x: Traced, y: Any) -> Traced:
    return select(x > y, x, y)


def vmin(x: Traced, y: Any) -> Traced:
    return select(x < y, x, y)


def imin(x: Any, y: Any) -> Traced:
    return vmin(value(x), value(y))


def imax(x: Any, y: Any) -> Traced:
    return vmax(value(x), value(y))


def call(name: str, returns: Any, *args: Traced) -> Traced:
    """Calls an LLVM intrinsic or a function of the process."""
    module = tracer.builder.module
    kind = ir.FunctionType(type_of(returns) if returns else ir.VoidType(), [a.type for a in args])
    f = module.globals.get(name) or ir.Function(module, kind, name)
    return Traced(tracer.builder.call(f, [a.v for a in args]))


def suffix(t: Any) -> str:
    s = {"float": "f32", "double": "f64"}[str(lane(t))]
    return f"v{t.count}{s}" if isinstance(t, ir.VectorType) else s


def vabs(x: Traced) -> Traced:
    return call(f"llvm.fabs.{suffix(x.type)}", x.type, x)


def sqrt(x: Traced) -> Traced:
    return call(f"llvm.sqrt.{suffix(x.type)}", x.type, x)


def fma(x: Traced, y: Traced, z: Traced) -> Traced:
    """x * y + z, fused where the processor can."""
    return call(f"llvm.fmuladd.{suffix(x.type)}", x.type, x, y, z)


def element(x: Traced, i: int) -> Traced:
    """Lane i."""
    return Traced(tracer.builder.extract_element(x.v, I32(i)))


def reduce(x: Traced, f: Callable[[Traced, Traced], Traced]) -> Traced:
    n = x.type.count
    while n > 1:
        n //= 2
        x = f(shuffle(x, x, range(n)), shuffle(x, x, range(n, 2 * n)))
    return element(x, 0)


def hsum(x: Traced) -> Traced:
    return reduce(x, lambda a, b: a + b)


def hmax(x: Traced) -> Traced:
    return reduce(x, vmax)


# ---------------------------------------------------------------- memory


def pointer(address: Traced) -> Any:
    return tracer.builder.inttoptr(address.v, ir.PointerType())


def load(t: Any, address: Traced) -> Traced:
    return Traced(tracer.builder.load(pointer(address), align=1, typ=type_of(t)))


def store(address: Traced, v: Traced) -> None:
    tracer.builder.store(v.v, pointer(address), align=1)


def broadcast(t: Any, word: str, address: Traced) -> Traced:
    """Loads one 32-bit word and repeats it over a vector of type `t`."""
    t = type_of(t)
    width = {"half": 16, "float": 32}.get(str(lane(t))) or lane(t).width
    return splat(load(word, address), t.count * width // 32).bits(t)


def prefetch(address: Traced) -> None:
    module = tracer.builder.module
    name = "llvm.prefetch.p0"
    kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(), I32, I32, I32])
    f = module.globals.get(name) or ir.Function(module, kind, name)
    tracer.builder.call(f, [pointer(address), I32(0), I32(3), I32(1)])


def arguments(block: Traced, count: int) -> list[Traced]:
    """The i64 words of a kernel's argument block."""
    return [load("i64", block + 8 * i) for i in range(count)]


def number(block: Traced, index: int) -> Traced:
    """A float32 in word `index` of a kernel's argument block."""
    return load("f32", block + 8 * index)


# ---------------------------------------------------------------- control flow


def loop(*bounds: Any) -> Iterator[Traced]:
    """`for i in loop(stop)`, `loop(start, stop)` or `loop(start, stop, step)`, at run time."""
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else bounds if len(bounds) == 3 else (*bounds, 1)
    b = tracer.builder
    first, last, by = value(start).v, value(stop).v, value(step).v
    head, body, end = (b.append_basic_block(n) for n in ("head", "body", "end"))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(first, before)
    b.cbranch(b.icmp_signed("<", i, last), body, end)
    b.position_at_end(body)
    yield Traced(i)
    following = b.add(i, by)
    i.add_incoming(following, b.block)
    b.branch(head)
    b.position_at_end(end)


@contextlib.contextmanager
def when(condition: Traced) -> Iterator[None]:
    with tracer.builder.if_then(condition.v):
        yield


@contextlib.contextmanager
def when_else(condition: Traced) -> Iterator[tuple[Any, Any]]:
    with tracer.builder.if_else(condition.v) as branches:
        yield branches


def repeat_while(condition: Callable[[], Traced], body: Callable[[], None]) -> None:
    b = tracer.builder
    head, block, end = (b.append_basic_block(n) for n in ("head", "body", "end"))
    b.branch(head)
    b.position_at_end(head)
    b.cbranch(condition().v, block, end)
    b.position_at_end(block)
    body()
    b.branch(head)
    b.position_at_end(end)


def both(x: Traced, y: Traced) -> Traced:
    return Traced(tracer.builder.and_(x.v, y.v))


def share(count: Any, thread: Traced, threads: Traced) -> Iterator[Traced]:
    """The part of 0...count that belongs to this thread."""
    return loop(count * thread // threads, count * (thread + 1) // threads)


# ---------------------------------------------------------------- threads

PIECES = 8
"""Pieces per thread that claimed work is cut into: threads seldom go at the same pace."""


def claim(counter: Traced, count: Traced, threads: Traced, pieces: Any = PIECES) -> Iterator[Traced]:
    """0...count, each number for one thread: whoever is free takes the next of about `pieces` pieces per thread.

    Pieces taken in turn lie apart, so that threads at the same pace each go through memory that lies together.
    `counter` is zero before and, once every thread has found nothing left, again.
    """
    size = imax(1, count // (threads * pieces))
    number = (count + size - 1) // size
    turns = (number + threads - 1) // threads
    b = tracer.builder
    head, body, end = (b.append_basic_block(n) for n in ("claim", "piece", "end"))
    b.branch(head)
    b.position_at_end(head)
    piece = atomic_add(counter, 1)
    b.cbranch((piece < turns * threads).v, body, end)
    b.position_at_end(body)
    first = (piece % threads * turns + piece // threads) * size
    yield from loop(first, imin(first + size, count))
    b.branch(head)
    b.position_at_end(end)
    with when(piece.equals((turns + 1) * threads - 1)):  # the last that finds nothing
        store(counter, value(0))


def atomic_add(address: Traced, by: Any) -> Traced:
    return Traced(tracer.builder.atomic_rmw("add", pointer(address), value(by).v, "acq_rel"))


def atomic_load(address: Traced) -> Traced:
    return Traced(tracer.builder.load_atomic(pointer(address), "acquire", 8, typ=I64))


def call_address(function: Traced, *args: Traced) -> None:
    b = tracer.builder
    kind = ir.FunctionType(ir.VoidType(), [I64] * len(args))
    b.call(b.inttoptr(function.v, kind.as_pointer()), [a.v for a in args])
