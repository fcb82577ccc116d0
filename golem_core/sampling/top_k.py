"""top_k: only the k largest logits stay."""

from __future__ import annotations

from golem_core.sampling.chain import Candidates, SamplerContext, SamplerStage
from golem_core.sampling.params import SamplingParams
from golem_core.sampling.rows import largest


class TopK:
    """Keeps the `most` largest candidates, the lower id on ties, in descending order."""

    def __init__(self, most: int):
        self.most = most

    def apply(self, candidates: Candidates) -> None:
        if self.most >= len(candidates):
            return
        if candidates.descending:
            candidates.keep(slice(self.most))
        else:
            candidates.keep(largest(candidates.logits, self.most))
            candidates.descending = True


def from_request(params: SamplingParams, context: SamplerContext) -> TopK | None:
    """None where k is off, and for a greedy request: no truncation removes the largest logit."""
    off = params.greedy or not 0 < params.top_k < context.vocab_size
    return None if off else TopK(params.top_k)


STAGE = SamplerStage("top_k", 40, from_request)
