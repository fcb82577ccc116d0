"""`python -m golem`: run an extension out of its entry points, as the server does.

--name NAME [--provider ID=MODULE:CLASS] [--channel ID=MODULE:CLASS] [--tools MODULE:ATTRIBUTE]
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

from golem.extension import Extension

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Run the extension that the arguments describe, until it is told to stop."""
    values = _read(arguments)
    parts: dict[str, Any] = {}
    for kind in ("provider", "channel"):
        if kind in values:
            identity, separator, entrypoint = values[kind].partition("=")
            if not separator or not identity:
                _wrong(f"invalid {kind} {values[kind]!r}: expected ID=MODULE:CLASS")
            made = _load(entrypoint)()
            if kind == "channel":
                made.id = identity
            parts[kind] = (identity, made) if kind == "provider" else made
    if "tools" in values:
        parts["tools"] = _load(values["tools"])
    Extension(values["name"], **parts).main()


def _read(arguments: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    left = list(arguments)
    while left:
        argument = left.pop(0)
        option, equals, value = argument.partition("=")
        name = option.removeprefix("--")
        if not option.startswith("--") or name not in ("name", "provider", "channel", "tools"):
            _wrong(f"unknown argument {argument!r}")
        if not equals:
            if not left:
                _wrong(f"{option} needs a value")
            value = left.pop(0)
        if name in values:
            _wrong(f"{name} already set")
        values[name] = value
    if not values.get("name"):
        _wrong("name is required")
    if values.keys() == {"name"}:
        _wrong("pass --provider, --channel, or --tools")
    return values


def _load(entrypoint: str) -> Any:
    module, separator, attribute = entrypoint.partition(":")
    if not separator or not module or not attribute:
        _wrong(f"invalid entrypoint {entrypoint!r}: expected MODULE:ATTRIBUTE")
    loaded = importlib.import_module(module)
    if not hasattr(loaded, attribute):
        _wrong(f"{loaded.__name__} has no {attribute}, which the entrypoint {entrypoint!r} names")
    return getattr(loaded, attribute)


def _wrong(message: str) -> NoReturn:
    print(f"golem: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
