"""The grammar stage: what may be drawn, where an answer ends, and thoughts before it."""

from __future__ import annotations

import numpy as np
import pytest
from slow_grammar import Pieces

from golem_core.errors import BadRequest, GolemError
from golem_core.sampling import STAGES, Candidates, SamplerChain, SamplerContext, SamplingParams
from golem_core.sampling.grammar import Constraint, Thought, compile_gbnf

TOKENIZER = Pieces("ab", "<think>", "</think>", "</think>\n\n", "ink>x", "\n\n", "é")
SIZE = TOKENIZER.vocab_size
TEXT = {piece: id for id, piece in reversed(list(enumerate(TOKENIZER.pieces))) if piece}


def chain(grammar: str, thought: Thought | None = None, size: int = SIZE, **params) -> SamplerChain:
    params = {"temperature": 0.0, **params, "grammar": Constraint(compile_gbnf(TOKENIZER, grammar), thought)}
    return SamplerChain.build(STAGES, SamplingParams(**params), SamplerContext(size, (), TOKENIZER))


def wanting(*tokens, size: int = SIZE) -> np.ndarray:
    """Logits of a model that wants these tokens, the first most of all."""
    logits = np.linspace(0, 0.1, size, dtype=np.float32)
    for rank, token in enumerate(tokens):
        logits[TEXT[token] if isinstance(token, bytes) else token] = 20 - rank
    return logits


def spoken(running: SamplerChain, *wishes) -> list[bytes | int]:
    """What is drawn when the model wants one thing after the other; ids where a token has no text."""
    drawn = [running.draw(wanting(*(wish if isinstance(wish, tuple) else (wish,)))) for wish in wishes]
    return [TOKENIZER.pieces[token] or token for token in drawn]


def test_a_forbidden_token_gives_way_to_the_likeliest_allowed_one():
    assert spoken(chain('root ::= "a" "b"'), (b"x", b"a"), (TOKENIZER.end, b"ab", b"b")) == [b"a", b"b"]


def test_an_answer_ends_where_it_is_complete_and_only_there():
    running = chain('root ::= "a"*')
    assert spoken(running, b"a", TOKENIZER.end) == [b"a", TOKENIZER.end]
    assert spoken(chain('root ::= "ab"'), (TOKENIZER.end, b"a"), (TOKENIZER.end, b"b")) == [b"a", b"b"]


def test_only_the_end_is_left_when_nothing_can_follow():
    assert spoken(chain('root ::= "ab"'), b"ab", (b"a", b"x")) == [b"ab", TOKENIZER.end]


def test_after_the_end_there_are_only_ends():
    assert spoken(chain('root ::= "a"*'), TOKENIZER.end, (b"a", b"x")) == [TOKENIZER.end, TOKENIZER.end]


def test_control_tokens_and_empty_ones_are_never_drawn():
    nothing = TOKENIZER.vocab_size - 3
    assert TOKENIZER.pieces[nothing] == b""
    assert spoken(chain("root ::= .*"), (TOKENIZER.control, nothing, b"x")) == [b"x"]


def test_ids_beyond_the_tokenizer_are_never_drawn():
    running = chain("root ::= .*", size=SIZE + 7)
    assert running.draw(wanting(SIZE + 3, b"x", size=SIZE + 7)) == TEXT[b"x"]


def test_a_character_may_come_in_pieces():
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert spoken(chain('root ::= "é"'), (b"x", first), (b"x", second), b"x") == [first, second, TOKENIZER.end]


def test_nothing_that_can_be_drawn_is_an_error_of_this_request():
    running = chain('root ::= "a"', logit_bias={TEXT[b"a"]: -np.inf})
    with pytest.raises(GolemError, match="grammar"):
        running.draw(wanting(b"x"))


def test_a_vocabulary_without_a_way_on_is_an_error():
    tokenizer = Pieces()
    tokenizer.pieces[ord("b")] = b""
    params = SamplingParams(temperature=0, grammar=Constraint(compile_gbnf(tokenizer, 'root ::= "a" "b"')))
    running = SamplerChain.build(STAGES, params, SamplerContext(tokenizer.vocab_size, (), tokenizer))
    assert running.draw(np.zeros(tokenizer.vocab_size, np.float32)) == ord("a")
    with pytest.raises(GolemError, match="no token of the vocabulary goes on"):
        running.draw(np.zeros(tokenizer.vocab_size, np.float32))


def test_without_a_tokenizer_a_grammar_is_refused():
    params = SamplingParams(grammar=Constraint(compile_gbnf(TOKENIZER, 'root ::= "a"')))
    with pytest.raises(BadRequest, match="tokenizer"):
        SamplerChain.build(STAGES, params, SamplerContext(SIZE))


def test_what_is_drawn_is_distributed_as_if_all_else_was_impossible():
    allowed = {b"a": 2.0, b"b": 1.0, b"c": 0.0, b"d": -1.0}
    logits = np.full(SIZE, 3.0, np.float32)  # everything forbidden is likelier
    for piece, logit in allowed.items():
        logits[TEXT[piece]] = logit
    counts = dict.fromkeys(allowed, 0)
    for seed in range(2000):
        running = chain("root ::= [abcd]", temperature=1.0, top_k=3, top_p=0.95, seed=seed)
        counts[TOKENIZER.pieces[running.draw(logits.copy())]] += 1
    weights = np.exp([2.0, 1.0, 0.0])  # top_k and top_p look at what is allowed: d falls out
    weights /= weights.sum()
    assert counts[b"d"] == 0
    assert np.allclose([counts[piece] / 2000 for piece in (b"a", b"b", b"c")], weights, atol=0.04)


OPENED = Thought(("<think>", "</think>"), opened=True)
POSSIBLE = Thought(("<think>", "</think>"), opened=False)


def test_a_thought_follows_no_grammar_and_the_answer_after_it_does():
    running = chain('root ::= "ab"', OPENED)
    wishes = (b"x", b"<", b"/", b"</think>", (b"x", b"a"), (b"x", b"b"), b"x")
    assert spoken(running, *wishes) == [b"x", b"<", b"/", b"</think>", b"a", b"b", TOKENIZER.end]


def test_a_thought_cannot_end_the_answer():
    assert spoken(chain('root ::= "a"*', OPENED), (TOKENIZER.end, b"x")) == [b"x"]


def test_the_mark_may_be_spelled_out_and_line_ends_may_follow_it():
    spelled = [b"<", b"/", b"t", b"h", b"i", b"n", b"k", b">", b"\n", b"\n"]
    assert spoken(chain('root ::= "ab"', OPENED), *spelled, (b"\n", b"x", b"a")) == [*spelled, b"a"]
    assert spoken(chain('root ::= "ab"', OPENED), b"</think>\n\n", (b"\n", b"a")) == [b"</think>\n\n", b"a"]


def test_no_token_closes_a_thought_and_goes_on():
    assert spoken(chain('root ::= "ab"', OPENED), b"<", b"/", b"t", b"h", (b"ink>x", b"i")) == [
        b"<",
        b"/",
        b"t",
        b"h",
        b"i",
    ]


def test_a_thought_that_was_asked_for_may_be_opened_or_not():
    wishes = (b"<think>", b"x", b"</think>", (b"x", b"a"))
    assert spoken(chain('root ::= "ab"', POSSIBLE), *wishes) == [b"<think>", b"x", b"</think>", b"a"]
    assert spoken(chain('root ::= "ab"', POSSIBLE), (b"x", b"a"), (b"<think>", b"b")) == [b"a", b"b"]
    assert spoken(chain('root ::= "ab"', POSSIBLE), (TOKENIZER.end, b"<"), (b"a", b"t"))[:2] == [b"<", b"t"]


def test_what_begins_like_a_mark_may_be_the_answer():
    grammar = 'root ::= "<th" [a-z]'
    assert spoken(chain(grammar, POSSIBLE), b"<", b"t", b"h", b"a", b"x") == [b"<", b"t", b"h", b"a", TOKENIZER.end]
    assert spoken(chain(grammar, POSSIBLE), *(bytes([each]) for each in b"<think>"), b"x", TOKENIZER.end)[-2] == b"x"


def test_a_mask_that_was_made_ahead_is_for_what_was_accepted_and_for_as_many_tokens():
    """The stage makes the next mask while the model computes; it counts only for the logits that it was made for."""
    grammar = Constraint(compile_gbnf(TOKENIZER, 'root ::= "a" "b" "a" "b"'), None)
    (stage,) = (stage for stage in STAGES if stage.name == "grammar")
    sampler = stage.from_request(SamplingParams(grammar=grammar), SamplerContext(SIZE, (), TOKENIZER))

    def left(ids: np.ndarray | None = None) -> list[bytes]:
        size = SIZE if ids is None else len(ids)
        candidates = Candidates(np.zeros(size, np.float32), ids)
        sampler.apply(candidates)
        kept = np.arange(size) if candidates.ids is None else candidates.ids
        return [TOKENIZER.pieces[id] for id, logit in zip(kept, candidates.logits, strict=True) if logit == 0]

    assert left() == [b"a", b"ab"]
    sampler.accept(TEXT[b"a"])
    assert left() == [b"b"]
    sampler.accept(TEXT[b"b"])
    sampler.accept(TEXT[b"a"])  # without a mask in between
    assert left() == [b"b"]
    sampler.accept(TEXT[b"b"])
    assert left(np.array([TEXT[b"a"], TOKENIZER.end], np.int32)) == [TOKENIZER.pieces[TOKENIZER.end]]
