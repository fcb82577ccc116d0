"""Names of a package that are imported when they are first asked for, so that a program only loads what it uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exporter(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for the module `package`: `homes` has the names, parted by blanks, that each module defines.

    See PEP 562.  A name that was found is kept, so that it is looked for once.  `dir` lists the names from the first
    on: the module gets a `__dir__`, too.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    module = sys.modules[package]

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home_of[name]), name)
        setattr(module, name, found)
        return found

    module.__dir__ = lambda: sorted({*vars(module), *home_of})

    return find
