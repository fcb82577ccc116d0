"""Who may ask: API keys, and the Host and Origin headers at a server that only this machine should reach.

A page in a browser can make its own name resolve to 127.0.0.1 and so reach a server bound there (DNS
rebinding); such a request still carries the page's name as its host, which is why the name is looked at.  A page may
also send to 127.0.0.1 what it may not read the answer of; such a request carries the page's origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from golem_core.errors import GolemError
from golem_core.options import Address
from golem_core.server.log import entry
from golem_core.server.refusal import Refusal

__all__ = ["Admission", "Guard", "check_exposure", "is_local_name", "is_loopback", "is_relayed", "is_strange_page"]

Admission = Callable[[Any], "Refusal | None"]
"""From the ASGI scope of a request to why it may not pass, or None."""

_QUESTIONS = ("GET", "HEAD", "OPTIONS")
_PUBLIC = ("/", "/health", "/v1/models")
_OF_PROXIES = (b"forwarded", b"x-forwarded-for", b"x-real-ip")


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(address: Address, keys: Sequence[str], insecure: bool) -> None:
    """Raise GolemError where others could reach a server that asks nobody for a key, unless that is `insecure`."""
    if is_loopback(address.host) or keys or insecure:
        return
    place = f"{address}" if address.host else f"{address} (every interface)"
    raise GolemError(
        f"-addr {place} can be reached from other machines, and anybody there could use this server; "
        "ask for a key with -api-key KEY, keep to this machine with -addr 127.0.0.1:8080, or say -insecure"
    )


def is_local_name(header: str) -> bool:
    """Whether a Host header names this machine or its own network.

    Names are compared whole or by their last labels: localhost, *.localhost, *.local, *.internal, the machine's
    own name, loopback and private addresses.
    """
    host = header.strip().lower()
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        if rest and not (rest.startswith(":") and rest[1:].isdigit()):
            return False
    elif ":" in host:
        host, _, port = host.partition(":")
        if not port.isdigit():
            return False
    host = host.removesuffix(".")
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host in ("localhost", socket.gethostname().lower()) or host.endswith(
            (".localhost", ".local", ".internal")
        )
    return number.is_loopback or number.is_private


def is_strange_page(origin: str, own: str, listed: Sequence[str]) -> bool:
    """Whether an Origin header is of a page of the web that is neither the server's `own` origin nor `listed`.

    "null" stands for pages that don't tell; a page can't send another scheme than http and https (RFC 6454).
    """
    origin = origin.strip().lower()
    return origin.startswith(("http://", "https://", "null")) and origin != own and not {"*", origin} & {*listed}


def is_relayed(scope: Any) -> bool:
    """Whether a proxy says in the headers of a request, given as its ASGI scope, that it passes it on for another
    machine (RFC 7239, and the two headers that were there before)."""
    return any(name in _OF_PROXIES for name, _ in scope["headers"])


class Guard:
    """ASGI middleware that refuses strangers before anything else looks at their request.

    `local` turns the look at the Host header on, and at the Origin header of what is more than a question; `origins`
    are those of pages that may ask all the same ("*" is every page).  `keys` are the keys of which a client must
    present one, none meaning that no key is asked for.  `admissions` are asked instead about paths under their
    prefixes.  `answer(scope, refusal)` makes the response.
    """

    def __init__(
        self,
        app: Any,
        *,
        local: bool,
        keys: Sequence[str],
        answer: Callable[[Any, Refusal], Any],
        admissions: Mapping[str, Admission] | None = None,
        origins: Sequence[str] = (),
    ):
        self.app = app
        self.local = local
        self.keys = [key.encode() for key in keys]
        self.answer = answer
        self.admissions = admissions or {}
        self.origins = origins

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self.refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        entry(scope).refusal = refusal.message
        await self.answer(scope, refusal)(scope, receive, send)

    def refusal(self, scope: Any) -> Refusal | None:
        """Why this request may not pass, or None."""
        path = re.sub("/+", "/", scope["path"])  # as the router reads it
        for prefix, admission in self.admissions.items():
            if path == prefix or path.startswith(prefix + "/"):
                return admission(scope)
        headers = dict(reversed(scope["headers"]))
        host = headers.get(b"host", b"").decode("latin-1")
        if self.local and not is_local_name(host):
            return Refusal(403, f"this server answers its own machine only, and not as {host!r}; see -addr")
        origin = headers.get(b"origin", b"").decode("latin-1")
        own = f"{scope['scheme']}://{host.strip().lower()}"
        if self.local and scope["method"] not in _QUESTIONS and is_strange_page(origin, own, self.origins):
            return Refusal(403, f"this server does nothing for pages of {origin!r}; -cors lists pages that may ask")
        if not self.keys or scope["path"].rstrip("/") in ("", *_PUBLIC) or scope["path"].startswith("/v1/models/"):
            return None
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        given = bearer.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        if any([hmac.compare_digest(given, key) for key in self.keys]):
            return None
        found = "the key given is not one of this server's" if given else "this server asks for a key"
        message = f"{found}; send it as Authorization: Bearer KEY or X-Api-Key: KEY"
        return Refusal(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
