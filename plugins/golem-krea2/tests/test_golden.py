"""Networks whose weights a formula generates give the numbers that were computed from them in float64."""

from __future__ import annotations

import numpy as np
import pytest
from golem_krea2.dit import DiT
from golem_krea2.encoder import graph
from golem_krea2.vae import Decoder

from golem_core import Columns


def near(got: np.ndarray, tolerance: float, rms: float, first: list[float], last: list[float]) -> None:
    flat = got.astype(np.float64).reshape(-1)
    assert np.sqrt(np.mean(flat**2)) == pytest.approx(rms, rel=tolerance)
    np.testing.assert_allclose(flat[: len(first)], first, atol=3 * tolerance)
    np.testing.assert_allclose(flat[-len(last) :], last, atol=3 * tolerance)


def test_the_transformer(tiny, files_of, device, tolerance):
    tensors = tiny.dit()
    assert len(tensors) == 92
    network = DiT(files_of(dit=tensors), device)
    text = network.text(tiny.unit(1001, (7, 5, 64)))
    near(text, tolerance, 0.7199191, [0.275405, 0.675289, 0.568339, -0.294417], [0.51133, 0.042579])
    v = network.velocity(tiny.unit(1000, (4, 6, 10)), 0.75, text)
    near(v, tolerance, 1.1616929, [0.174543, 0.380045, -0.88088, 0.517854], [1.604798, 1.002489])


def test_the_decoder(tiny, files_of, device, tolerance):
    tensors = tiny.vae()
    assert len(tensors) == 108
    y = Decoder(files_of(vae=tensors), device).raw(tiny.unit(1000, (16, 5, 4)))
    near(y.transpose(2, 0, 1), tolerance, 0.2630595, [0.097167, 0.250588, 0.3889, 0.111213], [0.259368, 0.305344])


def test_the_encoder(tiny, files_of, device, cache_tolerance):
    tensors = tiny.encoder()
    assert len(tensors) == 68
    made = graph(tiny.ENCODER, files_of(encoder=tensors).encoder, (2, 4, 5))
    n = np.arange(11)
    out = device.compile(made, context=16, width=16).run(Columns((17 * n + 5) % 97, n, 0 * n))
    taps = np.stack([out[str(tap)] for tap in (2, 4, 5)], 1)
    near(taps, cache_tolerance, 1.8065936, [1.471589, 1.303275, -1.137495, -0.119195], [-2.882867, -1.828064])
