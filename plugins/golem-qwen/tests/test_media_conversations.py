"""Conversations with pictures: what stands in the prompt, what is reused, what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from golem_core import BadRequest
from golem_core.server.loading import load_chat

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from families.asking import asked, check_that_typed_marks_are_text, image, words

FIXTURES = Path(__file__).parent / "fixtures"
MODEL, PROJECTOR = FIXTURES / "qwen35-seeing.gguf", FIXTURES / "mmproj-seeing.gguf"


def opened(**options):
    options = {
        "context": 1024, "n": 8, "device": "cpu", "threads": 2, "builtin-template": False, "kv": "f32",
        "mmproj": str(PROJECTOR), **options,
    }  # fmt: skip
    chat = load_chat({name: value for name, value in options.items() if value is not None}, MODEL)
    chat.ready()
    return chat


@pytest.fixture(scope="module")
def chat():
    chat = opened()
    yield chat
    chat.close()


def seen(seed: int) -> dict:
    return image(seed, 61, 37)


def answer(chat, *content):
    sorted_answer = chat.answer(asked(chat, *content, ignore_eos=True).generation)
    return sorted_answer.wait().content, sorted_answer.generation


def test_a_picture_stands_in_the_prompt_between_its_marks(chat):
    request = asked(chat, words("see"), seen(1), words("well")).generation
    (span,) = request.media
    encode = chat.model.tokenizer.encode
    begin, end = (encode(text, parse_special=True)[0] for text in ("<|vision_start|>", "<|vision_end|>"))
    assert request.prompt[span.start - 1] == begin and request.prompt[span.stop] == end
    assert len(span.rows) == 40 and span.places.max(0).tolist() == [0, 4, 7] and not span.whole
    assert span.extent == 8


def test_typed_text_that_spells_a_placeholder_is_text(chat):
    check_that_typed_marks_are_text(chat)


def test_what_is_held_of_pictures_is_reused_and_answers_are_those_of_a_fresh_server(chat):
    """In a long prompt, behind whose pictures others part from it: from a copy of the states, which cannot go back."""
    long = [words("the in an er " * 40), seen(3), words("th er on a " * 12), seen(4)]
    cases = [[*long, words(end)] for end in ("one", "another", "one more")] + [[*long[:3], seen(5), words("one")]]
    fresh = []
    for case in cases:
        alone = opened(context=1024)
        fresh.append(answer(alone, *case)[0])
        alone.close()
    assert len(set(fresh)) > 1
    first, reading = answer(chat, *cases[0])
    assert first == fresh[0] and reading.prompt_tokens > 300
    cached = []
    for case, wanted in [*zip(cases, fresh, strict=True), *zip(cases, fresh, strict=True)]:
        said, generation = answer(chat, *case)
        assert said == wanted
        cached.append(generation.cached_tokens)
    assert max(cached[1:]) > 256


def test_conversations_with_pictures_do_not_mix():
    one, many = opened(), opened(parallel=3, context=3 * 1024)
    cases = [[words("th" * n), seen(n), words("er")] for n in range(1, 7)]
    alone = [answer(one, *case)[0] for case in cases]
    running = [many.answer(asked(many, *case, ignore_eos=True).generation) for case in cases]
    assert [each.wait().content for each in running] == alone
    one.close(), many.close()


def test_a_picture_without_a_projector_is_refused():
    chat = opened(mmproj=None)
    with pytest.raises(BadRequest, match="there is no projector beside it"):
        asked(chat, seen(1))
    chat.close()
