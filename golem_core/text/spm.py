"""Scored merges over characters with bytes for what is left: `tokenizer.ggml.model` "llama".

The segmenting is sentencepiece's own BPE.  The file carries the pieces but not sentencepiece's model, so a model is
written here in its wire format (protobuf; sentencepiece_model.proto has the field numbers).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np

from golem_core.errors import BadFile, BadRequest
from golem_core.text.tokenizer import Tokenizer
from golem_core.text.vocabulary import BYTE, Vocabulary

SPACE = "▁"  # U+2581, how these vocabularies write a blank

# Values of SentencePiece.type and TrainerSpec.model_type.
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_BPE = 2


class ScoredMergeTokenizer(Tokenizer):
    """Joins the adjacent pair whose joined text has the highest score, leftmost first, until no pair is a token."""

    def __init__(self, vocabulary: Vocabulary, *, add_bos: bool, add_eos: bool, add_space_prefix: bool):
        super().__init__(vocabulary, add_bos=add_bos, add_eos=add_eos)
        if vocabulary.scores is None:
            raise BadFile("a vocabulary of scored merges needs tokenizer.ggml.scores")
        self.add_space_prefix = add_space_prefix

    @classmethod
    def from_metadata(cls, meta: Mapping[str, Any]) -> ScoredMergeTokenizer:
        return cls(
            Vocabulary.read(meta, {"bos": 1, "eos": 2, "unknown": 0}),
            add_bos=meta.get("tokenizer.ggml.add_bos_token", True),
            add_eos=meta.get("tokenizer.ggml.add_eos_token", False),
            add_space_prefix=meta.get("tokenizer.ggml.add_space_prefix", True),
        )

    def _encode(self, text: str, after_special: bool) -> list[int]:
        if after_special and self.add_space_prefix:
            text = " " + text
        ids = self._segmenter.encode(text)
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

        processor = SentencePieceProcessor()
        processor.LoadFromSerializedProto(sentencepiece_model(self.vocabulary))
        return processor


def sentencepiece_model(vocabulary: Vocabulary) -> bytes:
    """A serialized sentencepiece ModelProto that segments by `vocabulary`, blanks written as U+2581.

    Every token, special ones too, is a normal piece there: which texts are special has been decided before.  One
    unknown piece follows behind the vocabulary.  Without all 256 byte tokens there is no byte fallback.
    """
    texts = vocabulary.texts
    kinds = np.full(len(texts), _NORMAL, np.uint8)
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    byte_ids = [vocabulary.ids[name] for name in names if name in vocabulary.ids]
    fallback = len(byte_ids) == 256 and bool((vocabulary.kinds[byte_ids] == BYTE).all())
    if fallback:
        kinds[byte_ids] = _BYTE
    if len(vocabulary.ids) < len(texts) or "" in vocabulary.ids:
        # Pieces must differ and have a text: an id that no text leads to becomes a control piece, which none does.
        texts = list(texts)
        for id, text in enumerate(vocabulary.texts):
            if vocabulary.ids[text] != id or not text:
                texts[id] = f"<\ue000{id}>"
                kinds[id] = _CONTROL

    # A piece: 1 text, 2 score (float), 3 type.  The part behind the text is 7 bytes long in all of them.
    tails = np.zeros((len(texts), 7), np.uint8)
    tails[:, 0] = 2 << 3 | 5
    tails[:, 1:5] = np.asarray(vocabulary.scores, "<f4")[:, None].view(np.uint8)
    tails[:, 5] = 3 << 3
    tails[:, 6] = kinds
    encoded = [text.encode() for text in texts]
    lengths = list(map(len, encoded))
    heads = {}
    for length in set(lengths):
        head = b"\x0a" + _varint(length)
        heads[length] = b"\x0a" + _varint(len(head) + length + 7) + head
    parts: list[bytes] = [b""] * (3 * len(texts))
    parts[0::3] = map(heads.__getitem__, lengths)
    parts[1::3] = encoded
    parts[2::3] = tails.view("V7").ravel().tolist()

    unknown = "<\ue000>".encode()
    parts.append(_message(1, _message(1, unknown) + b"\x15\0\0\0\0\x18" + bytes([_UNKNOWN])))
    # TrainerSpec: 3 model_type, 35 byte_fallback, 40 unk_id, 41..43 bos, eos and pad ids (none).
    trainer = _number(3, _BPE) + _number(35, fallback) + _number(40, len(texts))
    trainer += b"".join(map(_number, (41, 42, 43), repeat(-1)))
    # NormalizerSpec: 1 name, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces.
    normalizer = _message(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 1)
    parts += [_message(2, trainer), _message(3, normalizer)]
    return b"".join(parts)


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
