"""Pictures and recordings are decoded as they should be looked at and heard, or refused by name, within bounds."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import soundfile
from PIL import Image

from golem_core import BadRequest, resize_picture
from golem_core.media.pictures import decode_picture
from golem_core.media.recordings import decode_recording
from golem_core.media.sources import Files, read_base64, read_source

from .hostile import files, picture, saved, tone, written

MOST_MEMORY, MOST_SECONDS = 500_000_000, 5.0


def test_hundreds_of_odd_files_are_taken_or_refused_by_name_within_bounds(tmp_path):
    made = files()
    wanted = {f"{number:03}": file for number, file in enumerate(made)}
    assert len(wanted) >= 300 and len({file.name for file in made}) == len(made)
    for name, file in wanted.items():
        (tmp_path / f"{name}.{file.kind}").write_bytes(file.data)
    program = Path(__file__).with_name("hostile.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    *results, last = map(json.loads, done.stdout.splitlines())
    assert [each["name"] for each in results] == sorted(wanted)
    for each in results:
        file, refusal = wanted[each["name"]], each["refusal"]
        each["name"] = file.name
        assert each["seconds"] < MOST_SECONDS, each
        if file.fate != "either":
            assert (refusal is not None) == (file.fate == "refused"), each
        if refusal is not None:
            what, _, why = refusal.partition(" can't be read: ")
            assert what == ("the picture" if file.kind == "image" else "the recording"), each
            assert why.strip() and "\n" not in why and "object at" not in why, each
            assert file.word in why, each
        if each["shape"] is not None and file.kind == "image":
            assert each["shape"][2] == 3
    assert last["peak"] < MOST_MEMORY, last


def decoded(image: Image.Image, form: str, **options) -> np.ndarray:
    return decode_picture(saved(image, form, **options))


def test_pixels_are_those_of_the_file():
    plain = np.asarray(picture())
    for mode in ("RGB", "RGBA"):
        np.testing.assert_array_equal(decoded(picture().convert(mode), "PNG"), plain)
    grey = np.asarray(picture().convert("L"))
    np.testing.assert_array_equal(decoded(picture().convert("L"), "PNG"), np.repeat(grey[:, :, None], 3, 2))
    deep = Image.fromarray((grey.astype(np.uint16) << 8) + 7)
    np.testing.assert_array_equal(decoded(deep, "PNG"), np.repeat(grey[:, :, None], 3, 2))
    cmyk = decoded(picture().convert("CMYK"), "JPEG", quality=95).astype(int)
    assert np.abs(cmyk - plain).mean() < 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_upright(orientation):
    """Of a picture that was stored turned, the decoded one is what it was before."""
    upright = np.asarray(picture(48, 32))
    turned = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1], 5: upright.transpose(1, 0, 2),
        6: np.rot90(upright), 7: np.rot90(upright, 2).transpose(1, 0, 2), 8: np.rot90(upright, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(turned))
    np.testing.assert_array_equal(decoded(stored, "PNG", exif=exif.tobytes()), upright)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_photo_with_a_second_picture_in_its_file_is_its_first(orientation):
    """What telephones write: a JPEG file behind which a preview or a map of brightness stands."""
    photo = Image.fromarray(np.full((32, 48, 3), (200, 100, 50), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    photo.save(out, "MPO", save_all=True, append_images=[Image.new("RGB", (16, 16))], exif=exif)
    got = decode_picture(out.getvalue())
    assert got.shape == ((32, 48, 3) if orientation == 1 else (48, 32, 3))
    assert np.abs(got.astype(int) - (200, 100, 50)).max() <= 3


def test_resizing_is_pillow_s():
    image = picture(90, 60)
    for how in ("bicubic", "bilinear"):
        wanted = np.asarray(image.resize((31, 47), Image.Resampling[how.upper()]))
        np.testing.assert_array_equal(resize_picture(np.asarray(image), 31, 47, how), wanted)
    np.testing.assert_array_equal(
        resize_picture(np.asarray(image), 31, 47), resize_picture(np.asarray(image), 31, 47, "bicubic")
    )
    assert resize_picture(np.asarray(image), 90, 60).shape == (60, 90, 3)


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
def test_a_tone_stays_the_tone_at_another_rate(rate):
    heard = decode_recording(written(tone(1.0, rate), rate, "WAV"), 16_000)
    assert heard.dtype == np.float32 and abs(len(heard) - 16_000) <= 2
    wanted = tone(1.0, 16_000)[:, 0]
    assert np.abs(heard[200:15_800] - wanted[200:15_800]).max() < 2e-3


def test_channels_are_averaged():
    left, right = tone(0.2, 16_000)[:, 0], np.zeros(3200)
    heard = decode_recording(written(np.stack([left, right], 1), 16_000, "WAV", "FLOAT"), 16_000)
    np.testing.assert_allclose(heard, left / 2, atol=1e-6)


def test_long_recordings_are_read_in_blocks():
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, 300_000)
    heard = decode_recording(written(samples, 16_000, "FLAC", "PCM_16"), 16_000)
    assert len(heard) == 300_000 and np.abs(heard - samples).max() < 1e-4


# ---------------------------------------------------------------- where they come from


def test_data_uris_and_base64():
    text = base64.b64encode(b"some bytes").decode()
    assert read_source("image", f"data:image/png;base64,{text}", "here", None).data == b"some bytes"
    assert read_source("image", f"DATA:;BASE64,{text}", "here", None).data == b"some bytes"
    assert read_source("audio", text, "here", None).data == b"some bytes"
    assert read_base64("image", text[:4] + "\n" + text[4:], "here").data == b"some bytes"


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("http://example.org/a.png", "network"),
        ("HTTPS://example.org/a.png", "network"),
        ("data:image/png;base64", "base64,"),
        ("data:image/png,abc", "base64,"),
        ("data:image/png;base64,@@@@", "not base64"),
        ("data:image/png;base64,abc", "not base64"),
        ("/etc/passwd", "no file is read"),
        ("file:///etc/passwd", "no file is read"),
        ("ftp://example.org/a.png", "no file is read"),
        ("", "no file is read"),
    ],
)
def test_other_sources_are_refused_by_name(source, word):
    with pytest.raises(BadRequest, match=r"^messages\[0\]") as error:
        read_source("image", source, "messages[0].content[0].image_url", None)
    assert word in str(error.value)


def test_files_of_the_folder_are_read_and_no_others(tmp_path):
    folder, outside = tmp_path / "media", tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    outside.mkdir()
    (folder / "a.png").write_bytes(b"a")
    (folder / "sub" / "b c.png").write_bytes(b"b")
    (outside / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(outside / "secret")
    (folder / "inner").symlink_to(folder / "a.png")
    os.mkfifo(folder / "pipe")
    files = Files(folder)
    for source, data in {"a.png": b"a", "file:a.png": b"a", "file://sub/b%20c.png": b"b", "inner": b"a"}.items():
        assert read_source("image", source, "here", files).data == data
    for source in (
        "/etc/passwd", "../outside/secret", "sub/../../outside/secret", "file:///etc/passwd", "link", "pipe", "sub",
        "file:..%2Foutside%2Fsecret", "nothing.png", "a.png\0", "\\etc\\passwd", "c:\\a", "x" * 5000,
        str(folder / "a.png"),
    ):  # fmt: skip
        with pytest.raises(BadRequest, match="here"):
            read_source("image", source, "here", files)
    assert read_source("audio", "sub/b c.png", "here", files).data == b"b"
    for start in (b"\x89PNG\r\n", b"\xff\xd8\xff\xe0"):  # whose base64 begins with a slash
        with pytest.raises(BadRequest, match=r"before base64 stands data:image/png;base64,$"):
            read_source("image", base64.b64encode(start + bytes(60)).decode(), "here", files)
    with pytest.raises(BadRequest, match=r"^here: it is not base64, and there is no such file in the folder"):
        read_source("audio", "speech.wav", "here", files)


def test_a_file_whose_size_is_not_what_it_holds(tmp_path, monkeypatch):
    """Files of /proc tell no size; what a read of such a one returns is stood in for by a pipe."""
    monkeypatch.setattr("golem_core.media.sources.stat.S_ISREG", lambda mode: True)
    monkeypatch.setattr("golem_core.media.sources.MOST_BYTES", 3)
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDWR)
    with os.fdopen(descriptor, "r+b", buffering=0) as pipe:
        with pytest.raises(BadRequest, match="here: there is nothing in it to read now"):
            read_source("image", "pipe", "here", Files(tmp_path))
        pipe.write(b"12345")
        with pytest.raises(BadRequest, match="here: it has more than 3 bytes"):
            read_source("image", "pipe", "here", Files(tmp_path))


def test_without_a_folder_every_file_goes_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "b c.png").write_bytes(b"b")
    (tmp_path / "speech.wav").write_bytes(b"speech")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    whole = str(tmp_path / "b c.png")
    for source in (whole, f"file://{quote(whole)}", f"FILE:{quote(whole)}", "b c.png", "file:b%20c.png"):
        assert read_source("image", source, "here", Files()).data == b"b"
    for source in (str(tmp_path / "speech.wav"), "speech.wav", "file:speech.wav"):
        assert read_source("audio", source, "here", Files()).data == b"speech"
    for source, word in {
        str(tmp_path / "nothing.png"): "there is no such file$",
        str(tmp_path / "pipe"): "not a regular file",
        str(tmp_path): "directory",
        "ftp://example.org/a.png": "there is no such file",
        "\ud800.png": "there is no such file",
        "": "neither a data: URI nor the path of a file",
        "a.png\0": "neither a data: URI nor the path of a file",
        "http://example.org/a.png": "network",
        base64.b64encode(b"\x89PNG\r\n" + bytes(60)).decode(): "before base64 stands data:image/png;base64,$",
    }.items():
        with pytest.raises(BadRequest, match=f"^here: .*{word}"):
            read_source("image", source, "here", Files())


def test_a_picture_that_is_too_large_is_refused_without_a_warning(monkeypatch, recwarn):
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    decode_picture(saved(picture(15, 10), "PNG"))
    assert not recwarn.list


def test_what_soundfile_writes_is_what_is_read():
    """The format that the library says a file is of decides, whatever the request calls it."""
    data = written(tone(), 16_000, "FLAC")
    assert soundfile.info(io.BytesIO(data)).format == "FLAC"
    assert len(decode_recording(data, 16_000)) == 8_000
