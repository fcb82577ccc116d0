"""Krea 2 on a device: settings go in and a picture comes out, one at a time.

The networks take turns: the encoder reads the prompt, the DiT takes its steps, the decoder makes pixels of them.  Each
has a device of its own, closed behind it, so that what it took is given back whatever happens.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golem_core import BadFile, BadRequest, Device, GolemError, Unavailable, free_memory, open_device
from golem_krea2 import noise
from golem_krea2.checkpoint import Files
from golem_krea2.dit import DiT
from golem_krea2.encoder import Encoder
from golem_krea2.lora import Lora
from golem_krea2.place import Place
from golem_krea2.plan import Plan, needs_of
from golem_krea2.png import png
from golem_krea2.request import Settings
from golem_krea2.sampler import sample
from golem_krea2.schedule import below_one, sigmas
from golem_krea2.tokens import LIMIT
from golem_krea2.vae import Decoder

Progress = Callable[[str], Callable[[int, int], None] | None]
"""From what is opened to what is told of its bytes, done and in all."""


class Stopped(Exception):
    """Nobody wants the picture any more."""


@dataclass(frozen=True)
class Networks:
    """How each network is opened: files, device, and for the DiT the LoRA and how many columns to be ready for."""

    encoder: Callable[..., Any] = Encoder
    dit: Callable[..., Any] = DiT
    decoder: Callable[..., Any] = Decoder
    lora: Callable[[Path, Files], Any] = Lora.read


@dataclass(frozen=True)
class Drawn:
    """A picture's file, and the seconds that it took, from its turn on."""

    png: bytes
    seconds: float


class Studio:
    """Draws pictures in turn.  `name` and `described` are what a server says of it.

    `keep`: the DiT stays on the device between pictures, and the other networks where there is room.  `source`: where
    the noise of steps comes from.  `brackets`: whether a prompt's brackets are taken out as ComfyUI takes its weights.
    """

    name = "krea2"

    def __init__(
        self,
        files: Files,
        open_device: Callable[[], Device],
        open_cpu: Callable[[], Device] | None = None,
        *,
        keep: bool = False,
        source: noise.Source | None = None,
        brackets: bool = True,
        networks: Networks | None = None,
        progress: Progress = lambda title: None,
    ):
        """Works out what memory is needed.  Raises GolemError with the numbers where the device has less.

        `open_cpu` opens the CPU, for an encoder that does not fit beside a DiT that stays.
        """
        self.files, self._source, self._brackets = files, source or noise.source(noise.DEFAULT), brackets
        self._started: dict[str, Any] = {} if self._source.text == noise.DEFAULT else {"noise": self._source.text}
        if not brackets:
            self._started["literal"] = True
        self._networks, self._progress = networks or Networks(), progress
        self._lock, self._closed = threading.Lock(), False
        self._lora: tuple[Any, Any] = (None, None)
        device = open_device()
        try:
            self.plan = Plan.make(needs_of(files), device.name, free_memory(device), keep)
            self.described = self.plan.told
        finally:
            device.close()
        self._places = {name: Place(open_device) for name in ("encoder", "dit", "decoder")}
        if self.plan.aside:
            self._places["encoder"] = Place(open_cpu or open_device)

    @classmethod
    def open(cls, path: str | Path, options: Mapping[str, Any], **settings: Any) -> Studio:
        """The networks of a ComfyUI directory, on the device that the command-line options name.

        `settings` are further keywords of the class.  Raises BadFile, Unsupported or GolemError naming what is wrong
        with directory or device.
        """
        paths = {name: options.get(f"krea2-{name}") for name in ("encoder", "dit", "vae", "tokenizer", "loras")}
        files = Files.open(path, **paths)
        try:
            return cls(
                files,
                lambda: open_device(options),
                lambda: open_device({"device": "cpu", "threads": options.get("threads")}),
                keep=bool(options.get("krea2-keep")),
                source=options.get("krea2-noise"),
                brackets=not options.get("krea2-literal"),
                **settings,
            )
        except BaseException:
            files.close()
            raise

    # ------------------------------------------------------------ before a turn

    def check(self, settings: Settings) -> None:
        """Raises BadRequest, naming the field, for what files or device rule out: too many tokens, a LoRA that is not
        there, a picture that is too large."""
        self.plan.check(settings)
        read = ["prompt"] if settings.cfg == 1 else ["prompt", "negative_prompt"]
        for field, text in zip(read, (settings.prompt, settings.negative), strict=False):
            ids, _ = self.files.tokens.prompt(text, brackets=self._brackets, field=field)
            if len(ids) > LIMIT:
                raise BadRequest(f"{field}: {len(ids)} tokens with what stands around it, at most {LIMIT}", param=field)
        if settings.lora is not None and not os.path.isfile(self.files.loras / settings.lora):
            raise BadRequest(f"lora: there is no {settings.lora!r} in the LoRA folder", param="lora")

    # ------------------------------------------------------------ drawing

    def draw(
        self,
        settings: Settings,
        told: Callable[[int], None] = lambda step: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Drawn:
        """Draw a picture, when it is this one's turn.

        `told` is called with the number of every step that is done, and `stopped` is asked between them, and between
        the networks.  Raises Stopped where it says so, Unavailable when the server ends, BadRequest for a LoRA that
        cannot be used, and what the device raises.
        """

        def go_on() -> None:
            if self._closed:
                raise Unavailable("the server is stopping")
            if stopped():
                raise Stopped

        with self._lock:
            go_on()
            start = time.perf_counter()
            try:
                picture = self._drawn(settings, told, go_on)
            except (Stopped, Unavailable, BadRequest):
                raise
            except BaseException:
                self._leave()  # what stays may be the reason
                raise
            return Drawn(png(picture, settings, self.files.name, self._started), time.perf_counter() - start)

    def _drawn(self, settings: Settings, told: Callable[[int], None], go_on: Callable[[], None]) -> np.ndarray:
        lora = self._read_lora(settings)
        texts = [settings.prompt] if settings.cfg == 1 else [settings.prompt, settings.negative]
        with self._network("encoder", None, self._encoder) as encoder:
            rows = [encoder.encode(text) for text in texts]
        go_on()
        shape = (self.files.vae_shape.latent, settings.height // 8, settings.width // 8)
        columns = max(map(len, rows)) + shape[1] * shape[2] // 4
        with self._network("dit", lora, lambda device: self._dit(device, lora, columns, go_on)) as dit:
            latent = self._sampled(dit, rows, settings, shape, told, go_on)
        go_on()
        if not self.plan.everything and not self.plan.stays_beside(settings):
            self._places["dit"].close()
        with self._network("decoder", None, lambda device: self._networks.decoder(self.files, device)) as decoder:
            return decoder.decode(latent)

    def _sampled(
        self,
        dit: Any,
        rows: list[np.ndarray],
        settings: Settings,
        shape: tuple[int, ...],
        told: Callable[[int], None],
        go_on: Callable[[], None],
    ) -> np.ndarray:
        """The latent after all steps.  The next noise is drawn while the device computes."""
        strength, cfg = settings.lora_strength, np.float32(settings.cfg)
        texts = [dit.text(each, strength) for each in rows]

        def answer(z: np.ndarray, sigma: float) -> np.ndarray:
            go_on()
            clean = [z - np.float32(sigma) * dit.velocity(z, sigma, text, strength) for text in texts]
            return clean[0] if len(clean) == 1 else clean[1] + (clean[0] - clean[1]) * cfg

        draw = self._source.open(settings.seed)
        with ThreadPoolExecutor(1, "golem-noise") as pool:
            coming = pool.submit(draw, shape)

            def fresh() -> np.ndarray:
                nonlocal coming
                drawn, coming = coming.result(), pool.submit(draw, shape)
                return drawn

            start, levels = noise.TwisterNoise(settings.seed)(shape), below_one(sigmas(settings.steps))
            latent = start
            for step, latent in enumerate(sample(answer, start, levels, fresh), 1):
                if not np.isfinite(latent).all():
                    raise GolemError(f"the DiT gave numbers that are not finite in step {step}")
                told(step)
        return latent

    def _encoder(self, device: Device) -> Any:
        progress = self._progress("loading the encoder")
        return self._networks.encoder(self.files, device, brackets=self._brackets, progress=progress)

    def _dit(self, device: Device, lora: Any, columns: int, go_on: Callable[[], None]) -> Any:
        tell = self._progress("loading the DiT")

        def progress(done: int, total: int) -> None:
            go_on()
            if tell is not None:
                tell(done, total)

        return self._networks.dit(self.files, device, lora, columns=columns, progress=progress)

    # ------------------------------------------------------------ what stays

    @contextmanager
    def _network(self, name: str, made_of: Any, make: Callable[[Device], Any]) -> Iterator[Any]:
        """A network while it is needed.  What does not stay is closed behind it, and so is what was half opened."""
        place = self._places[name]
        try:
            network = place.get(made_of, make)
        except BaseException:
            place.close()
            raise
        try:
            yield network
        finally:
            if self.plan.keep and name == "dit" and not self.plan.everything:
                place.rest()
            elif not self.plan.everything and not (self.plan.aside and name == "encoder"):
                place.close()

    def _leave(self) -> None:
        for place in self._places.values():
            place.close()

    def _read_lora(self, settings: Settings) -> Any:
        """The LoRA of a picture; the last one that was read is kept.  Raises BadRequest for one that cannot be used."""
        if settings.active_lora is None:
            return None
        path = self.files.loras / settings.active_lora
        try:
            found = path.stat()
            key = settings.active_lora, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
            if self._lora[0] != key:
                self._lora = (None, None)
                self._lora = (key, self._networks.lora(path, self.files))
        except OSError as error:
            raise BadRequest(f"lora: {settings.active_lora!r} cannot be read: {error.strerror}", param="lora") from None
        except BadFile as error:
            message = str(error).replace(str(path), settings.active_lora)
            raise BadRequest(f"lora: {message}", param="lora") from None
        return self._lora[1]

    def cancel(self) -> None:
        """End the picture under way at its next step, and let no further one begin."""
        self._closed = True

    def close(self) -> None:
        """Let go of devices and files."""
        self._closed = True
        with self._lock:
            self._leave()
            self.files.close()
