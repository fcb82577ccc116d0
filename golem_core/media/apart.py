"""Texts of a conversation that spell a placeholder of media, kept apart from the placeholders that a template writes.

A template writes the marks of media and the texts of a conversation into one text.  So before it does, a surrogate,
which no text has, is put into the words that a conversation spells itself: they are then no special tokens, and the
tokenizer drops the surrogate where it segments them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from golem_core.errors import BadRequest
from golem_core.text.utf8 import LONE, SURROGATE

if TYPE_CHECKING:
    from golem_core.engine.roles import ChatModel
    from golem_core.text import ChatTemplate


def write(model: ChatModel, template: ChatTemplate, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
    """A conversation as the template writes it, for `tokens`.  Raises BadRequest as `ChatTemplate.render` does."""
    if model.media is None:
        return template.render(messages, **variables)
    words = [re.escape(model.tokenizer.token_text(kind.placeholder)) for kind in model.media.kinds]
    pattern = re.compile("|".join(words))
    try:
        messages, variables = _apart(messages, pattern), _apart(variables, pattern)
    except RecursionError:
        raise BadRequest("messages: a value in them is nested too deeply", param="messages") from None
    return model.media.written(template.render(messages, **variables))


def tokens(model: ChatModel, text: str) -> list[int]:
    """The tokens of what `write` gave: only a template's own placeholders are the tokens that stand for media."""
    if model.media is None:
        return model.tokenizer.encode(text, parse_special=True)
    return model.tokenizer.encode(text, parse_special=True, drop_lone=True)


def readable(text: str) -> str:
    """What `write` gave, as people read it."""
    return text.replace(LONE, "")


def _apart(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        text = value if value.isascii() else SURROGATE.sub("\ufffd", value)
        return pattern.sub(lambda found: found[0][:1] + LONE + found[0][1:], text)
    if isinstance(value, Mapping):
        return {_apart(key, pattern): _apart(each, pattern) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_apart(each, pattern) for each in value]
    return value
