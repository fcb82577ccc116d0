"""Text: tokenizers, characters out of tokens, stop strings, chat templates, and the sorting of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_core.text.calls import JsonCalls, TaggedCalls
    from golem_core.text.markers import Call, CallSyntax, Markers, UnreadableCall
    from golem_core.text.sorter import AnswerSorter, Calls, Content, Event, Reasoning
    from golem_core.text.stop import StopMatcher
    from golem_core.text.template import ChatTemplate
    from golem_core.text.tokenizer import Tokenizer, tokenizer_from_metadata
    from golem_core.text.utf8 import Utf8Assembler
else:
    from golem_core.lazy import exporter

    __getattr__ = exporter(
        __name__,
        {
            "golem_core.text.calls": "JsonCalls TaggedCalls",
            "golem_core.text.markers": "Call CallSyntax Markers UnreadableCall",
            "golem_core.text.sorter": "AnswerSorter Calls Content Event Reasoning",
            "golem_core.text.stop": "StopMatcher",
            "golem_core.text.template": "ChatTemplate",
            "golem_core.text.tokenizer": "Tokenizer tokenizer_from_metadata",
            "golem_core.text.utf8": "Utf8Assembler",
        },
    )

__all__ = [
    "AnswerSorter",
    "Call",
    "CallSyntax",
    "Calls",
    "ChatTemplate",
    "Content",
    "Event",
    "JsonCalls",
    "Markers",
    "Reasoning",
    "StopMatcher",
    "TaggedCalls",
    "Tokenizer",
    "UnreadableCall",
    "Utf8Assembler",
    "tokenizer_from_metadata",
]
