"""POST /v1/images/generations over HTTP: whole and streamed, in turn, refused, and given up."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from golem_krea2 import endpoint
from golem_krea2.noise import source
from golem_krea2.request import Settings
from golem_krea2.studio import Studio
from PIL import Image

from golem_core import GolemError
from golem_core.options import CORE_OPTIONS, Address
from golem_core.server.app import Server, listen
from golem_core.server.web import Runner, application

PATH = "/v1/images/generations"
LOCAL = Address("127.0.0.1", 0)
SMALL = {"prompt": "a cat", "size": "64x64", "steps": 3, "seed": 5}


@pytest.fixture
def serve(printed):
    """Starts servers that hold a studio alone."""
    ends = []

    def start(studio: Studio) -> SimpleNamespace:
        options = {option.name: option.default for option in CORE_OPTIONS} | {"addr": LOCAL}
        server = Server(studio.name, options, parts={"krea2": studio})
        bound = listen(LOCAL)
        runner = Runner(application(server), bound, server.stopping, server.cancel)
        thread = threading.Thread(target=runner.run, daemon=True)
        thread.start()
        port = bound.getsockname()[1]
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

        def end() -> None:
            client.close()
            runner.should_exit = True
            thread.join(20)
            assert not thread.is_alive()

        ends.append(end)
        while not runner.started:
            time.sleep(0.001)
        return SimpleNamespace(port=port, client=client, url=f"http://127.0.0.1:{port}", studio=studio)

    yield start
    for end in ends:
        end()


@pytest.fixture
def live(serve, files, devices, log):
    """A server whose networks are fakes."""
    return serve(Studio(files, devices, networks=log.networks()))


@pytest.fixture
def drawing(serve, files, reference_device):
    """A server whose networks are the tiny ones, on the definitions of the ops."""
    return serve(Studio(files, reference_device))


def said(printed, count: int = 1) -> list[str]:
    """The lines of the log about pictures, as soon as there are so many."""
    return printed.lines(count, f"POST {PATH}")


def events(text: str) -> list[tuple[str, dict]]:
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line)
        if lines:
            assert list(lines) == ["event", "data"]
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_a_picture(drawing, printed):
    before = int(time.time())
    found = drawing.client.post(PATH, json={**SMALL, "size": "96x64"})
    assert found.status_code == 200 and found.headers["content-type"] == "application/json"
    answer = found.json()
    assert before <= answer["created"] <= time.time()
    (item,) = answer["data"]
    assert item["revised_prompt"] == "a cat" and item["seed"] == 5
    with Image.open(io.BytesIO(base64.b64decode(item["b64_json"], validate=True))) as picture:
        assert picture.size == (96, 64) and picture.mode == "RGB"
        assert json.loads(picture.text["golem"])["seed"] == 5  # type: ignore[attr-defined]
        assert len(picture.getcolors(96 * 64) or []) > 100
    again = drawing.client.post(PATH, content=json.dumps({**SMALL, "size": "96x64"}))
    assert again.json()["data"] == answer["data"], "the same seed gives the same bytes, whatever the content type"
    line = said(printed)[0]
    assert re.match(rf"POST {PATH} 200 \d+ bytes in \S+ — 96x64, 3 steps, seed 5, (?:\d+ms|\d+(?:\.\d+)?s)$", line)


def test_a_stream(drawing, printed):
    whole = drawing.client.post(PATH, json=SMALL).json()["data"][0]
    found = drawing.client.post(PATH, json={**SMALL, "stream": True})
    assert found.status_code == 200
    assert found.headers["content-type"].startswith("text/event-stream")
    assert found.headers["cache-control"] == "no-cache"
    *steps, (name, last) = events(found.text)
    progress = "image_generation.progress"
    assert steps == [(progress, {"type": progress, "step": k, "steps": 3}) for k in (1, 2, 3)]
    assert name == last["type"] == "image_generation.completed"
    assert list(last) == ["type", "created_at", "b64_json", "revised_prompt", "seed"]
    assert last["b64_json"] == whole["b64_json"] and last["seed"] == 5
    assert all("3 steps, seed 5" in line for line in said(printed, 2))


def test_steps_arrive_as_they_are_done(live, log):
    log.gate = threading.Semaphore(0)
    with live.client.stream("POST", PATH, json={**SMALL, "stream": True}) as answer:
        lines = answer.iter_lines()
        for step in (1, 2, 3):
            log.wait_for("step", step)
            log.gate.release()
            while not (line := next(lines)).startswith("data"):
                pass
            assert json.loads(line.removeprefix("data: "))["step"] == step


def test_openais_client(drawing):
    client = openai.OpenAI(base_url=f"{drawing.url}/v1", api_key="none", max_retries=0)
    found = client.images.generate(model="krea2", prompt="a red fox", size="64x64", n=1, extra_body={"steps": 2})  # type: ignore[call-overload]
    assert found.data and found.data[0].b64_json and found.data[0].revised_prompt == "a red fox"
    with Image.open(io.BytesIO(base64.b64decode(found.data[0].b64_json))) as picture:
        assert picture.size == (64, 64)
    again = [
        client.images.generate(prompt="a red fox", size="64x64", extra_body={"seed": 7, "steps": steps})
        for steps in (2, 2, 3)
    ]
    first, same, other = (each.data[0].b64_json for each in again if each.data)
    assert first == same != other
    streamed: list[Any] = list(
        client.images.generate(prompt="a red fox", size="64x64", stream=True, extra_body={"steps": 2})
    )
    told = [(type(each).__name__, each.step, each.steps, each.b64_json) for each in streamed[:-1]]
    assert told == [("ImageGenPartialImageEvent", step, 2, None) for step in (1, 2)]
    kinds = [each.type for each in streamed]
    assert kinds == ["image_generation.progress"] * 2 + ["image_generation.completed"]
    with pytest.raises(openai.BadRequestError, match="n: 2 pictures"):
        client.images.generate(prompt="a red fox", n=2)
    assert [model.id for model in client.models.list()] == ["krea2"]


def test_a_prompt_that_is_hidden(drawing):
    answer = drawing.client.post(PATH, json={**SMALL, "prompt": "hushed", "hide_prompt": True}).json()["data"][0]
    assert b"hushed" not in base64.b64decode(answer["b64_json"]) and answer["revised_prompt"] == "hushed"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON"),
        (b'{"size": "64x64"}', "prompt: there is nothing to draw"),
        (b'{"prompt": "a", "n": 3}', "n: 3 pictures"),
        (b'{"prompt": "a", "size": "4096x4096", "stream": true}', "size: 4096x4096 has 16777216 pixels"),
        (b'{"prompt": "a", "response_format": "url"}', "response_format: expected"),
        (b'{"prompt": "a", "lora": "../x.safetensors"}', "lora: expected the name"),
        (b'{"prompt": "a", "lora": "none.safetensors", "stream": true}', "lora: there is no 'none.safetensors'"),
        (json.dumps({"prompt": "cat " * 3000, "stream": True}).encode(), "prompt: "),
        (b'{"prompt": "' + b"(" * 5000 + b"a" + b")" * 5000 + b'"}', "prompt: "),
    ],
)
def test_refusals(live, log, body, message):
    found = live.client.post(PATH, content=body)
    assert found.status_code == 400 and found.headers["content-type"] == "application/json"
    error = found.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"].startswith(message)
    assert log.events == [], "nothing is opened for it"


def test_other_methods_and_paths(live):
    assert live.client.get(PATH).status_code == 405
    assert live.client.post("/v1/images/edits", json={}).status_code == 404
    assert live.client.post("/v1/chat/completions", json={}).status_code == 404


def test_a_defect_is_a_server_error(live, log, devices, printed):
    log.fail = "step"
    found = live.client.post(PATH, json=SMALL)
    assert found.status_code == 500 and found.json()["error"]["type"] == "server_error"
    assert not devices.open
    log.fail = ""
    assert live.client.post(PATH, json=SMALL).status_code == 200


def test_a_stream_tells_what_went_wrong(live, log, files, devices, printed):
    found = live.client.post(PATH, json={**SMALL, "stream": True})
    assert events(found.text)[-1][0] == "image_generation.completed"
    path = files.loras / "bad.safetensors"
    path.write_bytes(b"no tensors")
    try:
        studio = live.studio
        studio._networks = type(studio._networks)()
        found = live.client.post(PATH, json={**SMALL, "lora": "bad.safetensors", "stream": True})
        ((name, event),) = events(found.text)
        assert found.status_code == 200 and name == event["type"] == "error"
        assert event["error"]["type"] == "invalid_request_error"
        assert event["error"]["message"].startswith("lora: bad.safetensors")
        found = live.client.post(PATH, json={**SMALL, "lora": "bad.safetensors"})
        assert found.status_code == 400 and found.json()["error"]["param"] == "lora"
        drawn, streamed, whole = (re.sub(r"\d+ bytes in \S+", "…", line) for line in said(printed, 3))
        assert re.match(rf"POST {PATH} 200 … — 64x64, 3 steps, seed 5, \d", drawn)
        assert streamed.startswith(f"POST {PATH} 200 … — 64x64, 3 steps, seed 5: lora: bad.safetensors")
        assert whole == streamed.replace(" 200 ", " 400 "), "the log says of both what went wrong"
    finally:
        path.unlink()
    assert not devices.open


def test_a_defect_in_a_stream(live, log, devices, printed):
    log.fail = "step"
    found = live.client.post(PATH, json={**SMALL, "stream": True})
    ((name, event),) = events(found.text)
    assert name == "error" and event["error"] == {"type": "server_error", "message": "internal error: RuntimeError"}
    assert "broken at step" in printed.getvalue(), "the defect is printed"
    (line,) = said(printed)
    assert line.endswith(" — 64x64, 3 steps, seed 5: internal error: RuntimeError")
    assert not devices.open


@pytest.mark.parametrize("stream", [False, True])
def test_the_servers_stop_is_said_in_the_log(live, log, printed, stream):
    log.gate = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(live.client.post, PATH, json={**SMALL, "stream": stream})
        log.wait_for("step")
        live.studio.cancel()
        log.gate.release(3)
        assert answer.result().status_code == (200 if stream else 503)
    assert said(printed)[0].endswith(" — 64x64, 3 steps, seed 5: the server is stopping")


# ---------------------------------------------------------------- turns


def test_five_clients_are_drawn_for_in_their_order(live, log, devices, printed):
    log.gate = threading.Semaphore(0)
    prompts = [f"prompt {i}" for i in range(5)]
    with ThreadPoolExecutor(5) as pool:
        answers = []
        for i, prompt in enumerate(prompts):
            body = {**SMALL, "prompt": prompt, "seed": i, "stream": i % 2 == 1}
            answers.append(pool.submit(live.client.post, PATH, json=body))
            if i == 0:
                log.wait_for("step")
            time.sleep(0.15)
        assert sum(each.startswith("encode") for each in log.events) == 1
        log.gate.release(15)
        found = [answer.result() for answer in answers]
    assert [each for each in log.events if each.startswith("encode ")] == [f"encode {prompt!r}" for prompt in prompts]
    assert all(each.status_code == 200 for each in found)
    assert [each.json()["data"][0]["seed"] for each in found[::2]] == [0, 2, 4]
    assert [events(each.text)[-1][1]["seed"] for each in found[1::2]] == [1, 3]
    assert not devices.open
    assert sum(", queued " in line for line in said(printed, 5)) == 4


def hang_up(live, body: dict) -> socket.socket:
    """A client that has sent its request and can hang up."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", live.port))
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_hanging_up_between_steps_gives_the_device_back(live, log, devices, printed, stream):
    log.gate = threading.Semaphore(0)
    connection = hang_up(live, {**SMALL, "steps": 50, "stream": stream})
    log.wait_for("step")
    log.gate.release()
    log.wait_for("step", 2)
    assert devices.open
    connection.close()
    time.sleep(0.2)
    log.gate.release()  # the step under way is finished
    start = time.monotonic()
    while devices.open:
        assert time.monotonic() - start < 2, "the device is still taken"
        time.sleep(0.002)
    assert sum(each.startswith("step") for each in log.events) <= 3 and "open decoder" not in log.events
    assert "given up" in said(printed)[0]
    log.gate.release(3)
    assert live.client.post(PATH, json=SMALL).status_code == 200


@pytest.mark.parametrize("turns", range(6))
def test_a_hang_up_is_heard_while_a_step_ends(turns):
    async def hung_up() -> None:
        tell = []

        def draw(told):
            tell.append(told)
            return asyncio.create_task(asyncio.sleep(60))

        async def read() -> None:
            async for _ in endpoint.events(Settings("a cat", steps=3), draw, [].append):
                pass

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        tell[0](1)
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading], timeout=5)
        assert reading.cancelled()

    asyncio.run(hung_up())


@pytest.mark.parametrize("stream", [False, True])
def test_hanging_up_while_waiting_draws_nothing(live, log, printed, stream):
    log.gate = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(live.client.post, PATH, json=SMALL)
        log.wait_for("step")
        connection = hang_up(live, {**SMALL, "prompt": "unwanted", "stream": stream})
        time.sleep(0.2)
        connection.close()
        assert said(printed)[0].endswith(" — 64x64, 3 steps, seed 5, given up while queued")
        log.gate.release(3)
        assert first.result().status_code == 200
    log.gate.release(3)
    assert live.client.post(PATH, json={**SMALL, "prompt": "wanted"}).status_code == 200
    assert "encode 'unwanted'" not in log.events and "encode 'wanted'" in log.events


def test_other_requests_are_answered_meanwhile(live, log):
    log.gate = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(live.client.post, PATH, json=SMALL)
        log.wait_for("step")
        assert live.client.get("/v1/models").status_code == 200
        assert live.client.post(PATH, json={**SMALL, "size": "1x1"}).status_code == 400
        log.gate.release(3)
        assert first.result().status_code == 200


# ---------------------------------------------------------------- what the server says of it


def test_the_list_of_models(live):
    (model,) = live.client.get("/v1/models").json()["data"]
    assert model["id"] == "krea2" and model["object"] == "model" and model["owned_by"] == "golem"
    assert live.client.get("/v1/models/krea2").json()["id"] == "krea2"
    assert live.client.get("/v1/models/laya").status_code == 404


def test_it_is_described_for_programs(live):
    found = live.client.get("/openapi.json").json()
    operation = found["paths"][PATH]["post"]
    assert operation["summary"] == "A picture of a prompt."
    body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert {"prompt", "negative_prompt", "size", "steps", "cfg", "seed", "lora", "lora_strength"} <= set(
        found["components"]["schemas"][body]["properties"]
    )
    assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}


def test_without_a_directory_there_is_no_endpoint():
    from golem_krea2.plugin import golem_endpoints

    assert golem_endpoints(Server("", {})) == []
    assert golem_endpoints(Server("", {"krea2-noise": source("rocm:32"), "krea2-keep": False})) == []


@pytest.mark.parametrize(
    ("name", "value"), [("dit", "x"), ("loras", "x"), ("keep", True), ("literal", True), ("noise", source("cpu"))]
)
def test_options_beside_the_directory_are_refused_without_it(name, value):
    from golem_krea2.plugin import golem_endpoints

    with pytest.raises(GolemError, match=f"-krea2-{name}: it goes with -krea2 DIR"):
        golem_endpoints(Server("", {f"krea2-{name}": value}))
