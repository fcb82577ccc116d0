"""From a conversation's pictures and recordings and the tokens of its text to a prompt with rows in it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from golem_core.engine.media import Span, row_numbers
from golem_core.errors import BadRequest
from golem_core.media.sources import NAMES, Files, Kind, Medium

if TYPE_CHECKING:
    from golem_core.engine.roles import Media, MediaKind
    from golem_core.media.encoder import Encoded, MediaEncoder

MOST_MEDIA = 64
"""Pictures and recordings of one conversation."""


class MediaReader:
    """Takes the media of requests.  `files` are those that requests may name, None: none."""

    def __init__(self, encoder: MediaEncoder, files: Files | None = None):
        self.encoder, self.files = encoder, files
        self._one_at_a_time = threading.Lock()

    @property
    def media(self) -> Media:
        return self.encoder.media

    def place(
        self, tokens: Sequence[int], given: Sequence[Medium], check_room: Callable[[int], None]
    ) -> tuple[list[int], tuple[Span, ...]]:
        """The prompt for `tokens`, in which every placeholder stands for one of what is `given`, in order.

        `check_room(count)` raises if there is no room for so many positions; it is asked before each is encoded.
        Raises BadRequest for what cannot be decoded, and where placeholders and media are not as many.
        """
        if len(given) > MOST_MEDIA:
            raise BadRequest(
                f"messages: {len(given)} pictures and recordings; {MOST_MEDIA} at most are taken", param="messages"
            )
        self._check_counts(tokens, given)
        kinds = {kind.placeholder: kind for kind in self.media.kinds}
        waiting = {kind.name: [medium for medium in given if medium.kind == kind.name] for kind in kinds.values()}
        prompt: list[int] = []
        spans: list[Span] = []
        for at, token in enumerate(tokens):
            if token not in kinds:
                prompt.append(token)
                continue
            kind = kinds[token]
            medium = waiting[kind.name].pop(0)
            prompt += kind.begin
            others = len(prompt) + len(kind.end) + len(tokens) - at - 1
            made = self._encoded(kind, medium, lambda count, others=others: check_room(others + count))
            spans.append(Span(len(prompt), made.rows, kind.together, made.places))
            prompt += row_numbers(kind.name.encode() + medium.data, len(made.rows))
            prompt += kind.end
        check_room(len(prompt))
        return prompt, tuple(spans)

    def _encoded(self, kind: MediaKind, medium: Medium, check_room: Callable[[int], None]) -> Encoded:
        """What a file becomes.  One is decoded at a time, because that may take hundreds of megabytes."""
        digest = hashlib.sha256(medium.data).digest()
        with self._one_at_a_time:
            made = self.encoder.kept(kind, digest)
            if made is not None:
                check_room(len(made.rows))
                return made
            try:
                decoded = _array(kind, medium.data)
                check_room(kind.count(decoded))
            except BadRequest as refusal:
                if refusal.code is not None:
                    raise
                raise BadRequest(f"{medium.where}: {refusal}", param="messages") from refusal
            return self.encoder.encoded(kind, digest, decoded)

    def _check_counts(self, tokens: Sequence[int], given: Sequence[Medium]) -> None:
        for kind in self.media.kinds:
            places = sum(token == kind.placeholder for token in tokens)
            count = sum(medium.kind == kind.name for medium in given)
            if places != count:
                sent = f"{count} {NAMES[kind.name][0]}{'s were' if count != 1 else ' was'} sent"
                found = f"{places} place{'s' * (places != 1)} for {'them' if count > 1 else 'one'}"
                raise BadRequest(f"messages: {sent}, and the chat template has written {found}", param="messages")


def _array(kind: MediaKind, data: bytes) -> np.ndarray:
    if kind.name == "image":
        from golem_core.media.pictures import decode_picture

        return decode_picture(data)
    from golem_core.media.recordings import decode_recording

    return decode_recording(data, kind.rate)


def known(media: Media | None, name: Kind, where: str) -> MediaKind:
    """How a kind of media is taken.  Raises BadRequest saying which sense is missing."""
    kind = None if media is None else media.kind(name)
    if kind is not None:
        return kind
    sense = NAMES[name][1]
    why = "there is no projector beside it (-mmproj)" if media is None else f"its projector (-mmproj) cannot {sense}"
    raise BadRequest(f"{where}: the model cannot {sense}; {why}", param="messages")
