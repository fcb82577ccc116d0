"""`golem transcribe` and `golem listen`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import click
import numpy as np
import pytest
import soundfile
from golem_kyutai import command
from golem_kyutai.microphone import recording

GOLEM = [sys.executable, "-c", "from golem_core.cli import main; main()"]


def golem(*arguments: str, **settings) -> subprocess.CompletedProcess:
    return subprocess.run([*GOLEM, *arguments], capture_output=True, text=True, timeout=120, **settings)


def samples(tiny, frames: int, seed: int) -> np.ndarray:
    return (tiny.sound(frames, seed) * 29_000).astype("<i2")


@pytest.fixture(scope="module")
def files(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounds")
    for i in range(2):
        soundfile.write(folder / f"talk{i}.wav", samples(tiny, 40 + 10 * i, 9 + i), tiny.RATE)
    (folder / "no.mp3").write_bytes(b"no sound at all")
    return folder


def test_files_are_written_down(directory, files):
    one = golem("transcribe", "-stt", str(directory), str(files / "talk0.wav"))
    assert one.returncode == 0, one.stderr
    assert len(one.stdout.split()) > 3 and one.stdout.endswith("\n") and one.stdout.count("\n") == 1
    names = [str(files / f"talk{i}.wav") for i in range(2)]
    both = golem("transcribe", "-stt", str(directory), "-stt-parallel", "2", *names)
    assert both.stdout.startswith(f"# {names[0]}\n{one.stdout}# {names[1]}\n"), both.stderr


def test_captions_go_beside_each_other_and_a_bad_file_does_not_end_the_others(directory, files, tmp_path):
    names = [str(files / name) for name in ("talk0.wav", "no.mp3", "absent.wav", "talk1.wav")]
    found = golem("transcribe", "-stt", str(directory), "-format", "srt", "-out", str(tmp_path / "out"), *names)
    assert found.returncode == 1 and found.stdout == "" and "Traceback" not in found.stderr
    assert "no.mp3: not a WAV, FLAC, MP3 or OGG file" in found.stderr
    assert "absent.wav: cannot be read: No such file" in found.stderr
    assert "2 of 4 files could not be transcribed" in found.stderr
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["talk0.srt", "talk1.srt"]
    assert (tmp_path / "out" / "talk0.srt").read_text().startswith("1\n00:00:0")


def test_a_folder_that_cannot_be_written_to_is_known_before_anything_is_loaded(files, tmp_path):
    (tmp_path / "talk0.flac").write_bytes(b"")
    names = [str(files / "talk0.wav"), str(tmp_path / "talk0.flac")]
    for out, named, said in (
        (
            tmp_path / "out",
            names,
            f"{names[0]} and {names[1]} would both be written to {tmp_path / 'out' / 'talk0.txt'}",
        ),
        (tmp_path / "talk0.flac", names[:1], "File exists"),
        (tmp_path / "talk0.flac" / "out", names[:1], "Not a directory"),
    ):
        found = golem("transcribe", "-stt", str(tmp_path / "none"), "-out", str(out), *named)
        assert found.returncode == 1 and found.stderr == f"golem: -out {out}: {said}\n"
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_written_does_not_end_the_others(directory, files, tmp_path):
    (tmp_path / "talk0.txt").mkdir()
    names = [str(files / f"talk{i}.wav") for i in range(2)]
    found = golem("transcribe", "-stt", str(directory), "-out", str(tmp_path), *names)
    assert found.returncode == 1 and "talk0.txt: cannot be written: Is a directory" in found.stderr
    assert (tmp_path / "talk1.txt").read_text()


def test_json_has_words_with_times(directory, files):
    environment = os.environ | {"GOLEM_STT": str(directory)}
    found = golem("transcribe", "-format", "verbose_json", str(files / "talk0.wav"), env=environment)
    data = json.loads(found.stdout)
    assert " ".join(each["word"] for each in data["words"]).split() == data["text"].split()


def test_a_directory_that_is_not_named_is_asked_for_with_its_variable(files):
    found = golem("transcribe", str(files / "talk0.wav"))
    assert (found.returncode, found.stderr) == (2, "golem: -stt is missing; name it with -stt DIR or GOLEM_STT\n")


def test_a_directory_that_is_none_is_one_line(tmp_path, files):
    found = golem("transcribe", "-stt", str(tmp_path), str(files / "talk0.wav"))
    assert found.returncode == 1 and "the language model is missing" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.fixture
def recorder(tmp_path, tiny, monkeypatch):
    """A program called arecord that says the samples of a file, and then waits to be ended."""
    (tmp_path / "sound.raw").write_bytes(samples(tiny, 40, 9).tobytes())
    script = tmp_path / "arecord"
    script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/sound.raw\nexec sleep ${{WAIT:-0}}\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_the_microphone_is_written_down_until_it_ends(directory, files, recorder):
    found = golem("listen", "-stt", str(directory), "-recorder", "arecord")
    assert found.returncode == 0, found.stderr
    assert "listening with arecord" in found.stderr
    assert (recorder / "asked").read_text().split() == ["-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "1200"]
    written = golem("transcribe", "-stt", str(directory), str(files / "talk0.wav")).stdout
    assert found.stdout.split() == written.split()


@pytest.mark.parametrize(("options", "switch"), [("  --rate  Sample rate", []), ("  -a, --raw  RAW mode", ["--raw"])])
def test_pipewire_is_told_to_write_bare_samples_where_it_has_a_switch_for_that(tmp_path, options, switch):
    program = tmp_path / "pw-record"
    program.write_text(f"#!/bin/sh\necho '{options}'\n")
    program.chmod(0o755)
    expected = [*switch, "--rate", "24000", "--channels", "1", "--format", "s16", "-"]
    assert recording(str(program), 24_000) == [str(program), *expected]


def test_an_interrupt_lets_what_was_heard_be_written(directory, recorder, monkeypatch):
    monkeypatch.setenv("WAIT", "60")
    command = [*GOLEM, "listen", "-stt", str(directory), "-recorder", "arecord"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(1)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert process.returncode == 0 and out.endswith("\n") and "Traceback" not in error
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_between_two_words_loses_nothing_and_a_second_one_ends_all(
    directory, files, recorder, monkeypatch, capsys, times
):
    monkeypatch.setenv("WAIT", "60")
    echo, left = click.echo, [signal.SIGINT] * times

    def interrupted(message: str = "", **settings) -> None:
        echo(message, **settings)
        while left and not settings.get("err"):
            signal.raise_signal(left.pop())

    monkeypatch.setattr(click, "echo", interrupted)
    listen = command.listen()
    arguments = ["-stt", str(directory), "-recorder", "arecord"]
    with contextlib.ExitStack() as expected:
        if times == 2:
            expected.enter_context(pytest.raises(click.Abort))
        listen.main(arguments, standalone_mode=False)
    out = capsys.readouterr().out
    written = golem("transcribe", "-stt", str(directory), str(files / "talk0.wav")).stdout
    assert out == written if times == 1 else written.startswith(out)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_recorder_that_fails_is_told_of(directory, recorder):
    (recorder / "arecord").write_text("#!/bin/sh\necho no such device >&2\nexit 3\n")
    found = golem("listen", "-stt", str(directory), "-recorder", "arecord")
    assert found.returncode == 1 and "arecord ended with 3: no such device" in found.stderr


def test_nothing_to_record_with_is_told_of_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = golem("listen", "-stt", str(tmp_path / "none"))
    assert found.returncode == 1
    assert "nothing to record with: none of pw-record, arecord, ffmpeg is installed" in found.stderr
