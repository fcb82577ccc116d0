"""A running extension: the callback server, the registration and its heartbeat, and the channel, each on its thread."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from golem.callbacks import CallbackServer
from golem.channel import Channel
from golem.client import Client
from golem.errors import GolemError
from golem.provider import Provider, abilities
from golem.tools import tools_of

__all__ = ["Extension"]

RETRY_SECONDS = 2.0


class Extension:
    """An extension of a name, with a provider, a channel and tools, or any of these.

    `client` is the server (a Client, or its URL with `token`), by default the one that started this program.
    `provider` is (id, provider); `tools` a function, several, or what `golem.tools.tools_of` takes.
    """

    def __init__(
        self,
        name: str,
        client: Client | str | None = None,
        token: str = "",
        *,
        heartbeat_interval: float = 10.0,
        provider: tuple[str, Provider] | None = None,
        channel: Channel | None = None,
        tools: Iterable[Callable[..., Any]] | Callable[..., Any] = (),
    ):
        if not name:
            raise ValueError("name is required")
        self.name = name
        self.client = Client(client, token) if isinstance(client, str) else client or Client.from_env()
        self.heartbeat_interval = heartbeat_interval
        self.channel = channel
        self.providers: list[dict[str, Any]] = []
        if provider is not None:
            able = abilities(provider[1])
            if not able:
                raise ValueError(f"{type(provider[1]).__name__} overrides neither chat, chat_structured nor embed")
            self.providers.append({"id": provider[0], **able})
        self.tools = tools_of(tools)
        self._server = CallbackServer(self.client.token, provider[1] if provider else None, self.tools)
        self._failure: BaseException | None = None

    def run(self, stop: threading.Event | None = None) -> None:
        """Register and work until `stop` is set, or until SIGINT or SIGTERM on the main thread.

        Raises what ended the channel, if it ended by an exception.
        """
        stop = stop or threading.Event()
        before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, lambda *_: stop.set())
        threads = [
            threading.Thread(target=self._server.serve_forever, name="callbacks", daemon=True),
            threading.Thread(target=self._stay_registered, args=(stop,), name="heartbeat", daemon=True),
        ]
        for thread in threads:
            thread.start()
        while not stop.wait(0.5):
            pass
        self._server.shutdown()
        self._server.server_close()
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._failure is not None:
            raise self._failure

    def main(self) -> None:
        """Run as a program: exit status 1 when the channel failed."""
        try:
            self.run()
        except Exception:
            traceback.print_exc()
            sys.exit(1)

    def _stay_registered(self, stop: threading.Event) -> None:
        """Register, start the channel, and give signs of life; register again when the server has forgotten us."""
        registered = started = False
        complained = ""
        while not stop.is_set():
            try:
                if not registered:
                    self._register()
                    registered = True
                else:
                    self.client.heartbeat(self.name)
                complained = ""
            except GolemError as error:
                if error.status == 404 and registered:
                    registered = False
                    continue
                if str(error) != complained:
                    complained = str(error)
                    print(f"{self.name}: {error}", file=sys.stderr, flush=True)
            if registered and not started and self.channel is not None:
                started = True
                threading.Thread(target=self._run_channel, args=(stop,), name="channel", daemon=True).start()
            stop.wait(self.heartbeat_interval if registered else min(RETRY_SECONDS, self.heartbeat_interval))

    def _register(self) -> None:
        tools = [tool.definition.to_dict() for tool in self.tools.values()]
        channels = [{"id": self.channel.id or self.name}] if self.channel else []
        self.client.register(self.name, self._server.url, providers=self.providers, tools=tools, channels=channels)

    def _run_channel(self, stop: threading.Event) -> None:
        assert self.channel is not None
        try:
            self.channel.run(self.client, stop)
        except Exception as error:
            if not stop.is_set():
                self._failure = error
        finally:
            if self._failure is not None:
                with contextlib.suppress(RuntimeError):
                    stop.set()
