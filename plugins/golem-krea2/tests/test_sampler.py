"""The sampler, held to numbers that ComfyUI's `sample_er_sde` gave."""

from __future__ import annotations

import numpy as np
import pytest
from golem_krea2 import sampler, schedule

COEFFICIENTS = [
    (4.1e-9, 0.04327631, 0, 0, 0.95672369),
    (0.71720516, 0.06443124, 1.66582e-5, 0, 0.58936451),
    (0.82395082, 0.08098927, 0.01616725, -1.959e-5, 0.38824037),
    (0.839452, 0.10646953, 0.03112464, -0.01159198, 0.28146384),
    (0.8162408, 0.14913619, 0.05225411, -0.01554856, 0.21006522),
    (0.74845645, 0.22861423, 0.09085445, -0.02055746, 0.15163305),
    (0.57949508, 0.40679447, 0.18514431, -0.03329695, 0.09130834),
    (0, 1, 0, 0, 0),
]


def hashed(tensor: int, count: int) -> np.ndarray:
    """Numbers from -√3 to √3 that every machine makes alike."""
    i = np.arange(count, dtype=np.uint64)
    u = (i * 2654435761 + tensor * 40503 + 12345) & 0xFFFFFFFF
    for shift, factor in ((15, 2246822519), (13, 3266489917)):
        u ^= u >> np.uint64(shift)
        u = (u * np.uint64(factor)) & 0xFFFFFFFF
    u ^= u >> np.uint64(16)
    return (np.sqrt(3) * (u / 2**31 - 1)).astype(np.float32)


def levels(steps: int) -> np.ndarray:
    return schedule.below_one(schedule.sigmas(steps))


def run(steps: int) -> list[np.ndarray]:
    target = hashed(1001, 64)
    drawn = iter(range(2000, 3000))

    def answer(x, sigma):
        return np.tanh(np.float32(0.7) * x) * np.float32(1 - sigma) + np.float32(0.5 * sigma) * target

    return list(sampler.sample(answer, hashed(1000, 64), levels(steps), lambda: hashed(next(drawn), 64)))


def test_the_coefficients_of_eight_steps():
    found = [(s.latent, s.answer, s.change, s.bend, s.noise) for s in sampler.plan(levels(8))]
    for step, (mine, theirs) in enumerate(zip(found, COEFFICIENTS, strict=True)):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5 if step in (0, 2) else 2e-6, atol=1e-8, err_msg=f"{step}")


@pytest.mark.parametrize(
    ("steps", "rms", "first"),
    [
        (8, 0.3015396, [-0.118353, -0.196914, -0.213299, -0.030125]),
        (4, 0.3539188, [-0.16396, -0.278401, -0.260334, 0.060176]),
    ],
)
def test_the_numbers_of_comfyui(steps, rms, first):
    found = run(steps)
    assert len(found) == steps and found[-1].dtype == np.float32
    assert float(np.sqrt(np.mean(np.float64(found[-1]) ** 2))) == pytest.approx(rms, abs=5e-7)
    np.testing.assert_allclose(found[-1][:4], first, atol=1e-6)


def test_one_step_is_the_answer_and_draws_no_noise():
    x = hashed(1000, 64)

    def noise():
        raise AssertionError("drawn")

    (found,) = sampler.sample(lambda x, sigma: x * np.float32(sigma), x, levels(1), noise)
    np.testing.assert_array_equal(found, x * levels(1)[0])


@pytest.mark.parametrize("steps", [2, 3, 20, 100])
def test_noise_is_drawn_between_steps_and_the_model_sees_every_level(steps):
    seen, drawn = [], []

    def answer(x, sigma):
        seen.append(np.float32(sigma))
        return np.zeros_like(x)

    def noise():
        drawn.append(1)
        return np.ones(16, np.float32)

    found = list(sampler.sample(answer, np.ones(16, np.float32), levels(steps), noise))
    assert seen == levels(steps)[:-1].tolist() and len(drawn) == steps - 1
    assert all(np.isfinite(each).all() for each in found) and not found[-1].any()


def test_the_latent_that_is_handed_in_is_left_alone():
    x = hashed(1000, 64)
    before = x.copy()
    list(sampler.sample(lambda x, sigma: x / 2, x, levels(4), lambda: hashed(2000, 64)))
    np.testing.assert_array_equal(x, before)
