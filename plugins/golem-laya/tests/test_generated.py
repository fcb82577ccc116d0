"""A checkpoint whose weights a formula generates gives the numbers that were computed from it in float64."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from golem_laya import encoder
from golem_laya.checkpoint import Config, every_so_many
from golem_laya.decider import ActHead

from golem_core import Columns, Graph, Reference, Weight, Weights
from golem_core.cpu.device import CpuDevice

CONFIG = Config(211, 128, 5, 2, 72, 1e-5, every_so_many(5, 3), 8, 160_000.0, 10_000.0, 2)
MARKS = [9, 15, 22]


def generated() -> Weights:
    """Element i of the t-th tensor in the order of their names, from a hash of both (a Murmur finalizer)."""
    tensors = {}
    for t, spec in enumerate(sorted(CONFIG.tensors(), key=lambda spec: spec.name)):
        i = np.arange(np.prod(spec.shape), dtype=np.uint64)
        u = (i * 2654435761 + t * 40503 + 12345) & 0xFFFFFFFF
        for shift, factor in ((15, 2246822519), (13, 3266489917)):
            u = ((u ^ (u >> np.uint64(shift))) * np.uint64(factor)) & 0xFFFFFFFF
        u ^= u >> np.uint64(16)
        uniform = u.astype(np.float64) / 2**31 - 1
        size = 0.3 if len(spec.shape) == 1 else np.sqrt(3 / spec.shape[-1])
        norm = len(spec.shape) == 1 and ("norm" in spec.name or spec.name == "scorer.0.weight")
        centre = 1.0 if norm and spec.name.endswith("weight") else 0.0
        data = (uniform * size + centre).astype(np.float32)
        tensors[spec.name] = Weight(spec.name, "F32", spec.shape, data.view(np.uint8))
    return Weights("generated", tensors)


@pytest.mark.parametrize("runner", ["reference", "cpu"])
def test_the_numbers_are_those_of_float64(runner):
    weights, g = generated(), Graph()
    assert len(weights) == 67
    states = encoder.encoder_states(g, CONFIG, weights)
    rows = encoder.head_states(g, CONFIG, weights, states[-1])
    g.output("encoder", states[-1])
    g.output("rows", rows[-1])
    g.output("logit", encoder.score(g, weights, rows[-1]))
    n = np.arange(40)
    kinds = np.repeat(weights.type_emb.dequantize()[:1], 40, axis=0)
    given = Columns((37 * n + 11) % 211, n, 0 * n, n, inputs={"kind": kinds})
    out = (Reference(g) if runner == "reference" else CpuDevice(threads=2).compile(g, scored=40)).run(given)
    found = SimpleNamespace(**{name: value for name, value in out.items()})
    close = lambda got, expected: np.testing.assert_allclose(got, expected, atol=2e-5)
    close(np.sqrt(np.mean(found.encoder**2)), 1.0130438)
    close(found.encoder[0, :4], [1.078801, -0.332544, -1.328273, -0.209826])
    close(found.encoder[-1, -2:], [0.819407, -1.628902])
    close(np.sqrt(np.mean(found.rows**2)), 1.7787251)
    close(found.rows[0, :4], [1.78787, -2.144034, -2.002027, -0.920132])
    close(found.rows[-1, -2:], [-2.500845, -3.179291])
    logits = found.logit[MARKS, 0]
    close(logits, [0.810387, 0.181043, -0.342939])
    close(ActHead(weights)(found.rows[0], logits), 0.036718)
