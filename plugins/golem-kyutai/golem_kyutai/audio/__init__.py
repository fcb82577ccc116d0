"""Sound from files: what kind it is, its samples in pieces, and those at another rate."""

from __future__ import annotations

from golem_kyutai.audio.resample import Resampler, resampled
from golem_kyutai.audio.sound import BadSound, Sound, open_sound

__all__ = ["BadSound", "Resampler", "Sound", "open_sound", "resampled"]
