"""How byte-level vocabularies cut text into words before merging, by the name in `tokenizer.ggml.pre`.

A splitter is a row of patterns, each applied to what the one before left; matches and what lies between them are the
words.  The patterns are those of the vocabularies' own publications, in Oniguruma's syntax.
"""

from __future__ import annotations

from dataclasses import dataclass

from golem_core.errors import Unsupported


@dataclass(frozen=True)
class Splitter:
    """`patterns`: applied in order. `whole_words`: a word that is a token is taken as it is, without merging.
    `add_bos`: whether a BOS goes in front where the file doesn't say."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


_CONTRACTION = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(digits: str, letters: str = r"\p{L}") -> str:
    """Contractions, words with one sign in front, numbers, runs of signs with their newlines, blanks."""
    return rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{digits}| ?[^\s{letters}\p{{N}}]+[\r\n]*|{_BLANKS}"


def _cased_words(contraction: str, digits: str) -> str:
    """Words that also end before a capital letter, each with one sign in front."""
    upper, lower = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
    sign = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{sign}[{upper}]*[{lower}]+{contraction}|{sign}[{upper}]+[{lower}]*{contraction}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"


_FIRST = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_PLAIN = Splitter((_FIRST,))
_SINGLE_DIGITS_FIRST = Splitter((r"\p{N}", _FIRST))
_THREE_DIGITS = Splitter((_words(r"\p{N}{1,3}"),))
_ONE_DIGIT = Splitter((_words(r"\p{N}"),))

SPLITTERS: dict[str, Splitter] = {
    "default": Splitter((r"[\p{P}\$\+<=>\^~\|]+", _FIRST, r"\p{N}+", "[0-9][0-9][0-9]")),
    "falcon": Splitter((r"[\p{P}\$\+<=>\^~\|`]+", _FIRST, "[0-9][0-9][0-9]")),
    "deepseek-coder": Splitter((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    "deepseek-v3": Splitter(
        (
            r"\p{N}{1,3}",
            "[一-龥\u3040-ゟ゠-ヿ]+",
            r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _BLANKS,
        )
    ),
    "tekken": Splitter((_cased_words("", r"\p{N}"),), whole_words=True, add_bos=True),
    "qwen35": Splitter((_words(r"\p{N}", r"\p{L}\p{M}"),)),
    "qwen3.8": Splitter((_words(r"\p{N}", r"\p{L}\p{M}"),)),
    **dict.fromkeys(
        ("gpt-2", "mpt", "olmo", "jais", "phi-2", "exaone4", "trillion", "granite-docling", "modern-bert"), _PLAIN
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _SINGLE_DIGITS_FIRST
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2"), _ONE_DIGIT),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _THREE_DIGITS),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2"),
        Splitter(_THREE_DIGITS.patterns, whole_words=True, add_bos=True),
    ),
    **dict.fromkeys(("gpt-4o", "llama4"), Splitter((_cased_words(f"(?:{_CONTRACTION})?", r"\p{N}{1,3}"),))),
    **dict.fromkeys(("glm4", "glm5"), Splitter(_THREE_DIGITS.patterns, whole_words=True)),
}


def splitter(name: str) -> Splitter:
    """The splitter of a `tokenizer.ggml.pre`; Unsupported names it if it is not known here."""
    if name not in SPLITTERS:
        raise Unsupported(f"tokenizer.ggml.pre {name!r}: this pre-tokenizer is not known here")
    return SPLITTERS[name]
