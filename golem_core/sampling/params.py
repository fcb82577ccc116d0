"""What a request says about sampling, checked as it is made.

The defaults describe plain sampling of the model's own distribution: nothing is cut off, nothing is
penalised.  What a model file or a server recommends is filled in by whoever builds the request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, SupportsIndex

from golem_core.errors import BadRequest

if TYPE_CHECKING:
    from golem_core.sampling.grammar import Constraint


LARGEST = 1e6
"""Far beyond what any of these fields is used with; logits stay finite in float32."""


@dataclass(frozen=True)
class SamplingParams:
    """The sampling fields of one request.

    `temperature` <= 0 always takes the likeliest token.  `top_k` <= 0, `top_p` >= 1 and `min_p` <= 0 are
    off.  `seed` None means a random one.  `repeat_last_n` is the number of latest tokens that the penalties
    look at: 0 none, -1 the whole conversation.  `logit_bias` maps token ids to what is added to their
    logits; minus infinity forbids a token.  `grammar` is what the answer must follow.  `extra` carries the
    request fields that no stage of the core knows, for the stages of other packages.

    Raises BadRequest, its `param` naming the field, for a value outside its range, or of another type than a number.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    grammar: Constraint | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repeat_penalty", "frequency_penalty", "presence_penalty"):
            value = getattr(self, name)
            try:
                finite = math.isfinite(value)
            except TypeError:
                raise BadRequest(f"{name}: expected a number, got {value!r}", param=name) from None
            if not finite:
                raise BadRequest(f"{name} must be a finite number, not {value}", param=name)
            if abs(value) > LARGEST:
                raise BadRequest(f"{name} must lie between -1e6 and 1e6, not at {value}", param=name)
        for name in ("top_k", "repeat_last_n", "seed"):
            value = getattr(self, name)
            if not isinstance(value, SupportsIndex) and (value is not None or name != "seed"):
                raise BadRequest(f"{name}: expected a whole number, got {value!r}", param=name)
        if self.min_p > 1:
            raise BadRequest(f"min_p must be at most 1, not {self.min_p}", param="min_p")
        if self.repeat_penalty < 1 / LARGEST:
            raise BadRequest(f"repeat_penalty must be at least 1e-6, not {self.repeat_penalty}", param="repeat_penalty")
        if self.repeat_last_n < -1:
            raise BadRequest(f"repeat_last_n must be -1 or more, not {self.repeat_last_n}", param="repeat_last_n")
        for token, bias in self.logit_bias.items():
            if bias != -math.inf and not abs(bias) <= LARGEST:
                raise BadRequest(
                    f"logit_bias of token {token} must be minus infinity, or lie between -1e6 and 1e6, not {bias}",
                    param="logit_bias",
                )

    @property
    def greedy(self) -> bool:
        """Whether every step takes the largest logit instead of drawing."""
        return self.temperature <= 0
