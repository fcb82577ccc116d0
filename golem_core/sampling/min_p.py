"""min_p: tokens stay whose probability is at least a share of the likeliest token's."""

from __future__ import annotations

import math

import numpy as np

from golem_core.sampling.chain import Candidates, SamplerContext, SamplerStage
from golem_core.sampling.params import SamplingParams


class MinP:
    """Keeps logits of at least the largest plus ln(`share`)."""

    def __init__(self, share: float):
        self._distance = np.float32(math.log(share))

    def apply(self, candidates: Candidates) -> None:
        logits = candidates.logits
        candidates.keep(np.flatnonzero(logits >= logits.max() + self._distance))


def from_request(params: SamplingParams, context: SamplerContext) -> MinP | None:
    """None where it is off, and for a greedy request: no truncation removes the largest logit."""
    return None if params.greedy or params.min_p <= 0 else MinP(params.min_p)


STAGE = SamplerStage("min_p", 60, from_request)
