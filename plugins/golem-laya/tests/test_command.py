"""`golem decide`, and the option -laya of `golem serve`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

MODEL = Path(__file__).parent / "fixtures" / "english"
REQUEST = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "Is it x?"}}}
GOLEM = [sys.executable, "-c", "from golem_core.cli import main; main()"]


def golem(*arguments: str, given: str = "") -> subprocess.CompletedProcess:
    return subprocess.run([*GOLEM, *arguments], input=given, capture_output=True, text=True, timeout=120)


def test_decide_prints_the_answer(tmp_path):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST))
    from_file = golem("decide", "-model", str(MODEL), str(path))
    assert from_file.returncode == 0, from_file.stderr
    assert 0 <= json.loads(from_file.stdout)["answers"]["q"]["noul"] <= 1
    assert golem("decide", "-model", str(MODEL), "-", given=json.dumps(REQUEST)).stdout == from_file.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "-: request body must be valid JSON"),
        (json.dumps(REQUEST | {"questions": {"q": {"type": "noul"}}}), 'question "q": there are no instructions'),
    ],
)
def test_decide_says_in_one_line_what_is_wrong(given, said):
    found = golem("decide", "-model", str(MODEL), "-", given=given)
    assert (found.returncode, found.stdout) == (1, "")
    assert said in found.stderr and "Traceback" not in found.stderr


def test_serve_holds_a_checkpoint_alone():
    command = [*GOLEM, "serve", "-laya", str(MODEL), "-addr", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"listening on (http://[^/]+)", line):
                    break
            url = found[1]  # type: ignore[index]
            assert any(line.startswith("laya: 5 layers") for line in lines), lines
            assert httpx.post(f"{url}/v1/systemone", json=REQUEST).status_code == 200
            assert [each["id"] for each in httpx.get(f"{url}/v1/models").json()["data"]] == ["laya"]
            assert httpx.post(f"{url}/v1/chat/completions", json={}).status_code == 404
            log = process.stderr.readline() + process.stderr.readline()
            assert re.search(r"POST /v1/systemone 200 .* — 1 question, \d+ positions", log)
        finally:
            process.terminate()
