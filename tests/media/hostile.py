"""Files that nobody should have to decode, and odd ones that somebody may well send: made here, a few hundred of them.

Run as a program, it decodes what is in the folder that it is given, one after another, and writes what became of each
as JSON lines: the name, the refusal or null, the shape or null, the seconds of work; then the peak of the process's
memory in bytes.  A file there is named after its kind.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
from PIL import Image

Fate = Literal["taken", "refused", "either"]


@dataclass(frozen=True)
class File:
    """`word` must be in the refusal, where there must be one."""

    name: str
    kind: Literal["image", "audio"]
    fate: Fate
    data: bytes
    word: str = ""


def picture(width: int = 97, height: int = 61) -> Image.Image:
    y, x = np.mgrid[:height, :width]
    noise = np.random.default_rng(1).integers(0, 40, (height, width))
    return Image.fromarray(np.stack([x * 2 % 256, y * 3 % 256, (x + y + noise) % 256], -1).astype(np.uint8))


def saved(image: Image.Image, form: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def chunk(kind: bytes, body: bytes, crc: int | None = None) -> bytes:
    return (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body) if crc is None else crc)
    )


def png(width: int, height: int, *more: bytes, depth: int = 8, color: int = 2, idat: bytes | None = None) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"\0" * 1000) if idat is None else idat)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(more) + body + chunk(b"IEND", b"")


def zeros(count: int) -> bytes:
    """So many zeros, compressed without ever being there."""
    packer, block = zlib.compressobj(9), b"\0" * (1 << 20)
    parts = [packer.compress(block[: min(len(block), count - at)]) for at in range(0, count, len(block))]
    return b"".join(parts) + packer.flush()


FORMS: dict[str, dict] = {
    "PNG": {}, "JPEG": {"quality": 90}, "WEBP": {"quality": 80}, "GIF": {}, "BMP": {},
}  # fmt: skip


def good_pictures() -> Iterator[File]:
    image = picture()
    for form, options in FORMS.items():
        yield File(f"plain {form}", "image", "taken", saved(image, form, **options))
    for mode in ("1", "L", "LA", "P", "RGBA"):
        yield File(f"PNG {mode}", "image", "taken", saved(image.convert(mode), "PNG"))
    clear = image.convert("P")
    yield File("PNG transparent palette", "image", "taken", saved(clear, "PNG", transparency=3))
    yield File("JPEG CMYK", "image", "taken", saved(image.convert("CMYK"), "JPEG"))
    yield File("JPEG grey", "image", "taken", saved(image.convert("L"), "JPEG"))
    yield File("JPEG progressive", "image", "taken", saved(image, "JPEG", progressive=True))
    yield File("WEBP lossless", "image", "taken", saved(image.convert("RGBA"), "WEBP", lossless=True))
    deep = Image.fromarray((np.arange(61 * 97) * 11 % 65536).astype(np.uint16).reshape(61, 97))
    yield File("PNG 16 bits grey", "image", "taken", saved(deep, "PNG"))
    rows = np.random.default_rng(2).integers(0, 256, (5, 7 * 6), np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    yield File("PNG 16 bits colour", "image", "taken", png(7, 5, depth=16, idat=zlib.compress(raw)))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield File(f"JPEG orientation {orientation}", "image", "taken", saved(image, "JPEG", exif=exif.tobytes()))
    for orientation in (0, 9, 60000):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield File(f"JPEG orientation {orientation}", "image", "taken", saved(image, "JPEG", exif=exif.tobytes()))
    for width, height in ((1, 1), (1, 5000), (5000, 1), (3, 2)):
        yield File(f"PNG {width} × {height}", "image", "taken", saved(picture(width, height), "PNG"))
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = chunk(b"eXIf", exif.tobytes()[6:])
    large = png(6_000, 5_990, upright, color=6, idat=zeros(5_990 * 24_001))
    yield File("PNG of 36 million pixels with alpha, lying", "image", "taken", large)
    noisy = chunk(b"tEXt", b"Comment\0" + b"x" * 5000)
    raw = b"".join(b"\0" + bytes(30) for _ in range(10))
    yield File("PNG with a long text", "image", "taken", png(10, 10, noisy, idat=zlib.compress(raw)))


def bad_pictures() -> Iterator[File]:
    yield File("empty", "image", "refused", b"", "empty")
    for name, data in {
        "one byte": b"\x89", "text": b"hello, world" * 9, "html": b"<html><body>no</body></html>", "nulls": bytes(5000),
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>', "pdf": b"%PDF-1.7\n%%EOF",
        "zip": b"PK\x03\x04" + bytes(40), "elf": b"\x7fELF" + bytes(60), "gzip": b"\x1f\x8b\x08" + bytes(40),
        "tiff": saved(picture(), "TIFF"), "ico": saved(picture(), "ICO"), "ppm": saved(picture(), "PPM"),
        "tga": saved(picture(), "TGA"), "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "avif": b"\0\0\0\x20ftypavif" + bytes(40), "mp4": b"\0\0\0\x20ftypisom" + bytes(40),
    }.items():  # fmt: skip
        yield File(name, "image", "refused", data, "none of")
    for form, options in FORMS.items():
        data = saved(picture(400, 300), form, **options)
        for part in (2, 6, 10, 20, 35, 50, 65, 80, 90):
            yield File(f"{form} cut at {part}%", "image", "refused", data[: len(data) * part // 100])
        rng = np.random.default_rng(len(data))
        for number in range(14):
            hurt = bytearray(data)
            for at in rng.integers(0, len(data) if number % 2 else min(len(data), 120), 1 + number):
                hurt[at] ^= 1 << int(rng.integers(8))
            yield File(f"{form} damaged {number}", "image", "either", bytes(hurt))
    for width, height in ((60_000, 60_000), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1), (6001, 6001), (10_000, 9_000)):
        yield File(f"PNG claims {width} × {height}", "image", "refused", png(width, height), "pixels")
    yield File("PNG of no size", "image", "refused", png(0, 10))
    yield File(
        "PNG of 30000 × 30000 zeros",
        "image",
        "refused",
        png(30_000, 30_000, color=0, idat=zeros(20_000_000)),
        "pixels",
    )
    yield File("PNG with ten times its pixels", "image", "either", png(100, 100, idat=zeros(100_000_000)))
    yield File(
        "PNG with a text of 200 MB", "image", "refused", png(9, 9, chunk(b"zTXt", b"a\0\0" + zeros(200_000_000)))
    )
    yield File(
        "PNG with a profile of 200 MB", "image", "either", png(9, 9, chunk(b"iCCP", b"a\0\0" + zeros(200_000_000)))
    )
    yield File("PNG with a wrong checksum", "image", "refused", png(9, 9, chunk(b"gAMA", b"\0\0\0\1", crc=1)))
    yield File("PNG of an odd depth", "image", "refused", png(9, 9, depth=7))
    yield File("PNG without data", "image", "refused", png(9, 9, idat=b""))
    for form, at in (("GIF", 6), ("BMP", 18)):
        data = bytearray(saved(picture(), form))
        data[at : at + 4] = b"\xff\xff\xff\xff" if form == "GIF" else struct.pack("<I", 60_000)
        if form == "BMP":
            data[22:26] = struct.pack("<I", 60_000)
        yield File(f"{form} claims to be huge", "image", "refused", bytes(data), "pixels")
    jpeg = bytearray(saved(picture(), "JPEG"))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = b"\xff\xdc\xff\xdc"
    yield File("JPEG claims to be huge", "image", "refused", bytes(jpeg), "pixels")
    webp = bytearray(saved(picture(), "WEBP", lossless=True))
    at = webp.index(b"VP8L") + 9
    webp[at : at + 4] = struct.pack("<I", 16_382 | 16_382 << 14)
    yield File("WEBP claims to be huge", "image", "refused", bytes(webp))
    frames = [picture(), picture().rotate(90), picture().rotate(180)]
    for form in ("GIF", "WEBP", "PNG"):
        data = saved(frames[0], form, save_all=True, append_images=frames[1:])
        yield File(f"animated {form}", "image", "refused", data, "animated")
    for number in range(6):
        exif = np.random.default_rng(number).integers(0, 256, 60 + 400 * number, np.uint8).tobytes()
        yield File(
            f"JPEG with damaged EXIF {number}",
            "image",
            "either",
            saved(picture(), "JPEG", exif=b"Exif\0\0MM\0*" + exif),
        )


# ---------------------------------------------------------------- recordings


def tone(seconds: float = 0.5, rate: int = 16_000, channels: int = 1) -> np.ndarray:
    at = np.arange(int(seconds * rate))[:, None] / rate
    return 0.5 * np.sin(2 * np.pi * 440 * at + np.arange(channels))


def written(samples: np.ndarray, rate: int, form: str, subtype: str | None = None) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=form, subtype=subtype)
    return out.getvalue()


def wav(
    body: bytes, *, rate: int = 16_000, channels: int = 1, bits: int = 16, form: int = 1, size: int | None = None,
    align: int | None = None,
) -> bytes:  # fmt: skip
    align = channels * bits // 8 if align is None else align
    head = struct.pack("<HHIIHH", form, channels, rate, rate * align & 0xFFFFFFFF, align & 0xFFFF, bits)
    data = b"data" + struct.pack("<I", len(body) if size is None else size) + body
    inner = b"WAVEfmt " + struct.pack("<I", 16) + head + data
    return b"RIFF" + struct.pack("<I", len(inner)) + inner


def good_recordings() -> Iterator[File]:
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"):
        yield File(f"WAV {subtype}", "audio", "taken", written(tone(), 16_000, "WAV", subtype))
    for rate in (8_000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000):
        yield File(f"WAV at {rate}", "audio", "taken", written(tone(0.5, rate), rate, "WAV"))
    for channels in (2, 3, 6, 8):
        yield File(f"WAV of {channels} channels", "audio", "taken", written(tone(channels=channels), 16_000, "WAV"))
    for form, rate in (("FLAC", 44_100), ("OGG", 44_100), ("MP3", 44_100), ("MP3", 24_000), ("OGG", 8_000)):
        yield File(f"{form} at {rate}", "audio", "taken", written(tone(1, rate, 2), rate, form))
    yield File(
        "WAV of unknown length",
        "audio",
        "taken",
        wav(bytes(3200), size=0xFFFFFFFF)[:4] + b"\xff\xff\xff\xff" + wav(bytes(3200), size=0xFFFFFFFF)[8:],
    )
    yield File("WAV of one sample", "audio", "taken", wav(b"\1\0"))


def bad_recordings() -> Iterator[File]:
    yield File("empty recording", "audio", "refused", b"", "empty")
    for name, data in {
        "text": b"hello, world" * 9, "nulls": bytes(5000), "html": b"<html></html>", "png": saved(picture(), "PNG"),
        "aiff": written(tone(), 16_000, "AIFF"), "au": written(tone(), 16_000, "AU"),
        "caf": written(tone(), 16_000, "CAF"),
        "w64": written(tone(), 16_000, "W64"), "voc": written(tone(), 16_000, "VOC"), "webp": saved(picture(), "WEBP"),
        "midi": b"MThd" + bytes(60), "mp4": b"\0\0\0\x20ftypM4A " + bytes(60), "webm": b"\x1aE\xdf\xa3" + bytes(60),
        "playlist": b"#EXTM3U\nhttp://example.org/a.mp3\n", "zip": b"PK\3\4" + bytes(60),
    }.items():  # fmt: skip
        yield File(f"{name} as a recording", "audio", "refused", data, "none of")
    for form in ("WAV", "FLAC", "OGG", "MP3"):
        data = written(tone(2, 44_100, 2), 44_100, form)
        for part in (1, 5, 20, 40, 60, 80, 95):
            surely = form in ("WAV", "FLAC")
            yield File(
                f"{form} cut at {part}%", "audio", "refused" if surely else "either", data[: len(data) * part // 100]
            )
        rng = np.random.default_rng(len(data))
        for number in range(12):
            hurt = bytearray(data)
            for at in rng.integers(0, len(data) if number % 2 else 100, 1 + number):
                hurt[at] ^= 1 << int(rng.integers(8))
            yield File(f"{form} damaged {number}", "audio", "either", bytes(hurt))
    body = bytes(6400)
    for rate in (0, 1, 100, 3_999, 384_001, 2**31 - 1, 2**32 - 1):
        yield File(f"WAV at {rate} samples a second", "audio", "refused", wav(body, rate=rate))
    for channels in (0, 17, 255, 1000, 65_535):
        yield File(f"WAV of {channels} channels", "audio", "refused", wav(body, channels=channels))
    for bits in (0, 1, 7, 13, 64, 65_535):
        yield File(f"WAV of {bits} bits", "audio", "either", wav(body, bits=bits))
    for form in (0, 2, 6, 17, 49, 85, 0xFFFE, 0xFFFF):
        yield File(f"WAV of the kind {form}", "audio", "either", wav(body, form=form))
    yield File("WAV without alignment", "audio", "either", wav(body, align=0))
    yield File("WAV that promises 4 GB", "audio", "either", wav(body, size=0xFFFFFFF0))
    yield File("WAV without samples", "audio", "refused", wav(b""), "no samples")
    for name, value in (("NaN", np.nan), ("infinity", np.inf)):
        samples = np.full(800, value, "<f4").tobytes()
        yield File(f"WAV of {name}", "audio", "refused", wav(samples, bits=32, form=3), "no numbers")
    huge = np.full(800, 3e38, "<f4").tobytes()
    yield File("WAV of huge numbers", "audio", "either", wav(huge, bits=32, form=3))
    yield File("WAV of twenty minutes", "audio", "refused", wav(bytes(8_000 * 1_200), rate=8_000, bits=8), "seconds")
    yield File(
        "FLAC of an hour of silence", "audio", "refused", written(np.zeros(8_000 * 3_600), 8_000, "FLAC"), "seconds"
    )
    flac = bytearray(written(tone(), 16_000, "FLAC"))
    flac[21] |= 0x0F
    flac[22:26] = b"\xff\xff\xff\xff"
    yield File("FLAC that promises 2^36 samples", "audio", "refused", bytes(flac))
    flac[21] &= 0xF0
    flac[22:26] = bytes(4)
    yield File("FLAC of unknown length", "audio", "either", bytes(flac))
    yield File("MP3 of noise", "audio", "either", b"\xff\xfb\x90\x00" + np.random.default_rng(3).bytes(20_000))
    yield File("MP3 whose tag is longer than it", "audio", "refused", b"ID3\4\0\0\x7f\x7f\x7f\x7f" + bytes(3000))


def files() -> list[File]:
    return [*good_pictures(), *bad_pictures(), *good_recordings(), *bad_recordings()]


def main() -> None:

    from golem_core import BadRequest
    from golem_core.media.pictures import decode_picture
    from golem_core.media.recordings import decode_recording

    for path in sorted(Path(sys.argv[1]).iterdir()):
        data, refusal, shape = path.read_bytes(), None, None
        start = time.process_time()
        try:
            array = decode_picture(data) if path.suffix == ".image" else decode_recording(data, 16_000)
            shape = array.shape
        except BadRequest as error:
            refusal = str(error)
        seconds = time.process_time() - start
        print(json.dumps({"name": path.stem, "refusal": refusal, "shape": shape, "seconds": seconds}), flush=True)
    print(json.dumps({"peak": peak_bytes()}))


def peak_bytes() -> int:
    """The most memory of this program.  Linux's own figure, since getrusage's is inherited from who started it."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource  # not everywhere

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
