"""The hub of a server: its parts, how they come to life when the server listens, and how they end.

`hub_of(server)` makes one for a server and hooks it into its start and its end; the routes are `routes.handlers`.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from golem_core.errors import GolemError
from golem_core.hub.access import admission
from golem_core.hub.agent import Agent
from golem_core.hub.builtin_tools import builtin_tools
from golem_core.hub.callbacks import TIMEOUT, Callbacks
from golem_core.hub.config import Home
from golem_core.hub.errors import Refused
from golem_core.hub.groups import ProcessGroups
from golem_core.hub.local import Local
from golem_core.hub.memory import Memory
from golem_core.hub.providers import LocalModels, Providers
from golem_core.hub.registry import Registry
from golem_core.hub.routes import PREFIXES
from golem_core.hub.store import Store
from golem_core.hub.supervisor import Supervisor
from golem_core.hub.tools import Tools
from golem_core.hub.turns import Turns

if TYPE_CHECKING:
    from golem_core.server.app import Server

__all__ = ["Hub", "hub_of"]


class Hub:
    """Everything that the routes speak to.

    Until `start`, and where the folder cannot be used, extensions may register but no turn is taken; `store` and
    `turns` are then refused (503) with the reason.
    """

    def __init__(
        self,
        home: Home,
        token: str,
        local: LocalModels,
        tools: tuple[str, ...] = (),
        *,
        say: Callable[[str], None],
        registry: Registry | None = None,
        callback_timeout: float = TIMEOUT,
    ):
        self.home = home
        self.token = token
        self.say = say
        self.registry = registry or Registry()
        self.callbacks = Callbacks(token, callback_timeout)
        self.local = local
        self.providers = Providers(self.registry, self.callbacks, local)
        self.stopping = threading.Event()
        self.groups = ProcessGroups()
        builtin = builtin_tools(tools, home.skills, self.groups, self.stopping)
        self.tools = Tools(self.registry, self.callbacks, builtin)
        self.memory = Memory(home.memories, self.providers, home.config)
        self.supervisor = Supervisor(home, self.registry, token, say, self.groups)
        self._why_closed = "the hub has not started yet"
        self._store: Store | None = None
        self._turns: Turns | None = None
        self._lock: int | None = None

    @property
    def store(self) -> Store:
        """The conversations on disk."""
        if self._store is None:
            raise Refused(503, self._why_closed)
        return self._store

    @property
    def turns(self) -> Turns:
        """The turns under way."""
        if self._turns is None:
            raise Refused(503, self._why_closed)
        return self._turns

    def start(self, url: str) -> bool:
        """Open the folder, go on with turns that were interrupted, and start what is installed; whether the hub is on.

        The server must be listening at `url`.  A folder that cannot be used is said; the server goes on without.
        """
        try:
            self.home.make()
            self._lock = self.home.lock()
            if self._lock is None:
                raise GolemError(f"{self.home.path} is in use by another golem serve; see GOLEM_HOME")
            self._store = Store(self.home.conversations)
        except (GolemError, OSError) as error:
            self._why_closed = f"the hub is off: {error}"
            self.say(self._why_closed)
            return False
        agent = Agent(self._store, self.providers, self.tools, self.memory, self.home.config, self.say, self.stopping)
        self._turns = Turns(self._store, agent.run)
        waiting = self._turns.resume()
        if waiting:
            self.say(f"hub: going on with {waiting} turn{'s' * (waiting > 1)} that had no answer yet")
        self.supervisor.start(url)
        return True

    def stop(self) -> None:
        """End turns, calls and extensions; takes a few seconds at most."""
        self.stopping.set()
        ending = threading.Thread(target=self.supervisor.stop)
        ending.start()
        self.callbacks.close()
        self.local.close()
        if self._turns is not None:
            self._turns.stop()
        ending.join()

    def close(self) -> None:
        """Stop, and let go of the folder."""
        self.stop()
        self.groups.close()
        self.memory.close()
        if self._store is not None:
            self._store.close()
            self._store, self._why_closed = None, "the server is stopping"
            self._turns = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def hub_of(server: Server) -> Hub:
    """The hub of a server, started when it listens and stopped with it.  Raises GolemError for a wrong option."""
    from urllib.parse import urlsplit

    from golem_core.server.embedding import embedder_of
    from golem_core.server.errors import ollama_envelope
    from golem_core.server.guard import is_loopback
    from golem_core.server.log import say

    given = server.options.get("token")
    listening = server.options["addr"]
    loopback = is_loopback(listening.host)
    if given == "" and not loopback:
        raise GolemError(f"-token: an empty token needs a loopback address, and -addr is {listening}")
    url = server.options.get("url")
    if url is not None and not loopback and is_loopback(urlsplit(url).hostname or ""):
        raise GolemError(f"-url {url} names this machine only, and -addr is {listening}: name what others reach it by")
    token = secrets.token_hex(32) if given is None else given
    embedder = embedder_of(server)
    local = Local(server.chat, say, None if embedder is None else embedder.loaded)
    hub = Hub(Home(), token, local, server.options.get("tools") or (), say=say)
    refuse = admission(token, listening, url)
    for prefix in PREFIXES:
        server.envelopes[prefix] = ollama_envelope  # one text, as there
        server.admissions[prefix] = refuse

    def start(url: str) -> None:
        if hub.start(url) and given is None:
            say(f"hub: the token of extensions and channels is {token}")

    server.starting.append(start)
    server.stopping.append(hub.stop)
    server.closing.append(hub.close)
    return hub
