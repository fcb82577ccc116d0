"""Maps of (height, width, channels) that one column holds: enlarged."""

from __future__ import annotations

from golem_core.cpu.jit import Traced, arguments, load, loop, share, store
from golem_core.cpu.kernels.elementwise import each
from golem_core.cpu.library import kernel


@kernel("upsample")
def upsample(a: Traced, thread: Traced, threads: Traced) -> None:
    """Every place four times."""
    x, x_stride, y, y_stride, height, width, channels, count = arguments(a, 8)
    place = channels * 4
    for i in share(height * load("i64", count), thread, threads):
        c, row = i // height, i % height
        source = x + c * x_stride + row * width * place
        target = y + c * y_stride + row * width * place * 4
        for j in loop(width):

            def copy(at: Traced, t: str, j: Traced = j, source: Traced = source, target: Traced = target) -> None:
                v, to = load(t, source + j * place + at), target + j * place * 2 + at
                for k in (to, to + place, to + width * place * 2, to + width * place * 2 + place):
                    store(k, v)

            each(channels, copy)
