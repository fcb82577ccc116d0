"""The networks give what diffusers and transformers compute with the same tiny weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golem_krea2 import encoder
from golem_krea2.checkpoint import Files
from golem_krea2.dit import DiT
from golem_krea2.encoder import Encoder
from golem_krea2.vae import Decoder

from golem_core import BadRequest, Columns


@pytest.fixture(scope="module")
def expected():
    return dict(np.load(Path(__file__).with_name("fixtures") / "networks.npz"))


@pytest.fixture(scope="module", params=["plain", "scaled"])
def dialect(request):
    return request.param


@pytest.fixture(scope="module")
def files(tiny, dialect, tmp_path_factory):
    with_it = Files.open(tiny.write_directory(tmp_path_factory.mktemp(dialect), dialect))
    yield with_it
    with_it.close()


def test_text_rows_and_velocities_are_diffusers(tiny, files, device, dialect, expected, tolerance):
    network = DiT(files, device)
    z, c = expected[f"{dialect}.z"], expected[f"{dialect}.c"]
    text = network.text(c)
    for sigma in (0.99996835, 0.5128441):
        assert tiny.error(text, expected[f"{dialect}.{sigma}.text"]) < tolerance
        assert tiny.error(network.velocity(z, sigma, text), expected[f"{dialect}.{sigma}.v"]) < tolerance
    network.close()


def test_a_picture_may_have_another_size_than_the_one_before(tiny, files, device, dialect, expected, tolerance):
    network = DiT(files, device, columns=8)
    z, c = expected[f"{dialect}.z"], expected[f"{dialect}.c"]
    text = network.text(c)
    wide = network.velocity(np.tile(z, (1, 5, 4)), 0.5128441, text)
    assert wide.shape == (16, 30, 40)
    v = network.velocity(z, 0.5128441, text)
    assert tiny.error(v, expected[f"{dialect}.0.5128441.v"]) < tolerance
    network.close()


def test_many_tokens_go_through_the_text_part_in_several_passes(tiny, files, device, tolerance):
    dice = np.random.default_rng(0)
    network = DiT(files, device)
    c = dice.standard_normal((131, 2, 64)).astype(np.float32)
    text = network.text(c)
    assert text.shape == (131, 128) and network.text(c.copy()) is text
    turned = network.text(c[::-1].copy())  # attention over tokens knows no order
    assert tiny.error(turned[::-1], text) < tolerance
    network.close()


def test_taps_are_those_of_transformers(tiny, files, device, expected, cache_tolerance):
    made = encoder.graph(files.encoder_shape, files.encoder, files.taps)
    ids = expected["encoder.ids"]
    n = np.arange(len(ids))
    out = device.compile(made, context=32, width=32).run(Columns(ids, n, 0 * n))
    assert files.taps == (2, 5)
    assert tiny.error(np.stack([out["2"], out["5"]], 1), expected["encoder.taps"]) < cache_tolerance


def test_a_prompt_is_encoded_without_what_stands_before_it(tiny, files, device, cache_tolerance):
    network = Encoder(files, device)
    short, long = network.encode("a fox"), network.encode("a fox in the snow")
    ids, start = files.tokens.prompt("a fox")
    assert short.shape == (len(ids) - start, 2, 64)
    shared = len(files.tokens.encode("a fox"))
    assert tiny.error(short[:shared], long[:shared]) < cache_tolerance
    longer = network.encode("a fox" + " in the snow" * 60)
    assert len(longer) > 200 and tiny.error(longer[:shared], short[:shared]) < cache_tolerance
    with pytest.raises(BadRequest, match=r"prompt: \d+ tokens .* at most 1024"):
        network.encode("fox " * 1000)
    network.close()


def test_pictures_are_those_of_diffusers(tiny, files, device, expected, tolerance):
    network = Decoder(files, device)
    y = network.raw(expected["vae.z"])
    assert np.abs(expected["vae.y"]).max() == 1.0 and (np.abs(expected["vae.y"]) < 1).mean() > 0.5
    assert tiny.error(np.clip(y, -1, 1), expected["vae.y"]) < tolerance
    network.close()


def test_a_latent_is_scaled_and_a_picture_made_of_bytes(tiny, files, device, expected, tolerance):
    from golem_krea2.vae import DEVIATION, MEAN

    network = Decoder(files, device)
    z = (expected["vae.z"] - np.array(MEAN)[:, None, None]) / np.array(DEVIATION)[:, None, None]
    picture = network.decode(z)
    assert picture.dtype == np.uint8 and picture.shape == (40, 32, 3)
    bytes_ = np.trunc((expected["vae.y"].astype(np.float64) + 1) / 2 * 255)
    assert (
        np.abs(picture - bytes_).max() <= max(1, 255 * tolerance) and (picture == bytes_).mean() > 1 - 200 * tolerance
    )
    network.close()
