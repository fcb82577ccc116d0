"""Where a network lies: on a device of its own, which is closed with it, so that what it took is given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golem_core import Device

GUESTS = 4
"""LoRAs whose matrices a device takes beside the DiT's; at the next one it begins anew."""


class Place:
    """A network on a device of its own, or nothing."""

    def __init__(self, open_device: Callable[[], Device]):
        self._open = open_device
        self.device: Device | None = None
        self.network: Any = None
        self.made_of: Any = None
        self._seen: list[Any] = []

    def get(self, made_of: Any, make: Callable[[Device], Any]) -> Any:
        """The network that is here if it was made of the same, else the one that `make` makes on the device."""
        if self.network is None or self.made_of is not made_of:
            self.rest()
            if made_of is not None and made_of not in self._seen:
                if len(self._seen) == GUESTS:
                    self.close()
                self._seen.append(made_of)
            if self.device is None:
                self.device = self._open()
            self.network, self.made_of = make(self.device), made_of
        return self.network

    def rest(self) -> None:
        """Give back what passes work in; the device keeps the weights."""
        network, self.network, self.made_of = self.network, None, None
        if network is not None:
            network.close()

    def close(self) -> None:
        """Give back everything."""
        device, self.device, self._seen = self.device, None, []
        try:
            self.rest()
        finally:
            if device is not None:
                device.close()
