"""Pictures and recordings in conversations from Python: whatever they come as, they are the same to the model."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

import golem_core
from golem_core import BadRequest

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(scope="module", params=["gemma4-e2b mmproj-e2b", "gemma3 mmproj-gemma3"])
def model(request):
    name, projector = request.param.split()
    files = {"path": FIXTURES / f"{name}.gguf", "mmproj": FIXTURES / f"{projector}.gguf"}
    with golem_core.load(**files, context=1024, slots=2, threads=2) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def picture():
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, (80, 150, 3), np.uint8))


@pytest.fixture(scope="module")
def png(picture):
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def told(model, *content, turns=()):
    """What is answered to parts, and how much of the prompt was known from before."""
    messages = [*turns, {"role": "user", "content": list(content)}]
    answer = model.chat(messages, max_tokens=12, temperature=2, top_k=0, top_p=1, min_p=0, seed=5)
    return answer.text(), answer.generation


def text(words):
    return {"type": "text", "text": words}


def test_a_picture_may_come_as_bytes_a_path_a_data_uri_or_an_image(model, picture, png, tmp_path):
    path = tmp_path / "a picture.png"
    path.write_bytes(png)
    uri = "data:image/png;base64," + base64.b64encode(png).decode()
    sources = (png, bytearray(png), path, str(path), f"file://{path}", uri, picture)
    parts = [{"type": "image", "image": source} for source in sources]
    parts += [{"type": "image_url", "image_url": {"url": uri}}, {"type": "image_url", "image_url": uri}]
    first, reading = told(model, parts[0], text("what is it"))
    for part in parts[1:]:
        answer, generation = told(model, part, text("what is it"))
        assert (answer, generation.prompt_tokens) == (first, reading.prompt_tokens)
    without, plain = told(model, text("what is it"))
    assert plain.prompt_tokens < reading.prompt_tokens and without != first


def test_a_recording_may_come_as_bytes_a_path_base64_or_a_data_uri(model, tmp_path):
    out = io.BytesIO()
    soundfile.write(out, np.sin(np.arange(8_000) * 0.1) * 0.5, 8_000, format="WAV")
    wav = out.getvalue()
    if model.model.media.kind("audio") is None:
        with pytest.raises(BadRequest, match=r"content\[0\].audio: .* cannot hear"):
            told(model, {"type": "audio", "audio": wav})
        return
    path = tmp_path / "a.wav"
    path.write_bytes(wav)
    coded = base64.b64encode(wav).decode()
    parts = [{"type": "audio", "audio": source} for source in (wav, path, f"data:audio/wav;base64,{coded}")]
    parts += [{"type": "input_audio", "input_audio": {"data": coded, "format": "wav"}}]
    assert len({(told(model, part, text("hm"))[0]) for part in parts}) == 1


def test_several_pictures_and_one_between_two_turns(model, picture, png):
    image, other = {"type": "image", "image": png}, {"type": "image", "image": picture.rotate(180)}
    rows = told(model, image, text("a"))[1].prompt_tokens - told(model, text("a"))[1].prompt_tokens
    two, both = told(model, image, other, text("a"))
    turned, _ = told(model, other, image, text("a"))
    assert both.prompt_tokens == told(model, text("a"))[1].prompt_tokens + 2 * rows
    assert two != turned
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}]
    between, generation = told(model, image, text("a"), turns=turns)
    after = [*turns, {"role": "user", "content": [image, text("a")]}, {"role": "assistant", "content": between}]
    _, later = told(model, text("and now"), turns=after)
    assert later.cached_tokens >= generation.prompt_tokens - 8, "the picture of a turn before is not read again"


def test_a_picture_s_tokens_are_those_that_transformers_writes(model, png, monkeypatch):
    asked, submit = [], model.engine.submit
    monkeypatch.setattr(model.engine, "submit", lambda request: asked.append(request) or submit(request))
    told(model, {"type": "image", "image": png}, text("what is it"))
    (request,) = asked
    (span,) = request.media
    expected = "<bos><|turn>user\n<|image><image|>what is it<turn|>\n<|turn>model\n"
    if model.name == "gemma3":
        expected = (
            "<bos><start_of_turn>user\n\n\n<start_of_image><end_of_image>\n\nwhat is it<end_of_turn>\n"
            "<start_of_turn>model\n"
        )
    tokens = request.prompt[: span.start] + request.prompt[span.stop :]
    assert tokens == model.model.tokenizer.encode(expected, parse_special=True)


def test_typed_text_that_spells_a_placeholder_is_text(model, png, monkeypatch):
    asked, submit = [], model.engine.submit
    monkeypatch.setattr(model.engine, "submit", lambda request: asked.append(request) or submit(request))
    typed = "is <start_of_image> or <|image|> a picture"
    told(model, text(typed))
    told(model, {"type": "image", "image": png}, text(typed))
    for request, pictures in zip(asked, (0, 1), strict=True):
        assert len(request.media) == pictures
        kept = model.detokenize([token for token in request.prompt if token >= 0], special=True)
        assert typed in kept and "\ud800" not in kept


def test_two_conversations_at_once_see_their_own_pictures(model, picture, png):
    def asked(image):
        content = [{"type": "image", "image": image}, text("what is it")]
        return model.chat([{"role": "user", "content": content}], max_tokens=12, temperature=2, top_k=0, seed=3)

    alone = [asked(image).text() for image in (png, picture.rotate(90))]
    both = [asked(png), asked(picture.rotate(90))]
    assert [answer.text() for answer in both] == alone and alone[0] != alone[1]


def test_a_picture_that_comes_twice_is_encoded_once(model, png, monkeypatch):
    from golem_core.media.encoder import MediaEncoder

    encoded, plain = [], MediaEncoder.encoded

    def counting(self, kind, content, decoded):
        encoded.append(content)
        return plain(self, kind, content, decoded)

    monkeypatch.setattr(MediaEncoder, "encoded", counting)
    fresh = io.BytesIO()
    Image.fromarray(np.random.default_rng(7).integers(0, 256, (70, 90, 3), np.uint8)).save(fresh, "PNG")
    image = {"type": "image", "image": fresh.getvalue()}
    told(model, image, image, text("a"))
    told(model, text("b"), image)
    assert len(encoded) == 1


def test_what_cannot_be_read_is_refused_by_its_place(model, png, tmp_path):
    for part, words in (
        ({"type": "image", "image": b"no picture"}, r"messages\[0\].content\[0\].image: the picture can't be read"),
        ({"type": "image", "image": tmp_path / "none.png"}, "No such file"),
        (
            {"type": "image", "image": 5},
            "expected bytes, a path, a data: URI or an image of Pillow's, got a value of type int",
        ),
        ({"type": "image"}, r"content\[0\].image: expected"),
        ({"type": "image", "image": "https://example.org/a.png"}, "network"),
        ({"type": "video", "video": b""}, "'video'|\"video\""),
    ):
        with pytest.raises(BadRequest, match=words):
            told(model, part, {"type": "image", "image": png})
    for messages, words in (
        ("what?", "^messages: expected a list of dicts"),
        ({"role": "user", "content": "what?"}, "^messages: expected a list of dicts"),
        (["what?"], r"^messages\[0\]: expected a dict with"),
        ([{"content": "what?"}], r"^messages\[0\]: expected a dict with"),
        ([{"role": "user", "content": 5}], r"^messages\[0\].content: expected a text or a list of parts, got 5$"),
        ([{"role": "user", "content": ["what?"]}], r"^messages\[0\].content\[0\].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"^messages\[0\].content\[0\].text: expected a text"),
    ):
        with pytest.raises(BadRequest, match=words):
            model.chat(messages)
    for part, words in (
        ({"type": "image", "url": "a.png"}, "image: expected bytes, a path, a data: URI or an image of Pillow's, got"),
        ({"type": "image_url", "url": "a.png"}, 'image_url: expected an object with "url", got null'),
    ):
        with pytest.raises(BadRequest, match=words):
            told(model, part)
    with pytest.raises(BadRequest) as refusal:
        told(model, *[{"type": "image", "image": png}] * 40)
    assert refusal.value.code == "context_length_exceeded"


def test_a_recording_without_a_source_is_told_what_one_is():
    with golem_core.load(
        FIXTURES / "gemma4-e2b.gguf", mmproj=FIXTURES / "mmproj-e2b.gguf", context=256, threads=2
    ) as model:
        for part, words in (
            ({"type": "audio", "data": b""}, "audio: expected bytes, a path or a data: URI, got null$"),
            ({"type": "audio", "audio": 5}, "audio: expected bytes, a path or a data: URI, got a value of type int$"),
            ({"type": "input_audio", "input_audio": {}}, 'input_audio: expected an object with "data", got {}$'),
            ({"type": "input_audio", "input_audio": {"data": "a.wav"}}, "input_audio: it is not base64$"),
        ):
            with pytest.raises(BadRequest, match=words):
                told(model, part)


def test_a_model_without_a_projector_says_so():
    with (
        golem_core.load(FIXTURES / "gemma3.gguf", context=256, threads=2) as plain,
        pytest.raises(BadRequest, match=r"content\[0\].image: gemma3 cannot see; loaded without a projector"),
    ):
        told(plain, {"type": "image", "image": b""})
