"""Speech that espeak-ng makes, in every kind of file: the same sound comes out, and all of it goes through the models.

Needs the package espeakng-loader, which brings the library.
"""

from __future__ import annotations

import ctypes
import io

import numpy as np
import pytest
import soundfile
from golem_kyutai.audio import open_sound, resampled
from golem_kyutai.transcriber import Transcriber

loader = pytest.importorskip("espeakng_loader")

SENTENCES = {
    "en": "The quick brown fox jumps over the lazy dog, and then it rains until Thursday.",
    "fr": "Le train de huit heures part de la gare du Nord avec dix minutes de retard.",
}
SYNCHRONOUS, CHARACTERS, UTF8 = 2, 1, 1


@pytest.fixture(scope="module")
def speak():
    """From a voice and a text to (rate, float samples)."""
    library = ctypes.CDLL(loader.get_library_path())
    rate = library.espeak_Initialize(SYNCHRONOUS, 0, str(loader.get_data_path()).encode(), 0)
    assert rate > 0
    heard: list[np.ndarray] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

    @kind
    def take(samples, count, events):
        if samples and count > 0:
            heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    library.espeak_SetSynthCallback(take)

    def speak(voice: str, text: str) -> tuple[int, np.ndarray]:
        heard.clear()
        assert library.espeak_SetVoiceByName(voice.encode()) == 0
        raw = text.encode()
        said = library.espeak_Synth(raw, len(raw) + 1, 0, CHARACTERS, 0, UTF8, None, None)
        assert said == 0 and heard
        return rate, np.concatenate(heard) / np.float64(1 << 15)

    yield speak
    library.espeak_Terminate()


def decoded(samples: np.ndarray, rate: int, form: str, subtype: str | None, target: int) -> np.ndarray:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=form, subtype=subtype)
    sound = open_sound(out)
    return np.concatenate(list(resampled(sound.pieces, sound.rate, target)))


@pytest.mark.parametrize("voice", SENTENCES)
def test_every_file_holds_the_same_speech(speak, voice):
    rate, samples = speak(voice, SENTENCES[voice])
    want = decoded(samples, rate, "WAV", "FLOAT", 24_000)
    assert len(want) > 24_000 * 2
    for form, subtype, tolerance in (
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("FLAC", "PCM_24", 1e-6),
        ("OGG", "VORBIS", 0.15),
    ):
        found = decoded(samples, rate, form, subtype, 24_000)
        assert len(found) == len(want) and np.abs(found - want).max() < tolerance, form
    both = decoded(np.stack([samples, samples], 1), rate, "FLAC", "PCM_24", 24_000)
    assert np.abs(both - want).max() < 1e-6
    found = decoded(samples, rate, "MP3", None, 24_000)  # its encoder puts silence in front
    shift = int(np.argmax(np.correlate(found[:60_000], want[:40_000], "valid")))
    common = min(len(found) - shift, len(want))
    assert np.abs(found[shift : shift + common] - want[:common]).mean() < 0.02


def test_speech_goes_through_the_models(speak, directory, tiny):
    rate, samples = speak("en", SENTENCES["en"])
    options = {"device": "cpu", "threads": 2, "stt-weights": "bf16"}
    transcriber = Transcriber.open(directory, options)
    found = []
    for form, subtype in (("WAV", "FLOAT"), ("WAV", "PCM_24"), ("FLAC", "PCM_24")):
        with transcriber.listening([decoded(samples, rate, form, subtype, transcriber.rate)]) as stream:
            found.append([(word.written, word.start) for word in stream])
    transcriber.close()
    assert found[0] and found[1] == found[2]
