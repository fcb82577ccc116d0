"""Who may use the hub's routes: requests to this machine's own name, from programs, with the hub's token.

The checks come in this order: host, origin, token.  A page in a browser fails at the second, whatever it knows.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from typing import Any

from golem_core.server.errors import Refusal

__all__ = ["admission"]


def admission(token: str, *, local: bool) -> Callable[[Any], Refusal | None]:
    """A function from an ASGI scope to why it is refused, or None.

    `local` asks for a Host that is this machine's loopback; an empty token is asked of nobody.
    """
    expected = token.encode()

    def refusal(scope: Any) -> Refusal | None:
        headers = dict(reversed(scope["headers"]))
        host = headers.get(b"host", b"").decode("latin-1").strip().lower()
        if local and not _is_loopback(host):
            return Refusal(403, "a loopback Host is required")
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get(b"origin")
            if origin is not None and origin.decode("latin-1").lower() != f"{scope['scheme']}://{host}":
                return Refusal(403, "cross-origin requests are refused")
            if headers.get(b"sec-fetch-site", b"").strip().lower() in (b"cross-site", b"same-site"):
                return Refusal(403, "cross-origin requests are refused")
        scheme, given = headers.get(b"authorization", b"")[:7], headers.get(b"authorization", b"")[7:].strip()
        if expected and not (hmac.compare_digest(given, expected) and scheme == b"Bearer "):
            return Refusal(401, "unauthorized", headers={"www-authenticate": "Bearer"})
        return None

    return refusal


def _is_loopback(host: str) -> bool:
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        if not closed:
            return False
    else:
        name, colon, port = host.partition(":")
        rest = colon + port
    if rest and not (rest[0] == ":" and rest[1:].isdigit()):
        return False
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
