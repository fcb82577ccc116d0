"""Embedding: which texts go together in a pass, who waits for whom, and what becomes of failures and cancellations."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from fake_embedder import DIMENSIONS, END, POISON, VOCABULARY, FakeDevice, fake_embedder, vector

from golem_core.embedder import LoadedEmbedder, unit
from golem_core.engine import embedding
from golem_core.errors import BadRequest, GolemError


@pytest.fixture
def made():
    """(embedder, device) with texts of at most 16 positions and passes of at most 40."""
    embedder, device = fake_embedder()
    yield embedder, device
    device.go.set()
    embedder.close()


@pytest.fixture
def held(made):
    """The same while a first pass is running; `device.go.set()` lets it end."""
    embedder, device = made
    device.go.clear()
    first = embedder.engine.submit([[9]])
    assert device.running.wait(5)
    yield embedder, device
    device.go.set()
    assert first.result(5).positions == 1


def test_the_texts_of_a_request_go_in_one_pass_and_come_back_in_order(made):
    embedder, device = made
    texts = [[5, 6, 7], [8], [1, 2]]
    found = embedder.engine.submit(texts).result(5)
    assert device.passes == [texts]
    np.testing.assert_array_equal(found.vectors, [vector(text) for text in texts])
    assert (found.positions, found.vectors.dtype, found.vectors.shape) == (6, np.float32, (3, DIMENSIONS))
    assert found.queued >= 0 and found.seconds > 0 and not found.waited


def test_requests_that_arrive_during_a_pass_are_carried_together_by_the_next(held):
    embedder, device = held
    requests = [embedder.engine.submit([[n, n], [n]]) for n in range(1, 6)]
    assert embedder.engine.waiting == 5
    device.go.set()
    for n, request in enumerate(requests, 1):
        np.testing.assert_array_equal(request.result(5).vectors, [vector([n, n]), vector([n])])
        assert request.result().waited
    assert len(device.passes) == 2 and len(device.passes[1]) == 10


def test_a_request_for_which_a_pass_has_no_room_left_begins_the_next(held):
    embedder, device = held
    requests = [embedder.engine.submit([[n] * 10, [n] * 8]) for n in (1, 2, 3)]  # 18 positions each
    device.go.set()
    for request in requests:
        request.result(5)
    assert [sum(map(len, texts)) for texts in device.passes] == [1, 36, 18]


def test_a_request_larger_than_a_pass_is_cut_and_lets_others_go_before_its_rest(held):
    embedder, device = held
    large = embedder.engine.submit([[7] * 15 for _ in range(10)])
    small = [embedder.engine.submit([[n]]) for n in (1, 2)]
    device.go.set()
    for n, request in enumerate(small, 1):
        np.testing.assert_array_equal(request.result(5).vectors, [vector([n])])
    np.testing.assert_array_equal(large.result(5).vectors, [vector([7] * 15)] * 10)
    assert all(sum(map(len, texts)) <= 40 for texts in device.passes)
    flat = [len(text) for texts in device.passes[1:] for text in texts]
    assert flat.index(1) <= 3, "the small ones wait for one pass of the large one at most"
    assert len(device.passes) == 1 + 5, "the rest of the large one shares passes with others"


def test_a_small_pass_waits_for_company_and_a_large_one_does_not(made, monkeypatch):
    embedder, device = made
    monkeypatch.setattr(embedding, "PATIENCE", 0.3)
    first = embedder.engine.submit([[1]])
    time.sleep(0.05)
    second = embedder.engine.submit([[2]])
    first.result(5), second.result(5)
    assert device.passes == [[[1], [2]]]
    monkeypatch.setattr(embedding, "FEW", 10)
    began = time.perf_counter()
    embedder.engine.submit([[3] * 10]).result(5)
    assert time.perf_counter() - began < 0.2
    began = time.perf_counter()
    waiting = embedder.engine.submit([[4]])
    embedder.engine.submit([[5] * 9]).result(5)
    waiting.result(5)
    assert time.perf_counter() - began < 0.2, "the wait ends as soon as there is enough"
    assert device.passes[-1] == [[4], [5] * 9]


def test_a_caller_that_goes_away_leaves_the_queue(held):
    embedder, device = held
    gone, stays = embedder.engine.submit([[1]]), embedder.engine.submit([[2]])
    assert gone.cancel()
    assert embedder.engine.waiting == 1
    device.go.set()
    stays.result(5)
    assert device.passes[1:] == [[[2]]]


def test_the_rest_of_a_large_request_goes_with_its_caller(held):
    embedder, device = held
    large = embedder.engine.submit([[7] * 15 for _ in range(10)])
    device.running.clear()
    device.go.set()
    assert device.running.wait(5)
    large.cancel()
    embedder.engine.submit([[1]]).result(5)
    carried = len(device.passes)
    embedder.engine.submit([[1]]).result(5)
    assert len(device.passes) == carried + 1 < 6


def test_an_error_reaches_every_request_of_its_pass_and_no_other(held):
    embedder, device = held
    first, second = embedder.engine.submit([[1]]), embedder.engine.submit([[POISON]])
    large = embedder.engine.submit([[7] * 15 for _ in range(10)])
    device.go.set()
    for request in (first, second, large):
        with pytest.raises(GolemError, match="the pass failed on the device: no"):
            request.result(5)
    found = embedder.engine.submit([[3]]).result(5)
    np.testing.assert_array_equal(found.vectors, [vector([3])])
    assert not found.waited


def test_a_vector_that_is_not_finite_fails_its_request_and_no_other(held, monkeypatch):
    monkeypatch.setattr("fake_embedder.vector", lambda ids: np.full(DIMENSIONS, np.nan if 8 in ids else 1, np.float32))
    embedder, device = held
    whole, broken, large = [embedder.engine.submit(each) for each in ([[1]], [[1], [8]], [[8] * 15] * 10)]
    device.go.set()
    assert np.isfinite(whole.result(5).vectors).all()
    for request in (broken, large):
        with pytest.raises(GolemError, match="fake-embedder gave a vector that is not finite"):
            request.result(5)


def test_what_cannot_be_embedded_is_refused_before_it_costs_a_pass(made):
    embedder, device = made
    for texts, words in [
        ([], "no text"),
        ([[1], []], "text 1 has no tokens"),
        ([[1], [2] * 17], "text 1 has 17 tokens, and the model takes 16"),
        ([[1, -1]], f"token -1; the vocabulary ends at {VOCABULARY - 1}"),
        ([[VOCABULARY]], f"token {VOCABULARY}"),
    ]:
        with pytest.raises(BadRequest, match=words):
            embedder.engine.submit(texts)
    assert embedder.engine.submit([[1] * 16]).result(5).positions == 16
    assert len(device.passes) == 1


def test_a_device_whose_passes_are_too_small_for_a_text_is_refused():
    def narrow(self, graph, **sizes):
        self.most = 8
        return original(self, graph, **sizes)

    original = FakeDevice.compile
    try:
        FakeDevice.compile = narrow  # type: ignore[method-assign]
        with pytest.raises(GolemError, match="8 columns a pass, and a text may have 16"):
            fake_embedder()
    finally:
        FakeDevice.compile = original  # type: ignore[method-assign]


def test_a_closed_engine_cancels_what_waits_and_takes_no_more():
    embedder, device = fake_embedder()
    device.go.clear()
    running = embedder.engine.submit([[1]])
    device.running.wait(5)
    waiting = embedder.engine.submit([[2]])
    threading.Timer(0.05, device.go.set).start()
    embedder.close()
    assert running.done() and waiting.cancelled()
    with pytest.raises(GolemError, match="closed"):
        embedder.engine.submit([[1]])


def test_many_threads_get_their_own_vectors(made):
    embedder, device = made
    device.delay = 0.001
    wrong = []

    def ask(number: int) -> None:
        for step in range(20):
            texts = [[number, step, at] for at in range(1 + (number + step) % 12)]
            found = embedder.engine.submit(texts).result(10).vectors
            if not np.array_equal(found, [vector(text) for text in texts]):
                wrong.append((number, step))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert embedder.engine.passes == len(device.passes) < 160
    assert embedder.engine.texts == sum(map(len, device.passes))
    assert embedder.engine.positions == 3 * embedder.engine.texts


def test_passes_are_told_of_when_asked_for(monkeypatch, capsys):
    monkeypatch.setenv("GOLEM_DEBUG_BATCHES", "1")
    embedder, _ = fake_embedder()
    embedder.engine.submit([[1, 2], [3]]).result(5)
    embedder.close()
    assert "embedding pass: 3 positions, 2 texts, 1 requests, " in capsys.readouterr().err


# ---------------------------------------------------------------- the model as it is used from Python


def test_texts_become_unit_vectors_unless_raw_ones_are_wanted(made):
    embedder: LoadedEmbedder = made[0]
    plain = vector([0, 97, END])
    np.testing.assert_array_equal(embedder.embed(["a"], normalize=False), [plain])
    np.testing.assert_allclose(embedder.embed(["a"]), [plain / np.linalg.norm(plain)], rtol=1e-6)
    np.testing.assert_array_equal(embedder.embed([[0, 97, END]]), embedder.embed(["a"]))
    assert embedder.embed([]).shape == (0, DIMENSIONS)


def test_the_first_components_are_a_vector_of_their_own(made):
    embedder = made[0]
    prefix = embedder.embed(["abc"])[:, :2]
    np.testing.assert_allclose(embedder.embed(["abc"], dimensions=2), unit(prefix), rtol=1e-6)
    np.testing.assert_array_equal(embedder.embed(["abc"], dimensions=DIMENSIONS), embedder.embed(["abc"]))
    np.testing.assert_array_equal(embedder.embed(["abc"], dimensions=99), embedder.embed(["abc"]))
    for wrong in (0, -1):
        with pytest.raises(BadRequest, match="dimensions: expected a number of at least 1"):
            embedder.embed(["abc"], dimensions=wrong)


def test_dimensions_of_a_model_that_was_not_trained_for_them_are_refused():
    embedder, _ = fake_embedder(matryoshka=False)
    with embedder:
        assert embedder.embed(["a"], dimensions=DIMENSIONS).shape == (1, DIMENSIONS)
        with pytest.raises(BadRequest, match="2 of 4 components are no vector of fake-embedder"):
            embedder.embed(["a"], dimensions=2)


def test_a_text_that_is_too_long_is_refused_or_cut_and_still_ends(made):
    embedder = made[0]
    assert embedder.tokenize("x" * 14) == [0, *[120] * 14, END]
    assert embedder.tokenize("x" * 15, truncate=True) == [0, *[120] * 14, END]
    embedder.embed(["x" * 14])
    with pytest.raises(BadRequest, match="text 0 has 17 tokens"):
        embedder.embed(["x" * 15])
    with pytest.raises(BadRequest, match="text 0 has over 256 tokens"):
        embedder.embed(["x" * 10_000_000])


def test_a_vector_of_zeros_stays_one():
    np.testing.assert_array_equal(unit(np.zeros((2, 3), np.float32)), np.zeros((2, 3)))
