"""Compiles kernels and keeps their object code in the user's cache folder.

A kernel is a traced function registered under a name.  Its object is found again by the processor, the
versions of LLVM and the sources that it was traced from; nothing is compiled twice on one machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from golem_core.cpu.jit import I64, Traced, tracer, type_of
from golem_core.cpu.target import Target

KERNELS: dict[str, Kernel] = {}
"""Every registered kernel by name; a plugin's own kernels register here too."""


PASSES = (
    "sroa", "instruction_combine", "simplify_cfg", "new_gvn", "loop_rotate", "instruction_combine", "simplify_cfg",
    "dead_code_elimination",
)  # fmt: skip
"""What is done to traced code, which is unrolled and vectorized already: LLVM's usual passes take several times as
long and gain nothing."""


class Kernel:
    """A traced function, exported as `void name(i64 arguments, i64 thread, i64 threads)` unless told otherwise."""

    def __init__(self, name: str, trace: Callable[..., Traced | None], arity: int, returns: str | None):
        self.name, self.trace, self.arity, self.returns = name, trace, arity, returns

    @property
    def source(self) -> str:
        return self.trace.__code__.co_filename


def kernel(name: str, *, arity: int = 3, returns: str | None = None):
    """Decorator: registers a traced function as kernel `name`."""

    def register(trace: Callable[..., Traced | None]) -> Callable[..., Traced | None]:
        KERNELS[name] = Kernel(name, trace, arity, returns)
        return trace

    return register


@cache
def core_sources() -> bytes:
    """A digest of the sources that this package's kernels are traced from."""
    digest = hashlib.sha256(repr(PASSES).encode())
    here = Path(__file__).parent
    names = ("jit.py", "target.py", "dots.py", "formats.py")
    for path in (*(here / name for name in names), *sorted((here / "kernels").glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.digest()


def cache_folder() -> Path:
    """Where object code is kept: GOLEM_CACHE, or the system's folder for a user's caches."""
    if folder := os.environ.get("GOLEM_CACHE"):
        return Path(folder)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "golem" / "kernels"


class Library:
    """Kernels compiled for one target, loaded into this process when the target is the host's.

    `announce(count)` is called before the first compilation of a call of `load`, `complain(error)` where object code
    can't be kept.
    """

    lock = threading.Lock()

    def __init__(
        self,
        target: Target | None = None,
        announce: Callable[[int], None] | None = None,
        complain: Callable[[OSError], None] | None = None,
    ):
        with self.lock:
            if target is None:
                llvm.initialize_native_target()
                llvm.initialize_native_asmprinter()
            else:
                llvm.initialize_all_targets()
                llvm.initialize_all_asmprinters()
            llvm.initialize_native_asmparser()
        self.target = target or Target.host()
        self.announce, self.complain = announce, complain
        self.machine = llvm.Target.from_triple(self.target.triple).create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=3, jit=True, codemodel="jitdefault"
        )
        self.engine = None
        self.objects: list[object] = []
        self.addresses: dict[str, int] = {}

    def load(self, names: set[str]) -> dict[str, int]:
        """Addresses of the named kernels, compiled or from the cache; raises KeyError for unknown names."""
        with self.lock:
            new = sorted(names - self.addresses.keys())
            if new:
                if self.engine is None:
                    self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)
                cached = {n: self.cached(n) for n in new}
                missing = [n for n in new if cached[n] is None]
                if missing and self.announce:
                    self.announce(len(missing))
                for n in new:
                    code = cached[n] or self.compile_and_keep(n)
                    image = llvm.ObjectFileRef.from_data(code)
                    self.objects.append(image)
                    self.engine.add_object_file(image)
                self.engine.finalize_object()
                for n in new:
                    self.addresses[n] = self.engine.get_function_address(n)
        return {n: self.addresses[n] for n in names}

    def function(self, name: str, arity: int, returns: bool = False) -> Callable[..., int]:
        """A kernel as a Python callable of i64 arguments; the interpreter's lock is released during the call."""
        address = self.load({name})[name]
        kind = ctypes.CFUNCTYPE(ctypes.c_int64 if returns else None, *[ctypes.c_int64] * arity)
        return kind(address)

    # ------------------------------------------------------------ the cache

    def path(self, name: str) -> Path:
        entry = KERNELS[name]
        digest = hashlib.sha256(core_sources())
        own = Path(entry.source)
        if Path(__file__).parent not in own.parents:
            digest.update(own.read_bytes())
        version = f"{llvmlite.__version__} {llvm.llvm_version_info}"
        for part in (version, self.target.triple, self.target.cpu, self.target.features, name):
            digest.update(part.encode() + b"\0")
        return cache_folder() / f"{name}-{digest.hexdigest()[:24]}.o"

    def cached(self, name: str) -> bytes | None:
        try:
            kept = self.path(name).read_bytes()
        except OSError:
            return None
        checksum, code = kept[:32], kept[32:]
        return code if hashlib.sha256(code).digest() == checksum else None

    def compile_and_keep(self, name: str) -> bytes:
        code = self.compile([name])
        path = self.path(name)
        try:  # a folder that cannot be written only costs the next start its time
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            try:
                with open(handle, "wb") as file:
                    file.write(hashlib.sha256(code).digest() + code)
                os.replace(written, path)
            except BaseException:
                os.unlink(written)
                raise
        except OSError as error:
            if self.complain:
                self.complain(error)
        return code

    # ------------------------------------------------------------ compiling

    def trace(self, names: list[str]) -> str:
        """LLVM IR of the named kernels."""
        module = ir.Module()
        module.triple = self.target.triple
        module.data_layout = str(self.machine.target_data)
        tracer.target = self.target
        for name in names:
            entry = KERNELS[name]
            returns = type_of(entry.returns) if entry.returns else ir.VoidType()
            f = ir.Function(module, ir.FunctionType(returns, [I64] * entry.arity), name)
            tracer.builder = ir.IRBuilder(f.append_basic_block("entry"))
            result = entry.trace(*map(Traced, f.args))
            if result is not None:
                tracer.builder.ret(result.v)
            else:
                tracer.builder.ret_void()
        return str(module)

    def optimize(self, names: list[str]) -> llvm.ModuleRef:
        module = llvm.parse_assembly(self.trace(names))
        module.verify()
        passes = llvm.create_new_module_pass_manager()
        for name in PASSES:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, llvm.create_pass_builder(self.machine, llvm.create_pipeline_tuning_options()))
        return module

    def compile(self, names: list[str]) -> bytes:
        """Object code of the named kernels."""
        return self.machine.emit_object(self.optimize(names))

    def assembly(self, names: list[str]) -> str:
        """What the named kernels become, as text, for a test or a curious reader."""
        return self.machine.emit_assembly(self.optimize(names))
