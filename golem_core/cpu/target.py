"""The seam to processors: what the kernels need that LLVM cannot find in plain IR.

Every function here has a plain form that is right on any processor, and a faster one for those whose
features are named.  The target of the kernel being traced decides.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import llvmlite.binding as llvm
from llvmlite import ir

from golem_core.cpu.jit import Traced, call, const, load, select, shuffle, splat, store, tracer

AVX2 = ("sse4.1", "avx2", "fma", "f16c")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni")
BASELINE = "baseline"
PATHS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86": {"avx512-vnni": AVX512, "avx-vnni": (*AVX2, "avxvnni"), "avx2": AVX2, BASELINE: ()},
    "arm": {"neon-i8mm": ("dotprod", "i8mm"), "neon-dotprod": ("dotprod",), BASELINE: ()},
    "other": {BASELINE: ()},
}
"""The instruction paths through the kernels of each kind of processor, the best first, with the features they need."""
CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Target:
    """A processor to compile for.  `features` is LLVM's list, '+avx2,-avx512f,...'."""

    triple: str
    cpu: str
    features: str

    @classmethod
    def host(cls) -> Target:
        triple = llvm.get_process_triple()
        found = cls(triple, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
        return found.with_features(arm_features(triple)) if found.arm else found

    def with_features(self, names: Iterable[str]) -> Target:
        """The same with these features too."""
        return replace(self, features=",".join([self.features, *(f"+{name}" for name in names)]).strip(","))

    def on_path(self, name: str) -> Target:
        """The same kind of processor with the features that the instruction path `name` needs and no others."""
        return Target(self.triple, "", "").with_features(PATHS[self.kind][name])

    @property
    def paths(self) -> list[str]:
        """Names of the instruction paths that this processor can take; it takes the first."""
        return [name for name, features in PATHS[self.kind].items() if all(map(self.has, features))]

    @property
    def kind(self) -> str:
        return "x86" if self.x86 else "arm" if self.arm else "other"

    @property
    def machine(self) -> str:
        return self.triple.split("-")[0]

    @property
    def windows(self) -> bool:
        return "windows" in self.triple

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    @property
    def x86(self) -> bool:
        return self.machine in ("x86_64", "amd64")

    @property
    def arm(self) -> bool:
        return self.machine in ("aarch64", "arm64")

    @property
    def avx2(self) -> bool:
        return self.x86 and self.has("avx2")

    @property
    def vnni(self) -> bool:
        """Whether `vpdpbusd` multiplies bytes."""
        return self.avx2 and (self.has("avxvnni") or (self.has("avx512vnni") and self.has("avx512vl")))

    @property
    def dotprod(self) -> bool:
        """Whether `sdot` multiplies bytes."""
        return self.arm and self.has("dotprod")

    @property
    def matrices(self) -> bool:
        """Whether `smmla` multiplies matrices of bytes."""
        return self.dotprod and self.has("i8mm")

    @property
    def dots(self) -> bool:
        """Whether one instruction adds four products of bytes to each 32-bit lane."""
        return self.vnni or self.dotprod

    @property
    def lanes(self) -> int:
        """32-bit lanes of the vectors that many columns are multiplied with."""
        return 16 if self.x86 and all(map(self.has, AVX512)) else 8

    @property
    def half(self) -> bool:
        """Whether float16 converts in hardware."""
        return self.arm or (self.x86 and self.has("f16c"))


def pin(x: Traced) -> Traced:
    """Opaque to the optimizer, so that it neither reorders nor regroups unrolled sums."""
    if not tracer.target.avx2:  # the baseline's registers hold no 256 bits
        return x
    return Traced(tracer.builder.asm(ir.FunctionType(x.type, [x.type]), "", "=x,0,~{flags}", [x.v], True))


def arm_features(triple: str, cpuinfo: Path = CPUINFO) -> list[str]:
    """Features of this Arm processor that LLVM does not look for.  Every Mac with one has `dotprod`."""
    if "darwin" in triple or "macos" in triple:
        return ["dotprod", *(["i8mm"] if of_the_mac("hw.optional.arm.FEAT_I8MM") else [])]
    try:
        found = re.search(r"^Features\s*:(.*)$", cpuinfo.read_text(), re.M)
    except OSError:
        return []
    words = found[1].split() if found else []
    return [name for name, word in (("dotprod", "asimddp"), ("i8mm", "i8mm")) if word in words]


def of_the_mac(name: str) -> bool:
    """Whether this Mac's system says that its processor has the feature `name`."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "sysctlbyname"):
        return False
    answer, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    failed = library.sysctlbyname(name.encode(), ctypes.byref(answer), ctypes.byref(size), None, ctypes.c_size_t(0))
    return not failed and bool(answer.value)


# ---------------------------------------------------------------- bytes


def lookup16(table: tuple[int, ...], index: Traced) -> Traced:
    """table[index] for vectors of 16, 32 or 64 bytes 0...15."""
    t, n = tracer.target, index.type.count
    if t.avx2 and n == 32:
        return call("llvm.x86.avx2.pshuf.b", "i8x32", const("i8x32", table * 2), index)
    if t.lanes == 16 and n == 64:
        return call("llvm.x86.avx512.pshuf.b.512", "i8x64", const("i8x64", table * 4), index)
    if t.arm:
        if n > 16:
            low, high = (lookup16(table, shuffle(index, index, range(i, i + n // 2))) for i in (0, n // 2))
            return shuffle(low, high, range(n))
        return call("llvm.aarch64.neon.tbl1.v16i8", "i8x16", const("i8x16", table), index)
    level = [const(index.type, e) for e in table]
    for bit in range(4):
        odd = (index & (1 << bit)).differs(0)
        level = [select(odd, b, a) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def shift_right(v: Traced, n: int | Traced) -> Traced:
    """Bytes shifted right within 16-bit lanes; the caller masks off what crosses."""
    return (v.bits(f"i16x{v.type.count // 2}") >> (n.to("i16") if isinstance(n, Traced) else n)).bits(v.type)


def shift_left(v: Traced, n: int | Traced) -> Traced:
    return (v.bits(f"i16x{v.type.count // 2}") << (n.to("i16") if isinstance(n, Traced) else n)).bits(v.type)


# ---------------------------------------------------------------- rounding and half precision


def rint(x: Traced) -> Traced:
    """To the nearest whole number, halves to even; |x| < 2^22 (float32) or 2^51 (float64)."""
    t = tracer.target
    double = "double" in str(x.type)
    if t.arm or (t.x86 and t.has("sse4.1")):
        name = f"v{x.type.count}" if isinstance(x.type, ir.VectorType) else ""
        return call(f"llvm.rint.{name}{'f64' if double else 'f32'}", x.type, x)
    magic = 1.5 * 2.0 ** (52 if double else 23)
    return (x + magic) - magic


def load_half(address: Traced, lanes: int = 8) -> Traced:
    """float16 in memory -> float32 vector."""
    if tracer.target.half:
        return load(f"f16x{lanes}", address).to(f"f32x{lanes}")
    return half_to_float(load(f"i16x{lanes}", address).zext(f"i32x{lanes}"))


def half_to_float(h: Traced) -> Traced:
    """The bits of float16 in 32-bit lanes -> float32, subnormals, infinities and NaN included."""
    lanes = h.type.count
    magnitude = h & 0x7FFF
    x = ((magnitude << 13).bits(f"f32x{lanes}") * 2.0**112).bits(f"i32x{lanes}")
    x = select(magnitude > 0x7BFF, x | 0x7F800000, x)
    return (x | ((h & 0x8000) << 16)).bits(f"f32x{lanes}")


def load_float8(address: Traced, lanes: int = 8) -> Traced:
    """8-bit floats (4 bits of exponent, 3 of mantissa; no NaN) in memory -> float32 vector, all divided by 256."""
    h = (load(f"i8x{lanes}", address).zext(f"i16x{lanes}") << 8).sar(1) & ~0x4000
    if tracer.target.half:
        return h.bits(f"f16x{lanes}").to(f"f32x{lanes}")
    return half_to_float(h.zext(f"i32x{lanes}"))


def load_half1(address: Traced) -> Traced:
    """One float16 -> float32."""
    if tracer.target.half:
        return load("f16", address).to("f32")
    wide = half_to_float(splat(load("i16", address).zext("i32"), 4))
    return Traced(tracer.builder.extract_element(wide.v, ir.IntType(32)(0)))


def store_half(address: Traced, x: Traced) -> None:
    """float32 (scalar or vector) -> float16 in memory, to the nearest, halves to even."""
    scalar = not isinstance(x.type, ir.VectorType)
    if tracer.target.half:
        store(address, x.to("f16" if scalar else f"f16x{x.type.count}"))
        return
    v = splat(x, 4) if scalar else x
    h = float_to_half(v).to(f"i16x{v.type.count}")
    store(address, Traced(tracer.builder.extract_element(h.v, ir.IntType(32)(0))) if scalar else h)


def round_half(x: Traced) -> Traced:
    """float32 (scalar or vector) -> the nearest float16, as float32."""
    scalar = not isinstance(x.type, ir.VectorType)
    if tracer.target.half:
        return x.to("f16" if scalar else f"f16x{x.type.count}").to(x.type)
    v = half_to_float(float_to_half(splat(x, 4) if scalar else x))
    return Traced(tracer.builder.extract_element(v.v, ir.IntType(32)(0))) if scalar else v


def float_to_half(v: Traced) -> Traced:
    """float32 vector -> the bits of float16 in 32-bit lanes, to the nearest, halves to even."""
    lanes = v.type.count
    bits = v.bits(f"i32x{lanes}")
    sign_bit = (bits >> 16) & 0x8000
    magnitude = bits & 0x7FFFFFFF
    small = (magnitude.bits(f"f32x{lanes}") + 0.5).bits(f"i32x{lanes}") - 0x3F000000
    normal = (magnitude + ((magnitude >> 13) & 1) + (0xFFF - (112 << 23))) >> 13
    h = select(magnitude < 0x38800000, small, normal)
    h = select(magnitude > 0x477FEFFF, const(f"i32x{lanes}", 0x7C00), h)
    h = select(magnitude > 0x7F800000, const(f"i32x{lanes}", 0x7E00), h)
    return h | sign_bit


def load_bfloat(address: Traced, lanes: int = 8) -> Traced:
    """bfloat16 in memory -> float32 vector."""
    return (load(f"i16x{lanes}", address).zext(f"i32x{lanes}") << 16).bits(f"f32x{lanes}")


# ---------------------------------------------------------------- waiting


def pause() -> None:
    """Tells the processor that this thread is spinning."""
    if tracer.target.x86:
        call("llvm.x86.sse2.pause", None)
    elif tracer.target.arm:
        call("llvm.aarch64.hint", None, const("i32", 1))  # the instruction `yield`


def yield_processor() -> None:
    """Lets another thread of the system run."""
    call("SwitchToThread" if tracer.target.windows else "sched_yield", "i32")


def sleep_briefly() -> None:
    """Sleeps for the shortest time that the system offers, so that it can move another thread here."""
    if tracer.target.windows:
        call("Sleep", None, const("i32", 1))
    else:
        call("usleep", "i32", const("i32", 50))
