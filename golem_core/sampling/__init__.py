"""From logits to a token: the sampler chain, its standard stages, and log-probabilities.

A row of float32 logits and a request's `SamplingParams` come in, a token id goes out.
"""

from __future__ import annotations

from golem_core.sampling import grammar, logit_bias, min_p, penalties, temperature, top_k, top_p
from golem_core.sampling.chain import Candidates, Sampler, SamplerChain, SamplerContext, SamplerStage
from golem_core.sampling.logprobs import LogProbs
from golem_core.sampling.params import SamplingParams
from golem_core.sampling.shortlist import ListedLogProbs, Shortlist

STAGES: tuple[SamplerStage, ...] = (
    logit_bias.STAGE,
    penalties.STAGE,
    grammar.STAGE,
    top_k.STAGE,
    top_p.STAGE,
    min_p.STAGE,
    temperature.STAGE,
)

__all__ = [
    "STAGES",
    "Candidates",
    "ListedLogProbs",
    "LogProbs",
    "Sampler",
    "SamplerChain",
    "SamplerContext",
    "SamplerStage",
    "SamplingParams",
    "Shortlist",
]
