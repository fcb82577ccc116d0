"""Characters out of tokens: tokens are bytes, and a character may span several of them; and surrogates, which no text
has."""

from __future__ import annotations

import codecs
import re

SURROGATE = re.compile("[\ud800-\udfff]")
LONE = "\ud800"
"""What may be put into the text of a special token to keep it from being one."""

_decoder = codecs.getincrementaldecoder("utf-8")


class Utf8Assembler:
    """Turns a stream of bytes into text, complete characters only.

    An incomplete sequence at the end of what has been pushed is held back (at most 3 bytes).  Bytes that can't become
    a character are replaced by U+FFFD, one for each maximal subpart (Unicode, chapter 3.9).
    """

    def __init__(self) -> None:
        self._decoder = _decoder("replace")

    def push(self, data: bytes) -> str:
        """The text that `data` completes."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """End the stream: an incomplete character is dropped, so the answer is always ""."""
        self._decoder.reset()
        return ""
