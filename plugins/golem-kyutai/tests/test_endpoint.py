"""POST /v1/audio/transcriptions over the tiny checkpoint: forms, formats, streams, refusals, clients that go away."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import soundfile
from golem_kyutai import endpoint

from golem_core import BadRequest

GOLEM = [sys.executable, "-c", "from golem_core.cli import main; main()"]
RATE = 12_000


def sound_file(tiny, seconds: float, seed: int = 9, form: str = "WAV", rate: int = RATE) -> bytes:
    frames = int(seconds * tiny.RATE / tiny.FRAME) + 1
    x = np.repeat(tiny.sound(frames, seed)[: int(seconds * tiny.RATE)], rate // tiny.RATE)
    out = io.BytesIO()
    soundfile.write(out, x * 0.9, rate, format=form)
    return out.getvalue()


@pytest.fixture(scope="module")
def url(directory):
    """A server with the checkpoint alone, for four streams at once."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GOLEM_STT")}
    command = [*GOLEM, "serve", "-stt", str(directory), "-stt-parallel", "4", "-addr", "127.0.0.1:0", "-threads", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"listening on (http://[^/]+)", line):
                break
        else:
            pytest.fail("".join(lines))
        assert any(line.startswith("stt-tiny: speech to text, 3 layers in q8_0, 4 streams") for line in lines), lines
        drain = ThreadPoolExecutor(1).submit(process.stderr.read)
        yield found[1]
        process.terminate()
        drain.result(30)


@pytest.fixture(scope="module")
def spoken(tiny):
    return sound_file(tiny, 5.0)


@pytest.fixture
def ask(url, spoken):
    def ask(data: bytes | None = spoken, name: str = "talk.wav", **fields) -> httpx.Response:
        files = {} if data is None else {"file": (name, data)}
        return httpx.post(f"{url}/v1/audio/transcriptions", files=files or {"x": ("", b"")}, data=fields, timeout=60)

    return ask


@pytest.fixture(scope="module")
def text(url, spoken):
    answered = httpx.post(f"{url}/v1/audio/transcriptions", files={"file": ("a.wav", spoken)}, timeout=60)
    assert answered.status_code == 200, answered.text
    return answered.json()["text"]


def test_json_has_the_text_and_the_seconds(ask, text):
    found = ask(model="anything", language="en", prompt="ignored", **{"include[]": "logprobs"})
    assert found.headers["content-type"] == "application/json"
    assert found.json() == {"text": text, "usage": {"type": "duration", "seconds": 5.0}}
    assert len(text) > 10 and text == text.strip()


def test_every_format_can_be_read(ask, text):
    plain = ask(response_format="text")
    assert plain.headers["content-type"] == "text/plain; charset=utf-8" and plain.text == text + "\n"
    srt = ask(response_format="srt")
    assert re.match(r"1\n\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}\n\S", srt.text)
    vtt = ask(response_format="vtt")
    assert vtt.headers["content-type"] == "text/vtt; charset=utf-8" and vtt.text.startswith("WEBVTT\n\n00:00:0")
    joined = " ".join(line for line in vtt.text.split("\n")[2:] if line and "-->" not in line)
    assert joined.split() == text.split()
    verbose = ask(response_format="verbose_json", **{"timestamp_granularities[]": ["word", "segment"]}).json()
    assert verbose["text"] == text and verbose["duration"] == 5.0
    assert " ".join(each["word"] for each in verbose["words"]).split() == text.split()
    times = [(each["start"], each["end"]) for each in verbose["words"]]
    assert times == sorted(times) and all(0 <= start <= end <= 6.6 for start, end in times)
    assert "words" not in ask(response_format="verbose_json").json()
    assert "segments" not in ask(response_format="verbose_json", **{"timestamp_granularities[]": "word"}).json()


def events(response: httpx.Response) -> list[dict]:
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]" and all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines[:-1]]


def test_a_stream_says_the_same(ask, text):
    answered = ask(stream="true")
    assert answered.headers["content-type"].startswith("text/event-stream")
    assert answered.headers["cache-control"] == "no-cache"
    *deltas, done = events(answered)
    assert len(deltas) > 3 and {each["type"] for each in deltas} == {"transcript.text.delta"}
    assert "".join(each["delta"] for each in deltas).strip() == text
    assert done == {"type": "transcript.text.done", "text": text, "usage": {"type": "duration", "seconds": 5.0}}


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_containers_say_the_same(ask, tiny, form):
    """What loses nothing; the name plays no part."""
    data = sound_file(tiny, 2.0, form=form)
    assert ask(data, name="sound.bin").json() == ask(sound_file(tiny, 2.0)).json()


@pytest.mark.parametrize("form", ["OGG", "MP3"])
def test_containers_that_lose_something_are_heard_too(ask, tiny, form):
    found = ask(sound_file(tiny, 2.0, form=form), response_format="verbose_json")
    assert found.status_code == 200 and 1.9 < found.json()["duration"] < 2.3


def test_nothing_said_is_no_error(ask, tiny):
    empty = io.BytesIO()
    soundfile.write(empty, np.zeros(0), RATE, format="WAV")
    assert ask(empty.getvalue()).json()["usage"]["seconds"] == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"response_format": "diarized_json"}, "response_format: 'diarized_json' is not written here, only json"),
        ({"stream": "true", "response_format": "srt"}, "stream: captions"),
        ({"temperature": "warm"}, "temperature: expected a number from 0 to 2, got 'warm'"),
        ({"temperature": "nan"}, "temperature"),
        ({"timestamp_granularities[]": "phoneme"}, "timestamp_granularities: 'phoneme' is neither"),
        ({"prompt": "x" * (2 << 20)}, "prompt: the form's fields have more than"),
    ],
)
def test_fields_that_cannot_be_are_refused_by_name(ask, fields, said):
    refused = ask(**fields)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["message"].startswith(said) and error["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("data", [b"", b"hello", b"RIFF\0\0\0\0WAVE", b"fLaC" + bytes(50), b"\xff\xfb" + bytes(9)])
def test_bytes_that_are_no_sound_are_refused(ask, data, stream):
    refused = ask(data, stream=stream)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "file"


def test_a_stream_that_breaks_says_why_to_the_client_and_to_the_log():
    class Broken:
        seconds, ended = 1.0, False
        closed = False

        def listen(self, wake):
            pass

        def poll(self):
            raise BadRequest("the sound ends in the middle", param="file")

        def close(self):
            self.closed = True

    async def told() -> list[bytes]:
        return [piece async for piece in endpoint.events(broken, words.append, reasons.append)]

    broken, words, reasons = Broken(), [], []
    _, failed, done = asyncio.run(told())
    assert json.loads(failed[6:])["error"] == {
        "message": "the sound ends in the middle",
        "type": "invalid_request_error",
    }
    assert done == b"data: [DONE]\n\n" and reasons == ["the sound ends in the middle"]
    assert broken.closed and words == [0]


@pytest.mark.parametrize("turns", range(6))
def test_a_hang_up_is_heard_while_a_word_comes(turns):
    class Endless:
        """A stream with nothing to say yet."""

        seconds, ended, closed = 1.0, False, False

        def listen(self, wake):
            self.wake = wake

        def poll(self):
            return None

        def close(self):
            self.closed = True

    async def hung_up() -> None:
        async def read() -> None:
            async for _ in endpoint.events(stream, [].append, [].append):
                pass

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        stream.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading], timeout=5)
        assert reading.cancelled()

    stream = Endless()
    asyncio.run(hung_up())
    assert stream.closed


def test_other_bodies_are_refused(url, ask):
    path = f"{url}/v1/audio/transcriptions"
    odd = [
        ({"audio": ("a.wav", b"RIFF\xd0" * (1 << 19))}, {}, "no file part"),
        ({"file": ("a.wav", b"RIFF")}, {"language": b"\xff"}, "language: it is not text in UTF-8"),
        ([("file", ("a.wav", b"RIFF")), ("file", ("b.wav", b"RIFF"))], {}, "file: the form has two of them"),
    ]
    for files, data, said in odd:
        refused = httpx.post(path, files=files, data=data, timeout=60)
        assert refused.status_code == 400 and refused.json()["error"]["message"].startswith(said), refused.text
    name = b'--a\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n--a--\r\n'
    refused = httpx.post(path, content=name, headers={"content-type": "multipart/form-data; boundary=a"})
    assert refused.status_code == 400 and "UnicodeDecodeError" not in refused.text
    missing = ask(None)
    assert missing.status_code == 400 and missing.json()["error"]["message"].startswith("no file part")
    for body in (
        {"json": {}},
        {"content": b"x", "headers": {"content-type": "multipart/form-data"}},
        {"content": b"--a\r\nnonsense", "headers": {"content-type": "multipart/form-data; boundary=a"}},
        {"content": b"", "headers": {"content-type": "multipart/form-data; boundary=a"}},
    ):
        refused = httpx.post(path, **body)
        assert refused.status_code == 400, body
        assert refused.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(path).status_code == 405


def test_more_streams_than_there_is_room_for_are_told_to_come_again(url, tiny, ask, text):
    long, path, enough = sound_file(tiny, 900.0), f"{url}/v1/audio/transcriptions", threading.Event()
    begun = threading.Barrier(5, timeout=60)

    def read() -> int:
        """Reads until told to hang up; -> events until then."""
        count = 0
        fields = {"files": {"file": ("a.wav", long)}, "data": {"stream": "true"}}
        with httpx.Client(timeout=60) as client, client.stream("POST", path, **fields) as answer:
            for line in answer.iter_lines():
                count += "transcript.text.delta" in line
                if count == 1 and line:
                    begun.wait()
                if enough.is_set():
                    break
        return count

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        begun.wait()
        refused = ask()
        enough.set()
        assert all(reader.result() > 0 for reader in readers)
    assert refused.status_code == 429 and refused.json()["error"]["type"] == "rate_limit_error"
    deadline = time.monotonic() + 10  # all have hung up: their slots come free
    while (again := ask()).status_code == 429 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert again.json()["text"] == text


def test_several_at_once_hear_what_each_hears_alone(ask, tiny):
    sounds = [sound_file(tiny, 2.0 + i, seed=30 + i) for i in range(4)]
    alone = [ask(each).json() for each in sounds]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda each: ask(each).json(), sounds)) == alone


def test_models_and_the_document_name_it(url):
    assert [each["id"] for each in httpx.get(f"{url}/v1/models").json()["data"]] == ["stt-tiny"]
    assert "/v1/audio/transcriptions" in httpx.get(f"{url}/openapi.json").json()["paths"]
    assert httpx.post(f"{url}/v1/chat/completions", json={}).status_code == 404


# ---------------------------------------------------------------- openai's own client


@pytest.fixture
def client(url):
    openai = pytest.importorskip("openai")
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_openais_client_reads_every_format(client, spoken, text):
    create = client.audio.transcriptions.create
    assert create(model="whisper-1", file=("a.wav", spoken)).text == text
    verbose = create(
        model="whisper-1", file=("a.wav", spoken), response_format="verbose_json", timestamp_granularities=["word"]
    )
    assert verbose.text == text and verbose.duration == 5.0
    assert " ".join(each.word for each in verbose.words).split() == text.split()
    segments = create(model="whisper-1", file=("a.wav", spoken), response_format="verbose_json").segments
    assert segments[0].id == 0 and segments[0].avg_logprob < 0
    assert create(model="whisper-1", file=("a.wav", spoken), response_format="text") == text + "\n"
    assert create(model="whisper-1", file=("a.wav", spoken), response_format="srt").startswith("1\n00:")


def test_openais_client_reads_a_stream(client, spoken, text):
    deltas, done = [], None
    for each in client.audio.transcriptions.create(model="whisper-1", file=("a.wav", spoken), stream=True):
        if each.type == "transcript.text.delta":
            deltas.append(each.delta)
        else:
            done = each
    assert "".join(deltas).strip() == text == done.text and done.type == "transcript.text.done"


def test_openais_client_raises_what_is_refused(client):
    import openai

    with pytest.raises(openai.BadRequestError, match="not a WAV, FLAC, MP3 or OGG file"):
        client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"no sound"))
