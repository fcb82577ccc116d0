"""Who may ask: exposure, pages in a browser, and that every endpoint stands behind the key and the look at the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from server_fakes import fake_chat

from golem_core.errors import GolemError
from golem_core.media.sources import Files
from golem_core.options import CORE_OPTIONS, Address
from golem_core.server import app
from golem_core.server.guard import check_exposure

OPTIONS = {option.name: option.default for option in CORE_OPTIONS} | {"model": "tiny.gguf"}
PAGE = "http://localhost:3000"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "192.168.1.5", "example.org", "::"])
def test_an_address_that_others_reach_is_refused_before_anything_is_loaded(monkeypatch, host) -> None:
    monkeypatch.setattr(app, "load_chat", lambda options, path: pytest.fail("a model was loaded"))
    with pytest.raises(GolemError) as refusal:
        app.serve(OPTIONS | {"addr": Address(host, 8080)})
    for told in (host, "-addr", "-api-key", "-insecure", "127.0.0.1"):
        assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("host", "keys", "insecure"),
    [
        ("127.0.0.1", (), False),
        ("127.9.9.9", (), False),
        ("::1", (), False),
        ("localhost", (), False),
        ("", ("key",), False),
        ("0.0.0.0", (), True),
    ],
)
def test_a_key_or_the_word_of_the_operator_is_enough(host, keys, insecure) -> None:
    check_exposure(Address(host, 8080), keys, insecure)


def test_no_page_may_read_answers_unless_its_origin_is_listed(start) -> None:
    plain, listing = start(), start(options={"cors": (PAGE,)})
    asking = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "x-a, x-b"}
    for live, headers, granted in [
        (plain, {"origin": PAGE}, None),
        (listing, {"origin": PAGE}, PAGE),
        (listing, {"origin": PAGE + "0"}, None),
        (listing, {"origin": "http://localhost"}, None),
        (listing, {"origin": "null"}, None),
        (listing, {}, None),
    ]:
        answer = live.client.get("/v1/models", headers=headers)
        assert answer.status_code == 200
        assert answer.headers.get("access-control-allow-origin") == granted, headers
    assert "access-control-allow-origin" not in plain.client.options("/v1/chat/completions", headers=asking).headers
    refused = listing.client.options("/v1/chat/completions", headers=asking | {"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in refused.headers


def test_a_listed_page_is_let_in_without_a_key_to_the_question_only(start) -> None:
    live = start(options={"cors": (PAGE,), "api-key": ("k",)})
    asking = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "x-a, x-b"}
    answer = live.client.options("/api/chat", headers=asking)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-headers"] == "x-a, x-b"
    assert "POST" in answer.headers["access-control-allow-methods"]
    refused = live.client.post("/api/chat", json={}, headers={"origin": PAGE})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == PAGE, "a page must be able to read why it was refused"
    assert refused.headers["vary"] == "Origin"
    stream = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    told = live.client.post("/v1/chat/completions", json=stream, headers={"origin": PAGE, "x-api-key": "k"})
    assert told.headers["access-control-allow-origin"] == PAGE


def test_a_star_lists_every_page(start) -> None:
    live = start(options={"cors": ("*",)})
    answer = live.client.get("/v1/models", headers={"origin": "https://any.example"})
    assert answer.headers["access-control-allow-origin"] == "https://any.example"


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "HTTP://EVIL.EXAMPLE", "null"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat", "/completion", "/tokenize"])
def test_a_page_gets_nothing_done_whose_answer_it_could_not_read(guarded, start, origin, path) -> None:
    """A page may send plain text anywhere without asking first."""
    body, sent = b'{"messages": [{"role": "user", "content": "hi"}]}', {"content-type": "text/plain", "origin": origin}
    live = start()
    answer = live.client.post(path, content=body, headers=sent)
    assert answer.status_code == 403 and origin in answer.text and "-cors" in answer.text
    with_key = guarded.client.post(path, content=body, headers=sent | {"x-api-key": "k"})
    assert with_key.status_code == 403


def test_pages_of_the_server_and_listed_ones_and_programs_are_answered(start) -> None:
    live, listing, every = start(), start(options={"cors": (PAGE,)}), start(options={"cors": ("*",)})
    for each, origin in [
        (live, live.url.removesuffix("/v1")),
        (live, "chrome-extension://abc"),
        (live, "app://notes"),
        (listing, PAGE),
        (listing, PAGE.upper()),
        (every, "null"),
        (every, "https://any.example"),
    ]:
        body = {"messages": [{"role": "user", "content": "hi"}]}
        assert each.client.post("/v1/chat/completions", json=body, headers={"origin": origin}).status_code == 200, (
            origin
        )


def routes() -> list[tuple[str, str]]:
    """(method, path) of every route of a server that has everything turned on."""
    from golem_core import plugins
    from golem_core.server.app import Server

    chat = fake_chat()
    server = Server(chat.name, OPTIONS | {"metrics": True}, chat)
    try:
        handlers = plugins.installed().endpoints(server)
        return sorted((method, path) for _, each in handlers for path in each.paths for method in each.http_methods)
    finally:
        server.close()


PUBLIC = ("/", "/health", "/v1/models", "/v1/models/{identity:str}")


@pytest.fixture(scope="module")
def guarded(module_start):
    return module_start(options={"api-key": ("k",), "metrics": True})


@pytest.mark.parametrize(("method", "path"), routes())
def test_every_endpoint_asks_for_the_key_and_for_a_local_host(guarded, method, path) -> None:
    place = path.replace("{identity:str}", "tiny-echo")
    answer = guarded.client.request(method, place)
    assert (answer.status_code == 401) == (path not in PUBLIC)
    stranger = guarded.client.request(method, place, headers={"host": "evil.example", "authorization": "Bearer k"})
    assert stranger.status_code == 403
    if path.startswith("/api/"):
        assert isinstance(answer.json()["error"], str) and isinstance(stranger.json()["error"], str)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template"])
@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-For", "X-Real-IP"])
def test_what_a_proxy_has_passed_on_can_name_no_file(start, tmp_path, path, name) -> None:
    (tmp_path / "cat.png").write_bytes(b"a picture")
    reader: Any = SimpleNamespace(media=SimpleNamespace(kind=lambda kind: object()), files=Files(tmp_path))
    live = start(prepare=lambda server: setattr(server.chat, "media", reader))

    def refusal(file: str, headers: dict[str, str] | None = None) -> str:
        message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": file}}]}
        answer = live.client.post(path, json={"messages": [message]}, headers=headers)
        assert answer.status_code == 400
        return answer.json()["error"]["message"]

    for value in ("192.0.2.7", "for=192.0.2.7", "127.0.0.1", ""):
        for file in ("cat.png", "dog.png", "file:cat.png"):
            assert "may come from another machine" in refusal(file, {name: value})
    assert "there is no such file" in refusal("dog.png")
    assert "there is no such file" in refusal("dog.png", {"X-Real": "192.0.2.7"})
