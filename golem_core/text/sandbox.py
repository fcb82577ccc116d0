"""A Jinja environment for templates out of downloaded files: sandboxed, and bounded in time and memory.

Jinja's own sandbox keeps a template from Python's internals and from changing its arguments; it does not keep it from
running for ever or from building huge values.  Here every loop turn, call and comparison is a step, every text that a
template makes counts, and what prints or compares a nested value weighs it first.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from golem_core.text.sandbox_limits import FILTERS, LONGEST, PRINTING_FILTERS, STRING_METHODS, check_format

MOST_CHARACTERS = 32 * LONGEST  # of all texts made while rendering
MOST_STEPS = 2_000_000
MOST_SECONDS = 3.0  # of the rendering thread's own time


class Budget:
    """What one rendering has used; going over a limit raises SecurityError."""

    def __init__(self) -> None:
        self.steps = 0
        self.characters = 0
        self._deadline = time.thread_time() + MOST_SECONDS

    def step(self, count: int = 1) -> None:
        before = self.steps
        self.steps += count
        if self.steps > MOST_STEPS:
            raise SecurityError("the template takes too many steps")
        if before >> 4 != self.steps >> 4 and time.thread_time() > self._deadline:
            raise SecurityError("the template takes too long")

    def text(self, length: int) -> None:
        self.characters += length
        if length > LONGEST or self.characters > MOST_CHARACTERS:
            raise SecurityError("the template makes too much text")

    def measured(self, value: Any) -> Any:
        """`value`, a result, after it has been counted: a text's characters, a collection's members."""
        if isinstance(value, str):
            self.text(len(value))
        elif isinstance(value, dict | list | tuple):
            self.step(1 + (len(value) >> 3))  # references are cheap: copies of long conversations are in order
            if isinstance(value, tuple):
                self.weigh(value)  # it may become a key, and a hash goes all the way down
        elif isinstance(value, int) and value.bit_length() > 4096:
            raise SecurityError("the template makes too large a number")
        return value

    def weigh(self, *values: Any) -> int:
        """Count all that is inside of `values` as steps; returns how many characters their texts have."""
        characters = 0
        pending = list(values)
        while pending:
            value = pending.pop()
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, Namespace):
                pending.append(value._Namespace__attrs)  # type: ignore[attr-defined]
            elif isinstance(value, dict):
                self.step(len(value) + 1)
                pending += value.keys()
                pending += value.values()
            elif isinstance(value, list | tuple | KeysView | ValuesView):
                self.step(len(value) + 1)
                pending += value
            elif isinstance(value, type({}.items())):
                self.step(len(value) + 1)
                for pair in value:
                    pending += pair
        return characters


_active = threading.local()


@contextmanager
def budget() -> Iterator[Budget]:
    """A fresh budget for what this thread compiles or renders inside."""
    outer = getattr(_active, "budget", None)
    _active.budget = Budget()
    try:
        yield _active.budget
    finally:
        _active.budget = outer


def _used() -> Budget:
    return _active.budget


def guard_filter(
    function: Callable[..., Any], *, weighed: bool, check: Callable[..., None] | None = None
) -> Callable[..., Any]:
    """`function` with its arguments weighed (if it prints or compares them) and checked, and its result measured."""
    first = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        used = _used()
        used.step()
        if weighed or check is not None:
            args = (*args[:first], *(list(a) if isinstance(a, Iterator) else a for a in args[first:]))
            characters = used.weigh(*args[first:], *kwargs.values()) if weighed else 0
            if characters > LONGEST:
                raise SecurityError("the template makes too much text")
            if check is not None:
                check(characters, *args[first:], **kwargs)
        return used.measured(function(*args, **kwargs))

    return guarded


def _guarded_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        _compared(None, args)
        return function(*args, **kwargs)

    return guarded


# What the compiler below puts into a template.  They take a context so that no result is taken for a constant.
@pass_context
def _step(context: Any, value: Any) -> bool:
    _used().step()
    return True


@pass_context
def _made(context: Any, value: Any) -> Any:
    used = _used()
    if isinstance(value, dict):
        used.weigh(*(key for key in value if isinstance(key, tuple)))
    return used.measured(value)


@pass_context
def _compared(context: Any, value: Any) -> Any:
    used = _used()
    used.step()
    if isinstance(value, dict | list | tuple | Namespace):
        used.weigh(value)
    return value


@pass_context
def _joined(context: Any, values: list[Any]) -> str:
    used = _used()
    used.text(used.weigh(values))
    return "".join(map(str, values))


def _printed(value: Any) -> Any:
    used = _used()
    used.step()
    used.text(len(value) if isinstance(value, str) else used.weigh(value))
    return value


def _concat(parts: Iterable[str]) -> str:
    parts = list(parts)
    _used().text(sum(map(len, parts)))
    return "".join(parts)


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what a model wrote, for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and renders templates; both must happen inside `budget()`."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])  # type: ignore[assignment]
    concat = staticmethod(_concat)  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation], finalize=_printed)
        self.filters = {
            name: guard_filter(self.filters[name], weighed=name in PRINTING_FILTERS, check=check)
            for name, check in FILTERS.items()
        }
        self.filters.update(_step=_step, _made=_made, _compared=_compared, _joined=_joined)
        self.tests = {name: _guarded_test(test) for name, test in self.tests.items()}
        self.globals = {name: self.globals[name] for name in ("range", "dict", "namespace", "joiner", "cycler")}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _counted(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        used = _used()
        used.step()
        if operator == "*":
            for count, value in ((left, right), (right, left)):
                if isinstance(count, int) and isinstance(value, str | list | tuple):
                    most = LONGEST if isinstance(value, str) else MOST_STEPS
                    if count * len(value) > most:
                        raise SecurityError("the template repeats a value too often")
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > 4096:
                raise SecurityError("the template makes too large a number")
        elif operator == "%" and isinstance(left, str):
            check_format(used.weigh(right), left)
        return used.measured(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in STRING_METHODS
        return not isinstance(obj, bytes) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        template = value.__self__

        def checked(*args: Any, **kwargs: Any) -> str:
            check_format(_used().weigh(*args, *kwargs.values()), template)
            return wrapped(*args, **kwargs)

        return checked

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        used = _used()
        used.step()
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            check = STRING_METHODS.get(obj.__name__)
            if check is not None:
                args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
                given = {name: value for name, value in kwargs.items() if not name.startswith("_")}  # not Jinja's own
                check(used.weigh(*args), owner, *args, **given)
        elif isinstance(owner, list | tuple):
            used.weigh(owner, *args)  # index and count compare
        return used.measured(super().call(context, obj, *args, **kwargs))


def _counted(tree: nodes.Template) -> nodes.Template:
    """Make loop turns, macro calls and comparisons of `tree` steps, and have what literals and slices make measured."""
    _rewrite(tree)
    for node in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
        step = _call("_step", nodes.Const(None, lineno=node.lineno))
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(step, node.test, lineno=node.lineno)
    return tree


def _rewrite(node: nodes.Node) -> None:
    for field in node.fields:
        value = getattr(node, field)
        if isinstance(value, nodes.Node):
            _rewrite(value)
            setattr(node, field, _replacement(value))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, nodes.Node):
                    _rewrite(item)
                    value[index] = _replacement(item)


def _replacement(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.Concat):
        return _call("_joined", nodes.List(node.nodes, lineno=node.lineno))
    if isinstance(node, nodes.Compare):
        node.expr = _call("_compared", node.expr)
        for operand in node.ops:
            operand.expr = _call("_compared", operand.expr)
    elif (
        isinstance(node, nodes.List | nodes.Dict)
        or (isinstance(node, nodes.Tuple) and node.ctx == "load")
        or (isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice))
    ):
        return _call("_made", node)
    return node


def _call(name: str, value: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)
