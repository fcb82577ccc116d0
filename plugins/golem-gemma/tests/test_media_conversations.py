"""Conversations with pictures and recordings: what stands in the prompt, what answers depend on, what is refused."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from golem_core import BadFile, BadRequest, load
from golem_core.server.loading import load_chat

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from families.asking import asked, check_that_typed_marks_are_text, image, png, words

FIXTURES = Path(__file__).parent / "fixtures"
PAIRS = {"mmproj-e2b": "gemma4-e2b", "mmproj-12b": "gemma4-12b", "mmproj-unified": "gemma4-12b"}
HEARING = ["mmproj-e2b", "mmproj-unified"]


@pytest.fixture(scope="module", params=PAIRS)
def chat(request):
    options = {
        "context": 512, "n": 8, "device": "cpu", "threads": 2, "builtin-template": False, "kv": "f16",
        "mmproj": str(FIXTURES / f"{request.param}.gguf"),
    }  # fmt: skip
    chat = load_chat(options, FIXTURES / f"{PAIRS[request.param]}.gguf")
    chat.ready()
    yield chat
    chat.close()


def test_a_picture_may_be_named_by_its_path(chat, tmp_path):
    path = tmp_path / "cat 1.png"
    path.write_bytes(png(1))
    sent = asked(chat, words("see"), image(1)).generation.prompt
    for url in (str(path), path.as_uri()):
        named = {"type": "image_url", "image_url": {"url": url}}
        assert asked(chat, words("see"), named).generation.prompt == sent


def test_a_picture_stands_in_the_prompt_between_its_marks(chat):
    request = asked(chat, words("see"), image(1)).generation
    tokenizer = chat.model.tokenizer
    (span,) = request.media
    begin, end = (tokenizer.encode(text, parse_special=True)[0] for text in ("<|image>", "<image|>"))
    assert request.prompt[span.start - 1] == begin and request.prompt[span.stop] == end
    assert max(request.prompt[span.start : span.stop]) < 0 and len(span.rows) >= 70
    assert tokenizer.decode(request.tokens, special=True).count("see") == 1


def test_typed_text_that_spells_a_placeholder_is_text(chat):
    check_that_typed_marks_are_text(chat)


def test_answers_depend_on_the_picture_and_the_second_time_it_is_cached(chat):
    def answer(*content):
        sorted_answer = chat.answer(asked(chat, *content).generation)
        whole = sorted_answer.wait()
        return whole.content, sorted_answer.generation

    first, reading = answer(image(1), words("what is it"))
    again, cached = answer(image(1), words("what is it"))
    other, _ = answer(image(2), words("what is it"))
    two, _ = answer(image(1), image(2), words("what is it"))
    assert first == again and reading.prompt_tokens == cached.prompt_tokens
    assert cached.cached_tokens == cached.prompt_tokens - 1
    assert len({first, other, two}) == 3


def test_what_cannot_be_seen_or_heard_is_refused(chat):
    for content, said in (
        (
            (image(1) | {"image_url": {"url": "data:image/png;base64,AAAA"}},),
            r"messages\[0\].content\[0\].image_url: the picture",
        ),
        ((image(1) | {"image_url": "https://example.org/a.png"},), "network"),
        (tuple(image(n) for n in range(7)), "512"),
    ):
        with pytest.raises(BadRequest, match=said):
            asked(chat, *content)
    if chat.model.media.kind("audio") is None:
        with pytest.raises(BadRequest, match="cannot hear"):
            asked(chat, {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})


@pytest.mark.parametrize("chat", HEARING, indirect=True)
def test_a_recording_is_heard(chat):
    import soundfile

    out = io.BytesIO()
    soundfile.write(out, np.sin(np.arange(8_000) * 0.1) * 0.5, 8_000, format="WAV")
    data = base64.b64encode(out.getvalue()).decode()
    request = asked(
        chat, {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}, words("hm")
    ).generation
    (span,) = request.media
    assert len(span.rows) == 25 and not span.whole
    assert chat.answer(request).wait().content


def test_ollama_s_pictures_are_the_same(chat):
    from golem_core.server.ollama_request import read_chat, read_generate

    body = {"model": "m", "options": {"temperature": 0}}
    picture = base64.b64encode(png(1)).decode()
    message = {"role": "user", "content": "see", "images": [picture]}
    _, one = read_chat(chat, json.dumps(body | {"messages": [message]}).encode())
    _, two = read_generate(chat, json.dumps(body | {"prompt": "see", "images": [picture]}).encode())
    mine = asked(chat, words("see"), image(1))
    assert one is not None and two is not None
    assert one.generation.prompt == two.generation.prompt == mine.generation.prompt
    with pytest.raises(BadRequest, match=r"images\[0\]"):
        read_generate(chat, json.dumps(body | {"prompt": "see", "images": ["@"]}).encode())


def test_the_terminal_s_picture_goes_with_the_first_text(chat, tmp_path, capsys):
    from golem_core.terminal import Terminal, asked_media

    path = tmp_path / "a.png"
    path.write_bytes(png(1))
    media = asked_media(chat, {"image": [str(path)], "audio": [], "raw": False})
    terminal = Terminal(chat, raw=False, stats=True, media=media)
    terminal.answer("what is it")
    terminal.answer("and now")
    said = capsys.readouterr().err
    assert said.count("cached") == 2 and len(terminal.history) == 4


def test_a_model_is_loaded_with_a_projector_or_refused(tmp_path):
    with load(FIXTURES / "gemma4-e2b.gguf", mmproj=FIXTURES / "mmproj-e2b.gguf", threads=2, context=256) as model:
        assert model.encoder is not None and model.model.media is not None
        text = model.generate(model.tokenize("hello", special=True), max_tokens=4, temperature=0).text()
    with load(FIXTURES / "gemma4-e2b.gguf", threads=2, context=256) as plain:
        assert plain.encoder is None
        assert plain.generate(plain.tokenize("hello", special=True), max_tokens=4, temperature=0).text() == text
    with pytest.raises(BadFile):
        load(FIXTURES / "gemma4-e2b.gguf", mmproj=tmp_path / "none.gguf")
