"""`golem serve -krea2`: alone, beside a conversation model, with a directory that is none, and told to stop."""

from __future__ import annotations

import base64
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from PIL import Image

GOLEM = [sys.executable, "-c", "from golem_core.cli import main; main()"]
CHAT = Path(__file__).parents[2] / "golem-gemma" / "tests" / "fixtures" / "gemma3.gguf"
ASKED = {"prompt": "a red fox", "size": "64x64", "steps": 2, "seed": 5}


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GOLEM_")}


@contextmanager
def served(*arguments: str) -> Iterator[SimpleNamespace]:
    """A server; its lines on standard error are collected."""
    command = [*GOLEM, "serve", *arguments, "-addr", "127.0.0.1:0", "-threads", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line.strip())
            if found := re.search(r"listening on (http://[^/]+)", line):
                break
        else:
            pytest.fail("\n".join(lines))
        drain = threading.Thread(target=lambda: lines.extend(line.strip() for line in process.stderr or ()))
        drain.start()
        try:
            yield SimpleNamespace(url=found[1], lines=lines, process=process)
        finally:
            process.kill()
            drain.join(30)


def picture(url: str, **fields) -> Image.Image:
    found = httpx.post(f"{url}/v1/images/generations", json={**ASKED, **fields}, timeout=120)
    assert found.status_code == 200, found.text
    return Image.open(io.BytesIO(base64.b64decode(found.json()["data"][0]["b64_json"])))


def test_alone(directory):
    with served("-krea2", str(directory), "-krea2-keep") as server:
        plan = next(line for line in server.lines if line.startswith("krea2: "))
        assert re.search(
            r"encoder 0\.00 GB, DiT 0\.00 GB, decoder 0\.00 GB on cpu, all stay, with up to about .* to work", plan
        )
        assert any(line.endswith("no conversations, but krea2") for line in server.lines)
        first, again = picture(server.url), picture(server.url)
        assert first.size == (64, 64) and first.tobytes() == again.tobytes()
        assert [each["id"] for each in httpx.get(f"{server.url}/v1/models").json()["data"]] == ["krea2"]


@pytest.mark.skipif(not CHAT.exists(), reason="golem-gemma's tiny model is not here")
def test_beside_a_conversation_model(directory):
    with served("-krea2", str(directory), "-model", str(CHAT), "-context", "256") as server:
        names = [each["id"] for each in httpx.get(f"{server.url}/v1/models").json()["data"]]
        assert names == ["gemma3", "krea2"]

        def chat() -> httpx.Response:
            body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8}
            return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)

        with ThreadPoolExecutor(2) as pool:
            drawn, said = pool.submit(picture, server.url), pool.submit(chat)
            assert drawn.result().size == (64, 64) and said.result().status_code == 200
        assert drawn.result().tobytes() == picture(server.url).tobytes()


def test_the_directory_is_looked_at_before_anything_else(directory, tmp_path):
    for arguments, message in (
        (["-krea2", str(tmp_path / "none")], "none"),
        (["-krea2", str(directory), "-krea2-dit", str(tmp_path / "dit.safetensors")], "dit.safetensors"),
        (["-krea2", str(directory), "-krea2-noise", "dice"], "-krea2-noise 'dice': expected rocm:P"),
    ):
        found = subprocess.run(
            [*GOLEM, "serve", *arguments, "-addr", "127.0.0.1:0"], capture_output=True, text=True, env=environment()
        )
        assert found.returncode in (1, 2) and message in found.stderr and "Traceback" not in found.stderr
        assert len(found.stderr.splitlines()) == 1


@pytest.mark.skipif(not CHAT.exists(), reason="golem-gemma's tiny model is not here")
def test_options_beside_no_directory_are_refused():
    chat = ("-model", str(CHAT), "-context", "256")
    for arguments, name in ((["-krea2-keep"], "keep"), (["-krea2-vae", "x"], "vae")):
        command = [*GOLEM, "serve", *chat, *arguments, "-addr", "127.0.0.1:0"]
        found = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
        assert found.returncode == 1
        assert found.stderr.splitlines()[-1] == f"golem: -krea2-{name}: it goes with -krea2 DIR, and none is named"
    with served(*chat) as server:
        assert httpx.get(f"{server.url}/v1/models").status_code == 200


def test_stopping_while_a_picture_is_drawn(directory):
    with served("-krea2", str(directory)) as server, ThreadPoolExecutor(1) as pool:
        body = {**ASKED, "steps": 100, "size": "512x512", "stream": True}
        answer = pool.submit(httpx.post, f"{server.url}/v1/images/generations", json=body, timeout=120)
        time.sleep(1.5)
        server.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        assert server.process.wait(60) == 0
        assert time.monotonic() - start < 40
        try:
            text = answer.result().text
        except httpx.TransportError:  # cut off
            return
        assert "the server is stopping" in text or "image_generation.completed" in text
