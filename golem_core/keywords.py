"""What is said of a keyword that a function of the Python API does not take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable


def check_keywords(
    function: Callable[..., object], given: Iterable[str], more: Callable[[], Iterable[str]], otherwise: str = ""
) -> None:
    """Raises TypeError for the first of `given` that is none of `more()`.

    `given` are the keywords that stand for no parameter of `function`.  What is said names the parameter or the
    keyword that is near, and else `otherwise`, by default all keywords.
    """
    for name in given:
        more_names = [*more()]
        if name not in more_names:
            import difflib

            parameters = inspect.signature(function).parameters.values()
            own = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
            names = [*own, *(each for each in more_names if each not in own)]
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else otherwise or f"it takes {', '.join(names)}"
            raise TypeError(f"{name!r} is no keyword of {function.__name__}; {hint}")
