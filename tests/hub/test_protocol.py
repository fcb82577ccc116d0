"""The routes of the hub as a channel and a provider see them: statuses, bodies, and what is refused."""

from __future__ import annotations

import json
import socket
import sys
from types import SimpleNamespace

import httpx
import pytest
from hub_fakes import BEARER, TOKEN, Clock, echo

from golem_core.errors import GolemError
from golem_core.hub.access import admission
from golem_core.hub.config import Home
from golem_core.options import Address, origin
from golem_core.server.app import local_url

PROVIDER = {"kind": "provider", "id": "echo", "chat": True}
SCHEMA = {"type": "object"}


def test_health_asks_for_the_token(live) -> None:
    assert live.client.get("/v1/health").json() == {"ok": True}
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "bearer a-token"},
        {"X-Api-Key": "a-token"},
    ):
        refused = httpx.get(f"{live.url}/v1/health", headers=headers)
        assert (refused.status_code, refused.json()) == (401, {"error": "unauthorized"})
    assert httpx.get(f"{live.url}/v1/health", headers={"Authorization": "Bearer   a-token"}).status_code == 200


def test_an_empty_token_is_asked_of_nobody(start) -> None:
    live = start(options={"token": ""})
    assert httpx.get(f"{live.url}/v1/health").json() == {"ok": True}


def test_api_keys_are_for_inference_and_the_token_is_for_the_hub(start) -> None:
    live = start(options={"api-key": ("a-key",)})
    assert live.client.get("/v1/health").status_code == 200
    assert httpx.get(f"{live.url}/v1/health", headers={"Authorization": "Bearer a-key"}).status_code == 401
    assert live.client.get("/openapi.json").status_code == 401


@pytest.mark.parametrize("path", ["//v1/health", "/v1//health", "/v1/health/", "/v1/extensions/", "//v1/extensions"])
def test_no_spelling_of_a_path_goes_round_the_token(live, path) -> None:
    host = live.url.removeprefix("http://")
    with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2]))) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        status = raw.makefile("rb").readline().split()[1]
    assert status in (b"401", b"404")


@pytest.mark.parametrize("host", ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test", "10.0.0.1", "", "[::1"])
def test_a_host_that_is_not_this_machine_is_refused_before_the_token(live, host) -> None:
    refused = live.client.get("/v1/health", headers={"Host": host})
    assert (refused.status_code, refused.json()) == (403, {"error": "a loopback Host is required"})


def test_this_machine_may_be_called_by_any_of_its_names(live) -> None:
    for host in ("localhost", "localhost:8080", "127.0.0.1:1", "127.9.9.9", "[::1]", "[::1]:80", "LOCALHOST"):
        assert live.client.get("/v1/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("listening", "url", "host", "refused"),
    [
        ("0.0.0.0", None, "golem.lan:8080", "this host is not allowed"),
        ("0.0.0.0", None, "0.0.0.0:8080", "this host is not allowed"),
        ("0.0.0.0", None, "localhost:8080", None),
        ("0.0.0.0", "http://golem.lan:8080", "golem.lan:8080", None),
        ("0.0.0.0", "http://golem.lan:8080", "GOLEM.lan", None),
        ("0.0.0.0", "http://golem.lan:8080", "golem.lan.evil.test", "this host is not allowed"),
        ("192.168.1.5", None, "192.168.1.5:8080", None),
        ("192.168.1.5", None, "192.168.1.6:8080", "this host is not allowed"),
        ("::", "https://[2001:db8::1]", "[2001:db8::1]:443", None),
        ("127.0.0.1", "https://golem.example", "golem.example", None),
        ("127.0.0.1", "https://golem.example", "evil.test", "a loopback Host is required"),
    ],
)
def test_others_reach_the_hub_by_the_names_that_the_operator_gave(listening, url, host, refused) -> None:
    ask = admission(TOKEN, Address(listening, 8080), url)
    headers = [(b"host", host.encode()), (b"authorization", f"Bearer {TOKEN}".encode())]
    found = ask({"method": "GET", "scheme": "http", "headers": headers})
    assert (found and found.message) == refused


def test_a_page_of_the_servers_own_url_goes_on_to_the_token() -> None:
    ask = admission(TOKEN, Address("127.0.0.1", 8080), "https://golem.example")
    for page, status in (("https://golem.example", 401), ("http://golem.example", 401), ("https://evil.test", 403)):
        headers = [(b"host", b"golem.example"), (b"origin", page.encode())]
        assert ask({"method": "POST", "scheme": "http", "headers": headers}).status == status


def test_a_url_that_only_this_machine_has_is_refused_where_others_are_served(start) -> None:
    for url in ("http://127.0.0.1:8080", "http://localhost", "http://[::1]"):
        with pytest.raises(GolemError, match=r"-url .* names this machine only"):
            start(options={"url": url, "addr": Address("0.0.0.0", 0), "insecure": True})


@pytest.mark.parametrize(
    "text", ["golem.lan", "ftp://x", "http://", "http://a@b", "http://x/path", "http://x?y", "http://x:y"]
)
def test_a_url_is_an_origin(text) -> None:
    with pytest.raises(ValueError, match="expected an origin"):
        origin(text)
    assert origin(" http://Golem.LAN:80/ ") == "http://golem.lan:80"


def test_pages_of_other_origins_are_refused_before_the_token(live) -> None:
    def post(**headers: str) -> int:
        return httpx.post(f"{live.url}/v1/extensions/heartbeat", json={"name": "x"}, headers=headers).status_code

    assert post(Origin="http://evil.test") == 403
    assert post(Origin="null") == 403
    assert post(Origin="http://127.0.0.1:1") == 403
    assert post(**{"Sec-Fetch-Site": "cross-site"}) == 403
    assert post(**{"Sec-Fetch-Site": "same-site"}) == 403
    assert post(Origin=live.url) == 401, "its own origin goes on to the token"
    assert post() == 401


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"name": 1}', b'{"name": "x"}' + b" " * (1 << 20)]
)
@pytest.mark.parametrize("path", ["register", "heartbeat"])
def test_a_body_that_cannot_be_read_is_invalid(live, path, body) -> None:
    refused = live.client.post(f"/v1/extensions/{path}", content=body)
    assert (refused.status_code, refused.json()) == (400, {"error": "invalid json"})


def test_a_registration_is_listed_in_both_forms(live, extension) -> None:
    clock = {"kind": "clock", "id": "tick", "hz": 2}
    assert live.register(extension("a"), capabilities=[PROVIDER, clock]).json() == {"ok": True}
    tool = {"name": "roll", "description": "roll dice", "parameters": SCHEMA}
    other = extension("b")
    live.register(other, providers=[{"id": "p", "embed": True}], tools=[tool], channels=[{"id": "console"}])
    first, second = live.client.get("/v1/extensions").json()["extensions"]
    assert first["capabilities"] == [PROVIDER, clock]
    assert first["providers"] == [{"id": "echo", "chat": True}] and "tools" not in first
    assert second == {
        "name": "b",
        "callback_url": other.url,
        "capabilities": [
            {"kind": "provider", "id": "p", "embed": True},
            {"kind": "tool", **tool},
            {"kind": "channel", "id": "console"},
        ],
        "providers": [{"id": "p", "embed": True}],
        "tools": [tool],
        "channels": [{"id": "console"}],
    }
    assert "a-token" not in json.dumps([first, second])


def test_heartbeats_are_for_those_who_are_there(live, extension, capfd) -> None:
    live.register(extension("a"))
    assert live.client.post("/v1/extensions/heartbeat", json={"name": "a"}).json() == {"ok": True}
    assert "heartbeat" not in capfd.readouterr().err, "signs of life have no lines in the log"
    refused = live.client.post("/v1/extensions/heartbeat", json={"name": "b"})
    assert (refused.status_code, refused.json()) == (404, {"error": "extension not found"})
    assert "heartbeat 404" in capfd.readouterr().err
    refused = live.client.post("/v1/extensions/heartbeat", json={"name": " "})
    assert (refused.status_code, refused.json()) == (400, {"error": "name is required"})


def test_a_provider_id_is_free_thirty_seconds_after_its_holder_was_heard_last(live, extension) -> None:
    clock = live.hub.registry._clock = Clock()
    first, second = extension("a", {"/v1/chat": echo}), extension("b", {"/v1/chat": {"content": "b"}})
    live.register(first, capabilities=[PROVIDER])
    clock.now += 29.9
    refused = live.register(second, capabilities=[PROVIDER])
    assert (refused.status_code, refused.json()) == (409, {"error": 'provider "echo" already registered'})
    clock.now += 0.1
    assert live.register(second, capabilities=[PROVIDER]).json() == {"ok": True}
    assert live.client.post("/v1/extensions/heartbeat", json={"name": "a"}).status_code == 404
    assert live.register(first, capabilities=[PROVIDER]).status_code == 409
    assert live.say("hello") == ("done", {"text": "b"})


def test_a_refused_registration_leaves_the_old_one_callable(live, extension) -> None:
    first = extension("a", {"/v1/chat": echo})
    live.register(first, capabilities=[PROVIDER])
    assert live.register(extension("b"), capabilities=[PROVIDER]).status_code == 409
    assert live.register(first, capabilities=[PROVIDER, {"kind": ""}]).status_code == 400
    assert live.say("hello") == ("done", {"text": "echo: hello"})
    second = extension("a", {"/v1/chat": {"role": "assistant", "content": "moved"}})
    assert live.register(second, capabilities=[PROVIDER]).status_code == 200
    assert live.say("hello") == ("done", {"text": "moved"})


@pytest.mark.parametrize(
    "body", [{}, {"channel": "x"}, {"text": "x"}, {"channel": " ", "text": "x"}, {"channel": "x", "text": "\n"}]
)
def test_a_turn_needs_a_channel_and_a_text(live, body) -> None:
    refused = live.client.post("/v1/conversations/c/turns", json=body)
    assert (refused.status_code, refused.json()) == (400, {"error": "channel and text are required"})


def test_a_conversation_stays_with_its_channel(live) -> None:
    live.post("hello", channel="one")
    refused = live.client.post("/v1/conversations/c/turns", json={"channel": "two", "text": "x"})
    assert (refused.status_code, refused.json()) == (409, {"error": "conversation belongs to another channel: one"})


@pytest.mark.parametrize("path", ["turns/unknown", "turns/a/b", "turns/", "conversations/unknown"])
def test_what_is_not_there_is_not_found(live, path) -> None:
    refused = live.client.get(f"/v1/{path}")
    assert refused.status_code == 404
    assert isinstance(refused.json()["error"], str)


def test_wrong_methods_are_refused_in_the_hubs_envelope(live) -> None:
    for method, path in (("PUT", "/v1/health"), ("GET", "/v1/conversations/c/turns"), ("POST", "/v1/conversations/c")):
        refused = live.client.request(method, path)
        assert refused.status_code == 405 and isinstance(refused.json()["error"], str)


@pytest.mark.parametrize("identity", ["telegram:-100/7", "50%", "a?b#c", "smile 😀", "..", "%2F", "a//b", "turns"])
def test_an_id_may_hold_anything(live, extension, identity) -> None:
    from urllib.parse import quote

    live.register(extension(answers={"/v1/chat": echo}), capabilities=[PROVIDER])
    path = quote(identity, safe="").replace("..", "%2E%2E")
    answer = live.client.post(f"/v1/conversations/{path}/turns", json={"channel": "test", "text": "hello"})
    assert live.events(answer.json()["id"])[-1] == ("done", {"text": "echo: hello"})
    assert live.client.get(f"/v1/conversations/{path}").json()["id"] == identity
    assert [each["id"] for each in live.client.get("/v1/conversations").json()["conversations"]] == [identity]


def test_conversations_are_listed_by_their_last_message(live, extension) -> None:
    assert live.client.get("/v1/conversations").json() == {"conversations": []}
    live.register(extension(answers={"/v1/chat": echo}), capabilities=[PROVIDER])
    for conversation, channel in (("a", "one"), ("b", "two"), ("a", "one")):
        turn = live.post(f'  "What about {conversation}?"\nmore', conversation, channel)
        assert live.events(turn)[-1][0] == "done"
    listed = live.client.get("/v1/conversations").json()["conversations"]
    assert [(each["id"], each["channel"], each["title"]) for each in listed] == [
        ("a", "one", "What about a?"),
        ("b", "two", "What about b?"),
    ]
    assert [each["id"] for each in live.client.get("/v1/conversations?channel=two").json()["conversations"]] == ["b"]
    whole = live.client.get("/v1/conversations/b").json()
    assert whole["messages"] == [
        {"role": "user", "content": '  "What about b?"\nmore'},
        {"role": "assistant", "content": 'echo:   "What about b?"\nmore'},
    ]


def test_the_token_and_the_model_travel_with_every_call(live, extension) -> None:
    provider = extension(answers={"/v1/chat": echo})
    live.register(provider, capabilities=[PROVIDER])
    live.say("hello")
    path, body, headers = provider.calls[0]
    assert (path, body) == ("/v1/chat", {"model": "echo-1", "messages": [{"role": "user", "content": "hello"}]})
    assert headers["Authorization"] == BEARER["Authorization"]
    assert headers["Content-Type"] == "application/json"


def test_a_server_whose_folder_cannot_be_used_goes_on_without_a_hub(start, monkeypatch, tmp_path, capfd) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOLEM_HOME", str(tmp_path / "file" / "home"))
    live = start()
    assert "the hub is off: " in capfd.readouterr().err
    refused = live.client.post("/v1/conversations/c/turns", json={"channel": "x", "text": "y"})
    assert refused.status_code == 503 and "name another folder with GOLEM_HOME" in refused.json()["error"]
    assert live.client.get("/health").json() == {"status": "ok"}


def test_a_system_without_posix_locks_has_no_hub(start, monkeypatch, capfd) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    live = start()
    assert "the hub is off: extensions and channels need a system with POSIX locks" in capfd.readouterr().err
    assert live.client.get("/health").json() == {"status": "ok"}


def test_without_a_home_folder_the_hub_is_off(monkeypatch) -> None:
    monkeypatch.delenv("GOLEM_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(GolemError, match="name a folder with GOLEM_HOME"):
        Home().make()


@pytest.mark.parametrize(
    ("asked", "url"),
    [
        (Address("127.0.0.1", 0), "http://127.0.0.1:7"),
        (Address("", 0), "http://127.0.0.1:7"),
        (Address("0.0.0.0", 0), "http://127.0.0.1:7"),
        (Address("::", 0), "http://127.0.0.1:7"),
        (Address("::1", 0), "http://[::1]:7"),
        (Address("localhost", 0), "http://localhost:7"),
    ],
)
def test_where_extensions_reach_the_server(asked, url) -> None:
    assert local_url(asked, SimpleNamespace(getsockname=lambda: ("x", 7))) == url


def test_an_empty_token_needs_a_loopback_address(start) -> None:
    with pytest.raises(GolemError, match="-token: an empty token needs a loopback address"):
        start(options={"token": "", "addr": Address("0.0.0.0", 0)})
