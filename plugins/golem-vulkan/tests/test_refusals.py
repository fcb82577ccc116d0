"""What can't be had is refused by name, and nothing is run elsewhere instead."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from golem_vulkan import api, plugin
from golem_vulkan.adapters import choose
from golem_vulkan.device import VulkanDevice
from golem_vulkan.needs import Needs, work_out
from golem_vulkan.pipelines import Pipelines

from golem_core import BadFile, Columns, GolemError, Graph, KVRing, Unsupported, Weight


def test_a_number_that_no_device_has(device):
    with pytest.raises(Unsupported, match="vulkan:7: there is no such device, only 0: "):
        choose([device.adapter], 7)


def test_no_device_at_all():
    with pytest.raises(Unsupported, match="the loader knows no device"):
        choose([], None)


def test_a_device_that_lacks_something(device):
    poor = replace(device.adapter, missing=("64-bit integers (shaderInt64)", "subgroups of 8 (it has 4)"))
    with pytest.raises(Unsupported, match=r"lacks 64-bit integers \(shaderInt64\); subgroups of 8"):
        choose([poor], None)


def test_what_is_told_to_be_needed_is_what_a_pass_takes(device):
    g = Graph()
    table = Weight("table", "F32", (8, 32), np.zeros(1024, np.uint8))
    g.output("y", g.scale(g.embed(table), by=2.0))
    run = device.compile(g, context=64, width=64, scored=64)
    needs = work_out(g, run.plans, [], set(), 0, 1, 0)
    taken = sum(run.memory["device"].used)
    assert needs.states == needs.weights == 0 and taken <= needs.total <= taken + (1 << 20)
    run.close()


def test_bindings_that_are_not_installed(monkeypatch):
    class Hidden:
        def find_spec(self, name, path=None, target=None):
            if name == "vulkan":
                raise ModuleNotFoundError("No module named 'vulkan'", name=name)

    monkeypatch.delitem(sys.modules, "vulkan", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Hidden(), *sys.meta_path])
    api.bindings.cache_clear()
    (kind,) = plugin.golem_devices()
    for use in (kind.probed, lambda: kind.opened({"device": "vulkan"})):
        with pytest.raises(Unsupported, match="vulkan: No module named 'vulkan'; install"):
            use()


def test_words_where_a_number_stands():
    assert plugin.number_of("vulkan") is None
    assert plugin.number_of("vulkan:2") == 2
    with pytest.raises(Unsupported, match="'vulkan:first'"):
        plugin.number_of("vulkan:first")


def test_a_weight_of_a_type_without_kernels(device):
    g = Graph()
    table = Weight("table", "F32", (4, 256), np.zeros(4096, np.uint8))
    strange = Weight("strange", "IQ1_S", (2, 256), np.zeros(100, np.uint8))
    g.output("y", g.linear(g.embed(table), strange))
    with pytest.raises(Unsupported, match="strange: vulkan has no kernels for weights of type IQ1_S"):
        device.compile(g)


def test_codes_that_stand_for_no_number(device):
    g = Graph()
    codes = np.full(4 * 32, 0x38, np.uint8)
    codes[77] = 0xFF
    g.output("y", g.embed(Weight("table", "F8_E4M3", (4, 32), codes)))
    with pytest.raises(BadFile, match="tensor 'table': a code of F8_E4M3 in it is NaN"):
        device.compile(g)


def test_a_value_of_more_bytes_than_kernels_count(device):
    g = Graph()
    g.output("y", g.silu(g.input("x", (1 << 15, 1 << 15))))
    with pytest.raises(Unsupported, match=r"a value of 4\.29 GB for each column; vulkan takes 4\.29"):
        device.compile(g, width=1)


def test_more_than_a_pass_takes(device):
    g = Graph()
    g.output("y", g.embed(Weight("table", "F32", (4, 32), np.zeros(512, np.uint8))))
    run = device.compile(g, slots=2, context=16, width=8)
    with pytest.raises(ValueError, match="a pass takes 8 columns and scores 2, not 9 and 0"):
        run.run(Columns(np.zeros(9), np.arange(9), np.zeros(9)))
    with pytest.raises(ValueError, match="outside 2 slots of 16 positions"):
        run.run(Columns([0], [16], [0]))
    with pytest.raises(ValueError, match="outside 2 slots of 16 positions"):
        run.run(Columns([0], [0], [2]))


def test_more_memory_than_there_is(device):
    g = Graph()
    x = g.view(g.embed(Weight("table", "F32", (4, 32), np.zeros(512, np.uint8))), (1, 32))
    g.output("y", g.attend(x, g.store(x, x, KVRing(1, 32)), scale=1.0))
    words = r"vulkan:0: 549\.8\d GB are needed \(0\.00 GB of weights, 549\.76 GB of .* a smaller -context would do"
    with pytest.raises(GolemError, match=words):
        device.compile(g, slots=4096, context=1 << 20)


def test_experts_that_would_fit_the_hosts_memory(device):
    needs = Needs(weights=30 << 30, host_weights=0, experts=25 << 30, states=1 << 30, work=1 << 30)
    needs.check(device.adapter, 40 << 30)
    with pytest.raises(GolemError, match=r"34\.36 GB are needed .* has 10\.74 GB free; -host-experts would do"):
        needs.check(device.adapter, 10 << 30)


def test_keys_and_values_in_another_form():
    with pytest.raises(Unsupported, match="-kv f32: vulkan keeps keys and values as f16 or q8_0"):
        plugin.open_device({"device": "vulkan", "kv": "f32"})


def test_heads_that_8_bit_blocks_do_not_fit(device, tmp_path):
    opened = VulkanDevice(kv="q8_0", cache=tmp_path)
    g = Graph()
    x = g.input("x", (1, 48))
    g.output("y", g.attend(x, g.store(x, x, KVRing(1, 48)), scale=1.0))
    with pytest.raises(Unsupported, match="store: heads of 48 components; with -kv q8_0 vulkan takes multiples of 32"):
        opened.compile(g)
    opened.close()


def test_a_device_that_is_software_is_called_slow(device, capsys, said):
    if device.adapter.kind != "processor":
        pytest.skip("the device is no software")
    plugin.open_device({"device": f"vulkan:{device.adapter.index}"}).close()
    assert "is software and slower than -device cpu" in capsys.readouterr().err


def test_nothing_is_left_of_a_cache_that_could_not_be_kept(device, tmp_path):
    """On a full disk every start would leave a file that nobody reads."""
    pipelines = Pipelines(device.gpu, tmp_path)
    pipelines.file.mkdir()  # a file can't take its place
    pipelines.changed = True
    pipelines.save()
    assert list(tmp_path.iterdir()) == [pipelines.file] and pipelines.changed
    pipelines.close()
