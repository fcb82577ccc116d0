"""Which tokens may be drawn next: a grammar compiled against a vocabulary, and the place of one answer in it.

llguidance does the work, on the bytes that the vocabulary's tokens stand for.  The table of these bytes is made for
the first grammar that a tokenizer is used with, and compiled grammars are kept by their text.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from golem_core.errors import BadRequest, GolemError
from golem_core.sampling.grammar.ast import Grammar, pruned
from golem_core.sampling.grammar.lark import versions
from golem_core.sampling.grammar.token_set import TokenSet

if TYPE_CHECKING:
    from golem_core.text import Tokenizer

__all__ = ["CompiledGrammar", "GrammarMatcher", "Vocabulary", "vocabulary_of"]

T = TypeVar("T")

_KEPT = 64  # compiled grammars of a vocabulary
_KEPT_TEXT = 1 << 20  # characters that these were written with, each of which may stand for 300 bytes of memory
# What most texts of strings consist of; the engine then needn't look at these tokens one by one.  Where a string may
# only have so many characters more, those of the longest kind that still fits are taken together.
_PLAIN = r'[^"\\\x00-\x1F\x7F]'
_COMMON = [*(f"{_PLAIN}{{1,{most}}}" for most in (2, 4, 7, 10, 14, 20, 30)), f"{_PLAIN}+"]

_LIMITS: dict[str, Any] = {
    "max_items_in_row": 8_000,  # a schema has up to 6,000 values, which an enum may offer at one place
    "initial_lexer_fuel": 2_000_000,
    "step_lexer_fuel": 2_000_000,
    "step_max_items": 1_000_000,
    "max_lexer_states": 100_000,
    "max_grammar_size": 300_000,
    "verbose_errors": False,
}


class Vocabulary:
    """The tokens of one tokenizer, as far as grammars are concerned, and the grammars compiled for them.

    Control tokens, tokens that end an answer and tokens without bytes have no place in any text.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.size = tokenizer.vocab_size
        self._tokenizer: Tokenizer | None = tokenizer  # until the table is made
        self._table: Any = None
        self._kept: OrderedDict[tuple[str, str], CompiledGrammar] = OrderedDict()
        self._derived: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` returned when it was first asked for by this key."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make()
            return self._derived[key]

    def compiled(self, kind: str, text: str, parse: Callable[[], Grammar], *, param: str) -> CompiledGrammar:
        """The grammar of a text, read by `parse` unless that has been done before.

        Raises what `parse` raises, and BadRequest where the grammar matches nothing or is too large.
        """
        key = (kind, text)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        compiled = self.compile(parse(), param=param)
        with self._lock:
            self._kept[key] = compiled
            while len(self._kept) > _KEPT or (len(self._kept) > 1 and _written(self._kept) > _KEPT_TEXT):
                self._kept.popitem(last=False)
        return compiled

    def compile(self, grammar: Grammar, *, param: str = "grammar") -> CompiledGrammar:
        """Compile a grammar.  Raises BadRequest, with `param`, where it matches nothing or is too large."""
        from llguidance import LLMatcher, LLParserLimits

        finite = pruned(grammar)
        if finite is None:
            raise BadRequest(f"{param}: no finite text follows the grammar", param=param)
        reason = ""
        limits = LLParserLimits(**_LIMITS)
        try:
            for text in versions(finite):
                matcher = LLMatcher(self._bytes(), text, log_level=0, limits=limits)
                if not matcher.is_error():
                    return CompiledGrammar(self, matcher)
                reason = matcher.get_error().splitlines()[0]
                if reason.startswith("panic: "):  # a limit of the library's own that it only asserts
                    reason = "it is too large"
        except RecursionError:
            reason = "it is nested too deeply"
        raise BadRequest(f"{param}: the grammar can't be compiled: {reason}", param=param)

    def _bytes(self) -> Any:
        """llguidance's table of the tokens' bytes."""
        with _making:
            if self._tokenizer is not None:
                from llguidance import LLTokenizer, TokenizerWrapper

                pieces = [self._tokenizer.piece(id) for id in range(self.size)]
                for id in self._tokenizer.eog:
                    pieces[id] = b""
                self._table = LLTokenizer(TokenizerWrapper(_Pieces(pieces)), slices=_COMMON)
                self._tokenizer = None
            return self._table


def _written(grammars: Iterable[tuple[str, str]]) -> int:
    """The characters of grammars, given by kind and text."""
    return sum(len(text) for _, text in grammars)


class _Pieces:
    """The bytes of tokens in the form in which llguidance takes them, with a token of its own for the end."""

    bos_token_id = None

    def __init__(self, pieces: list[bytes]):
        self.tokens = [*pieces, b"\xff<end>"]
        self.eos_token_id = len(pieces)
        self.special_token_ids = [len(pieces)]

    def __call__(self, text: bytes) -> list[int]:
        raise NotImplementedError  # texts are never made into tokens here


_vocabularies: WeakKeyDictionary[Tokenizer, Vocabulary] = WeakKeyDictionary()
_making = threading.Lock()


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """The tokenizer's vocabulary.  The first grammar that is compiled for it takes seconds if it is a large one."""
    with _making:
        return _vocabularies.setdefault(tokenizer, Vocabulary(tokenizer))


class CompiledGrammar:
    """A grammar ready for any number of answers."""

    def __init__(self, vocabulary: Vocabulary, matcher: Any):
        self.vocabulary = vocabulary
        self._start = matcher
        self._lock = threading.Lock()

    def matcher(self) -> GrammarMatcher:
        """The beginning of an answer."""
        with self._lock:
            return GrammarMatcher(self.vocabulary, self._start.deep_copy())


class GrammarMatcher:
    """The place of one answer in its grammar.  Not for use by two threads at once."""

    def __init__(self, vocabulary: Vocabulary, matcher: Any):
        self._vocabulary = vocabulary
        self._matcher = matcher

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()

    def mask(self, size: int | None = None) -> TokenSet:
        """Which tokens may come next, of those below `size`, by default those of the vocabulary.

        Whether the answer may end is not in it.  Raises BadRequest where the grammar is too ambiguous to go on.
        """
        size = self._vocabulary.size if size is None else size
        bits = bytearray(self._matcher.compute_bitmask())
        if self._matcher.is_error():
            if self._matcher.get_error().startswith("NoExtension"):  # the grammar goes on, and no token does
                return TokenSet.none(size)
            self._check()
        end = self._vocabulary.size  # the token that the table of the tokens' bytes has for it
        bits[end >> 3] &= ~(1 << (end & 7))
        return TokenSet(size, np.frombuffer(bits, np.uint8))

    def allows(self, token: int) -> bool:
        """Whether this token may come next."""
        return token < self._vocabulary.size and self._matcher.validate_tokens([token]) == 1

    def accept(self, token: int) -> None:
        """Go on with a token that may come next.  Raises GolemError for another."""
        if token >= self._vocabulary.size or not self._matcher.consume_token(token):
            self._check()
            raise GolemError(f"the grammar does not allow token {token} here")

    def _check(self) -> None:
        if self._matcher.is_error():
            raise BadRequest(f"the grammar can't be followed further: {self._matcher.get_error().splitlines()[0]}")
