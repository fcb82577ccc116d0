"""The embedding endpoints: OpenAI's and ollama's manners, over the real engine and a device that counts."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from fake_embedder import DIMENSIONS, END, POISON, FakeDevice, fake_embedder, vector
from ollama_helpers import filed

from golem_core.embedder import unit
from golem_core.server import embedding
from golem_core.server.embedding import OPTION, ServedEmbedder

LIMIT = 16


class Embedding:
    """A live server beside which an embedder is loaded."""

    def __init__(self, live: Any, device: FakeDevice, alone: Any):
        self.live, self.device, self.alone = live, device, alone

    def post(self, path: str, body: Any, **how: Any) -> httpx.Response:
        content = body if isinstance(body, bytes | str) else json.dumps(body)
        return self.live.client.post(path, content=content, **how)

    def openai(self, given: Any, **fields: Any) -> Any:
        response = self.post("/v1/embeddings", {"input": given, "model": "any", **fields})
        assert response.status_code == 200, response.text
        return response.json()

    def refused(self, path: str, body: Any, status: int = 400) -> Any:
        response = self.post(path, body)
        assert response.status_code == status, response.text
        return response.json()["error"]


@pytest.fixture(scope="module")
def served(module_start: Any) -> Iterator[Embedding]:
    embedder, device = fake_embedder(limit=LIMIT, width=64)
    part = ServedEmbedder("fake-embedder", embedder)

    def beside(server: Any) -> None:
        server.parts[OPTION] = part

    def alone(server: Any) -> None:
        server.parts[OPTION], server.chat, server.name = part, None, part.name

    live = module_start(prepare=beside, options={"metrics": True})
    yield Embedding(live, device, module_start(prepare=alone, options={"metrics": True}))
    device.go.set()
    part.close()


def text_vector(text: str) -> np.ndarray:
    return vector([0, *map(ord, text), END])


def unit_vector(text: str) -> list[float]:
    return unit(text_vector(text)[None])[0].tolist()


# ---------------------------------------------------------------- POST /v1/embeddings


def test_a_text_gets_a_unit_vector(served):
    body = served.openai("abc")
    assert body == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": unit_vector("abc")}],
        "model": "fake-embedder",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    assert np.linalg.norm(body["data"][0]["embedding"]) == pytest.approx(1, abs=1e-6)


def test_texts_come_back_in_order_and_an_empty_one_is_its_marks(served):
    texts = ["b", "", "aaa", "b"]
    body = served.openai(texts)
    assert [(each["index"], each["embedding"]) for each in body["data"]] == [
        (index, unit_vector(text)) for index, text in enumerate(texts)
    ]
    assert body["usage"]["prompt_tokens"] == 3 + 2 + 5 + 3


def test_token_ids_are_taken_as_they_are(served):
    one = unit(vector([5, 6])[None])[0].tolist()
    assert served.openai([5, 6])["data"][0]["embedding"] == one
    mixed = served.openai([[5, 6.0], "a", [7]])["data"]
    assert [each["embedding"] for each in mixed] == [one, unit_vector("a"), unit(vector([7])[None])[0].tolist()]


def test_base64_says_the_same_as_numbers(served):
    plain = served.openai(["a", "bc"])["data"]
    coded = served.openai(["a", "bc"], encoding_format="base64")["data"]
    for number, text in zip(plain, coded, strict=True):
        floats = np.frombuffer(base64.b64decode(text["embedding"], validate=True), "<f4")
        assert floats.tolist() == number["embedding"]
    assert served.openai("a", encoding_format="")["data"] == served.openai("a", encoding_format="float")["data"]


def test_dimensions_are_the_unit_vector_of_a_prefix(served):
    full = np.array(served.openai("abc")["data"][0]["embedding"])
    short = served.openai("abc", dimensions=2)["data"][0]["embedding"]
    np.testing.assert_allclose(short, full[:2] / np.linalg.norm(full[:2]), rtol=1e-6)
    for all_of_them in (DIMENSIONS, 4.0, 99, 0, None):
        assert served.openai("abc", dimensions=all_of_them)["data"][0]["embedding"] == full.tolist()


def test_null_is_absent_and_unknown_fields_are_nothing(served):
    body = served.openai("a", encoding_format=None, user="me", input_type="query", model=None)
    assert body["data"][0]["embedding"] == unit_vector("a")


@pytest.mark.parametrize(
    "body, words",
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"input": "\xff"}', "not JSON"),
        (b"[]", "expected an object"),
        ({}, "there is nothing to embed"),
        ({"input": None}, "there is nothing to embed"),
        ({"input": []}, "there is nothing to embed"),
        ({"input": 5}, "input: expected a text"),
        ({"input": {"text": "a"}}, "input: expected a text"),
        ({"input": [[]]}, "input[0]: the list of token ids is empty"),
        ({"input": ["a", []]}, "input[1]: the list of token ids is empty"),
        ({"input": ["a", None]}, "input[1]: expected a text or a list of token ids, got null"),
        ({"input": ["a", 5]}, "input[1]: expected a text or a list of token ids, got 5"),
        ({"input": [5, "a"]}, 'input[1]: expected a token id, got "a"'),
        ({"input": [5, 1.5]}, "input[1]: expected a whole number, got 1.5"),
        ({"input": [True]}, "input[0]: expected a text"),
        ({"input": [[5, True]]}, "input[0][1]: expected a token id, got true"),
        ({"input": [-1]}, "text 0 has the token -1"),
        ({"input": ["a", [1, 0x110000]]}, "text 1 has the token 1114112; the vocabulary ends at 1114111"),
        ({"input": [10**30]}, "token 1"),
        ({"input": ["a", "x" * 15]}, "text 1 has 17 tokens, and the model takes 16"),
        ({"input": [1] * 17}, "text 0 has 17 tokens, and the model takes 16"),
        ({"input": "a", "encoding_format": "hex"}, 'encoding_format: expected "float" or "base64", got "hex"'),
        ({"input": "a", "dimensions": -1}, "dimensions: expected a number of at least 1, got -1"),
        ({"input": "a", "dimensions": 1.5}, "dimensions: expected a whole number"),
        ({"input": "a", "dimensions": "2"}, "dimensions: expected"),
    ],
)
def test_what_openai_refuses_is_refused_and_costs_no_pass(served, body, words):
    before = len(served.device.passes)
    error = served.refused("/v1/embeddings", body)
    assert words in error["message"] and error["type"] == "invalid_request_error"
    assert len(served.device.passes) == before


def test_the_longest_text_is_taken_and_a_longer_one_tells_its_counts(served):
    assert served.openai("x" * (LIMIT - 2))["usage"]["prompt_tokens"] == LIMIT
    error = served.refused("/v1/embeddings", {"input": "x" * (LIMIT - 1)})
    assert (error["code"], error["n_prompt_tokens"], error["n_ctx"]) == ("context_length_exceeded", 17, 16)


def test_a_failure_of_the_model_is_a_server_error_that_is_not_asked_again(served):
    response = served.post("/v1/embeddings", {"input": [POISON]})
    assert response.status_code == 500 and response.headers["x-should-retry"] == "false"
    assert response.json()["error"]["type"] == "server_error"
    assert isinstance(served.refused("/api/embed", {"input": chr(POISON)}, 500), str)


def test_a_vector_that_is_not_finite_is_a_failure(served, monkeypatch):
    monkeypatch.setattr("fake_embedder.vector", lambda ids: np.full(DIMENSIONS, np.nan, np.float32))
    assert "not finite" in served.refused("/v1/embeddings", {"input": "a"}, 500)["message"]


# ---------------------------------------------------------------- POST /api/embed and /api/embeddings


def ollama(served: Embedding, **body: Any) -> Any:
    response = served.post("/api/embed", {"model": "nomic", **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_ollama_gets_unit_vectors_and_durations(served):
    body = ollama(served, input=["a", "bc"])
    assert body["embeddings"] == [unit_vector("a"), unit_vector("bc")]
    assert (body["model"], body["prompt_eval_count"]) == ("nomic", 7)
    assert all(type(body[key]) is int and body[key] >= 0 for key in ("total_duration", "load_duration"))
    assert ollama(served, input="a")["embeddings"] == [unit_vector("a")]
    assert served.post("/api/embed", {"input": "a"}).json()["model"] == "fake-embedder"


def test_ollama_cuts_what_is_too_long_unless_told_otherwise(served):
    body = ollama(served, input="x" * 100)
    assert body["embeddings"] == [unit_vector("x" * (LIMIT - 2))] and body["prompt_eval_count"] == LIMIT
    error = served.refused("/api/embed", {"input": ["a", "x" * 100], "truncate": False})
    assert "exceeds the context length" in error and "text 1 has 102 tokens" in error


@pytest.mark.parametrize("nothing", [{}, {"input": ""}, {"input": []}, {"input": None}])
def test_ollama_gives_nothing_for_nothing(served, nothing):
    assert ollama(served, **nothing)["embeddings"] == []
    assert ollama(served, **nothing)["prompt_eval_count"] == 0


def test_ollama_takes_what_its_clients_send_besides(served):
    body = ollama(served, input="abc", dimensions=2, keep_alive="5m", options={"num_ctx": 4}, truncate=None)
    np.testing.assert_allclose(np.linalg.norm(body["embeddings"][0]), 1, rtol=1e-6)
    assert len(body["embeddings"][0]) == 2


@pytest.mark.parametrize(
    "body, words",
    [
        (b"", "missing request body"),
        (b"no", "not JSON"),
        ({"input": 5}, "input: expected a text"),
        ({"input": ["a", 5]}, "input[1]: expected a text, got 5"),
        ({"input": [["a"]]}, "input[0]: expected a text"),
        ({"input": "a", "dimensions": -5}, "dimensions"),
        ({"input": "a", "keep_alive": "soon"}, "keep_alive"),
        ({"input": "a", "truncate": "no"}, "truncate: expected true or false"),
    ],
)
def test_what_ollama_refuses_is_one_text(served, body, words):
    assert words in served.refused("/api/embed", body)


def test_the_older_endpoint_gives_one_vector_that_is_not_normalized(served):
    answer = served.post("/api/embeddings", {"model": "any", "prompt": "abc"}).json()
    assert answer == {"embedding": text_vector("abc").tolist()}
    long = served.post("/api/embeddings", {"prompt": "x" * 100}).json()
    assert long == {"embedding": text_vector("x" * (LIMIT - 2)).tolist()}
    for nothing in ({}, {"prompt": ""}, {"prompt": None}):
        assert served.post("/api/embeddings", nothing).json() == {"embedding": []}
    assert "missing request body" in served.refused("/api/embeddings", b"")
    assert "prompt: expected a text" in served.refused("/api/embeddings", {"prompt": ["a"]})


# ---------------------------------------------------------------- many, and large


def test_ten_thousand_texts_are_embedded_and_far_more_refused(served):
    texts = [str(number) for number in range(10_000)]
    data = served.openai(texts, encoding_format="base64")["data"]
    assert len(data) == 10_000
    last = np.frombuffer(base64.b64decode(data[-1]["embedding"]), "<f4").tolist()
    assert last == unit_vector("9999")
    error = served.refused("/v1/embeddings", {"input": [""] * 20_000})
    assert f"20000 texts were given, {embedding.MOST_TEXTS} at most" in error["message"]
    assert "20000 texts" in served.refused("/api/embed", {"input": [""] * 20_000})


def test_a_text_of_megabytes_is_cut_or_refused_soon(served):
    began = time.perf_counter()
    assert ollama(served, input="x" * (4 << 20))["prompt_eval_count"] == LIMIT
    error = served.refused("/v1/embeddings", {"input": "x" * (4 << 20)})
    assert "over 256 tokens" in error["message"]
    assert time.perf_counter() - began < 5


def test_requests_that_arrive_together_share_passes(served, printed):
    device = served.device
    device.running.clear()
    device.go.clear()
    before = len(device.passes)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(served.openai("x" * n))) for n in range(9)]
    threads[0].start()
    assert device.running.wait(5)
    for thread in threads[1:]:
        thread.start()
    engine = served.live.server.parts[OPTION].loaded.engine
    end = time.monotonic() + 5
    while engine.waiting < 8 and time.monotonic() < end:
        time.sleep(0.005)
    device.go.set()
    for thread in threads:
        thread.join()
    assert len(answers) == 9 and len(device.passes) <= before + 3
    assert sum(" — 1 text, queued " in line for line in printed.lines(9, "POST")) == 8


def test_who_hangs_up_while_queued_costs_no_pass(served):
    device, engine = served.device, served.live.server.parts[OPTION].loaded.engine
    device.running.clear()
    device.go.clear()
    first = threading.Thread(target=served.openai, args=("first",))
    first.start()
    assert device.running.wait(5)
    with httpx.Client(base_url=served.live.url) as client, pytest.raises(httpx.ReadTimeout):
        client.post("/v1/embeddings", json={"input": "gone"}, timeout=0.3)
    end = time.monotonic() + 5
    while engine.waiting and time.monotonic() < end:
        time.sleep(0.005)
    assert engine.waiting == 0
    carried = len(device.passes)
    device.go.set()
    first.join()
    served.openai("next")
    assert [len(each[0]) for each in device.passes[carried:]] == [len("next") + 2]


def test_a_server_that_stops_says_so_to_those_who_wait(served):
    device = served.device
    device.running.clear()
    device.go.clear()
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(served.post("/v1/embeddings", {"input": "a"})))
    asking.start()
    assert device.running.wait(5)
    served.live.server.cancel()
    asking.join(5)
    device.go.set()
    assert answers[0].status_code == 503 and "stopping" in answers[0].json()["error"]["message"]


# ---------------------------------------------------------------- what the server says of it


def test_the_routes_are_there_only_with_an_embedder(served, live):
    for path in ("/v1/embeddings", "/api/embed", "/api/embeddings"):
        response = live.client.post(path, json={"input": "a"})
        assert response.status_code == 404
    assert served.alone.client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
    for path in ("/v1/chat/completions", "/api/chat", "/tokenize"):
        assert served.alone.client.post(path, json={}).status_code == 404
    assert served.alone.client.get("/slots").status_code == 404


def test_the_models_are_listed_with_their_counts(served):
    counts = {"n_vocab": 0x110000, "n_ctx_train": LIMIT, "n_ctx": LIMIT, "n_embd": DIMENSIONS}
    listed = {each["id"]: each["meta"] for each in served.live.client.get("/v1/models").json()["data"]}
    assert list(listed) == ["tiny-echo", "fake-embedder"] and listed["fake-embedder"] == counts
    (only,) = served.alone.client.get("/v1/models").json()["data"]
    assert (only["id"], only["meta"]) == ("fake-embedder", counts)
    assert served.live.client.get("/v1/models/fake-embedder").json()["meta"] == counts


def test_all_lists_begin_with_the_conversation_model(served, tmp_path):
    filed(served.live, tmp_path)
    for path, models, name in (
        ("/v1/models", "data", "id"),
        ("/api/tags", "models", "name"),
        ("/api/ps", "models", "name"),
    ):
        listed = served.live.client.get(path).json()[models]
        assert [each[name] for each in listed] == ["tiny-echo", "fake-embedder"]


def test_ollamas_lists_have_the_embedder(served):
    (tag,) = served.alone.client.get("/api/tags").json()["models"]
    assert (tag["name"], tag["details"]["family"], tag["details"]["quantization_level"]) == (
        "fake-embedder",
        "fake",
        "F16",
    )
    (running,) = served.alone.client.get("/api/ps").json()["models"]
    assert (running["name"], running["context_length"], running["size_vram"]) == ("fake-embedder", LIMIT, 0)
    shown = served.alone.client.post("/api/show", json={"model": "fake-embedder:latest"}).json()
    assert shown["capabilities"] == ["embedding"] and shown["model_info"]["fake.block_count"] == 1
    assert served.alone.client.post("/api/show", json={"model": "other"}).status_code == 404


def test_properties_metrics_and_health_tell_of_the_embedder(served):
    for live, settings in ((served.live, True), (served.alone, False)):
        props = live.client.get("/props").json()
        assert (props["embedding"]["n_ctx"], props["embedding"]["n_embd"]) == (LIMIT, DIMENSIONS)
        assert bool(props["default_generation_settings"]) is settings
        assert live.client.get("/health").json() == {"status": "ok"}
        text = live.client.get("/metrics").text
        found = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
        engine = served.live.server.parts[OPTION].loaded.engine
        assert int(found["golem:embedded_texts_total"]) == engine.texts > 0
        assert ("llamacpp:tokens_predicted_total" in found) is settings


def test_the_document_describes_the_endpoints(served):
    paths = served.alone.client.get("/openapi.json").json()["paths"]
    for path in ("/v1/embeddings", "/api/embed", "/api/embeddings"):
        assert paths[path]["post"]["requestBody"]


def test_the_log_tells_texts_and_positions(served, printed):
    served.openai(["a", "b"])
    assert re.search(r" — 2 texts, (queued \S+, )?6 positions in ", printed.lines(begin="POST")[0])
