"""Scored merges over characters with bytes for what is left: `tokenizer.ggml.model` "llama".

The segmenting is sentencepiece's own BPE.  The file carries the pieces but not sentencepiece's model, so a model is
written here in its wire format (protobuf; sentencepiece_model.proto has the field numbers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from golem_core.errors import BadFile, BadRequest
from golem_core.files import Metadata
from golem_core.text.tokenizer import Tokenizer
from golem_core.text.vocabulary import BYTE, Vocabulary, encoded

SPACE = "▁"  # U+2581, how these vocabularies write a blank

LONGEST_TOKEN = 4000  # characters, so that a piece's length takes two bytes in `sentencepiece_model`

# Values of SentencePiece.type and TrainerSpec.model_type.
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_BPE = 2


class ScoredMergeTokenizer(Tokenizer):
    """Joins the adjacent pair whose joined text has the highest score, leftmost first, until no pair is a token."""

    def __init__(self, vocabulary: Vocabulary, *, add_bos: bool, add_eos: bool, add_space_prefix: bool):
        super().__init__(vocabulary, add_bos=add_bos, add_eos=add_eos)
        if vocabulary.scores is None:
            raise BadFile(f"{vocabulary.source}: a vocabulary of scored merges needs tokenizer.ggml.scores")
        self.add_space_prefix = add_space_prefix

    @classmethod
    def from_metadata(cls, meta: Mapping[str, Any]) -> ScoredMergeTokenizer:
        meta = Metadata.of(meta)
        return cls(
            Vocabulary.read(meta, {"bos": 1, "eos": 2, "unknown": 0}),
            add_bos=meta.flag("tokenizer.ggml.add_bos_token", True),
            add_eos=meta.flag("tokenizer.ggml.add_eos_token", False),
            add_space_prefix=meta.flag("tokenizer.ggml.add_space_prefix", True),
        )

    def _encode(self, text: str, after_special: bool, limit: int | None = None) -> list[int]:
        return self._known(self._segmenter.encode(self._prefixed(text, after_special)))

    def _encode_many(self, fragments: Sequence[tuple[str, bool]]) -> Iterable[list[int]]:
        texts = [self._prefixed(*each) for each in fragments]
        return map(self._known, self._segmenter.encode(texts, num_threads=1))  # it starts its threads in each call

    def _prefixed(self, text: str, after_special: bool) -> str:
        return " " + text if after_special and self.add_space_prefix else text

    def _known(self, ids: list[int]) -> list[int]:
        """With the vocabulary's own unknown token.  Raises BadRequest where it has none."""
        outside = self.vocab_size  # the model's own unknown piece, behind the vocabulary
        if outside in ids:
            unknown = self.vocabulary.unknown
            if unknown is None:
                raise BadRequest("the text has characters for which the vocabulary has no token")
            ids = [unknown if id == outside else id for id in ids]
        return ids

    def _bytes(self, text: str) -> bytes:
        return text.replace(SPACE, " ").encode()

    def _build(self) -> Any:
        from sentencepiece import SentencePieceProcessor

        longest = max(self.vocabulary.texts, key=len)
        if len(longest) > LONGEST_TOKEN:
            raise BadFile(
                f"{self.vocabulary.source}: a token has {len(longest)} characters, {LONGEST_TOKEN} at most fit"
            )
        processor = SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(sentencepiece_model(self.vocabulary))
        except RuntimeError:  # a text that occurs twice, or an empty one
            try:
                processor.LoadFromSerializedProto(sentencepiece_model(self.vocabulary, distinct=False))
            except RuntimeError as error:
                words = " ".join(str(error).split())
                raise BadFile(f"{self.vocabulary.source}: the vocabulary can't be used: {words}") from error
        return processor


def sentencepiece_model(vocabulary: Vocabulary, *, distinct: bool = True) -> bytes:
    """A serialized sentencepiece ModelProto that segments by `vocabulary`, blanks written as U+2581.

    Every token, special ones too, is a normal piece there: which texts are special has been decided before.  One
    unknown piece follows behind the vocabulary.  Without all 256 byte tokens there is no byte fallback.
    `distinct`: the caller takes it that all texts differ and none is empty.
    """
    texts = vocabulary.texts
    kinds = np.full(len(texts), _NORMAL, np.uint8)
    byte_ids = np.flatnonzero(vocabulary.kinds == BYTE)
    fallback = {texts[id] for id in byte_ids.tolist()} == {f"<0x{byte:02X}>" for byte in range(256)}
    if fallback:
        kinds[byte_ids] = _BYTE
    if not distinct:  # an id that no text leads to becomes a control piece: no text leads to those either
        texts = list(texts)
        for id, text in enumerate(vocabulary.texts):
            if vocabulary.ids[text] != id or not text:
                texts[id] = f"<\ue000{id}>"
                kinds[id] = _CONTROL

    assert vocabulary.scores is not None
    unknown = _message(1, "<\ue000>".encode()) + b"\x15\0\0\0\0\x18" + bytes([_UNKNOWN])
    # TrainerSpec: 3 model_type, 35 byte_fallback, 40 unk_id, 41..43 bos, eos and pad ids (none).
    trainer = _number(3, _BPE) + _number(35, fallback) + _number(40, len(texts))
    trainer += b"".join(map(_number, (41, 42, 43), repeat(-1)))
    # NormalizerSpec: 1 name, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces.
    normalizer = _message(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 1)
    return b"".join(
        [_pieces(texts, vocabulary.scores, kinds), _message(1, unknown), _message(2, trainer), _message(3, normalizer)]
    )


def _pieces(texts: Sequence[str], scores: np.ndarray, kinds: np.ndarray) -> bytes:
    """ModelProto's pieces: 1 text, 2 score (float), 3 type.

    All at once, since there are hundreds of thousands: lengths always take two bytes, so that a record is a head of 6
    bytes, the text, and a tail of 7.
    """
    data, lengths = encoded(texts)
    heads = np.empty((len(texts), 6), np.uint8)
    for at, length in ((0, lengths + 3 + 7), (3, lengths)):
        heads[:, at] = 1 << 3 | 2
        heads[:, at + 1] = length & 127 | 128
        heads[:, at + 2] = length >> 7
    tails = np.empty((len(texts), 7), np.uint8)
    tails[:, 0] = 2 << 3 | 5
    tails[:, 1:5] = scores.astype("<f4")[:, None].view(np.uint8)
    tails[:, 5] = 3 << 3
    tails[:, 6] = kinds

    stops = np.cumsum(lengths + 6 + 7)
    out = np.empty(stops[-1], np.uint8)
    is_text = np.ones(stops[-1], bool)
    for first, part in ((stops - 7 - lengths - 6, heads), (stops - 7, tails)):
        places = first[:, None] + np.arange(part.shape[1])
        out[places] = part
        is_text[places] = False
    out[is_text] = data
    return out.tobytes()


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body
