"""The forward pass gives what transformers and torch give, whatever else is in the pass."""

from __future__ import annotations

import numpy as np
import pytest
from golem_laya import encoder
from golem_laya.decider import ActHead, Asked
from golem_laya.questions import KINDS, Question
from golem_laya.sequences import Fed

from golem_core import Columns, Graph, Reference
from golem_core.cpu.device import CpuDevice

TOLERANCE = 1e-4


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest value expected."""
    assert got.shape == expected.shape
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def waypoints(checkpoint) -> Graph:
    """A graph with everything that the reference has, for every position."""
    cfg, weights, g = checkpoint.config, checkpoint.file.weights, Graph()
    states = encoder.encoder_states(g, cfg, weights)
    rows = encoder.head_states(g, cfg, weights, states[-1])
    for i, state in enumerate(states):
        g.output(f"encoder {i}", state)
    for j, row in enumerate(rows):
        g.output(f"head {j}", row)
    g.output("logit", encoder.score(g, weights, rows[-1]))
    return g


def columns(checkpoint, expected, name: str, slot: int = 0) -> Columns:
    ids, kind = expected[f"{name}.ids"], int(expected[f"{name}.kind"])
    kinds = np.repeat(checkpoint.file.weights.type_emb.dequantize()[kind][None], len(ids), axis=0)
    everywhere = np.arange(len(ids))
    return Columns(ids, everywhere, np.full(len(ids), slot), everywhere, inputs={"kind": kinds})


@pytest.mark.parametrize("runner", ["reference", "cpu"])
def test_every_block_gives_what_transformers_and_torch_give(checkpoint, expected, runner):
    graph = waypoints(checkpoint)
    run = Reference(graph).run if runner == "reference" else CpuDevice(threads=2).compile(graph, scored=64).run
    out = run(columns(checkpoint, expected, "a"))
    errors = {f"encoder {i}": error(out[f"encoder {i}"], each) for i, each in enumerate(expected["a.encoder"][:-1])}
    errors["final"] = error(out[f"encoder {len(expected['a.encoder'])}"], expected["a.final"])
    errors |= {f"head {j}": error(out[f"head {j}"], each) for j, each in enumerate(expected["a.head"])}
    errors["logits"] = error(out["logit"][expected["a.marks"], 0], expected["a.logits"])
    assert max(errors.values()) < TOLERANCE, errors


def asked(expected, name: str) -> Asked:
    kind = KINDS[int(expected[f"{name}.kind"])]
    question = Question(name, kind, "", (), (), {})
    return Asked(question, Fed(expected[f"{name}.ids"].tolist(), expected[f"{name}.marks"].tolist()))


def test_logits_and_act_probabilities_are_the_references(decider, expected):
    act = ActHead(decider.checkpoint.file.weights)
    for name, (row, logits) in zip("abc", decider.run([asked(expected, each) for each in "abc"]), strict=True):
        assert np.abs(logits - expected[f"{name}.logits"]).max() < TOLERANCE
        assert abs(act(row, logits) - expected[f"{name}.act"]) < TOLERANCE


def test_a_sequence_gives_the_same_bits_alone_and_in_company(decider, expected):
    together = [(row.copy(), logits.copy()) for row, logits in decider.run([asked(expected, each) for each in "bac"])]
    for name, (row, logits) in zip("bac", together, strict=True):
        ((alone, alone_logits),) = decider.run([asked(expected, name)])
        assert np.array_equal(alone, row) and np.array_equal(alone_logits, logits)
