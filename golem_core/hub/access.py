"""Who may use the hub's routes: requests to this machine's own name, from programs, with the hub's token.

The checks come in this order: host, origin, token.  A page in a browser fails at the second, whatever it knows.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from golem_core.options import Address
from golem_core.server.guard import is_loopback
from golem_core.server.refusal import Refusal

__all__ = ["admission"]


def admission(token: str, address: Address, url: str | None = None) -> Callable[[Any], Refusal | None]:
    """A function from an ASGI scope to why it is refused, or None.

    The Host must be this machine's loopback, the host of `address`, where the server listens, or that of the origin
    `url`.  An empty token is asked of nobody.
    """
    expected = token.encode()
    known = {address.host.lower(), (urlsplit(url).hostname or "") if url else ""} - {"", "0.0.0.0", "::"}
    reason = "a loopback Host is required" if is_loopback(address.host) else "this host is not allowed"

    def refusal(scope: Any) -> Refusal | None:
        headers = dict(reversed(scope["headers"]))
        host = headers.get(b"host", b"").decode("latin-1").strip().lower()
        name = _name(host)
        if name is None or not (name in known or is_loopback(name)):
            return Refusal(403, reason)
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get(b"origin")
            if origin is not None and origin.decode("latin-1").lower() not in (f"{scope['scheme']}://{host}", url):
                return Refusal(403, "cross-origin requests are refused")
            if headers.get(b"sec-fetch-site", b"").strip().lower() in (b"cross-site", b"same-site"):
                return Refusal(403, "cross-origin requests are refused")
        scheme, given = headers.get(b"authorization", b"")[:7], headers.get(b"authorization", b"")[7:].strip()
        if expected and not (hmac.compare_digest(given, expected) and scheme == b"Bearer "):
            return Refusal(401, "unauthorized", headers={"www-authenticate": "Bearer"})
        return None

    return refusal


def _name(host: str) -> str | None:
    """The host of a Host header without its port; None for what is none."""
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        if not closed:
            return None
    else:
        name, colon, port = host.partition(":")
        rest = colon + port
    return None if not name or (rest and not (rest[0] == ":" and rest[1:].isdigit())) else name
