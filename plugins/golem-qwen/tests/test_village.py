"""Five characters and a long sheet: what an answer costs when only the end of its prompt is new every turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from litestar.testing import TestClient

import golem_core
from golem_core.engine import drafting
from golem_core.options import CORE_OPTIONS
from golem_core.server.app import Server
from golem_core.server.loading import load_chat
from golem_core.server.web import application

FIXTURES = Path(__file__).parent / "fixtures"
SHEET, NEWS, CHARACTERS, TURNS = 600, 20, 5, 3


def tokens(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, count).tolist()


def turns(own_sheets: bool) -> list[list[int]]:
    """The prompts of every turn of every character, one after another."""
    sheets = [tokens(1 + who * own_sheets, SHEET) for who in range(CHARACTERS)]
    return [
        [*sheets[who], *tokens(100 + CHARACTERS * turn + who, NEWS)]
        for turn in range(TURNS)
        for who in range(CHARACTERS)
    ]


def answers(prompts: list[list[int]], slots: int, **settings) -> tuple[list[list[int]], list[int]]:
    """(answers, positions fed for each)."""
    path = FIXTURES / "qwen35-tied.gguf"
    drawn, fed = [], []
    with golem_core.load(path, context=1024 * slots, slots=slots, threads=2, width=64, **settings) as model:
        for prompt in prompts:
            answer = model.generate(prompt, max_tokens=6, temperature=0.7, seed=1, ignore_eos=True)
            drawn.append([token.id for token in answer])
            fed.append(answer.generation.fed)
    return drawn, fed


@pytest.mark.parametrize(("own_sheets", "slots"), [(False, 1), (True, CHARACTERS)], ids=["one sheet", "five sheets"])
def test_a_turn_feeds_what_follows_the_sheet(own_sheets, slots):
    """Where a sheet ends is known from the second prompt that has it on; the answers are those without any cache."""
    prompts = turns(own_sheets)
    drawn, fed = answers(prompts, slots)
    sheets = CHARACTERS if own_sheets else 1
    assert fed == [SHEET + NEWS] * (2 * sheets) + [NEWS] * (len(prompts) - 2 * sheets)
    nothing_held, whole = answers(prompts, slots, cache_ttl=1e-9)
    assert whole == [SHEET + NEWS] * len(prompts)
    assert drawn == nothing_held


def test_without_checkpoints_every_turn_is_read_whole():
    prompts = turns(own_sheets=False)[:4]
    _, fed = answers(prompts, 1, checkpoints=0)
    assert fed == [SHEET + NEWS] * 4


def test_over_http(predicting, monkeypatch, capsys):
    """The same in words, of a model that guesses ahead; what is fed, cached and guessed is told."""
    monkeypatch.setattr(drafting, "cost", lambda compiled, columns: 1.0)
    options = {option.name: option.default for option in CORE_OPTIONS}
    options |= {"context": 2048, "threads": 2, "metrics": True, "draft-n": 2}
    chat = load_chat(options, predicting("qwen35-tied").path)
    sheet = "You are one of five who live here. " * 25
    told = []
    try:
        with TestClient(application(Server(chat.name, options, chat)), base_url="http://localhost") as client:
            for who in range(CHARACTERS):
                news = f"It is {who} o'clock."
                messages = [{"role": "system", "content": sheet}, {"role": "user", "content": news}]
                body = {"messages": messages, "max_tokens": 8, "seed": 1, "logit_bias": [[266, False], [268, False]]}
                answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
                told.append(answer["timings"])
            metrics = client.get("/metrics").text
    finally:
        chat.close()
    fed, cached = [each["prompt_n"] for each in told], [each["cache_n"] for each in told]
    assert cached[:2] == [0, 0] and min(fed[:2]) > len(sheet) / 2
    assert max(fed[2:]) < 60 and min(cached[2:]) > len(sheet) / 2
    guessed, confirmed = (sum(each[name] for each in told) for name in ("draft_n", "draft_n_accepted"))
    assert guessed > 0
    assert f"golem:tokens_guessed_total {guessed}\n" in metrics
    assert f"golem:tokens_confirmed_total {confirmed}\n" in metrics
    assert f"{told[0]['draft_n_accepted']} of {told[0]['draft_n']} guessed, length" in capsys.readouterr().err
