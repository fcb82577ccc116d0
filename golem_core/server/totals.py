"""What has been read and drawn since the start, in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_core.server.log import Entry

__all__ = ["Totals"]


@dataclass
class Totals:
    """Sums over all answers that have ended; seconds are those of each answer, though several ran at once."""

    answers: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    drawn_tokens: int = 0
    drawn_seconds: float = 0.0
    guessed_tokens: int = 0
    confirmed_tokens: int = 0

    def count(self, entry: Entry) -> None:
        """Add the answers of one request."""
        for generation in entry.answers:
            self.answers += 1
            self.prompt_tokens += generation.fed
            self.cached_tokens += generation.cached_tokens
            self.prompt_seconds += generation.prompt_seconds
            self.drawn_tokens += generation.drawn
            self.drawn_seconds += generation.draw_seconds
            self.guessed_tokens += generation.guessed
            self.confirmed_tokens += generation.confirmed
