"""Networks that do nothing but tell what was asked of them, on devices that count, for tests of who does what when."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
from golem_krea2.studio import Networks


class Devices:
    """Opens devices with so much memory, and knows which are open."""

    def __init__(self, memory: int | None = None):
        self.memory, self.opened, self.open = memory, 0, set()

    def __call__(self) -> Device:
        return Device(self)


class Device:
    name = "counted"

    def __init__(self, owner: Devices):
        self.owner = owner
        owner.opened += 1
        owner.open.add(self)

    def free_memory(self) -> int | None:
        return self.owner.memory

    def close(self) -> None:
        self.owner.open.remove(self)


@dataclass
class Log:
    """What happened, in order; and a gate at which every step waits until it is let through."""

    events: list[str] = field(default_factory=list)
    gate: threading.Semaphore | None = None
    fail: str = ""
    """The event at which something breaks."""

    def __call__(self, event: str) -> None:
        self.events.append(event)
        if self.fail and event.startswith(self.fail):
            raise RuntimeError(f"broken at {event}")

    def networks(self) -> Networks:
        return Networks(
            encoder=lambda files, device, brackets, progress: FakeEncoder(self),
            dit=lambda files, device, lora, columns, progress: FakeDiT(self, lora, columns, progress),
            decoder=lambda files, device: FakeDecoder(self),
            lora=self.lora,
        )

    def lora(self, path, files):
        self(f"read {path.name}")
        return path.name

    def wait_for(self, event: str, count: int = 1, within: float = 10.0) -> None:
        end = time.monotonic() + within
        while sum(each.startswith(event) for each in self.events) < count:
            assert time.monotonic() < end, f"{event} did not happen: {self.events}"
            time.sleep(0.002)


class Fake:
    def __init__(self, log: Log, name: str):
        self.log, self.name = log, name
        log(f"open {name}")

    def close(self) -> None:
        self.log.events.append(f"close {self.name}")


class FakeEncoder(Fake):
    def __init__(self, log: Log):
        super().__init__(log, "encoder")

    def encode(self, prompt: str) -> np.ndarray:
        self.log(f"encode {prompt!r}")
        return np.full((5, 2, 3), len(prompt), np.float32)


class FakeDiT(Fake):
    def __init__(self, log: Log, lora, columns: int, progress):
        super().__init__(log, f"dit {lora}" if lora else "dit")
        progress(1, 2)
        self.columns = columns

    def text(self, c: np.ndarray, strength: float = 1.0) -> np.ndarray:
        self.log(f"text at {strength:g}")
        return c[:, 0]

    def velocity(self, z: np.ndarray, sigma: float, text: np.ndarray, strength: float = 1.0) -> np.ndarray:
        assert len(text) + z.shape[1] * z.shape[2] // 4 <= self.columns
        self.log(f"step {sigma:.4f}")
        if self.log.gate is not None:
            assert self.log.gate.acquire(timeout=10)
        return z * np.float32(0.5) + text[0, 0] * np.float32(0.01)


class FakeDecoder(Fake):
    def __init__(self, log: Log):
        super().__init__(log, "decoder")

    def decode(self, z: np.ndarray) -> np.ndarray:
        self.log("decode")
        picture = np.clip(z[:3] * 40 + 128, 0, 255).astype(np.uint8)
        return np.ascontiguousarray(picture.transpose(1, 2, 0)).repeat(8, 0).repeat(8, 1)
