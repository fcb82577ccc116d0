"""Text: tokenizers, characters out of tokens, stop strings and chat templates."""

from __future__ import annotations

from .stop import StopMatcher
from .template import ChatTemplate
from .tokenizer import Tokenizer, tokenizer_from_metadata
from .utf8 import Utf8Assembler

__all__ = ["ChatTemplate", "StopMatcher", "Tokenizer", "Utf8Assembler", "tokenizer_from_metadata"]
