"""grammar: only tokens stay with which the answer goes on as its grammar says; it ends only where that is complete.

The mask is taken before anything is cut off, so that top_k and the rest choose among what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from golem_core.errors import BadRequest, GolemError
from golem_core.sampling.chain import Candidates, SamplerContext, SamplerStage
from golem_core.sampling.grammar.token_set import TokenSet

if TYPE_CHECKING:
    from golem_core.sampling.grammar.masks import CompiledGrammar
    from golem_core.sampling.params import SamplingParams
    from golem_core.text import Tokenizer

__all__ = ["STAGE", "Constraint", "Thought"]


@cache
def _worker() -> ThreadPoolExecutor:
    """The thread on which masks are made while the pass runs that they are for."""
    return ThreadPoolExecutor(1, "golem-grammar")


_MOST_BREAKS = 2  # line ends between a thought and the answer proper


@dataclass(frozen=True)
class Thought:
    """A thought that may come before the answer proper and follows no grammar.

    `marks` open and close it.  `opened`: the prompt ends inside it; otherwise the model may open one, or not.
    """

    marks: tuple[str, str]
    opened: bool


@dataclass(frozen=True, eq=False)
class Constraint:
    """The grammar of an answer, and the thought before it if there may be one."""

    grammar: CompiledGrammar
    thought: Thought | None = None


class GrammarSampler:
    """Forbids what the grammar of one answer forbids."""

    def __init__(self, constraint: Constraint, context: SamplerContext):
        assert context.tokenizer is not None
        self._tokenizer = context.tokenizer
        self._ends = np.array(sorted(each for each in context.tokenizer.eog if each < context.vocab_size), np.int64)
        self._grammar = constraint.grammar
        self._matcher = self._grammar.matcher()
        self._ended = False
        self._alive = True  # the answer so far follows the grammar
        self._before = None
        self._size = 0
        self._coming: Future[TokenSet] | None = None
        if constraint.thought is not None:
            self._before = _Before(constraint.thought, context.tokenizer, constraint.grammar)

    def apply(self, candidates: Candidates) -> None:
        """Raises GolemError where the grammar goes on and no token of the vocabulary does."""
        size = len(candidates) if candidates.ids is None else int(candidates.ids.max(initial=0)) + 1
        coming, self._coming = self._coming, None
        made = coming.result() if coming is not None else None
        allowed = made if made is not None and size == self._size else self._allowed(size)
        self._size = size
        if candidates.ids is not None:
            candidates.keep(np.flatnonzero(allowed.flags()[candidates.ids]))
            return
        if not allowed:
            raise GolemError("the grammar is not complete, and no token of the vocabulary goes on with it")
        if allowed.sparse:  # the others are dropped, which is faster than making them impossible
            candidates.keep(allowed.ids())
        else:
            allowed.hold(candidates.logits)

    def accept(self, token: int) -> None:
        if self._coming is not None:  # nothing was drawn from it; it is not made and left behind at once
            self._coming.result()
        self._follow(token)
        if self._size and not self._ended:
            self._coming = _worker().submit(self._allowed, self._size)

    def _follow(self, token: int) -> None:
        if token in self._tokenizer.eog:
            self._ended = True
            return
        if self._before is None:
            self._matcher.accept(token)
            return
        before = self._before.state
        self._before.accept(self._tokenizer.piece(token, special=True))
        if before == "undecided" and self._before.state in ("inside", "after"):
            self._matcher, self._alive = self._grammar.matcher(), True  # what it has seen was the mark
        elif before == "undecided" and self._alive:
            self._alive = self._matcher.allows(token)
            if self._alive:
                self._matcher.accept(token)
        if before == "after" and self._before.state == "over":
            self._matcher.accept(token)
        if self._before.state == "over":
            self._before = None

    def _allowed(self, size: int) -> TokenSet:
        """Which of the tokens below `size` may be drawn."""
        if self._ended:
            allowed, complete = TokenSet.none(size), True
        elif self._before is None:
            allowed, complete = self._matcher.mask(size), self._matcher.complete
        elif self._before.state == "inside":
            allowed, complete = TokenSet.every(size), False
            allowed.remove(np.concatenate([self._before.late(), self._ends]))
        else:
            allowed = self._matcher.mask(size) if self._alive else TokenSet.none(size)
            complete = self._alive and self._matcher.complete
            allowed.add(self._before.opening() if self._before.state == "undecided" else self._before.breaks())
        if complete:
            allowed.add(self._ends)
        return allowed


class _Before:
    """What comes before the grammar: whether a thought is opened, the thought, and the line ends after it.

    `state`: "undecided" while the answer may still turn out to open a thought, "inside", "after" it, and "over" once
    the answer proper has begun.
    """

    def __init__(self, thought: Thought, tokenizer: Tokenizer, grammar: CompiledGrammar):
        self.state: Literal["undecided", "inside", "after", "over"] = "inside" if thought.opened else "undecided"
        make: Callable[[], _MarkTokens] = lambda: _MarkTokens(tokenizer, thought.marks)
        self.tokens = grammar.vocabulary.once(thought.marks, make)
        self._opener, self._closer = (mark.encode() for mark in thought.marks)
        self._text = b""  # so far, or what of it matters
        self._breaks = 0

    def accept(self, piece: bytes) -> None:
        if self.state == "after":
            self._breaks += len(piece)
            if piece.strip(b"\n") or self._breaks > _MOST_BREAKS:
                self.state = "over"
            return
        self._text += piece
        if self.state == "undecided":
            if self._opener.startswith(self._text) and self._text != self._opener:
                return
            if not self._text.startswith(self._opener):
                self.state = "over"
                return
            self.state = "inside"
            self._text = self._text[len(self._opener) :]
        at = self._text.find(self._closer)
        if at >= 0:
            self.state = "after"
            self._breaks = len(self._text) - at - len(self._closer)
        else:
            self._text = self._text[-(len(self._closer) - 1) :] if len(self._closer) > 1 else b""

    def opening(self) -> np.ndarray:
        """The tokens that go on with the opening mark."""
        return self.tokens.opening[len(self._text)]

    def breaks(self) -> np.ndarray:
        """The tokens that are line ends, of which no more may come than are left."""
        return np.concatenate(self.tokens.breaks[: max(_MOST_BREAKS - self._breaks, 0) + 1])

    def late(self) -> np.ndarray:
        """The tokens that close the thought and go on with something else than line ends."""
        closer = self._closer
        found = [self.tokens.late[n] for n in range(len(closer)) if self._text.endswith(closer[:n])]
        return np.concatenate(found)


class _MarkTokens:
    """The tokens of a vocabulary that matter for the marks of thoughts: looked through once, control tokens too."""

    def __init__(self, tokenizer: Tokenizer, marks: tuple[str, str]):
        opener, closer = (mark.encode() for mark in marks)
        pieces = [tokenizer.piece(id, special=True) for id in range(tokenizer.vocab_size)]
        self.opening = []
        for begun in range(len(opener)):
            rest = opener[begun:]
            self.opening.append(_ids(pieces, lambda piece, rest=rest: rest.startswith(piece) or piece.startswith(rest)))
        ends = {id: piece for id, piece in enumerate(pieces) if closer[-1:] in piece[:-1]}
        self.late = []
        for begun in range(len(closer)):
            found = [id for id, piece in ends.items() if _goes_on(piece, closer, begun)]
            self.late.append(np.array(found, np.int64))
        self.breaks = [_ids(pieces, lambda piece, n=n: piece == b"\n" * n) for n in range(_MOST_BREAKS + 1)]


def _ids(pieces: list[bytes], test: Callable[[bytes], bool]) -> np.ndarray:
    return np.array([id for id, piece in enumerate(pieces) if piece and test(piece)], np.int64)


def _goes_on(piece: bytes, closer: bytes, begun: int) -> bool:
    """Whether a piece, after the first `begun` bytes of the closing mark, has its end and then more than line ends."""
    if begun == 0:
        at = piece.find(closer)
        return at >= 0 and bool(piece[at + len(closer) :].strip(b"\n"))
    return piece.startswith(closer[begun:]) and bool(piece[len(closer) - begun :].strip(b"\n"))


def from_request(params: SamplingParams, context: SamplerContext) -> GrammarSampler | None:
    """None where no grammar is asked for.  Raises BadRequest for a grammar without a tokenizer."""
    if params.grammar is None:
        return None
    if context.tokenizer is None:
        raise BadRequest("grammar: there is no tokenizer to follow it with", param="grammar")
    return GrammarSampler(params.grammar, context)


STAGE = SamplerStage("grammar", 30, from_request)
