"""A prompt's tokens: the template around it, ComfyUI's brackets, and Qwen2's byte-level merges.

The tokenizer's folder holds `vocab.json`, `merges.txt` and `tokenizer_config.json`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from golem_core import BadFile, BadRequest, read_json

LIMIT = 1024
"""Most tokens of a prompt with its template."""
DEEPEST = 100
"""Brackets within brackets."""
MOST_BRACKETS = 4 * LIMIT
"""That are looked at: every pair makes a piece, which is a token or more unless it is empty."""
WHOLE = -1
"""The depth of what is not cut any further."""
TEMPLATE = (
    "<|im_start|>system\n"
    "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the "
    "objects and background:<|im_end|>\n"
    "<|im_start|>user\n"
    "{}<|im_end|>\n"
    "<|im_start|>assistant\n"
)
START = "<|im_start|>"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MAX_MERGES_BYTES = 64_000_000
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "�")


class Tokens:
    """The tokenizer in a folder.  Raises BadFile naming the file and what is wrong with it."""

    def __init__(self, directory: Path):
        from tokenizers import AddedToken, Regex, Tokenizer
        from tokenizers.models import BPE
        from tokenizers.normalizers import NFC
        from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

        if not os.path.isdir(directory):
            raise BadFile(f"{directory}: a folder with vocab.json, merges.txt and tokenizer_config.json was expected")
        vocabulary = _vocabulary(directory / "vocab.json")
        merges = _merges(directory / "merges.txt")
        try:
            model = BPE(vocabulary, merges)
        except Exception as error:  # the library raises nothing narrower
            words = " ".join(str(error).split())
            raise BadFile(f"{directory / 'merges.txt'}: the merges don't go with vocab.json: {words}") from None
        self._tokenizer = Tokenizer(model)
        self._tokenizer.normalizer = NFC()
        self._tokenizer.pre_tokenizer = Sequence(
            [Split(Regex(PATTERN), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        config = directory / "tokenizer_config.json"
        for token, text in sorted(_added(config).items()):
            self._tokenizer.add_tokens([AddedToken(text, normalized=False)])
            if self._tokenizer.token_to_id(text) != token:
                raise BadFile(f"{config}: {text!r} is the token {token}, which is not the next behind vocab.json's")
        if self._tokenizer.token_to_id(START) is None:
            raise BadFile(f"{config}: there is no token {START!r}")
        self._start = self._tokenizer.token_to_id(START)
        self._user = self.encode("user\n")

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """The ids of a text by itself; added tokens count wherever they are typed, a lone surrogate as U+FFFD."""
        return self._tokenizer.encode(text.translate(_SURROGATES), add_special_tokens=False).ids

    def prompt(self, prompt: str, *, brackets: bool = True, field: str = "prompt") -> tuple[list[int], int]:
        """The ids of a prompt within its template, and how many stand before the conditioning.

        `brackets`: the whole text is cut as `pieces` does, and each piece gives its ids by itself; otherwise only `\\(`
        and `\\)` lose their backslashes.  Raises BadRequest naming `field` for brackets
        too deep or too many.
        """
        text = TEMPLATE.replace("{}", prompt, 1)
        cut = pieces(text, field) if brackets else [text.replace("\\(", "(").replace("\\)", ")")]
        ids = [id for piece in cut for id in self.encode(piece)]
        second = [i for i, id in enumerate(ids) if id == self._start][1]
        start = second + 1 + len(self._user) if ids[second + 1 :][: len(self._user)] == self._user else second
        return ids, start


def pieces(text: str, field: str = "prompt") -> list[str]:
    """The stretches that ComfyUI's weight syntax cuts a text into, without their brackets and weights.

    Outermost brackets are cut out and looked into again; `\\(` and `\\)` are brackets that cut nothing.  What a weight
    says does not matter to this encoder.  (ComfyUI's `sd1_clip.py`, `token_weights`.)
    """
    found: list[str] = []
    text = text.replace("\\)", "\0\1").replace("\\(", "\0\2")
    if (count := text.count("(") + text.count(")")) > MOST_BRACKETS:
        raise BadRequest(f"{field}: {count} brackets, at most {MOST_BRACKETS}", param=field)
    waiting = [(text, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth == WHOLE:
            found.append(part)
            continue
        if depth > DEEPEST:
            raise BadRequest(f"{field}: more than {DEEPEST} brackets within brackets", param=field)
        cut = []
        for each in _outermost(part):
            bracketed = len(each) >= 2 and each[0] == "(" and each[-1] == ")"
            cut.append((_unweighted(each[1:-1]), depth + 1) if bracketed else (each, WHOLE))
        waiting += reversed(cut)
    return [each.replace("\0\1", ")").replace("\0\2", "(") for each in found if each]


def _outermost(text: str) -> list[str]:
    """Brackets at depth 0 and what stands between them; behind a stray closing one nothing is cut until an opening one
    makes up for it."""
    found, depth, start = [], 0, 0
    for bracket in re.finditer(r"[()]", text):
        i = bracket.start()
        if bracket[0] == "(":
            if depth == 0 and i > start:
                found.append(text[start:i])
                start = i
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                found.append(text[start : i + 1])
                start = i + 1
    return [*found, text[start:]] if start < len(text) else found


def _unweighted(text: str) -> str:
    at = text.rfind(":")
    if at > 0:
        with suppress(ValueError):
            float(text[at + 1 :])
            return text[:at]
    return text


# ---------------------------------------------------------------- files


def _vocabulary(path: Path) -> dict[str, int]:
    from tokenizers.pre_tokenizers import ByteLevel

    ids = dict(read_json(path))
    if not ids or not all(type(id) is int and 0 <= id < 1 << 31 for id in ids.values()):
        raise BadFile(f"{path}: an object of texts and their ids was expected")
    if len(set(ids.values())) != len(ids) or max(ids.values()) != len(ids) - 1:
        raise BadFile(f"{path}: the ids are not those from 0 to {len(ids) - 1}, each once")
    if missing := sorted(set(ByteLevel.alphabet()) - ids.keys()):
        raise BadFile(f"{path}: there is no token {missing[0]!r}; every byte needs one")
    return ids


def _merges(path: Path) -> list[tuple[str, str]]:
    try:
        if path.stat().st_size > MAX_MERGES_BYTES:
            raise BadFile(f"{path}: larger than {MAX_MERGES_BYTES} bytes")
        lines = path.read_text("utf-8").split("\n")
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: not UTF-8: {error.reason}") from None
    if lines[0].startswith("#version"):
        lines = lines[1:]
    merges = []
    for line in lines:
        line = line.removesuffix("\r")
        if not line:
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise BadFile(f"{path}: {line!r} is no pair of tokens")
        merges.append((left, right))
    if not merges:
        raise BadFile(f"{path}: there are no merges in it")
    return merges


def _added(path: Path) -> dict[int, str]:
    config = read_json(path)
    table = config.required("added_tokens_decoder")
    if not isinstance(table, dict):
        raise config.bad("added_tokens_decoder", table, "an object of tokens was expected")
    found = {}
    for key in table:
        if not re.fullmatch(r"0|[1-9][0-9]{0,8}", key):
            raise config.bad("added_tokens_decoder", key, "whole numbers were expected as its keys")
        entry = table[key]
        text = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(text, str) or not text:
            raise config.bad(f"added_tokens_decoder.{key}", entry, "an object with a text as `content` was expected")
        found[int(key)] = text
    return found
