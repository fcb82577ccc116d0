"""Command-line options as records: one `Option` per flag, with its environment variable and its type.

The core declares its own here and plugins return theirs from `golem_options`.  Values arrive as text from
the command line or the environment; a type is a function from that text that raises ValueError saying what
it expected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "CORE_OPTIONS",
    "Address",
    "Option",
    "address",
    "duration",
    "folder",
    "keys",
    "kv",
    "natural",
    "origin",
    "origins",
    "positions",
    "positive",
    "token",
]


@dataclass(frozen=True)
class Option:
    """One option of `golem serve`, or of the commands named in `commands`; "*" is every one that takes options.

    `name` is the long name without dashes ("cache-ttl"); it is accepted with one dash and with two, and is the
    key under which the value is found in `server.options`.  `env` defaults to GOLEM_ and the name in capitals;
    a flag on the command line beats it.  `type` turns text into the value and raises ValueError with what it
    expected; `bool` makes a switch.  `example` is what stands for the value in the help text.
    """

    name: str
    help: str
    type: Callable[[str], Any] = str
    default: Any = None
    env: str | None = None
    example: str = "TEXT"
    commands: tuple[str, ...] = ("serve",)

    @property
    def variable(self) -> str:
        """The environment variable that stands in for the flag."""
        return self.env or "GOLEM_" + self.name.upper().replace("-", "_")


@dataclass(frozen=True)
class Address:
    """Where to listen: a host ("" means every interface) and a port (0 lets the system choose)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """Read "HOST:PORT", ":PORT" or "[IPv6]:PORT"."""
    found = re.fullmatch(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]]*)):(?P<port>[0-9]{1,5})", text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError("expected HOST:PORT or :PORT, with a port of 0 to 65535")
    return Address(found["six"] or found["host"] or "", int(found["port"]))


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    return _whole(text, 1)


def positions(text: str) -> int:
    """Read a whole number of at least 2: a token that is read, and one that is drawn."""
    return _whole(text, 2)


def natural(text: str) -> int:
    """Read a whole number of at least 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]+", text):
        raise ValueError(f"expected a whole number of at least {least}")
    if len(text.lstrip("0")) > 18 or int(text) < least:
        raise ValueError(f"expected a whole number from {least} to {10**18 - 1}")
    return int(text)


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h)"


def duration(text: str) -> float:
    """Read a duration in Go's notation ("90s", "5m", "1h30m", "0") as seconds."""
    if text.strip() in ("0", "+0"):
        return 0.0
    if not re.fullmatch(rf"\+?(?:{_PART})+", text.strip()):
        raise ValueError('expected a duration such as "90s", "5m" or "1h30m"')
    parts = re.findall(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def keys(text: str) -> tuple[str, ...]:
    """Read a list of keys separated by commas; blanks around a key do not belong to it."""
    found = tuple(key.strip() for key in text.split(",") if key.strip())
    if not found:
        raise ValueError("expected at least one key")
    return found


def kv(text: str) -> str:
    """Read how keys and values are kept."""
    if text.strip().lower() not in ("f16", "f32", "q8_0"):
        raise ValueError("expected f16, f32 or q8_0")
    return text.strip().lower()


def token(text: str) -> str:
    """Read a token that goes into a header: visible ASCII characters, or nothing."""
    if not all("!" <= character <= "~" for character in text.strip()):
        raise ValueError("expected visible ASCII characters")
    return text.strip()


def origins(text: str) -> tuple[str, ...]:
    """Read a list of web origins separated by commas: "http://localhost:3000", or "*" for every one."""
    found = tuple(each.strip().removesuffix("/").lower() for each in text.split(",") if each.strip())
    for each in found:
        if each != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", each):
            raise ValueError(f'expected origins such as "https://example.org:8443", or "*", not {each!r}')
    if not found:
        raise ValueError("expected at least one origin")
    return found


def folder(text: str) -> str:
    """Read the path of a folder that is there."""
    if not os.path.isdir(text):
        raise ValueError("expected a folder that is there")
    return text


def origin(text: str) -> str:
    """Read the origin of a server: "http://golem.example:8080", with nothing behind it but a slash."""
    found = text.strip().removesuffix("/").lower()
    if not re.fullmatch(r"https?://(\[[0-9a-f:.]+\]|[^/?#@\s:\[\]]+)(:\d{1,5})?", found):
        raise ValueError('expected an origin such as "http://golem.example:8080"')
    return found


_BOTH = ("serve", "run")
_ALL = (*_BOTH, "bench")

CORE_OPTIONS = (
    Option("model", "The conversation model: a GGUF file or a directory.", example="FILE", commands=_ALL),
    Option(
        "mmproj",
        "The projector beside the model: pictures and recordings in conversations.",
        example="FILE",
        commands=_BOTH,
    ),
    Option(
        "media-path",
        "The only folder whose files requests may name as pictures and recordings.",
        folder,
        example="DIR",
    ),
    Option("embed", "The embedding model: a GGUF file or a directory.", example="FILE", commands=("serve", "embed")),
    Option(
        "addr", "Where to listen; :PORT is every interface.", address, Address("127.0.0.1", 8080), example="HOST:PORT"
    ),
    Option("context", "Positions held, divided among the conversations.", positions, 4096, example="N", commands=_BOTH),
    Option("n", "Tokens an answer may have unless the request says.", positive, 1024, example="N", commands=_BOTH),
    Option("parallel", "Conversations held at once.", positive, 1, example="N"),
    Option(
        "cache-ttl", "How long an idle conversation is remembered; 0 is for ever.", duration, 0.0, example="DURATION"
    ),
    Option(
        "checkpoints",
        "Copies kept per conversation of a state that can't be rewound; for recurrent models.",
        natural,
        3,
        example="N",
    ),
    Option(
        "draft-n",
        "Tokens guessed ahead for a lone conversation; 0 is none. By default one, if the file can and it pays.",
        natural,
        example="N",
        commands=_BOTH,
    ),
    Option("device", "The device that runs the model.", default="cpu", example="NAME", commands=("*",)),
    Option("threads", "Threads of the device; by default it decides.", positive, example="N", commands=("*",)),
    Option(
        "kv",
        "How the device keeps keys and values: f16, q8_0 (8 bits, half the memory of f16) or f32 (the CPU only).",
        kv,
        "f16",
        example="TYPE",
        commands=_ALL,
    ),
    Option("builtin-template", "Ignore the chat template in the file.", bool, False, commands=_BOTH),
    Option("api-key", "Ask every client for one of these keys.", keys, (), example="KEY[,KEY]"),
    Option("insecure", "Let -addr name an address that others reach, without an -api-key.", bool, False),
    Option(
        "cors",
        "Web pages that may send requests and read answers in a browser.",
        origins,
        (),
        example="ORIGIN[,ORIGIN]",
    ),
    Option("token", "The token of extensions and channels; by default a random one.", token),
    Option(
        "url",
        "The origin by which other machines reach the hub, where -addr lets them.",
        origin,
        example="ORIGIN",
        env="GOLEM_PUBLIC_URL",
    ),
    Option("tools", "Tools of this server that conversations of channels may use.", keys, (), example="NAME[,NAME]"),
    Option("metrics", "Count for Prometheus, at /metrics.", bool, False),
)
