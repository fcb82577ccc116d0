"""What ollama's routes tell of the model: tags, ps, show, version."""

from __future__ import annotations

import datetime

import pytest
from ollama_helpers import THINKING, filed


def test_tags_and_ps_describe_the_file(live, tmp_path) -> None:
    path = filed(live, tmp_path, **{"general.file_type": 15})
    (tag,) = live.client.get("/api/tags").json()["models"]
    assert tag["name"] == tag["model"] == "tiny-echo"
    assert tag["size"] == 34128
    assert len(tag["digest"]) == 64
    written = datetime.datetime.fromisoformat(tag["modified_at"])
    assert abs(written.timestamp() - path.stat().st_mtime) < 1e-3
    assert tag["details"] == {
        "parent_model": "",
        "format": "gguf",
        "family": "echo",
        "families": ["echo"],
        "parameter_size": "32.0K",
        "quantization_level": "Q4_K_M",
    }
    (running,) = live.client.get("/api/ps").json()["models"]
    assert {name: running[name] for name in tag} == tag
    assert (running["size_vram"], running["context_length"]) == (0, 4096)
    assert datetime.datetime.fromisoformat(running["expires_at"]).year == 9999


@pytest.mark.parametrize("stated", [{}, {"general.file_type": [15]}, {"general.file_type": 15.5}])
def test_a_file_that_does_not_say_how_it_is_stored_is_known_by_its_largest_part(live, tmp_path, stated) -> None:
    filed(live, tmp_path, **stated)
    assert live.client.get("/api/tags").json()["models"][0]["details"]["quantization_level"] == "Q8_0"


def test_show_tells_the_metadata_and_what_the_model_can_do(live, tmp_path) -> None:
    lists = {"tokenizer.ggml.tokens": ["a", "\udcff"], "echo.sizes": [1, 2], "echo.many": list(range(100))}
    filed(live, tmp_path, **lists, **{"general.license": "mit"})
    body = live.client.post("/api/show", json={"model": "tiny-echo:latest"}).json()
    assert body["model_info"] == {
        "general.parameter_count": 32032,
        "general.architecture": "echo",
        "echo.block_count": 2,
        "tokenizer.ggml.tokens": None,
        "echo.sizes": [1, 2],
        "echo.many": None,
        "general.license": "mit",
    }
    assert body["license"] == "mit"
    assert body["capabilities"] == ["completion", "thinking"]
    assert "temperature 0.7" in body["parameters"]
    assert body["template"] == "{# a test #}"
    verbose = live.client.post("/api/show", json={"name": "tiny-echo", "verbose": True}).json()["model_info"]
    assert len(verbose["echo.many"]) == 100 and verbose["tokenizer.ggml.tokens"][0] == "a"
    live.server.chat.model.markers = THINKING
    assert "tools" in live.client.post("/api/show", json={"model": "tiny-echo"}).json()["capabilities"]


def test_a_model_that_is_not_here_is_a_404_and_none_a_400(module_live) -> None:
    missing = module_live.client.post("/api/show", json={"model": "other"})
    assert missing.status_code == 404 and "other" in missing.json()["error"]
    unnamed = module_live.client.post("/api/show", json={})
    assert unnamed.status_code == 400 and "model" in unnamed.json()["error"]


def test_version_and_the_root_answer_get_and_head(module_live) -> None:
    from golem_core import plugins

    assert module_live.client.get("/api/version").json() == {"version": plugins.version()}
    for path in ("/api/version", "/"):
        head = module_live.client.head(path)
        assert head.status_code == 200 and head.content == b""
