"""The key-value half of a weights file, as a read-only mapping whose long values are decoded when asked for.

Keys are the file's own (`general.name`, `general.file_type`); `scoped` strips a prefix off them.  Values are plain
Python: bool, int, float, str, and lists of these; a JSON file's objects stay dicts.  Bytes of a list's texts that are
not UTF-8 are kept as surrogates: `text.encode("utf-8", "surrogateescape")` gives the file's bytes back.

A file may state any type under any key.  `number`, `numbers`, `flag`, `text` and `texts` give what is of the wanted
type and range, and raise BadFile naming file, key and value for what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from reprlib import Repr
from typing import Any, TypeVar

from golem_core.errors import BadFile

T = TypeVar("T")
N = TypeVar("N", int, float)

_REQUIRED: Any = object()
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


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

    @classmethod
    def of(cls, values: Mapping[str, Any], source: object = "the file") -> Metadata:
        """`values` as Metadata: as they are if they are already, else named `source` in errors."""
        return values if isinstance(values, Metadata) else cls(source, dict(values))

    @property
    def source(self) -> object:
        """What errors call the file."""
        return self._source

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

    def number(
        self,
        key: str,
        kind: type[N],
        default: T = _REQUIRED,
        *,
        low: float | None = None,
        high: float | None = None,
        above: float | None = None,
    ) -> N | T:
        """The number under `key`, at least `low`, at most `high` and greater than `above`.

        `kind` is int or float; a float is finite, and may be stated as an integer.  `default` is what an absent key
        gives, unchecked.  Raises BadFile for an absent key without a default, another type (a bool is no number) and
        a value out of range.
        """
        if key not in self and default is not _REQUIRED:
            return default
        return self._number(key, self.required(key), kind, low, high, above)

    def numbers(
        self,
        key: str,
        kind: type[N],
        default: T = _REQUIRED,
        *,
        low: float | None = None,
        high: float | None = None,
        above: float | None = None,
    ) -> list[N] | T:
        """The list of numbers under `key`; each is held to what `number` says.  It may be the kept one."""
        if key not in self and default is not _REQUIRED:
            return default
        values = self._list(key, "numbers")
        # There may be hundreds of thousands: they are looked at one by one only to name the first that is wrong.
        right = set(map(type, values)) <= ({int} if kind is int else {float})
        right = right and (kind is int or all(map(isfinite, values)))
        if right and values and _within(min(values), max(values), low, high, above):
            return values
        return [self._number(f"{key}[{index}]", value, kind, low, high, above) for index, value in enumerate(values)]

    def flag(self, key: str, default: T = _REQUIRED) -> bool | T:
        """The bool under `key`, or `default` where the key is absent; BadFile for anything else."""
        return self._typed(key, bool, default, "true or false")

    def text(self, key: str, default: T = _REQUIRED) -> str | T:
        """The str under `key`, or `default` where the key is absent; BadFile for anything else."""
        return self._typed(key, str, default, "a text")

    def texts(self, key: str, default: T = _REQUIRED) -> list[str] | T:
        """The list of strs under `key`, or `default` where the key is absent; BadFile for anything else."""
        if key not in self and default is not _REQUIRED:
            return default
        values = self._list(key, "texts")
        if not set(map(type, values)) <= {str}:
            index = next(index for index, value in enumerate(values) if type(value) is not str)
            raise self.bad(f"{key}[{index}]", values[index], "a text was expected")
        return values

    def bad(self, key: str, value: object, reason: str) -> BadFile:
        """The error to raise about `value` under `key`: one line that names the file, the whole key and the value."""
        shown = value if type(value) in (int, bool) and len(str(value)) < 60 else _SHORT.repr(value)
        return BadFile(f"{self._source}: {self._prefix}{key} is {shown}, {reason}")

    def _typed(self, key: str, kind: type, default: Any, expected: str) -> Any:
        if key not in self and default is not _REQUIRED:
            return default
        value = self.required(key)
        if type(value) is not kind:
            raise self.bad(key, value, f"{expected} was expected")
        return value

    def _list(self, key: str, of: str) -> list[Any]:
        values = self.required(key)
        if not isinstance(values, list):
            raise self.bad(key, values, f"a list of {of} was expected")
        return values

    def _number(
        self, key: str, value: Any, kind: type, low: float | None, high: float | None, above: float | None
    ) -> Any:
        if type(value) is not int and not (kind is float and type(value) is float):
            raise self.bad(key, value, f"{'an integer' if kind is int else 'a number'} was expected")
        if kind is float:
            try:
                value = float(value)
            except OverflowError:
                raise self.bad(key, value, "a finite number was expected") from None
            if not isfinite(value):
                raise self.bad(key, value, "a finite number was expected")
        if not _within(value, value, low, high, above):
            bounds = [f"at least {low}"] if low is not None else []
            bounds += [f"above {above}"] if above is not None else []
            bounds += [f"at most {high}"] if high is not None else []
            raise self.bad(key, value, f"{' and '.join(bounds)} was expected")
        return value

    def scoped(self, prefix: str) -> Metadata:
        """The keys that begin with `prefix` and a dot, without them; or what is inside a JSON object `prefix`."""
        inner = self.get(prefix)
        if isinstance(inner, dict):
            return Metadata(f"{self._source}: {prefix}", inner)
        return Metadata(self._source, self._values, f"{self._prefix}{prefix}.")


def _within(least: float, most: float, low: float | None, high: float | None, above: float | None) -> bool:
    """Whether all between `least` and `most` is within the bounds that there are."""
    return (low is None or least >= low) and (above is None or least > above) and (high is None or most <= high)
