"""`golem draw`: the file that it writes, what it says, and what it leaves alone."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from golem_krea2.command import write
from PIL import Image

from golem_core import DeviceType, cli, hookimpl, plugins
from golem_core.errors import GolemError


@pytest.fixture
def golem(directory, reference_device, monkeypatch, tmp_path, capfd):
    """Runs the command on the definitions of the ops, in a folder of its own."""

    class Plugin:
        @hookimpl
        def golem_devices(self):
            return [DeviceType("reference", lambda: "numpy", lambda options: reference_device())]

    plugin = Plugin()
    plugins.manager().register(plugin, "reference device")
    monkeypatch.chdir(tmp_path)
    for name in ("GOLEM_KREA2", "GOLEM_DEVICE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, krea2: str | None = str(directory)) -> SimpleNamespace:
        chosen = ["-device", "reference", *(["-krea2", krea2] if krea2 else [])]
        error = None
        try:
            cli.cli.main(["draw", *chosen, *arguments], prog_name="golem", standalone_mode=False)
        except (GolemError, click.ClickException) as raised:
            error = raised
        out, err = capfd.readouterr()
        return SimpleNamespace(out=out, err=err, error=error)

    yield run
    plugins.manager().unregister(plugin)


SMALL = ("-size", "64x64", "-steps", "2", "-seed", "5")


def test_it_writes_a_picture(golem, tmp_path):
    found = golem("a red fox", "-o", "fox.png", *SMALL)
    assert found.error is None and found.out == ""
    assert re.search(r"^krea2: encoder .* on reference, one at a time", found.err)
    assert re.search(r"^fox\.png: 64x64, 2 steps, seed 5, \d+\.\ds$", found.err, re.MULTILINE)
    with Image.open(tmp_path / "fox.png") as picture:
        assert picture.size == (64, 64)
        record = json.loads(picture.text["golem"])  # type: ignore[attr-defined]
    assert record == {
        **{"prompt": "a red fox", "negative": "", "width": 64, "height": 64, "steps": 2, "cfg": 1, "seed": 5},
    }


def test_the_file_is_named_after_the_seed(golem, tmp_path):
    assert golem("a red fox", *SMALL).error is None
    assert [path.name for path in tmp_path.iterdir()] == ["krea2-5.png"]


def test_no_steps_are_the_default(golem):
    assert "64x64, 8 steps, seed 5" in golem("a red fox", "-size", "64x64", "-seed", "5", "-steps", "0").err


def test_a_file_that_is_there_is_left_alone(golem, tmp_path):
    (tmp_path / "fox.png").write_bytes(b"mine")
    found = golem("a red fox", "-o", "fox.png", *SMALL)
    assert str(found.error) == "-o fox.png: the file is there; write over it with -force"
    assert (tmp_path / "fox.png").read_bytes() == b"mine"
    assert golem("a red fox", "-o", "fox.png", "-force", *SMALL).error is None
    assert (tmp_path / "fox.png").read_bytes().startswith(b"\x89PNG")


def test_a_target_that_cannot_be_written_is_known_before_anything_is_drawn(golem, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "nowhere.png").symlink_to(tmp_path / "none" / "fox.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "fox.png")
    (tmp_path / "round.png").symlink_to(tmp_path / "round.png")
    for arguments, said in {
        ("-o", "x" * 300): "-o x+: File name too long",
        ("-o", "file/fox.png"): "-o file/fox.png: Not a directory",
        ("-o", "link.png"): "-o link.png: the file is there",
        ("-o", "nowhere.png", "-force"): "-o nowhere.png: there is no folder .*none",
        ("-o", "round.png", "-force"): "-o round.png: Too many levels of symbolic links",
    }.items():
        found = golem("a red fox", *arguments, *SMALL)
        assert re.match(said, str(found.error)) and "krea2: encoder" not in found.err, arguments
    assert golem("a red fox", "-o", "link.png", "-force", *SMALL).error is None
    assert (tmp_path / "link.png").is_symlink() and (tmp_path / "fox.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "nowhere.png", "link.png", "round.png", "fox.png"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_known_before_anything_is_drawn(golem, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    found = golem("a red fox", "-o", "closed/fox.png", *SMALL)
    assert "-o closed/fox.png: it may not be written" in str(found.error) and "krea2: encoder" not in found.err


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("force", [False, True])
def test_what_cannot_be_written_whole_is_not_written_at_all(monkeypatch, tmp_path, error, force):
    target = tmp_path / "fox.png"
    if force:
        target.write_bytes(b"mine")
    opened = Path.open

    class Full:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            self.file.write(data[:3])
            raise error

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            self.file.close()

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, *args: Full(opened(self, *args)))
        with pytest.raises((GolemError, KeyboardInterrupt)) as told:
            write(str(target), b"a picture", force)
    assert isinstance(told.value, KeyboardInterrupt) or str(told.value) == f"-o {target}: No space left on device"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([b"mine"] if force else [])
    write(str(target), b"a picture", force)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"a picture"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_what_is_no_plain_file_is_written_to_and_not_replaced():
    with pytest.raises(GolemError, match="-o /dev/full: No space left on device"):
        write("/dev/full", b"a picture", True)
    assert Path("/dev/full").is_char_device()
    write("/dev/null", b"a picture", True)
    assert Path("/dev/null").is_char_device()


def test_settings_reach_the_file(golem, tmp_path):
    found = golem(
        *("a red fox", "--out", "fox.png", "--size", "96x64", "-steps", "2", "-seed", str(2**64 - 1), "-cfg", "2.5"),
        *("-negative", "blur", "-hide-prompt"),
    )
    assert found.error is None
    with Image.open(tmp_path / "fox.png") as picture:
        assert picture.size == (96, 64)
        record = json.loads(picture.text["golem"])  # type: ignore[attr-defined]
    assert record["prompt"] == record["negative"] == "" and record["cfg"] == 2.5 and record["seed"] == 2**64 - 1


def test_what_else_draws_another_picture_is_in_the_file(golem, tmp_path):
    def record(*arguments: str) -> dict:
        assert golem("a (red) fox", "-o", "fox.png", "-force", *SMALL, *arguments).error is None
        with Image.open(tmp_path / "fox.png") as picture:
            return json.loads(picture.text["golem"])  # type: ignore[attr-defined]

    plain = record()
    assert not {"noise", "literal"} & plain.keys() and record("-krea2-noise", "ROCM:32") == plain
    assert record("-krea2-noise", "cpu+1") == plain | {"noise": "cpu+1"}
    assert record("-krea2-literal") == plain | {"literal": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a fox", "-size", "100x100"), "size: 100x100 has a side of 100"),
        ((" ",), "prompt: there is nothing to draw"),
        (("a", "red", "fox"), 'the prompt is one argument; put it in quotes: "a red fox"'),
        (("a fox", "-krea2-keep"), "no such option: -krea2-keep; only golem serve has it"),
        (("a fox", "-cfg", "nan"), "cfg: expected a number above 0 to 1000, got nan"),
        (("a fox", "-lora-strength", "0.5"), "-lora-strength 0.5: no LoRA is named; name one with -lora"),
        (("a fox", "-o", "fox.JPG"), "-o fox.JPG: the picture is a PNG file, which does not end in .jpg"),
        (("a fox", "-o", "none/"), "-o none/: there is no such folder"),
        (("a fox", "-o", "/dev/full/fox.png"), "-o /dev/full/fox.png: Not a directory"),
        (("a fox", "-o", "a" * 300), "File name too long"),
        (("a fox", "-o", "/proc/fox.png"), "-o /proc/fox.png: "),
        (("a fox", "-o", "/proc/version", "-force"), "-o /proc/version: it may not be written: "),
        (("a fox", "-lora", "../x"), "lora: expected the name of a file"),
        (("caf\udce9",), "prompt: it is not UTF-8"),
        (("a fox", "-lora", "x.safetensors"), "lora: there is no 'x.safetensors'"),
        (("a fox", "-o", "none/fox.png"), "-o none/fox.png: there is no folder "),
        (("a fox", "-o", "."), "-o .: this is a folder"),
        (("cat " * 3000,), "prompt: "),
        (("a fox", "-krea2-noise", "dice"), "-krea2-noise 'dice': expected rocm:P"),
        (("a fox", "-krea2-vae", "none.safetensors"), "none.safetensors"),
        (("a fox", "-device", "abacus"), "abacus"),
        ((), "Missing argument 'PROMPT'"),
    ],
)
def test_refusals(golem, tmp_path, arguments, message):
    found = golem(*arguments)
    assert found.error is not None
    assert message in (
        found.error.format_message() if isinstance(found.error, click.ClickException) else str(found.error)
    )
    assert not list(tmp_path.iterdir())


def test_a_directory_is_needed(golem):
    assert str(golem("a fox", krea2=None).error).startswith(
        "no directory with Krea 2 is named; name one with -krea2 DIR"
    )


def test_what_is_no_directory_is_named_first(golem, directory, tmp_path):
    expected = "; a ComfyUI directory with Krea 2 was expected"
    assert str(golem("a fox", krea2="nowhere").error) == f"nowhere: there is no such folder{expected}"
    (tmp_path / "file").touch()
    assert str(golem("a fox", krea2="file").error) == f"file: this is a file{expected}"
    error = str(golem("a fox", krea2=".").error)
    assert error.startswith(".: there is no models/unet/krea2_turbo_fp8.safetensors and no models/text_encoders/")
    assert error.endswith(expected)
    dit = directory / "models/unet/krea2_turbo_fp8.safetensors"
    assert "there is no models/text_encoders" in str(golem("a fox", "-krea2-dit", str(dit), krea2=".").error)


def test_a_target_that_cannot_be_written_is_known_before_anything_is_loaded(golem, tmp_path):
    (tmp_path / "link.png").symlink_to(tmp_path / "none.png")
    (tmp_path / "lost.png").symlink_to(tmp_path / "none" / "fox.png")
    for out, force, message in (
        ("link.png", (), "-o link.png: the file is there"),
        ("lost.png", ("-force",), f"-o lost.png: there is no folder {tmp_path / 'none'}"),
        ("/proc/fox.png", (), "-o /proc/fox.png: "),
    ):
        assert str(golem("a fox", "-o", out, *force, krea2="nowhere").error).startswith(message)
    assert str(golem("a fox", "-o", "fox.png", krea2="nowhere").error).startswith("nowhere: ")
    assert str(golem("a fox", "-o", "link.png", "-force", krea2="nowhere").error).startswith("nowhere: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.png", "lost.png"]
    assert golem("a fox", "-o", "link.png", "-force", *SMALL).error is None
    assert (tmp_path / "none.png").read_bytes().startswith(b"\x89PNG")


def test_a_negative_prompt_that_is_not_read_is_said(golem):
    assert "-negative is not read, for -cfg is 1" in golem("a fox", "-negative", "blur", *SMALL).err
    assert "is not read" not in golem("a fox", "-negative", "blur", "-cfg", "2", "-o", "b.png", *SMALL).err


def test_the_variable_names_the_directory(golem, directory, monkeypatch, tmp_path):
    monkeypatch.setenv("GOLEM_KREA2", str(directory))
    assert golem("a fox", *SMALL, krea2=None).error is None
    assert (tmp_path / "krea2-5.png").exists()


def test_standard_output(golem, monkeypatch, tmp_path):
    class Piped:
        def __init__(self):
            import io

            self.buffer = io.BytesIO()

        def isatty(self):
            return False

        def write(self, text):
            raise AssertionError(text)

        def flush(self):
            pass

    monkeypatch.setattr(sys, "stdout", Piped())
    assert golem("a fox", "-o", "-", *SMALL).error is None
    assert sys.stdout.buffer.getvalue().startswith(b"\x89PNG")
    monkeypatch.setattr(Piped, "isatty", lambda self: True)
    assert "standard output is a terminal" in str(golem("a fox", "-o", "-", *SMALL).error)
    assert not list(tmp_path.iterdir())


def test_steps_are_shown_on_a_terminal(monkeypatch, capfd):
    from golem_krea2.command import Bars

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bars = Bars()
    with bars:
        bars.loading("loading the DiT")(1, 2)
        told = bars.stepping(3)
        for step in (1, 2, 3):
            told(step)
    assert "drawing" in capfd.readouterr().err


def test_help_says_what_happens_to_files(capfd):
    cli.cli.main(["draw", "-help"], prog_name="golem", standalone_mode=False)
    out = " ".join(capfd.readouterr().out.split())
    assert "A file that is there is left alone" in out
    for option in ("-krea2", "-device", "-threads", "-size", "-lora-strength", "-krea2-noise", "-force"):
        assert option in out
    assert "-krea2-keep" not in out
    assert "1 to 100; 0 is the default" in out
