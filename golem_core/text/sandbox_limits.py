"""Which methods of texts and which filters a chat template may use, and how much those may make out of what.

A check is called before its method or filter with the number of characters in the arguments and the arguments; it
raises SecurityError if the result would be too large.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from jinja2.exceptions import SecurityError

LONGEST = 8 << 20  # characters of one text
WIDEST = 100_000  # of paddings, indentations, precisions

Check = Callable[..., None]


def _widths(*values: Any) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > WIDEST:
            raise SecurityError(f"the template asks for a width of {value}")


def _room(count: int, length: int) -> None:
    if count * length > LONGEST:
        raise SecurityError("the template makes too much text")


def check_width(characters: int, value: Any, *args: Any, **kwargs: Any) -> None:
    _widths(*args, *kwargs.values())


def check_indent(characters: int, text: Any, width: Any = 4, *args: Any, **kwargs: Any) -> None:
    _widths(width, *args)
    _room(str(text).count("\n") + 1, width if isinstance(width, int) else len(str(width)))


def check_replace(characters: int, text: Any, old: Any, new: Any, *rest: Any) -> None:
    text, old = str(text), str(old)
    _room(text.count(old), len(str(new)))


def check_join(characters: int, values: Any, separator: Any = "", attribute: Any = None) -> None:
    if hasattr(values, "__len__"):
        _room(len(values), len(str(separator)))


def check_format(characters: int, template: Any, *args: Any, **kwargs: Any) -> None:
    template = str(template)
    if _WIDE.search(template):
        raise SecurityError("the template formats with a width that is large or computed")
    _room(template.count("%") + template.count("{"), 10_000 + characters)


# A width of five digits, one taken from an argument, a field inside a field.
_WIDE = re.compile(r"\d{5}|\*|\{[^{}]*\{")


def check_sum(characters: int, values: Any, attribute: Any = None, start: Any = 0) -> None:
    if not isinstance(start, int | float):
        raise SecurityError("the template sums what are no numbers")


_PLAIN_METHODS = """
    capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit isidentifier islower
    isnumeric isprintable isspace istitle isupper lower lstrip partition removeprefix removesuffix rfind rindex
    rpartition rsplit rstrip split splitlines startswith strip swapcase title upper
"""
STRING_METHODS: dict[str, Check | None] = {
    **dict.fromkeys(_PLAIN_METHODS.split()),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), check_width),
    "replace": check_replace,
    "join": lambda characters, separator, values: check_join(characters, values, separator),
}

_PLAIN_FILTERS = """
    abs attr capitalize count d default dictsort e escape first float forceescape groupby int items last length list
    lower map max min reject rejectattr reverse safe select selectattr sort string striptags title trim unique upper
    urlencode wordcount
"""
FILTERS: dict[str, Check | None] = {
    **dict.fromkeys(_PLAIN_FILTERS.split()),
    **dict.fromkeys(("batch", "center", "round", "slice", "truncate"), check_width),
    "format": check_format,
    "indent": check_indent,
    "join": check_join,
    "replace": check_replace,
    "sum": check_sum,
}

# Filters that print or compare their arguments all the way down.
_PRINTING = """
    capitalize center dictsort e escape forceescape format groupby indent join lower max min replace sort string
    striptags title trim truncate unique upper urlencode wordcount
"""
PRINTING_FILTERS = frozenset(_PRINTING.split())
