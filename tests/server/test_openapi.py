"""The document that describes the endpoints, and that it describes those that are there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from server_fakes import fake_chat

from golem_core import plugins
from golem_core.options import CORE_OPTIONS
from golem_core.server.app import Server


@pytest.fixture(scope="module")
def document(module_live) -> dict[str, Any]:
    return module_live.client.get("/openapi.json").json()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(method, path, found) for path, each in document["paths"].items() for method, found in each.items()]


def test_every_endpoint_is_described(document) -> None:
    chat = fake_chat()
    server = Server(chat.name, {option.name: option.default for option in CORE_OPTIONS}, chat)
    there = {
        (method.lower(), re.sub(r":\w+\}", "}", path))
        for _, handler in plugins.installed().endpoints(server)
        for path in handler.paths
        for method in handler.http_methods
        if method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    }
    assert {(method, path) for method, path, _ in operations(document)} == there
    for method, path, found in operations(document):
        assert found["summary"], f"{method} {path} says nothing"


def test_every_struct_and_every_field_says_what_it_is(document) -> None:
    silent = []
    for name, schema in document["components"]["schemas"].items():
        if not schema.get("description"):
            silent.append(name)
        silent += [f"{name}.{field}" for field, of in schema["properties"].items() if not of.get("description")]
    assert silent == []


def test_every_reference_leads_somewhere(document) -> None:
    def references(part: Any) -> list[str]:
        if isinstance(part, dict):
            own = [part["$ref"]] if "$ref" in part else []
            return own + [each for value in part.values() for each in references(value)]
        return [each for value in part for each in references(value)] if isinstance(part, list) else []

    found = references(document)
    assert "#/components/schemas/ChatRequest" in found
    for each in found:
        assert each.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def test_streams_stand_beside_whole_answers_and_errors_in_their_envelope(document) -> None:
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert list(chat["responses"]["200"]["content"]) == ["application/json", "text/event-stream"]
    assert list(document["paths"]["/api/chat"]["post"]["responses"]["200"]["content"])[1] == "application/x-ndjson"
    for path, schema in (("/v1/chat/completions", "OpenAIError"), ("/api/chat", "OllamaError")):
        refused = document["paths"][path]["post"]["responses"]["default"]["content"]["application/json"]["schema"]
        assert refused == {"$ref": f"#/components/schemas/{schema}"}
    assert document["paths"]["/v1/models/{identity}"]["get"]["parameters"][0]["name"] == "identity"


def test_keys_are_part_of_it_where_they_are_asked_for(start, document) -> None:
    assert "security" not in document
    guarded = start(options={"api-key": ("k",)})
    assert guarded.client.get("/openapi.json").status_code == 401
    told = guarded.client.get("/openapi.json", headers={"x-api-key": "k"}).json()
    assert told["security"] == [{"bearer": []}, {"header": []}]


def test_a_handler_that_says_nothing_is_listed_too(start, monkeypatch) -> None:
    from litestar import get

    @get("/plain", sync_to_thread=False)
    def plain() -> str:
        return ""

    found = plugins.installed()
    endpoints = found.endpoints
    monkeypatch.setattr(found, "endpoints", lambda server: [*endpoints(server), (found.described("plain"), plain)])
    listed = start().client.get("/openapi.json").json()["paths"]
    assert listed["/plain"]["get"]["operationId"] == "get /plain"


def test_a_plugin_whose_handlers_do_not_fit_is_reported_and_the_others_answer(start, monkeypatch) -> None:
    from litestar import get

    @get("/v1/models", sync_to_thread=False)
    def models() -> str:
        return "stolen"

    @get("/lost", sync_to_thread=False)
    def lost() -> str:
        return ""

    @get("/kept", sync_to_thread=False)
    def kept() -> str:
        return "kept"

    found = plugins.installed()
    endpoints = found.endpoints
    thief, nonsense, good = (found.described(name) for name in ("thief", "nonsense", "good"))
    strange = [(thief, lost), (thief, models), (nonsense, "x"), (good, kept)]
    monkeypatch.setattr(found, "endpoints", lambda server: [*endpoints(server), *strange])
    client = start().client
    for plugin in (thief, nonsense, good):
        found.found.remove(plugin)
    assert client.get("/v1/models").json()["object"] == "list"
    assert client.get("/kept").text == "kept" and client.get("/lost").status_code == 404
    assert "Handler already registered for path '/v1/models' and http method GET" in thief.failures[0]
    assert nonsense.failures and not good.failures
