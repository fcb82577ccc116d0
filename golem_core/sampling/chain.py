"""The chain that turns one row of logits into a token.

Stages (`SamplerStage`) are sorted by position; each looks at a request and either contributes a `Sampler`
or stays out.  Samplers work on `Candidates` one after another, and the chain draws from what is left:
logit_bias, penalties, grammar, top_k, top_p, min_p, temperature, softmax, draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from golem_core.errors import BadRequest, GolemError
from golem_core.sampling.params import SamplingParams
from golem_core.sampling.rows import draw
from golem_core.sampling.shortlist import Shortlist

if TYPE_CHECKING:
    from golem_core.text import Tokenizer


class Candidates:
    """The tokens that may still be drawn.

    `ids` is int32 (n,), or None while the whole vocabulary is in the running (index = id).  `logits` is
    float32 (n,), writable.  They stand in ascending order of id, or, when `descending` is set, in descending
    order of logit, equal ones in ascending order of id.  A sampler that changes logits of a `descending`
    set out of order clears the flag.
    """

    __slots__ = ("descending", "ids", "logits")

    def __init__(self, logits: np.ndarray, ids: np.ndarray | None = None):
        self.ids = ids
        self.logits = logits
        self.descending = False

    def __len__(self) -> int:
        return len(self.logits)

    def keep(self, indices: np.ndarray | slice) -> None:
        """Drop everything but the candidates at `indices`, in that order."""
        if self.ids is not None:
            self.ids = self.ids[indices]
        elif isinstance(indices, slice):
            self.ids = np.arange(len(self.logits), dtype=np.int32)[indices]
        else:
            self.ids = indices.astype(np.int32)
        self.logits = self.logits[indices]

    def find(self, tokens: np.ndarray) -> tuple[np.ndarray | slice, np.ndarray]:
        """Where distinct `tokens` stand: indices into `tokens` of those still present, and their candidates."""
        if self.ids is None:
            return slice(None), tokens
        _, given, present = np.intersect1d(tokens, self.ids, assume_unique=True, return_indices=True)
        return given, present


class Sampler(Protocol):
    """One request's share of a stage.  It may also have `accept(token)`, called with each token drawn.

    And it may have `most`: how many of the largest logits it keeps, unchanged and in descending order, equal ones in
    ascending order of id.  Where it comes first in a chain, the candidates that it is given may then be no more than
    those already.
    """

    def apply(self, candidates: Candidates) -> None:
        """Change the logits of the candidates, or drop some of them."""
        ...


@dataclass(frozen=True)
class SamplerContext:
    """What a stage may know besides the request's own fields.  `prompt` holds the ids fed before the first draw."""

    vocab_size: int
    prompt: Sequence[int] = ()
    tokenizer: Tokenizer | None = None


@dataclass(frozen=True)
class SamplerStage:
    """A step of the chain; any package may contribute one.

    Stages run in ascending `position`; the core's stand at logit_bias 10, penalties 20, grammar 30, top_k 40,
    top_p 50, min_p 60 and temperature 70.  `from_request` returns None where the request leaves the stage off,
    and raises BadRequest for values that it can't use.
    """

    name: str
    position: int
    from_request: Callable[[SamplingParams, SamplerContext], Sampler | None]


class SamplerChain:
    """The samplers of one request and its random generator.  Not for use by two threads at once."""

    def __init__(self, samplers: Sequence[tuple[str, Sampler]], *, greedy: bool, seed: int | None = None):
        self._samplers = list(samplers)
        self.most: int | None = getattr(samplers[0][1], "most", None) if samplers else 1 if greedy else None
        """How many of the largest logits of a row decide what is drawn; None: all of them."""
        self._accepting = [accept for _, sampler in samplers if (accept := getattr(sampler, "accept", None))]
        # The generator takes seeds from 0 up; a negative one is read as its two's complement.
        self._generator = None if greedy else np.random.default_rng(None if seed is None else seed & (2**64 - 1))

    @classmethod
    def build(cls, stages: Iterable[SamplerStage], params: SamplingParams, context: SamplerContext) -> SamplerChain:
        """The chain for one request.  Raises BadRequest where a stage refuses one of its values."""
        samplers = []
        for stage in sorted(stages, key=lambda stage: stage.position):
            sampler = stage.from_request(params, context)
            if sampler is not None:
                samplers.append((stage.name, sampler))
        return cls(samplers, greedy=params.greedy, seed=params.seed)

    def draw(self, logits: np.ndarray | Shortlist) -> int:
        """The next token.  `logits` is float32 (vocabulary,), or the `most` largest of a row, and is overwritten.

        The generator advances once, except when the request is greedy.  Raises GolemError when the logits are
        not numbers, and BadRequest when a stage leaves no token to draw: the request asked for it.
        """
        if isinstance(logits, Shortlist):
            candidates = Candidates(logits.values, logits.ids)
            candidates.descending = True
        else:
            candidates = Candidates(logits)
        best = _best(candidates, "the model's pass", GolemError)
        for name, sampler in self._samplers:
            sampler.apply(candidates)
            best = _best(candidates, f"sampler {name!r}", BadRequest)
        if self._generator is None:
            index = best
        else:
            index = draw(candidates.logits, candidates.logits[best], self._generator.random())
        token = index if candidates.ids is None else int(candidates.ids[index])
        for accept in self._accepting:
            accept(token)
        return token


def _best(candidates: Candidates, after: str, none_left: type[GolemError]) -> int:
    """Index of the largest logit, the lower id on ties; `none_left` or GolemError where there is no sensible one."""
    if len(candidates) == 0:
        raise none_left(f"no token is left to draw after {after}")
    index = int(candidates.logits.argmax())  # a NaN counts as the largest here, so one look finds both
    peak = float(candidates.logits[index])
    if peak == -np.inf:
        raise none_left(f"no token is left to draw after {after}: every logit is minus infinity")
    if not np.isfinite(peak):
        raise GolemError(f"a logit is {peak} after {after}; no token can be drawn from that")
    return index
