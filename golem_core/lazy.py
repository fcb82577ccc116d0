"""Names of a package that are imported when they are first asked for, so that a program only loads what it uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exporter(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for the module `package`: `homes` has the names, parted by blanks, that each module defines.

    See PEP 562.  A name that was found is kept, so that it is looked for once.  The module gets an `__all__` of these
    names, which one of its own may follow, and a `__dir__` that tells of nothing else but Python's own names.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    module = sys.modules[package]

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home_of[name]), name)
        setattr(module, name, found)
        return found

    own = vars(module)
    own["__all__"] = sorted(home_of)
    module.__dir__ = lambda: sorted({*own["__all__"], *(name for name in own if name.startswith("__"))})

    return find
