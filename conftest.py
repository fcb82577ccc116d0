"""What holds for every test, whoever starts them."""

from __future__ import annotations

import signal

# A shell that runs the tests behind it (`make test &`) has them ignore interrupts, which programs that they start
# would inherit: what is tested is how those answer one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
