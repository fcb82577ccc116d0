"""POST /v1/systemone over the tiny checkpoint: answers, refusals, and clients that don't behave."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from golem_laya import plugin
from litestar.testing import TestClient

from golem_core import Server, plugins
from golem_core.options import CORE_OPTIONS, Address
from golem_core.server.web import application

REQUEST = {
    "model": "anything",
    "state": {"subject": "Refund not received", "order": 88213, "vip": True},
    "questions": {
        "team": {
            "type": "choice",
            "instructions": "Which team should handle this?",
            "criteria": {"billing": "payments, refunds", "support": None, "sales": ""},
        },
        "urgency": {"type": "score", "instructions": "How urgent is it?", "criteria": ["not", "somewhat", "very"]},
        "refund": {"type": "noul", "instructions": "The customer asks about a refund."},
    },
}
NOUL = {"type": "noul", "instructions": "?"}


@pytest.fixture
def serving(monkeypatch):
    """An application with these parts, of this package alone."""
    found = plugins.Plugins(entry_points=[])
    found.manager.register(plugin, "laya")
    monkeypatch.setattr(plugins, "installed", lambda: found)
    options = {option.name: option.default for option in CORE_OPTIONS} | {"addr": Address("127.0.0.1", 0)}
    return lambda parts: application(Server("laya", options, parts=parts))


@pytest.fixture
def app(english, serving):
    return serving({"laya": english})


@pytest.fixture
def client(app):
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def ask(client, **changed):
    return client.post("/v1/systemone", json=REQUEST | changed)


def test_three_kinds_of_question_are_answered_in_their_order(client):
    answered = ask(client)
    assert answered.status_code == 200, answered.text
    found = answered.json()
    assert list(found) == ["model", "answers", "usage"] and found["model"] == "laya"
    assert list(found["answers"]) == ["team", "urgency", "refund"]
    team, urgency, refund = found["answers"].values()
    assert list(team["probabilities"]) == ["billing", "support", "sales"]
    assert team["choice"] == max(team["probabilities"], key=team["probabilities"].get)
    assert abs(sum(team["probabilities"].values()) - 1) < 3e-4
    assert urgency["legend"] == {"0": "not", "1": "somewhat", "2": "very"} and 0 <= urgency["score"] <= 2
    assert list(refund) == ["type", "noul", "rl_agent"]
    assert found["usage"]["output_tokens"] == 0 < found["usage"]["input_tokens"]


def test_a_question_is_answered_alike_alone_and_in_company(client):
    together = ask(client).json()
    tokens = 0
    for name, question in REQUEST["questions"].items():
        alone = ask(client, questions={name: question}).json()
        assert alone["answers"][name] == together["answers"][name]
        tokens += alone["usage"]["input_tokens"]
    assert tokens == together["usage"]["input_tokens"]


def test_no_questions_need_no_pass(client):
    found = ask(client, questions={}).json()
    assert found == {"model": "laya", "answers": {}, "usage": {"input_tokens": 0, "output_tokens": 0}}


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"{", 400, "request body must be valid JSON"),
        (b"\xff\xfe", 400, "request body must be valid JSON"),
        (b'{"state": NaN, "questions": {}}', 400, "request body must be valid JSON"),
        (b'{"state": 1' + b"0" * 5000 + b', "questions": {}}', 400, "request body must be valid JSON"),
        (b"[" * 100_000, 400, "request body must be valid JSON"),
        (b"[]", 400, "request body must be an object"),
        (b'{"state": "x"}', 400, "request body must be an object with a 'questions' field"),
        (b'{"questions": {}}', 400, "'state' is required"),
        (b'{"questions": {}, "state": null}', 400, "'state' is required"),
        (b'{"state": "x", "questions": []}', 400, "'questions' must be an object"),
        (b'{"state": "x", "questions": {"q": 3}}', 400, "'questions' must be an object"),
        (b'{"state": "x", "questions": {"q": {"type": "rank", "instructions": "?"}}}', 422, 'laya: question "q": type'),
        (b'{"state": "x", "questions": {"q": {"type": "noul"}}}', 422, 'laya: question "q": there are no instructions'),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_detail(client, body, status, detail):
    refused = client.post("/v1/systemone", content=body, headers={"content-type": "application/json"})
    assert refused.status_code == status
    assert list(refused.json()) == ["detail"] and refused.json()["detail"].startswith(detail)


@pytest.mark.parametrize(
    "question",
    [{"type": "\udfff"}, {"type": "choice", "instructions": "?", "criteria": ["\ud800"]}, {"type": "noul"}],
)
def test_a_lone_surrogate_can_be_quoted(client, question):
    body = json.dumps({"state": 1, "questions": {"\ud800": question}})
    refused = client.post("/v1/systemone", content=body)
    assert refused.status_code == 422 and refused.json()["detail"].startswith("laya: question")


def test_other_refusals_have_the_same_envelope(client):
    refused = client.get("/v1/systemone")
    assert refused.status_code == 405 and "POST" in refused.json()["detail"]


def test_without_a_checkpoint_the_path_says_how_to_load_one(serving):
    with TestClient(serving({}), base_url="http://localhost") as client:
        refused = ask(client)
    assert refused.status_code == 404 and list(refused.json()) == ["detail"]
    assert "start with -laya DIR" in refused.json()["detail"]


def test_sixty_four_questions_are_answered_and_sixty_five_refused(client):
    answered = ask(client, questions={f"q{i}": NOUL for i in range(64)})
    assert answered.status_code == 200 and len(answered.json()["answers"]) == 64
    refused = ask(client, questions={f"q{i}": NOUL for i in range(65)})
    assert (refused.status_code, refused.json()) == (413, {"detail": "too many questions (65 > 64)"})


def test_a_mebibyte_is_read_and_one_byte_more_refused(client):
    empty = json.dumps({"state": "", "questions": {"q": NOUL}})
    body = json.dumps({"state": "x" * ((1 << 20) - len(empty)), "questions": {"q": NOUL}})
    assert len(body) == 1 << 20
    assert client.post("/v1/systemone", content=body).status_code == 200
    for longer in (body + " ", "x" * (70 << 20)):
        refused = client.post("/v1/systemone", content=longer)
        assert (refused.status_code, refused.json()) == (413, {"detail": "request body too large"})


@pytest.mark.parametrize(
    "state",
    [
        0,
        False,
        [],
        {},
        "",
        1e300,
        -0.0,
        "\ud800 alone",
        "[MASK] [SEP] [CLS]",
        {"é🦊": [None, {"a": {"b": [[[]]]}}]},
        "\x00",
    ],
)
def test_odd_states(client, state):
    body = json.dumps({"state": state, "questions": {"q": NOUL, "\ud83e": NOUL}})
    answered = client.post("/v1/systemone", content=body)
    assert answered.status_code == 200, answered.text
    assert 0 <= answered.json()["answers"]["q"]["noul"] <= 1


def test_twenty_clients_at_once_get_what_they_would_get_alone(client):
    states = [f"state number {i}" * (i + 1) for i in range(20)]
    alone = [ask(client, state=state).json() for state in states]
    with ThreadPoolExecutor(20) as pool:
        together = list(pool.map(lambda state: ask(client, state=state).json(), states))
    assert together == alone


@pytest.fixture
def passes(english, monkeypatch):
    """The passes of the model that have begun; each takes a while."""
    run, begun = english.run, []

    def slow(asked):
        begun.append(len(asked))
        time.sleep(0.1)
        return run(asked)

    monkeypatch.setattr(english, "run", slow)
    return begun


MANY = {"state": "x" * 500, "questions": {f"q{i}": NOUL for i in range(20)}}


def test_a_client_that_hangs_up_lets_no_further_pass_begin(app, english, passes):
    body = json.dumps(MANY).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/systemone", "raw_path": b"/v1/systemone", "query_string": b"",
        "headers": [(b"host", b"localhost")], "http_version": "1.1", "scheme": "http", "root_path": "",
        "client": ("127.0.0.1", 1), "server": ("localhost", 80), "extensions": {},
    }  # fmt: skip

    async def receive():
        if messages:
            return messages.pop()
        while not passes:
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            assert message["status"] == 499

    asyncio.run(app(scope, receive, send))
    assert len(passes) == 1
    whole = english.decide(**MANY)
    assert len(whole.answers) == 20 and len(passes) > 3


def test_a_request_under_way_ends_with_the_server(client, english, passes):
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: client.post("/v1/systemone", json=MANY))
        while not passes:
            time.sleep(0.01)
        english.cancel()
        assert asked.result().status_code == 503
    assert len(passes) == 1


def test_a_server_that_stops_answers_no_more(client, english):
    english.cancel()
    assert ask(client).status_code == 503
    assert threading.active_count() < 50
