"""A multipart form with a file in it, read as it arrives: small files stay in memory, large ones go to the disk."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import IO

from litestar.exceptions import HTTPException
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from golem_core import BadRequest

MOST = 4 << 30
"""Bytes that a body may have."""
IN_MEMORY = 16 << 20
"""Bytes of a file that are kept in memory."""
MOST_TEXT = 1 << 20
"""Bytes that all fields but the file may have."""
MOST_PARTS = 1000


@dataclass
class Form:
    """The texts of every field, in their order, and the part called `file`, to be closed by whoever has it."""

    fields: dict[str, list[str]] = field(default_factory=dict)
    file: IO[bytes] | None = None

    def text(self, name: str, default: str = "") -> str:
        """The last text of a field, without blanks around it; `default` where it is absent or empty."""
        return self.fields.get(name, [""])[-1].strip() or default

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


async def read_form(content_type: str, body: AsyncIterator[bytes]) -> Form:
    """Raises BadRequest for what is no form, or one whose fields are too large; a larger body than may be is a 413."""
    kind, options = parse_options_header(content_type)
    boundary = options.get("boundary")
    if kind.lower() != "multipart/form-data" or not boundary:
        raise BadRequest("the body is not multipart/form-data with a boundary; send the sound as the part 'file'")
    form = Form()
    try:
        with PushMultipartParser(boundary, max_segment_count=MOST_PARTS) as parser:
            reader, left = _Reader(form), MOST
            async for chunk in body:
                left -= len(chunk)
                if left < 0:
                    raise HTTPException(f"the request's body is larger than {MOST} bytes", status_code=413)
                for event in parser.parse(chunk) if chunk and not parser.closed else ():
                    reader.take(event)
        if reader.problem is not None:
            raise reader.problem
    except MultipartError as error:
        form.close()
        raise BadRequest(f"the body is not a readable form: {error.args[0] if error.args else error}") from None
    except BaseException:
        form.close()
        raise
    return form


class _Reader:
    """Puts the parser's events together."""

    def __init__(self, form: Form):
        self.form, self.room = form, MOST_TEXT
        self.name, self.text, self.is_file, self.skips = "", bytearray(), False, False
        self.problem: BadRequest | None = None
        """Told of when the body has been read: a client that still sends would not see the answer."""

    def take(self, event: MultipartSegment | bytes | bytearray | None) -> None:
        if isinstance(event, MultipartSegment):
            self.name, self.text = event.name or "", bytearray()
            self.is_file = self.name == "file"
            self.skips = not self.is_file and event.filename is not None  # a file by another name
            if self.is_file and self.form.file is not None:
                self.problem = self.problem or BadRequest("file: the form has two of them", param="file")
            elif self.is_file:
                self.form.file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - the form's owner closes it
        elif event:
            if self.is_file:
                assert self.form.file is not None
                self.form.file.write(event)
                return
            self.room -= 0 if self.skips else len(event)
            if self.skips or self.problem is not None:
                pass
            elif self.room >= 0:
                self.text += event
            else:
                self.problem = BadRequest(
                    f"{self.name}: the form's fields have more than {MOST_TEXT} bytes", param=self.name
                )
        elif not (self.is_file or self.skips or self.problem):
            try:
                self.form.fields.setdefault(self.name, []).append(self.text.decode())
            except UnicodeDecodeError:
                self.problem = BadRequest(f"{self.name}: it is not text in UTF-8", param=self.name)
