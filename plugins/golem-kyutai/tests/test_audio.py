"""Files of every kind become the same samples; what is none is refused by name."""

from __future__ import annotations

import io
import struct
import tracemalloc

import numpy as np
import pytest
import soundfile
from golem_kyutai.audio import BadSound, Resampler, open_sound, resampled
from hypothesis import given, settings
from hypothesis import strategies as st

RATE = 16_000


def voice(n: int = RATE, rate: int = RATE) -> np.ndarray:
    """Something like a vowel, float64 between -0.8 and 0.8."""
    t = np.arange(n) / rate
    return 0.4 * np.sin(2 * np.pi * 220 * t) + 0.25 * np.sin(2 * np.pi * 660 * t + 1) * np.sin(2 * np.pi * 3 * t)


def wav(samples: bytes, *, kind=1, channels=1, rate=RATE, bits=16, extra=b"", size=None, before=b"") -> bytes:
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits) + extra
    body = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form + before
    body += b"data" + struct.pack("<I", len(samples) if size is None else size) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def read(data: bytes) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.float32), *open_sound(io.BytesIO(data)).pieces])


def encoded(samples: np.ndarray, form: str, subtype: str | None = None, rate: int = RATE) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=form, subtype=subtype)
    return out.getvalue()


X = voice()
WHOLE = {
    8: (np.round(X * 128) + 128).astype(np.uint8).tobytes(),
    16: np.round(X * 32768).astype("<i2").tobytes(),
    24: b"".join(int(v).to_bytes(3, "little", signed=True) for v in np.round(X[:4000] * (1 << 23))),
    32: np.round(X * (1 << 31)).astype("<i4").tobytes(),
}


@pytest.mark.parametrize(("bits", "tolerance"), [(8, 4e-3), (16, 2e-5), (24, 1e-7), (32, 1e-7)])
def test_whole_numbers_of_every_size(bits, tolerance):
    found = read(wav(WHOLE[bits], bits=bits))
    assert np.abs(found - X[: len(found)]).max() <= tolerance and len(found) == len(WHOLE[bits]) * 8 // bits


def test_24_bits_in_words_of_32():
    data = bytearray(wav(WHOLE[32], bits=32))
    data[data.index(b"fmt ") + 22] = 24
    assert np.abs(read(bytes(data)) - X).max() < 1e-6


def test_floats_and_the_extensible_form():
    guid = struct.pack("<HHI", 22, 32, 4) + struct.pack("<H", 3) + bytes(14)
    for data in (
        wav(X.astype("<f4").tobytes(), kind=3, bits=32),
        wav(X.astype("<f8").tobytes(), kind=3, bits=64),
        wav(X.astype("<f4").tobytes(), kind=0xFFFE, bits=32, extra=guid),
    ):
        assert np.array_equal(read(data), X.astype(np.float32))


def test_other_chunks_and_sizes_that_nobody_knew():
    odd = b"LIST" + struct.pack("<I", 5) + b"abcde\0" + b"junk" + struct.pack("<I", 0)
    want = read(wav(WHOLE[16]))
    for size in (0, 0xFFFFFFFF, len(WHOLE[16]) + 1000, None):
        assert np.array_equal(read(wav(WHOLE[16], before=odd, size=size)), want)
    assert np.array_equal(read(wav(WHOLE[16] + b"x", size=0)), want)
    assert len(read(wav(WHOLE[16], size=101))) == 50


def test_channels_are_mixed():
    both = np.stack([X, -0.5 * X], 1)
    found = read(wav(both.astype("<f4").tobytes(), kind=3, bits=32, channels=2))
    assert np.abs(found - 0.25 * X).max() < 1e-6


@pytest.mark.parametrize(
    ("form", "subtype", "tolerance"),
    [
        ("WAV", "PCM_16", 4e-5),
        ("WAV", "PCM_24", 1e-6),
        ("FLAC", "PCM_16", 4e-5),
        ("FLAC", "PCM_24", 1e-6),
        ("OGG", "VORBIS", 0.08),
        ("OGG", "OPUS", 0.08),
        ("MP3", None, 0.08),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_every_container_holds_the_same_sound(form, subtype, tolerance, channels):
    samples = X if channels == 1 else np.stack([X, X], 1)
    data = encoded(samples, form, subtype)
    sound = open_sound(io.BytesIO(data))
    found = np.concatenate(list(resampled(sound.pieces, sound.rate, RATE)))
    shifts = range(-1200, 1201) if form == "MP3" else (0,)  # the encoder's delay
    middle = slice(4000, 12_000)
    errors = {s: np.abs(np.roll(found, s)[middle] - X[middle]).max() for s in shifts}
    assert min(errors.values()) < tolerance


def test_a_tag_before_an_mp3_is_skipped():
    plain = encoded(X, "MP3")
    tag = b"ID3\x03\0\0" + bytes([0, 0, 1, 0]) + bytes(128)
    assert np.abs(read(tag + plain)[4000:8000]).max() > 0.1


# ---------------------------------------------------------------- rates


def impulse(at: int, n: int, source: int, target: int) -> np.ndarray:
    x = np.zeros(n, np.float32)
    x[at] = 1
    return np.concatenate(list(resampled([x], source, target)))


def test_golden_impulses():
    up = [0, 0.736263, 0.908638, 0, -0.146888, 0.118294, 0, -0.052664, 0.069350]
    assert np.abs(impulse(1, 6, 16_000, 24_000) - up).max() < 1e-6
    down = [-0.139319, 0.291046, 0.341164, -0.093989]
    assert np.abs(impulse(3, 8, 48_000, 24_000) - down).max() < 1e-6


def by_definition(x: np.ndarray, source: int, target: int) -> np.ndarray:
    ratio = target / source
    c = min(1.0, ratio)
    half, out = 16 / c, []
    for i in range(int(np.floor(len(x) * ratio + 0.5))):
        m = i / ratio
        j = np.arange(max(0, int(np.ceil(m - half))), min(len(x) - 1, int(np.floor(m + half))) + 1)
        u = (j - m) / half
        t = np.pi * (u + 1)
        w = np.sinc(c * (m - j)) * np.where(np.abs(u) < 1, 0.42 - 0.5 * np.cos(t) + 0.08 * np.cos(2 * t), 0)
        out.append((x[j] * w).sum() / w.sum())
    return np.array(out)


@pytest.mark.parametrize(
    "source", [8000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 44_056, 1000, 192_000]
)
@pytest.mark.parametrize("n", [1, 40, 1500])
def test_results_are_the_definitions(source, n):
    x = np.random.default_rng(n).uniform(-1, 1, n).astype(np.float32)
    found, want = np.concatenate(list(resampled([x], source, 24_000))), by_definition(x, source, 24_000)
    assert len(found) == len(want) and (not len(want) or np.abs(found - want).max() < 5e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 700), max_size=8), st.sampled_from([8000, 16_000, 44_100, 48_000, 23_999]))
def test_pieces_of_any_size_give_the_same(sizes, source):
    x = np.random.default_rng(1).uniform(-1, 1, sum(sizes)).astype(np.float32)
    whole = np.concatenate(list(resampled([x], source, 24_000)))
    resampler, at, pieces = Resampler(source, 24_000), 0, []
    for size in sizes:
        pieces.append(resampler(x[at : at + size]))
        at += size
    assert np.array_equal(np.concatenate([*pieces, resampler.end()]), whole)


def test_a_tone_keeps_its_shape():
    for source in (16_000, 44_100, 48_000):
        x = voice(source, source).astype(np.float32)
        found = np.concatenate(list(resampled([x], source, 24_000)))
        assert np.abs(found - voice(24_000, 24_000))[1000:-1000].max() < 3e-5
    high = np.sin(2 * np.pi * 14_000 * np.arange(48_000) / 48_000).astype(np.float32)
    assert np.abs(np.concatenate(list(resampled([high], 48_000, 24_000)))[1000:-1000]).max() < 4e-4


def test_rates_with_nothing_in_common_take_little_more_than_their_weights():
    tracemalloc.start()
    weights = Resampler(191_999, 24_000)._weights
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(weights) == 24_000 and peak < weights.nbytes + 32e6


class Endless(io.RawIOBase):
    """A WAV file of hours that lies nowhere."""

    def __init__(self, seconds: int, rate: int):
        self.head, self.at = wav(b"", size=0xFFFFFFFF, rate=rate), 0
        self.size = len(self.head) + 2 * rate * seconds

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def read(self, size: int = -1) -> bytes:
        data = (self.head[self.at : self.at + size] + bytes(size))[: max(0, min(size, self.size - self.at))]
        self.at += len(data)
        return data


def test_hours_take_no_more_memory_than_minutes():
    def peak(seconds: int) -> tuple[int, int]:
        tracemalloc.start()
        sound = open_sound(Endless(seconds, 48_000))  # type: ignore[arg-type]
        total = sum(map(len, resampled(sound.pieces, 48_000, 8000)))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return total, used

    short, least = peak(10)
    long, most = peak(180)
    assert (short, long) == (80_000, 1_440_000) and most < 1.2 * least < 20e6


# ---------------------------------------------------------------- what is no sound


def hostile() -> list[tuple[str, bytes]]:
    """A hundred files that no player would take."""
    flac, ogg, mp3 = encoded(X, "FLAC"), encoded(X, "OGG", "VORBIS"), encoded(X, "MP3")
    cases = [
        ("empty", b""), ("one byte", b"R"), ("text", b"hello, this is no sound at all"), ("zip", b"PK\3\4" + bytes(99)),
        ("png", b"\x89PNG\r\n\x1a\n" + bytes(50)), ("mp4", b"\0\0\0\x20ftypisom" + bytes(40)), ("zeros", bytes(4096)),
        ("avi", b"RIFF\0\0\0\0AVI " + bytes(99)), ("riff alone", b"RIFF\0\0\0\0WAVE"), ("aiff", b"FORM\0\0\0\0AIFF"),
        ("no data", wav(b"")[:-8]), ("data first", b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd"),
        ("rifx", b"RIFX" + wav(b"")[4:]),
        ("short fmt", b"RIFF\0\0\0\0WAVEfmt \4\0\0\0\1\0\1\0"), ("cut fmt", wav(b"")[:30]),
        ("extensible cut", wav(b"ab", kind=0xFFFE)), ("junk chunks", b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 2000),
        ("nan", wav(np.full(9, np.nan, "<f4").tobytes(), kind=3, bits=32)),
        ("inf", wav(np.full(9, np.inf, "<f4").tobytes(), kind=3, bits=32)),
        ("huge double", wav(np.full(9, 1e300, "<f8").tobytes(), kind=3, bits=64)),
        ("flac head", flac[:4]), ("flac without a stream", b"fLaC" + bytes(60)), ("flac cut", flac[:30]),
        ("ogg head", ogg[:4]), ("ogg page", ogg[:40]), ("ogg zeros", b"OggS" + bytes(500)),
        ("mp3 head", mp3[:2]), ("mp3 sync", b"\xff\xfb"), ("id3 alone", b"ID3\x04\0\0\0\0\0\0"), ("ff", b"\xff" * 900),
        ("id3 endless", b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + bytes(90)), ("aac", b"\xff\xf1\x50\x80\2\x1f\xfc" + bytes(60)),
    ]  # fmt: skip
    cases += [(f"bits {bits}", wav(bytes(60), bits=bits)) for bits in (0, 1, 4, 7, 12, 20, 40, 64, 65535)]
    cases += [(f"float {bits}", wav(bytes(60), kind=3, bits=bits)) for bits in (8, 16, 24, 80)]
    cases += [(f"kind {kind}", wav(bytes(60), kind=kind)) for kind in (0, 2, 6, 7, 17, 49, 80, 85, 255, 65535)]
    cases += [(f"rate {rate}", wav(bytes(60), rate=rate)) for rate in (0, 1, 999, 768_001, 0xFFFFFFF)]
    cases += [(f"channels {n}", wav(bytes(60), channels=n, bits=8)) for n in (0, 65, 1000, 60_000)]
    dice = np.random.default_rng(5)
    for name, head in (
        ("flac", b"fLaC"),
        ("ogg", b"OggS"),
        ("id3", b"ID3\3\0\0\0\0\0\0"),
        ("wav", b"RIFF\0\0\0\0WAVE"),
    ):
        cases += [(f"{name} noise {i}", head + dice.bytes(300)) for i in range(9)]
    return cases


def test_there_are_a_hundred_of_them():
    assert len(hostile()) >= 100


@pytest.mark.parametrize(("name", "data"), hostile(), ids=lambda x: x if isinstance(x, str) else "")
def test_what_is_no_sound_is_refused_by_name(name, data):
    with pytest.raises(BadSound, match=r"^talk\.wav: \S") as refused:
        for _ in open_sound(io.BytesIO(data), "talk.wav").pieces:
            pass
    assert refused.value.param == "file" and "\n" not in str(refused.value)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 60), st.sampled_from(["WAV", "FLAC", "OGG", "MP3"]))
def test_damaged_files_give_samples_or_a_refusal(noise, at, form):
    data = bytearray(DAMAGED[form])
    data[at : at + len(noise)] = noise
    try:
        pieces = list(open_sound(io.BytesIO(bytes(data))).pieces)
    except BadSound:
        return
    assert all(piece.dtype == np.float32 and np.isfinite(piece).all() for piece in pieces)


def test_a_file_of_one_frame_is_said_to_have_no_sound():
    data = encoded(X, "MP3")
    with pytest.raises(BadSound, match="not a readable MP3 file: no sound is found in it"):
        open_sound(io.BytesIO(data[: len(data) // 50]))


DAMAGED = {form: encoded(X[:3000], form) for form in ("WAV", "FLAC", "OGG", "MP3")}
