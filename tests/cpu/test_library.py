"""The cache of object code, and the threads that run programs."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from golem_core import Columns, Graph, KVRing, Unsupported, Weight
from golem_core.cpu import team as teams
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.library import Library

from ..graph.weights import random_weight


def test_a_kernel_is_compiled_once_and_then_found(tmp_path, monkeypatch):
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path))
    compiled: list[int] = []
    Library(announce=compiled.append).load({"scale", "lookup"})
    assert compiled == [2]
    Library(announce=compiled.append).load({"scale", "lookup"})
    assert compiled == [2]
    assert len(list(tmp_path.glob("*.o"))) == 2


def test_a_damaged_object_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path))
    Library().load({"scale"})
    (path,) = tmp_path.glob("*.o")
    path.write_bytes(path.read_bytes()[:-100])
    compiled: list[int] = []
    Library(announce=compiled.append).load({"scale"})
    assert compiled == [1]


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GOLEM_CACHE", str(blocked / "kernels"))
    reasons: list[OSError] = []
    assert Library(complain=reasons.append).load({"scale"})["scale"]
    assert len(reasons) == 1


def test_a_reason_why_kernels_are_not_kept_is_said_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path))
    teams.complain_once.cache_clear()
    for _ in range(3):
        teams.complain(OSError(28, "No space left on device"))
    said = f"kernels can't be kept in {tmp_path} for the next start: No space left on device\n"
    assert capsys.readouterr().err == said


def test_what_is_said_of_kernels_may_find_nobody_to_hear_it(tmp_path, monkeypatch):
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path))
    teams.complain_once.cache_clear()
    monkeypatch.setattr(teams, "announced", False)
    with (tmp_path / "log").open("w") as closed:
        pass
    monkeypatch.setattr("sys.stderr", closed)
    assert Library(announce=teams.announce, complain=teams.complain).load({"scale"})["scale"]
    teams.complain(OSError(28, "No space left on device"))
    assert teams.announced


def test_nothing_is_left_of_an_object_that_could_not_be_kept(tmp_path, monkeypatch):
    """On a full disk every start would leave files that nobody reads."""
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path))
    path = Library().path("scale")
    path.mkdir()  # a file can't take its place
    assert Library().load({"scale"})["scale"]
    assert list(tmp_path.iterdir()) == [path]


def model() -> Graph:
    rng, g = np.random.default_rng(3), Graph()
    x = g.embed(random_weight(rng, "table", "F32", 50, 64))
    for _ in range(20):
        x = x + g.linear(g.silu(x), random_weight(rng, "w", "Q8_0", 64, 64, scale=0.1))
    g.output("y", x)
    return g


def test_several_models_run_at_once_on_one_team():
    device = CpuDevice(threads=2)
    graphs = [model() for _ in range(4)]
    passes = [device.compile(g, scored=4) for g in graphs]
    columns = Columns([1, 2, 3, 4], [0, 1, 2, 3], [0, 0, 0, 0], [])
    want = [p.run(columns)["y"].copy() for p in passes]
    wrong = []

    def work(i: int) -> None:
        for _ in range(100):
            if not np.array_equal(passes[i].run(columns)["y"], want[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(passes))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong and not any(t.is_alive() for t in threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_does_not_change_a_result(threads):
    columns = Columns(range(9), range(9), [0] * 9, [])
    want = CpuDevice(threads=1).compile(model()).run(columns)["y"]
    assert np.array_equal(CpuDevice(threads=threads).compile(model()).run(columns)["y"], want)


def test_a_sleeping_team_wakes_up(monkeypatch):
    monkeypatch.setattr(teams, "SPINS", 10)
    library = teams.shared_library()
    team = teams.Team(library, 2)
    device = CpuDevice(threads=2)
    device.team = team
    p, columns = device.compile(model()), Columns([1], [0], [0], [])
    want = p.run(columns)["y"].copy()
    for _ in range(50):
        threading.Event().wait(0.002)
        assert np.array_equal(p.run(columns)["y"], want)


def test_what_the_cpu_cannot_do_is_named():
    rng, g = np.random.default_rng(0), Graph()
    weight = random_weight(rng, "w", "F32", 8, 32)
    object.__setattr__(weight, "type", "TQ1_0")
    g.output("y", g.linear(g.embed(random_weight(rng, "table", "F32", 4, 32)), weight))
    with pytest.raises(Unsupported, match=r"w: .*TQ1_0"):
        CpuDevice(threads=1).compile(g)
    with pytest.raises(Unsupported, match="f8"):
        CpuDevice(threads=1, kv="f8")


def test_more_than_a_pass_holds_is_refused():
    p = CpuDevice(threads=1).compile(model(), context=32, width=4)
    with pytest.raises(ValueError, match="4 columns"):
        p.run(Columns(range(5), range(5), [0] * 5, []))
    with pytest.raises(ValueError, match="32 positions"):
        p.run(Columns([1], [32], [0], []))


def test_a_pass_that_is_closed_leaves_the_weights_to_others():
    device, graph = CpuDevice(threads=1), model()
    columns = Columns([1, 2], [0, 1], [0, 0], [1])
    first = device.compile(graph, context=32, width=4)
    expected = {name: rows.copy() for name, rows in first.run(columns).items()}
    taken = dict(device.matrices)
    assert taken
    first.close()
    again = device.compile(graph, context=32, width=4).run(columns)
    assert device.matrices == taken and all(np.array_equal(again[name], rows) for name, rows in expected.items())


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_K"])
def test_a_number_that_is_none_reaches_the_output(kind, poison):
    """Wherever it arises: in what attention reads, or on the way into a product of 8-bit activations."""
    rng = np.random.default_rng(5)
    table = random_weight(rng, "table", "F32", 4, 256)
    rows = table.data.view(np.float32).reshape(4, 256).copy()
    rows[1, 17] = poison
    poisoned = Weight("table", "F32", (4, 256), rows.reshape(-1).view(np.uint8))
    g = Graph()
    x = g.embed(poisoned)
    heads = g.view(x, (4, 64))
    cache = g.store(heads, heads, KVRing(4, 64))
    g.output("attention", g.attend(heads, cache, scale=0.1))
    g.output("product", g.linear(x, random_weight(rng, "w", kind, 16, 256)))
    g.output("softcap", g.softcap(g.scale(x, by=0.0), cap=2.0))
    for threads in (1, 2):
        p = CpuDevice(threads=threads).compile(g, scored=2)
        with np.errstate(invalid="ignore"):
            out = p.run(Columns([0, 1], [0, 1], [0, 0], []))
        for name, array in out.items():
            assert np.isfinite(array[0]).all(), name
            assert not np.isfinite(array[1]).all(), name


def test_a_pass_of_several_slots_has_two_buffers_for_what_it_returns():
    p = CpuDevice(threads=2).compile(model(), slots=2, context=32)
    assert p.buffers == 2
    first, second = Columns([1], [0], [0], [0]), Columns([2, 3], [0, 0], [0, 1], [0, 1])
    kept = p.run(first, 0)["y"]
    want = kept.copy()
    later = p.run(second, 1)["y"]
    assert np.array_equal(kept, want) and not np.array_equal(later[:1], want)
    p.run(first, 0)["y"][:] = 0
    assert np.array_equal(p.run(second, 0)["y"], later)
    assert CpuDevice(threads=1).compile(model(), slots=1).buffers == 1
