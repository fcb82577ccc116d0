"""logit_bias: the request adds a number to the logits of tokens that it names, or forbids them."""

from __future__ import annotations

import math

import numpy as np

from golem_core.errors import BadRequest
from golem_core.sampling.chain import Candidates, SamplerContext, SamplerStage
from golem_core.sampling.params import SamplingParams


class LogitBias:
    """Adds `values` float32 (n,) to the logits of `tokens` int64 (n,)."""

    def __init__(self, tokens: np.ndarray, values: np.ndarray):
        self._tokens = tokens
        self._values = values

    def apply(self, candidates: Candidates) -> None:
        given, present = candidates.find(self._tokens)
        candidates.logits[present] += self._values[given]
        candidates.descending = False


def from_request(params: SamplingParams, context: SamplerContext) -> LogitBias | None:
    """Raises BadRequest for an id outside the vocabulary."""
    if not params.logit_bias:
        return None
    for token in params.logit_bias:
        if not 0 <= token < context.vocab_size:
            raise BadRequest(
                f"logit_bias names token {token}; the vocabulary ends at {context.vocab_size - 1}", param="logit_bias"
            )
    if len(params.logit_bias) == context.vocab_size and set(params.logit_bias.values()) == {-math.inf}:
        raise BadRequest("logit_bias forbids every token of the vocabulary", param="logit_bias")
    return LogitBias(
        np.fromiter(params.logit_bias.keys(), np.int64), np.fromiter(params.logit_bias.values(), np.float32)
    )


STAGE = SamplerStage("logit_bias", 10, from_request)
