"""`golem bench`: what its arguments ask for, and what its table and its JSON say about a tiny model."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golem_core import cli
from golem_core.bench import Figure, Workload, measure
from golem_core.graph import Columns

MODEL = Path(__file__).resolve().parents[1] / "plugins" / "golem-gemma" / "tests" / "fixtures" / "gemma3.gguf"


@pytest.fixture
def golem(monkeypatch, capsys):
    """Run the program in this process: golem("bench", ...) → (status, stdout, stderr)."""
    for name in ("GOLEM_MODEL", "GOLEM_PLUGINS", "GOLEM_THREADS", "GOLEM_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["golem", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        output = capsys.readouterr()
        return stopped.value.code, output.out, output.err

    return run


class RecordingPass:
    """Takes any columns and remembers them."""

    def __init__(self, width: int):
        self.width, self.rings = width, ()
        self.runs: list[Columns] = []

    def run(self, columns: Columns) -> dict[str, np.ndarray]:
        self.runs.append(columns)
        return {}


def test_json_has_the_model_the_device_and_every_figure(golem) -> None:
    status, out, _ = golem(
        "bench", "-model", str(MODEL), "-p", "20,6", "-n", "3", "-b", "1,2", "-d", "4", "-r", "2", "-t", "1", "--json"
    )
    assert status == 0
    report = json.loads(out)
    assert (report["model"], report["architecture"]) == (MODEL.name, "gemma3")
    assert (report["device"], report["threads"], report["repetitions"]) == ("cpu", 1, 2)
    assert report["bytes"] == sum(report["weights"].values()) <= MODEL.stat().st_size
    results = report["results"]
    assert [each["test"] for each in results] == ["pp20 @ d4", "pp6 @ d4", "tg3 @ d4", "tg3 b2 @ d4"]
    assert [(each["prompt"], each["generated"], each["batch"]) for each in results] == [
        (20, 0, 1),
        (6, 0, 1),
        (0, 3, 1),
        (0, 3, 2),
    ]
    for each in results:
        assert each["depth"] == 4
        assert len(each["seconds"]) == 2
        tokens = each["prompt"] or each["generated"] * each["batch"]
        assert each["fastest"] == pytest.approx(tokens / min(each["seconds"]), rel=1e-3)
        assert each["slowest"] == pytest.approx(tokens / max(each["seconds"]), rel=1e-3)
        assert each["slowest"] <= each["tokens_per_second"] <= each["fastest"]


def test_the_table_has_a_line_for_each_test(golem) -> None:
    status, out, _ = golem("bench", "-model", str(MODEL), "-p", "8", "-n", "2", "-b", "1", "-r", "1")
    assert status == 0
    heading, device, columns, *rows = [line.strip() for line in out.splitlines() if line.strip()]
    assert heading.startswith(f"{MODEL.name}: ") and "parameters" in heading and "F32" in heading
    assert device.startswith("on cpu (")
    assert columns.split() == ["test", "tokens/s", "slowest", "fastest", "ms", "a", "pass"]
    assert [row.split()[0] for row in rows] == ["pp8", "tg2"]
    assert all(float(cell) > 0 for row in rows for cell in row.split()[1:])


def test_a_length_of_zero_leaves_its_tests_out(golem) -> None:
    common = ["bench", "-model", str(MODEL), "-b", "1", "-r", "1", "--json"]
    for arguments, expected in ((["-p", "0", "-n=2"], ["tg2"]), (["--prompt", "5", "--generate", "0"], ["pp5"])):
        status, out, _ = golem(*common, *arguments)
        assert (status, [each["test"] for each in json.loads(out)["results"]]) == (0, expected)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["-p", "12,x"], 2, ["-p", "'12,x'"]),
        (["-n", "-1"], 2, ["-n", "'-1'"]),
        (["-b", "0"], 2, ["-b", "'0'"]),
        (["-r", "0"], 2, ["-r", "'0'"]),
        (["-t", "two"], 2, ["-t", "'two'"]),
        (["-width", "5"], 2, ["-width"]),
        (["-p", "0", "-n", "0"], 1, ["-p", "-n"]),
        (["-device", "abacus"], 1, ["abacus", "cpu"]),
        (["-model", "absent.gguf"], 1, ["absent.gguf"]),
    ],
)
def test_a_mistake_is_one_line(golem, arguments, status, words) -> None:
    given = arguments if "-model" in arguments else ["-model", str(MODEL), *arguments]
    code, out, error = golem("bench", *given)
    assert (code, out) == (status, "")
    assert error.startswith("golem: ") and error.count("\n") == 1
    assert all(word in error for word in words)


def test_a_prompt_is_read_in_passes_as_wide_as_they_may_be_and_scored_at_its_end() -> None:
    compiled = RecordingPass(width=8)
    figure = measure(compiled, Workload(prompt=20, depth=3), vocabulary=10, repetitions=2)
    assert len(figure.seconds) == 2
    depth, *passes = compiled.runs
    assert depth.position.tolist() == [0, 1, 2]
    assert len(passes) == 3 * 3, "two repetitions and one that is not counted"
    once = passes[:3]
    assert [len(each) for each in once] == [8, 8, 4]
    assert np.concatenate([each.position for each in once]).tolist() == list(range(3, 23))
    assert [each.scored.tolist() for each in once] == [[], [], [3]]
    assert all(each.token.min() >= 0 and each.token.max() < 10 for each in compiled.runs)


def test_conversations_generate_in_one_pass_each_in_its_slot() -> None:
    compiled = RecordingPass(width=8)
    measure(compiled, Workload(generated=12, batch=3), vocabulary=10, repetitions=1)
    passes = compiled.runs[-12:]
    assert [each.position.tolist() for each in passes] == [[position] * 3 for position in range(12)]
    assert all(each.slot.tolist() == each.scored.tolist() == [0, 1, 2] for each in passes)


def test_rates_count_the_tokens_of_all_conversations() -> None:
    record = Figure(Workload(generated=10, batch=4), (2.0, 1.0, 4.0)).record()
    assert (record["slowest"], record["tokens_per_second"], record["fastest"]) == (10.0, 20.0, 40.0)


def test_what_a_model_was_not_trained_for_is_said(golem) -> None:
    status, _, err = golem("bench", "-model", str(MODEL), "-p", "8", "-n", "2", "-b", "1", "-d", "1020", "-r", "1")
    assert status == 0
    assert "pp8 @ d1020: beyond the 1024 positions that the model was trained on\n" in err


# ---------------------------------------------------------------- the scripts in benchmarks/

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch) -> Iterator[Callable[[str], Any]]:
    """Import a module of benchmarks/ as its scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == BENCHMARKS:
            del sys.modules[name]


@pytest.mark.parametrize("name", ["versus_llamacpp", "serving", "startup"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], ["--rounds", "'0'"]),
        (["--threads", "two"], ["--threads", "'two'"]),
        (["--quiet", "-1"], ["--quiet"]),
        (["--modle", "x"], ["--modle"]),
    ],
)
def test_a_script_refuses_what_it_does_not_understand(script, monkeypatch, capsys, name, arguments, words) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as stopped:
        script(name).main()
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert all(word in error for word in words)


def test_a_ratio_is_of_medians_and_its_range_of_rounds(script) -> None:
    compared = script("_figures").compared([10.0, 30.0, 20.0], [10.0, 10.0, 40.0])
    assert (compared["golem"], compared["llama.cpp"], compared["ratio"]) == (20.0, 10.0, 2.0)
    assert (compared["lowest"], compared["highest"]) == (0.5, 3.0)


def test_the_sides_take_turns(script) -> None:
    in_turn = script("_figures").in_turn
    assert [list(in_turn("ab", number)) for number in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]


def test_a_disturbed_measurement_is_repeated_until_the_patience_ends(script, monkeypatch) -> None:
    module = script("_quiet")
    others = iter([0.0, 5.0, 0.0, 0.0, 0.0, 5.0])  # looked, disturbed, looked, quiet; looked, disturbed
    monkeypatch.setattr(module, "_watched", lambda act, processes: (act(), next(others), 1.0))
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(module.Path, "exists", lambda path: True)
    quiet, taken = module.Quiet(1.5), []
    assert quiet.measure(lambda: taken.append(len(taken)) or len(taken)) == 2
    assert quiet.disturbed == 0
    assert quiet.measure(lambda: "once") == "once"
    assert quiet.disturbed == 1
