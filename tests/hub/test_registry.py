"""Registrations: what is refused and with which words, and how long one lives, by a clock that the test sets."""

from __future__ import annotations

from typing import Any

import pytest
from hub_fakes import Clock

from golem_core.hub.errors import Refused
from golem_core.hub.registry import Registry, check_callback_url

URL = "http://127.0.0.1:9"
TOOL = {"name": "roll", "description": "roll dice", "parameters": {"type": "object"}}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(clock) -> Registry:
    registry = Registry(clock)
    body = {"name": "other", "callback_url": URL, "providers": [{"id": "taken", "chat": True}]}
    registry.register(body | {"tools": [TOOL | {"name": "taken"}], "channels": [{"id": "taken"}]})
    return registry


def refusal(registry: Registry, body: Any) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        registry.register(body)
    return refused.value.status, str(refused.value)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"name": " "}, 400, "name is required"),
        ({"name": None}, 400, "name is required"),
        ({"callback_url": None}, 400, "callback_url must be http://127.0.0.1, localhost, or [::1]"),
        ({"capabilities": [{"id": "x"}]}, 400, "capability kind is required"),
        ({"capabilities": [{"kind": " "}]}, 400, "capability kind is required"),
        ({"capabilities": [{"kind": "provider", "chat": True}]}, 400, "provider id is required"),
        ({"capabilities": [{"kind": "provider", "id": "x"}]}, 400, "provider must advertise chat or embed"),
        ({"providers": [{"id": "x", "chat": False}]}, 400, "provider must advertise chat or embed"),
        ({"tools": [{"parameters": {}}]}, 400, "tool name is required"),
        ({"tools": [{"name": "x"}]}, 400, "tool parameters are required"),
        ({"tools": [{"name": "x", "parameters": []}]}, 400, "tool parameters must be an object"),
        ({"tools": [TOOL | {"name": "shell"}]}, 409, 'tool "shell" conflicts with a builtin'),
        ({"tools": [TOOL | {"name": "taken"}]}, 409, 'tool "taken" is already registered'),
        ({"tools": [TOOL, TOOL]}, 409, 'tool "roll" is already registered'),
        ({"channels": [{}]}, 400, "channel id is required"),
        ({"channels": [{"id": "taken"}]}, 409, 'channel "taken" already registered'),
        ({"channels": [{"id": "x"}, {"id": "x"}]}, 409, 'channel "x" already registered'),
        ({"providers": [{"id": "taken", "embed": True}]}, 409, 'provider "taken" already registered'),
        ({"providers": [{"id": "golem", "chat": True}]}, 409, 'provider "golem" already registered'),
        (
            {
                "providers": [{"id": "x", "chat": True}],
                "capabilities": [{"kind": "provider", "id": "x", "embed": True}],
            },
            409,
            'provider "x" already registered',
        ),
        ({"providers": [{"id": "x", "chat": "yes"}]}, 400, "invalid json"),
        ({"providers": {"id": "x"}}, 400, "invalid json"),
        ({"capabilities": ["provider"]}, 400, "invalid json"),
    ],
)
def test_a_registration_is_refused_in_these_words(registry, fields, status, message) -> None:
    body = {"name": "mine", "callback_url": URL, **fields}
    assert refusal(registry, body) == (status, message)
    assert [each.name for each in registry.live()] == ["other"]


def test_conflicts_of_tools_are_looked_at_before_channels_and_those_before_providers(registry) -> None:
    body = {"name": "mine", "callback_url": URL, "providers": [{"id": "taken", "chat": True}]}
    assert refusal(registry, body | {"tools": [TOOL | {"name": "shell"}], "channels": [{}]})[0] == 409
    assert refusal(registry, body | {"channels": [{}]}) == (400, "channel id is required")
    assert refusal(registry, body | {"channels": [{"id": "taken"}]})[1] == 'provider "taken" already registered'


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1@evil", "http://localhost.evil", "http://[::ffff:127.0.0.1]", "http://127.1"),
        *("http://0x7f000001", "https://127.0.0.1:9", "http://", "http:///x", "127.0.0.1:9", "http://u:p@127.0.0.1:9"),
        *("http://@127.0.0.1", "http://127.0.0.1:9?x", "http://127.0.0.1:9#x", "http://127.0.0.1:99999", "ftp://::1"),
        *("http://127.0.0.1\n:9", " http://127.0.0.1", "http://127.0.0.1:0", "http://127.0.0.1\\@evil", "http://::1"),
        *("http://127.0.0.1.", "http://localhost%00.evil", "http://lоcalhost:9"),
    ],
)
def test_a_callback_may_only_go_to_this_machine(url) -> None:
    with pytest.raises(Refused):
        check_callback_url(url)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://127.0.0.1:9", "http://127.0.0.1:9"),
        ("http://localhost:40111/", "http://localhost:40111"),
        ("HTTP://LOCALHOST:9", "HTTP://LOCALHOST:9"),
        ("http://[::1]:9/base/", "http://[::1]:9/base"),
        ("http://127.0.0.1", "http://127.0.0.1"),
    ],
)
def test_loopback_urls_are_kept_without_their_last_slash(url, kept) -> None:
    assert check_callback_url(url) == kept


def test_a_registration_lives_thirty_seconds_after_the_last_sign_of_life(registry, clock) -> None:
    clock.now += 29
    registry.heartbeat({"name": "other"})
    clock.now += 29.9
    assert registry.provider("taken")
    clock.now += 0.1
    assert registry.live() == [] and registry.provider("taken") is None and registry.tools() == {}
    with pytest.raises(Refused, match="extension not found") as refused:
        registry.heartbeat({"name": "other"})
    assert refused.value.status == 404


def test_ids_are_free_again_after_expiry(registry, clock) -> None:
    mine = {"name": "mine", "callback_url": URL, "providers": [{"id": "taken", "chat": True}]}
    assert refusal(registry, mine)[0] == 409
    clock.now += 30
    registry.register(mine)
    found = registry.provider("taken")
    assert found and found[0].name == "mine"


def test_ones_own_ids_are_no_conflict_and_the_new_record_replaces_all_of_the_old(registry) -> None:
    registry.register(
        {"name": "other", "callback_url": "http://127.0.0.1:10", "providers": [{"id": "taken", "embed": True}]}
    )
    (record,) = registry.live()
    assert record.callback_url.endswith(":10") and record.tools == () and record.channels == ()


def test_a_late_notice_of_an_end_does_not_drop_the_successor(registry) -> None:
    old = registry.generation
    registry.register({"name": "other", "callback_url": URL})
    registry.drop("other", old)
    assert [each.name for each in registry.live()] == ["other"]
    registry.drop("other")
    assert registry.live() == []


def test_a_provider_whose_process_ended_may_return_for_a_minute(registry, clock) -> None:
    assert not registry.returning("taken") and not registry.returning("unknown")
    registry.drop("other")
    clock.now += 59.9
    assert registry.returning("taken")
    clock.now += 0.1
    assert not registry.returning("taken")
