"""The rows of the table of ops that attend, over rings and among the columns of a pass."""

from __future__ import annotations

from golem_core import Columns, KVRing

from .case import SEVERAL, case, columns, x
from .weights import random_weight

for _heads, _kv_heads, _dim in ((1, 1, 16), (4, 2, 32), (6, 2, 64), (4, 1, 48), (16, 2, 16)):
    for _window in (None, 9):

        @case(
            f"attend-{_heads}of{_kv_heads}x{_dim}-{_window}",
            passes=SEVERAL,
            tolerance=1e-5,
            half_tolerance=3e-3,
            byte_tolerance=3e-2 if _dim % 32 == 0 else None,
        )
        def _(g, rng, heads=_heads, kv_heads=_kv_heads, dim=_dim, window=_window):
            q, k, v = x(g, rng, heads, dim), x(g, rng, kv_heads, dim), x(g, rng, kv_heads, dim)
            cache = g.store(k, v, KVRing(kv_heads, dim, window))
            g.output("y", g.attend(q, cache, scale=dim**-0.5, window=window))


@case("attend-turned-shared", passes=SEVERAL, tolerance=2e-5, half_tolerance=3e-3, byte_tolerance=3e-2)
def _(g, rng):
    """Keys normed and rotated on the way into the ring, two readers with masks of their own, keys that are values."""
    q, k = x(g, rng, 4, 32), x(g, rng, 2, 32)
    w = random_weight(rng, "w", "F32", 32)
    for pairs in ("halves", "neighbours"):
        keys = g.rope(g.rms_norm(k, w, eps=1e-6), base=1e4, pairs=pairs)
        cache = g.store(keys, g.rms_norm(k, eps=1e-6), KVRing(2, 32))
        turned = g.rope(q, base=1e4, pairs=pairs)
        g.output(pairs, g.attend(turned, cache, scale=0.2))
        g.output(pairs + "-windowed", g.attend(turned, cache, scale=0.2, window=5))


@case("attend-turned-at", passes=SEVERAL, tolerance=2e-5, half_tolerance=3e-3, byte_tolerance=3e-2)
def _(g, rng):
    """Keys turned by places on their way into the ring, normed and not, in one block and in two."""
    q, k, at = x(g, rng, 4, 32), x(g, rng, 2, 32), x(g, rng, 3, scale=20.0)
    w = random_weight(rng, "w", "F32", 32)
    for pairs, blocks in (("halves", 1), ("neighbours", 1), ("halves", 2)):
        how = {"frequencies": tuple(10.0 ** -(j / 8) for j in range(14)), "axes": (0, 1, 2, 1) * 3 + (0, 0)}
        for name, keys in (("normed", g.rms_norm(k, w, eps=1e-6)), ("plain", g.silu(k))):
            cache = g.store(g.rope_at(keys, at, **how, pairs=pairs, blocks=blocks), k, KVRing(2, 32))
            turned = g.take(g.rope_at(q, at, **how, pairs=pairs, blocks=blocks))
            g.output(f"{pairs}-{blocks}-{name}", g.attend(turned, cache, scale=0.2))


@case("attend-softcap", passes=SEVERAL, tolerance=1e-5, half_tolerance=3e-3, byte_tolerance=3e-2)
def _(g, rng):
    q, k, v = x(g, rng, 4, 64), x(g, rng, 2, 64), x(g, rng, 2, 64)
    cache = g.store(k, v, KVRing(2, 64))
    g.output("y", g.attend(q, cache, scale=0.5, softcap=3.0))
    g.output("windowed", g.attend(q, cache, scale=0.125, softcap=5.0, window=7))


def long(first: int, step: int, last: int) -> list[Columns]:
    """A prompt read in chunks of `step` columns, whose last pass alone is scored, then single columns."""
    chunks = [columns([(0, at, step)], scored=[], seed=at) for at in range(first, last - step, step)]
    return [*chunks, columns([(0, last - step, step)], [0, step // 2, step - 1]), columns([(0, last, 1)])]


for _name, _last, _window in (("4k", 4096, None), ("16k-windowed", 16_384, 1000)):

    @case(f"attend-{_name}", passes=long(0, 512, _last), tolerance=1e-5, half_tolerance=3e-3, byte_tolerance=6e-2)
    def _(g, rng, window=_window):
        q, k, v = g.take(x(g, rng, 4, 32)), x(g, rng, 2, 32), x(g, rng, 2, 32)
        cache = g.store(g.rope(k, base=1e6), v, KVRing(2, 32, window))
        g.output("y", g.attend(g.rope(q, base=1e6), cache, scale=0.4, window=window))


def seeing(runs: list[tuple[int, int, int]], *spans: tuple[int, int], seed: int) -> Columns:
    """The same columns, of which those from `first` to `stop` see each other."""
    plain = columns(runs, seed=seed)
    last = plain.position.copy()
    for first, stop in spans:
        last[first:stop] = plain.position[stop - 1]
    return Columns(plain.token, plain.position, plain.slot, plain.scored, last=last)


# Pictures of several sizes, at the beginning, the middle and the end of a chunk, longer and shorter than the window.
SPANS = [
    seeing([(0, 0, 20), (1, 0, 37)], (3, 9), (21, 50), seed=1),
    seeing([(0, 20, 33)], (0, 33), seed=2),
    seeing([(1, 37, 1), (0, 53, 5)], (4, 6), seed=3),
    columns([(0, 58, 1), (1, 38, 2)], seed=4),
]
for _window in (None, 9, 40):

    @case(f"attend-spans-{_window}", passes=SPANS, tolerance=1e-5, half_tolerance=3e-3, byte_tolerance=6e-2)
    def _(g, rng, window=_window):
        q, k, v = x(g, rng, 4, 32), x(g, rng, 2, 32), x(g, rng, 2, 32)
        cache = g.store(k, v, KVRing(2, 32, window))
        g.output("y", g.attend(q, cache, scale=0.2, window=window, spans=True))
        g.output("causal", g.attend(q, cache, scale=0.2, window=window, softcap=5.0))


# Texts end to end: one alone, several of very different lengths, some rows of which are asked for.
TEXTS = [
    columns([(0, 0, 1)], seed=1),
    columns([(0, 0, 70)], scored=[0, 69, 33], seed=2),
    columns([(2, 0, 5), (0, 0, 40), (4, 0, 1), (1, 0, 17), (3, 0, 130)], scored=[192, 4, 5, 45], seed=3),
    columns([(4, 0, 16), (3, 0, 32), (2, 0, 33)], scored=[], seed=4),
]
for _heads, _kv_heads, _dim in ((1, 1, 16), (3, 3, 64), (6, 2, 32), (4, 1, 48), (2, 2, 20)):
    for _window in (None, 0, 9):

        @case(f"attend_columns-{_heads}of{_kv_heads}x{_dim}-{_window}", passes=TEXTS, tolerance=1e-5)
        def _(g, rng, heads=_heads, kv_heads=_kv_heads, dim=_dim, window=_window):
            y = x(g, rng, 40)
            q, k, v = (
                g.linear(y, random_weight(rng, name, "F32", n * dim, 40, scale=0.2)).heads(n)
                for name, n in (("q", heads), ("k", kv_heads), ("v", kv_heads))
            )
            turned = g.rope(q, base=1e4, dims=dim & -2)
            g.output("y", g.attend_columns(turned, k, v, scale=dim**-0.5, window=window))
            last = g.linear(g.take(y), random_weight(rng, "last", "F32", heads * dim, 40, scale=0.2)).heads(heads)
            g.output("scored", g.attend_columns(last, k, v, scale=dim**-0.5, window=window))
