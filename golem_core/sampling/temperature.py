"""temperature: logits are divided by it; at 0 or below the chain takes the largest and no stage is needed."""

from __future__ import annotations

import numpy as np

from golem_core.sampling.chain import Candidates, SamplerContext, SamplerStage
from golem_core.sampling.params import SamplingParams

_COLDEST = 1e-30  # colder than this float32 can't divide by; the likeliest token is certain long before


class Temperature:
    """Divides the logits, measured from the largest so that a low temperature can't overflow upwards."""

    def __init__(self, temperature: float):
        self._temperature = np.float32(max(temperature, _COLDEST))

    def apply(self, candidates: Candidates) -> None:
        candidates.logits -= candidates.logits.max()
        with np.errstate(over="ignore"):
            candidates.logits /= self._temperature


def from_request(params: SamplingParams, context: SamplerContext) -> Temperature | None:
    """None at 1, which changes nothing, and for a greedy request."""
    return None if params.greedy or params.temperature == 1 else Temperature(params.temperature)


STAGE = SamplerStage("temperature", 70, from_request)
