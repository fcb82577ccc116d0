from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from golem_krea2.checkpoint import Files

from golem_core import Columns, Device, Reference, Unsupported, plugins
from golem_core.cpu.device import CpuDevice


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"krea2_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    return module("tiny")


class ReferencePass:
    """A pass by the definitions of the ops."""

    def __init__(self, graph, slots: int, context: int, width: int):
        self.width = width
        self._reference = Reference(graph, slots=slots, context=context)

    def run(self, columns: Columns) -> dict[str, np.ndarray]:
        return self._reference.run(columns)

    def close(self) -> None:
        pass


class ReferenceDevice:
    name = "reference"

    def compile(self, graph, *, slots=1, context=256, width=512, scored=None, progress=None) -> ReferencePass:
        return ReferencePass(graph, slots, context, width)

    def close(self) -> None:
        pass


@pytest.fixture(params=["reference", "cpu", "vulkan"], scope="session")
def device(request):
    made = {"reference": ReferenceDevice, "cpu": cpu, "vulkan": vulkan}[request.param]()
    yield made
    made.close()


def cpu() -> CpuDevice:
    return CpuDevice(threads=2, kv="f32")


def vulkan() -> Device:
    if importlib.util.find_spec("golem_vulkan") is None:
        pytest.skip("golem-vulkan is not installed")
    try:
        return plugins.device("vulkan").open({"device": "vulkan"})
    except Unsupported as reason:
        pytest.skip(str(reason))


@pytest.fixture
def tolerance(device):
    """Of a network's results, relative root mean square; a device with matrices of a workgroup rounds to float16."""
    return 2e-2 if getattr(device, "matrices", False) else 5e-6


@pytest.fixture
def cache_tolerance(device, tolerance):
    """Where keys and values are kept, which Vulkan does in float16."""
    return max(tolerance, 1e-3 if device.name == "vulkan" else 0.0)


@pytest.fixture
def files_of(tiny, tmp_path):
    """What a network takes from `Files`, of tensors by name, for networks that do not go together."""

    def make(**networks) -> SimpleNamespace:
        found = {}
        for name, tensors in networks.items():
            prefix = ("model.",) if name == "encoder" else ("",)
            found[name] = tiny.opened(tmp_path / f"{name}.safetensors", tensors, prefix)
            found[f"{name}_shape"] = {"dit": tiny.DIT, "encoder": tiny.ENCODER, "vae": tiny.VAE}[name]
        return SimpleNamespace(**found)

    return make


@pytest.fixture(scope="session")
def reference_device() -> type[ReferenceDevice]:
    return ReferenceDevice


@pytest.fixture(params=["reference", "cpu", "vulkan"])
def open_device(request):
    """Opens devices as the command line does, one for each network."""
    if request.param == "reference":
        return ReferenceDevice
    if request.param == "vulkan":
        vulkan().close()
        return vulkan
    return lambda: CpuDevice(threads=2)


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    return module("fakes")


@pytest.fixture
def log(fakes):
    return fakes.Log()


@pytest.fixture
def devices(fakes):
    return fakes.Devices()


@pytest.fixture(scope="session")
def directory(tiny, tmp_path_factory) -> Path:
    """A ComfyUI directory with tiny networks."""
    return tiny.write_directory(tmp_path_factory.mktemp("comfyui"))


@pytest.fixture(scope="session")
def files(directory):
    opened = Files.open(directory)
    yield opened
    opened.close()
