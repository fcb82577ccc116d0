"""The key-value half of a weights file, as a read-only mapping whose long values are decoded when asked for.

Keys are the file's own (`general.name`, `general.file_type`); `scoped` strips a prefix off them.  Values are plain
Python: bool, int, float, str, and lists of these; a JSON file's objects stay dicts.  Bytes of a list's texts that are
not UTF-8 are kept as surrogates: `text.encode("utf-8", "surrogateescape")` gives the file's bytes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from golem_core.errors import BadFile


class Deferred:
    """A value that stays in the file until it is asked for; `keep`: and is decoded only once."""

    def __init__(self, decode: Callable[[], Any], *, keep: bool = True):
        self.decode, self.keep = decode, keep


class Metadata(Mapping[str, Any]):
    """Read-only mapping over a file's keys.  `values` may hold `Deferred`s, decoded when they are asked for.

    `source` names the file in errors.  Reading a deferred value raises BadFile if it is text that is not UTF-8 or
    if the file has been closed.  Lists are the kept ones: don't change them.
    """

    def __init__(self, source: object, values: dict[str, Any], prefix: str = ""):
        self._source = source
        self._values = values
        self._prefix = prefix

    def __getitem__(self, key: str) -> Any:
        name = self._prefix + key
        value = self._values[name]
        if isinstance(value, Deferred):
            deferred, value = value, value.decode()
            if deferred.keep:
                self._values[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return (key[len(self._prefix) :] for key in self._values if key.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(key.startswith(self._prefix) for key in self._values)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._prefix + key in self._values

    def __repr__(self) -> str:
        return f"<Metadata of {self._source}: {len(self)} keys{f' under {self._prefix!r}' if self._prefix else ''}>"

    def required(self, key: str) -> Any:
        """The value of `key`; BadFile naming the file and the whole key if it isn't there."""
        if key not in self:
            raise BadFile(f"{self._source}: the key {self._prefix + key!r} is missing")
        return self[key]

    def scoped(self, prefix: str) -> Metadata:
        """The keys that begin with `prefix` and a dot, without them; or what is inside a JSON object `prefix`."""
        inner = self.get(prefix)
        if isinstance(inner, dict):
            return Metadata(f"{self._source}: {prefix}", inner)
        return Metadata(self._source, self._values, f"{self._prefix}{prefix}.")
