"""From a question and a state to one sequence of tokens, within the lengths that the checkpoint was trained on.

    [CLS] head [SEP] [MASK] option 0 [MASK] option 1 ... [SEP] state [SEP]

The results at the [MASK]s are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from golem_laya.questions import BadQuestion, Question
from golem_laya.tokens import Tokens

OPTION = 48
"""Most tokens of an option, its mark apart."""
HEAD = 16
"""Tokens that options leave to the head where they can."""


@dataclass(frozen=True)
class Fed:
    """The ids that are fed, and where the options' marks are."""

    ids: list[int]
    marks: list[int]


@dataclass(frozen=True)
class Budget:
    """Most tokens of a sequence, and of its head and options together."""

    whole: int
    head: int

    def sequence(self, question: Question, tokens: Tokens, state: Sequence[int]) -> Fed:
        """The sequence of a question about a state, whose ids are given: its end is what is cut off.

        Raises BadQuestion where the options do not fit.
        """
        if len(question.options) >= self.whole:  # known without reading them
            raise BadQuestion(question.name, f"its {len(question.options)} options do not fit into {self.whole} tokens")
        options = [[tokens.mark, *tokens.first(text, OPTION)] for text in question.options]
        left = self.head - sum(map(len, options))
        if left < HEAD:
            each = max(4, (self.head - HEAD) // len(options))
            options = [option[:each] for option in options]
            left = self.head - sum(map(len, options))
        ids = [tokens.start, *tokens.first(question.head, max(8, left)), tokens.end]
        marks = []
        for option in options:
            marks.append(len(ids))
            ids += option
        ids.append(tokens.end)
        ids += [*state[: max(0, self.whole - len(ids) - 1)], tokens.end]
        if marks[-1] >= self.whole:
            raise BadQuestion(question.name, f"its {len(options)} options do not fit into {self.whole} tokens")
        return Fed(ids[: self.whole], marks)
