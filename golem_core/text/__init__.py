"""Text: tokenizers, characters out of tokens, stop strings, chat templates, and the sorting of answers."""

from __future__ import annotations

from .calls import JsonCalls, TaggedCalls
from .markers import Call, CallSyntax, Markers, UnreadableCall
from .sorter import AnswerSorter, Calls, Content, Event, Reasoning
from .stop import StopMatcher
from .template import ChatTemplate
from .tokenizer import Tokenizer, tokenizer_from_metadata
from .utf8 import Utf8Assembler

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
