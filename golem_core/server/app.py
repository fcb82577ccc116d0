"""The HTTP server: what is loaded, and the start of it.

`Server` is what `golem_endpoints(server)` is given.  `serve` loads, binds, says where it listens, and runs until it is
told to stop; `web` has the application and its running.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golem_core import plugins
from golem_core.background import collect_as_usual
from golem_core.errors import GolemError
from golem_core.options import Address
from golem_core.server.guard import Admission, check_exposure
from golem_core.server.loading import LoadedChat, default_model, load_chat, with_role_of_model
from golem_core.server.log import duration, say
from golem_core.server.refusal import Envelope, ollama_envelope
from golem_core.server.totals import Totals

__all__ = ["Server", "listen", "local_url", "serve"]


@dataclass
class Server:
    """What is loaded, for the endpoints.

    `options` holds the value of every command-line option by its name, `chat` the conversation model if there
    is one, `parts` what else was asked for, under the name of the option that named it, and `name` what /v1/models
    says.  A plugin whose paths have an error envelope of their own puts it in
    `envelopes` under the path, and one whose paths let in others than those with an API key puts a function into
    `admissions`.  `starting` is called with the server's URL on this machine once it listens, `stopping` when it is
    told to stop, while answers under way are finished; what must be released at the end goes into `closing`.
    """

    name: str
    options: Mapping[str, Any]
    chat: LoadedChat | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    envelopes: dict[str, Envelope] = field(default_factory=lambda: {"/api": ollama_envelope})
    admissions: dict[str, Admission] = field(default_factory=dict)
    starting: list[Callable[[str], None]] = field(default_factory=list)
    stopping: list[Callable[[], None]] = field(default_factory=list)
    closing: list[Callable[[], None]] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)

    def close(self) -> None:
        """Release everything that was loaded."""
        for release in reversed(self.closing):
            release()
        for part in reversed(self.parts.values()):
            part.close()
        if self.chat is not None:
            self.chat.close()

    def cancel(self) -> None:
        """End every answer under way."""
        if self.chat is not None:
            self.chat.engine.cancel_all()
        for part in self.parts.values():
            part.cancel()


def listen(address: Address) -> socket.socket:
    """A socket bound to `address`; the host "" is every interface, over IPv6 too where the system has it.

    Raises GolemError naming the address when it cannot be had.
    """
    try:
        if not address.host and socket.has_dualstack_ipv6():
            bound = socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=2048)
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            bound = socket.create_server((address.host, address.port), family=family, backlog=2048)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]  # Python adds the address once more
        raise GolemError(f"-addr {address}: cannot listen there: {reason}") from None
    # asyncio sends small pieces at once (TCP_NODELAY) only on sockets that say they are TCP.
    return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, fileno=bound.detach())


def local_url(asked: Address, bound: socket.socket) -> str:
    """Where programs of this machine reach a server that was asked to listen at `asked`."""
    host = "127.0.0.1" if asked.host in ("", "0.0.0.0", "::") else asked.host
    return f"http://{Address(host, bound.getsockname()[1])}"


def serve(options: Mapping[str, Any]) -> None:
    """Load what `options` ask for, listen, and answer until told to stop.  Raises GolemError."""
    check_exposure(options["addr"], options["api-key"], options["insecure"])
    options = with_role_of_model(options)
    asked = [part for part in plugins.installed().parts() if options.get(part.option) is not None]
    path = _conversation_model(options, alone=not asked)
    if options.get("media-path") is not None and options.get("mmproj") is None:
        say(f"-media-path {options['media-path']}: nothing reads it without -mmproj")
    if options["addr"].port:
        listen(options["addr"]).close()  # an address that cannot be had is known before anything is loaded
    server = Server("", options)
    try:
        if path is not None:
            server.chat = load_chat(options, path)
        elif options.get("mmproj") is not None:
            raise GolemError(f"-mmproj {options['mmproj']}: it goes with a conversation model, and none is opened")
        for part in asked:
            loaded = server.parts[part.option] = part.open(options)
            say(loaded.described)
        server.name = server.chat.name if server.chat is not None else next(iter(server.parts.values())).name
        from golem_core.server.web import Runner, application  # while the weights are read

        app = application(server)
        if server.chat is not None:
            server.chat.ready()
            for line in _loaded(server.chat):
                say(line)
        for plugin in plugins.installed().found:
            for reason in plugin.failures:
                say(f"plugin {plugin.name} ({plugin.origin}) failed: {reason}")
        collect_as_usual()
        bound = listen(options["addr"])
        say(_listening(options["addr"], bound, server))
        url = local_url(options["addr"], bound)
        for start in server.starting:
            start(url)
        Runner(app, bound, server.stopping, server.cancel).run()
    finally:
        server.close()


def _conversation_model(options: Mapping[str, Any], alone: bool) -> Path | None:
    """The model that is named, or the preferred installed one if nothing else is asked for; None: no conversations."""
    if options["model"] is not None:
        return Path(options["model"])
    if not alone:
        return None
    try:
        label, path = default_model()
    except GolemError as error:
        raise GolemError(f"{error}{_parts_alone()}") from None
    say(f"no -model: opening {label}, {path}; name another with -model FILE or GOLEM_MODEL")
    return path


def _parts_alone() -> str:
    """What else a server may be started with."""
    options = {option.name: option for option in plugins.installed().options()}
    asked = [options[part.option] for part in plugins.installed().parts() if part.option in options]
    named = [f"-{option.name} {option.example} ({option.variable})" for option in asked]
    return f"; without one there may be {', '.join(named)}" if named else ""


def _loaded(chat: LoadedChat) -> list[str]:
    model = chat.model
    blocks = model.file.metadata.get(f"{model.architecture}.block_count")
    held = f"{chat.slot_context} positions × {chat.slots} slot{'s' * (chat.slots > 1)}"
    shape = f"{model.architecture}" + (f", {blocks} blocks" if blocks is not None else "")
    kinds = [name for kind, name in (("image", "pictures"), ("audio", "recordings")) if chat.takes(kind)]
    guesses = f", {chat.engine.draft_n} guessed ahead" if chat.engine.draft_n else ""
    return [
        f"{chat.name}: {shape}, {held}{guesses}, on {chat.device}, loaded in {duration(chat.load_seconds)}",
        f"chat template: {chat.template_origin}",
        *([f"takes {' and '.join(kinds)}"] if kinds else []),
    ]


def _listening(asked: Address, bound: socket.socket, server: Server) -> str:
    place = Address(asked.host or "localhost", bound.getsockname()[1])
    every = "" if asked.host else " on every interface"
    if server.chat is None:
        held = f"no conversations, but {' and '.join(part.name for part in server.parts.values())}"
    else:
        held = "one conversation" if server.chat.slots == 1 else f"{server.chat.slots} conversations"
        held += " at once"
    return f"listening on http://{place}/v1{every}, {held}"
