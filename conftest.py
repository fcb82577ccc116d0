"""What holds for every test, whoever starts them."""

from __future__ import annotations

import contextlib
import io
import signal
import time

import pytest

# A shell that runs the tests behind it (`make test &`) has them ignore interrupts, which programs that they start
# would inherit: what is tested is how those answer one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Printed(io.StringIO):
    """Standard error that threads may print on while a test reads: reading takes nothing away, so nothing is lost."""

    def lines(self, count: int = 1, begin: str = "", within: float = 10.0) -> list[str]:
        """The lines that begin so, as soon as there are `count` of them, or those there are after `within` seconds."""
        end = time.monotonic() + within
        while True:
            text = self.getvalue()
            found = [line for line in text[: text.rfind("\n") + 1].splitlines() if line.startswith(begin)]
            if len(found) >= count or time.monotonic() > end:
                return found
            time.sleep(0.005)

    def until(self, part: str, within: float = 10.0) -> str:
        """Everything, as soon as `part` is in it.  Fails after `within` seconds."""
        end = time.monotonic() + within
        while part not in (text := self.getvalue()):
            assert time.monotonic() < end, f"{part!r} is missing in {text!r}"
            time.sleep(0.005)
        return text


@pytest.fixture
def printed() -> Printed:
    """What this process prints on standard error during the test."""
    return Printed()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    stream = pyfuncitem.funcargs.get("printed")
    with contextlib.redirect_stderr(stream) if stream is not None else contextlib.nullcontext():
        return (yield)
