"""Text: tokenizers, characters out of tokens, stop strings and chat templates."""

from golem_core.text.tokenizer import Tokenizer as Tokenizer
from golem_core.text.tokenizer import tokenizer_from_metadata as tokenizer_from_metadata
from golem_core.text.utf8 import Utf8Assembler as Utf8Assembler
