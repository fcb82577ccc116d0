"""Decisions and transcriptions come out on Vulkan as they do on the CPU: in a pass, from a server, from commands."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from golem_core.cpu.device import CpuDevice

PLUGINS = Path(__file__).parents[2]
LAYA = PLUGINS / "golem-laya" / "tests" / "fixtures"
GOLEM = [sys.executable, "-c", "from golem_core.cli import main; main()"]
REQUEST = {
    "state": {"subject": "Refund not received"},
    "questions": {"refund": {"type": "noul", "instructions": "The customer asks about a refund."}},
}
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def cpu():
    opened = CpuDevice(threads=2, kv="f32")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """A tiny speech-to-text checkpoint, and a file to be written down."""
    pytest.importorskip("golem_kyutai")
    soundfile = pytest.importorskip("soundfile")
    spec = importlib.util.spec_from_file_location("tiny_speech", PLUGINS / "golem-kyutai" / "tests" / "tiny.py")
    assert spec is not None and spec.loader is not None
    tiny = sys.modules["tiny_speech"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    folder = tmp_path_factory.mktemp("speech")
    soundfile.write(folder / "talk.wav", tiny.sound(40, 9) * 0.9, tiny.RATE)
    return tiny.write_checkpoint(folder / "stt-tiny"), folder / "talk.wav"


def golem(*arguments: str) -> str:
    found = subprocess.run([*GOLEM, *arguments], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("name", ["english", "multilingual"])
def test_encoder_and_head_of_laya_are_the_cpus(device, cpu, name):
    decider = pytest.importorskip("golem_laya.decider")
    from golem_laya.checkpoint import Checkpoint
    from golem_laya.questions import KINDS, Question
    from golem_laya.sequences import Fed

    checkpoint, expected = Checkpoint.open(LAYA / name), np.load(LAYA / name / "expected.npz")
    asked = [
        decider.Asked(
            Question(each, KINDS[int(expected[f"{each}.kind"])], "", (), (), {}),
            Fed(expected[f"{each}.ids"].tolist(), expected[f"{each}.marks"].tolist()),
        )
        for each in "abc"
    ]
    found = [[np.concatenate(pair) for pair in decider.Decider(checkpoint, each).run(asked)] for each in (device, cpu)]
    for got, want in zip(*found, strict=True):
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()
    checkpoint.close()


def test_a_server_decides_and_transcribes(device, speech, tmp_path):
    pytest.importorskip("golem_laya")
    httpx = pytest.importorskip("httpx")
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    model, sound = LAYA / "english", speech[1]
    decided = json.loads(golem("decide", "-laya", str(model), str(tmp_path / "request.json")))["answers"]
    text = golem("transcribe", "-stt", str(speech[0]), "-stt-weights", "bf16", str(sound)).strip()
    assert len(text.split()) > 3
    where = ["-vulkan", "-vulkan-validate", "-addr", "127.0.0.1:0"]
    command = [*GOLEM, "serve", "-laya", str(model), "-stt", str(speech[0]), "-stt-weights", "bf16", *where]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"listening on (http://[^/]+)", line):
                    break
            else:
                pytest.fail("".join(lines))
            assert sum("on vulkan, loaded" in line for line in lines) == 2, lines
            answer = httpx.post(f"{found[1]}/v1/systemone", json=REQUEST, timeout=60).json()["answers"]["refund"]
            assert answer["noul"] == pytest.approx(decided["refund"]["noul"], abs=2e-4)
            files = {"file": ("talk.wav", sound.read_bytes())}
            heard = httpx.post(f"{found[1]}/v1/audio/transcriptions", files=files, timeout=60)
            assert heard.json()["text"] == text
        finally:
            process.terminate()


def test_commands_take_the_switch(device, speech, tmp_path):
    pytest.importorskip("golem_laya")
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    for command in (
        ["decide", "-laya", str(LAYA / "english"), str(tmp_path / "request.json")],
        ["transcribe", "-stt", str(speech[0]), "-stt-weights", "bf16", str(speech[1])],
    ):
        assert golem(*command, "-vulkan") == golem(*command)
