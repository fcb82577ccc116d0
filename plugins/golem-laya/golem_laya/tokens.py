"""The checkpoint's tokenizer, and the three marks that sequences are built with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golem_core import BadFile, Metadata, read_json

MOST_BYTES = 256_000_000
"""Of tokenizer.json; those of 256,000 tokens, with a merge on four lines, have more than 30 million."""
LONG = 4096
"""Characters from which on a text is given to the library as a batch, which lets other threads run."""
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "�")


class Tokens:
    """`encode` gives the ids of a text by itself; `start`, `end` and `mark` are the ids around texts.

    Texts of added tokens count as these tokens wherever they are typed, but for the mark's: it becomes a space, so that
    nobody can add an option.  A lone surrogate is read as U+FFFD.
    """

    def __init__(self, directory: Path):
        """Raises BadFile naming the file and what is wrong with it."""
        from tokenizers import Tokenizer

        path = directory / "tokenizer.json"
        data = _read(path)
        try:
            self._tokenizer = Tokenizer.from_buffer(data)
        except BaseException as error:  # the library's panics are no Exceptions
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise BadFile(f"{path}: not a tokenizer: {' '.join(str(error).split())}") from None
        before = self._tokenizer.pre_tokenizer
        kind = None if before is None else type(before).__name__
        if kind not in ("ByteLevel", "Metaspace"):
            raise BadFile(f"{path}: pre_tokenizer.type is {kind!r}; 'ByteLevel' or 'Metaspace' was expected")
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        names = read_json(directory / "tokenizer_config.json")
        self.start = self._id(path, _named(names, "cls_token"))
        self.end = self._id(path, _named(names, "sep_token"))
        self._mark_text = _named(names, "mask_token")
        self.mark = self._id(path, self._mark_text)

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without marks around it."""
        text = text.replace(self._mark_text, " ").translate(_SURROGATES)
        if len(text) < LONG:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        (found,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return found.ids

    def first(self, text: str, count: int) -> list[int]:
        """The first `count` ids of a text, or all if it has fewer, without reading a long text to its end."""
        size = 16 * count
        while size < len(text):
            cut = text.rfind(" ", size // 2, size)  # a word that is cut could become other tokens
            ids = self.encode(text[: cut if cut > 0 else size])
            if len(ids) > count + count // 4:
                return ids[:count]
            size *= 4
        return self.encode(text)[:count]

    def _id(self, path: Path, text: str) -> int:
        found = self._tokenizer.token_to_id(text)
        if found is None:
            raise BadFile(f"{path}: there is no token {text!r}, which tokenizer_config.json names")
        return found


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadFile(f"{path}: larger than {MOST_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror or error}") from error


def _named(names: Metadata, key: str) -> str:
    """The text of a token in tokenizer_config.json, which may be wrapped into an object."""
    value: Any = names.required(key)
    if isinstance(value, dict):
        return names.scoped(key).text("content")
    return names.text(key)
