"""The base of channels: programs that bring people's texts to the server and its answers to them."""

from __future__ import annotations

import threading

from golem.client import Client

__all__ = ["Channel"]


class Channel:
    """A channel.  `id` is its name; `run` works until `stop` is set."""

    id = ""

    def run(self, client: Client, stop: threading.Event) -> None:
        """Bring texts to the server.  An exception ends the program, and the server starts it again."""
        raise NotImplementedError(f"{type(self).__name__}.run")
