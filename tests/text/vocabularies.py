"""Tiny vocabularies in the form of a file's metadata, and segmenting by the plain definition to compare with."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
BYTES = [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)]


def byte_alphabet() -> list[str]:
    """The printable character of every byte, in the order of bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def metadata(model: str, tokens: list[tuple[str, int, float]], **further: Any) -> dict[str, Any]:
    """`tokens`: (text, kind, score) by id.  `further`: other keys under tokenizer.ggml."""
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [text for text, _, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind, _ in tokens],
        "tokenizer.ggml.scores": [score for _, _, score in tokens],
        **{f"tokenizer.ggml.{key}": value for key, value in further.items()},
    }


SCORED_PIECES = ["▁", "a", "b", "c", "ab", "bc", "abc", "ca", "▁a", "▁ab", "aa", "aaa", "bb", "▁▁", "caab"]


def scored(**further: Any) -> dict[str, Any]:
    tokens = [("<unk>", UNKNOWN, 0.0), ("<s>", CONTROL, 0.0), ("</s>", CONTROL, 0.0), *BYTES]
    tokens += [(piece, NORMAL, -float(rank * 7 % 11)) for rank, piece in enumerate(SCORED_PIECES)]
    tokens += [("<turn>", CONTROL, 0.0), ("\n\n", USER_DEFINED, 0.0), ("<tag>", USER_DEFINED, 0.0)]
    tokens += [("filler", UNUSED, -99.0)]
    return metadata("llama", tokens, add_space_prefix=False, **further)


def by_scores(meta: dict[str, Any], text: str) -> list[int]:
    """Scored merges as defined: always the pair of the highest score, the leftmost among equals."""
    ids = {text: id for id, text in enumerate(meta["tokenizer.ggml.tokens"])}
    scores = meta["tokenizer.ggml.scores"]
    symbols = list(text.replace(" ", "▁"))
    while True:
        pairs = [(-scores[ids[a + b]], at) for at, (a, b) in enumerate(pairwise(symbols)) if a + b in ids]
        if not pairs:
            break
        at = min(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    out = []
    for symbol in symbols:
        out += [ids[symbol]] if symbol in ids else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return out


MERGES = ["a b", "b c", "ab c", "Ġ a", "Ġ ab", "a a", "aa a", "1 2", "Ã ©", "Ċ Ċ", "c aab", "aa b", "' s", "l l"]


def byte_level(pre: str = "gpt-2", without: str = "", **further: Any) -> dict[str, Any]:
    """256 bytes (but for the characters in `without`), the merges and a few special tokens."""
    texts = [letter for letter in byte_alphabet() if letter not in without]
    texts += dict.fromkeys(merge.replace(" ", "") for merge in MERGES)
    tokens = [(text, NORMAL, 0.0) for text in texts]
    tokens += [("<|im_start|>", CONTROL, 0.0), ("<|im_end|>", CONTROL, 0.0), ("<tool>", USER_DEFINED, 0.0)]
    return metadata("gpt2", tokens, pre=pre, merges=MERGES, **further)


CHARACTER_MERGES = ["▁ a", "a b", "▁ ab", "a a", "\n \n", "é a", "b ▁", "▁a b"]


def characters(**further: Any) -> dict[str, Any]:
    tokens = [("<pad>", CONTROL, 0.0), ("<eos>", CONTROL, 0.0), ("<bos>", CONTROL, 0.0), *BYTES]
    letters = ["▁", "a", "b", "c", "é", "\n"]
    tokens += [(text, NORMAL, 0.0) for text in [*letters, *(m.replace(" ", "") for m in CHARACTER_MERGES[:-1])]]
    tokens += [("\n\n\n", NORMAL, 0.0), ("<turn|>", CONTROL, 0.0), ("<|channel>", USER_DEFINED, 0.0)]
    return metadata("gemma4", tokens, merges=CHARACTER_MERGES, bos_token_id=2, eos_token_id=1, **further)


def by_ranks(merges: list[str], symbols: list[str]) -> list[str]:
    """Ranked merges as defined: always the pair of the lowest rank, the leftmost among equals."""
    ranks = {tuple(merge.split(" ")): rank for rank, merge in reversed(list(enumerate(merges)))}
    while True:
        pairs = [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not pairs:
            return symbols
        at = min(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
