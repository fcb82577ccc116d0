"""The order of work, what stays in a device's memory and what is given back, and who may stop a picture."""

from __future__ import annotations

import io
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from golem_krea2 import noise
from golem_krea2.place import GUESTS
from golem_krea2.plan import Need, Plan, needs_of
from golem_krea2.request import PIXELS, Settings
from golem_krea2.studio import Stopped, Studio
from PIL import Image

from golem_core import BadRequest, GolemError, Unavailable

SMALL = Settings("a cat", width=64, height=64, steps=3, seed=5)


def with_(**changes) -> Settings:
    return replace(SMALL, **changes)


@pytest.fixture
def studio(files, devices, log):
    made = Studio(files, devices, networks=log.networks())
    yield made
    made.cancel()
    for place in made._places.values():
        place.close()
    assert not devices.open


@pytest.fixture
def keeping(files, fakes, log):
    """A studio that keeps the DiT alone, for want of memory."""
    devices = fakes.Devices(sum(need.total(PIXELS) for need in needs_of(files)) - 1)
    made = Studio(files, devices, keep=True, networks=log.networks())
    assert made.plan.keep and not made.plan.everything
    yield made, devices
    made.cancel()
    for place in made._places.values():
        place.close()
    assert not devices.open


ORDER = [
    *("open encoder", "encode 'a cat'", "close encoder"),
    *("open dit", "text at 1", "step 1.0000", "step 0.8633", "step 0.6123", "close dit"),
    *("open decoder", "decode", "close decoder"),
]


def test_the_networks_take_turns(studio, log, devices):
    steps = []
    drawn = studio.draw(SMALL, steps.append)
    assert [each for each in log.events if not each.startswith("step")] == [
        e for e in ORDER if not e.startswith("step")
    ]
    assert steps == [1, 2, 3] and sum(each.startswith("step") for each in log.events) == 3
    assert not devices.open and devices.opened == 4, "one to ask for its memory, and one for each network"
    with Image.open(io.BytesIO(drawn.png)) as picture:
        assert picture.size == (64, 64)
    assert drawn.seconds > 0


def test_the_dit_stays(keeping, log):
    studio, devices = keeping
    for _ in range(2):
        studio.draw(SMALL)
        assert len(devices.open) == 1, "the device with the DiT's weights"
    assert devices.opened == 1 + 1 + 2 * 2
    assert log.events.count("close dit") == 2, "its passes are given back"


def test_everything_stays_where_there_is_room(files, fakes, log):
    devices = fakes.Devices(1 << 40)
    studio = Studio(files, devices, keep=True, networks=log.networks())
    for _ in range(2):
        studio.draw(SMALL)
        assert len(devices.open) == 3
    assert [each for each in log.events if each.startswith(("open", "close"))] == [
        *("open encoder", "open dit", "open decoder")
    ]
    for place in studio._places.values():
        place.close()
    assert not devices.open


def test_guidance_reads_both_prompts_and_takes_two_passes_a_step(studio, log):
    studio.draw(with_(cfg=2.0, negative="blur"))
    assert [each for each in log.events if each.startswith("encode ")] == ["encode 'a cat'", "encode 'blur'"]
    assert sum(each.startswith("step") for each in log.events) == 6
    log.events.clear()
    studio.draw(with_(negative="blur"))
    assert "encode 'blur'" not in log.events


def test_guidance_is_that_of_the_denoised_latents(files, devices, fakes):
    """One step, whose answer is the picture: den_neg + (den_pos - den_neg) * cfg."""
    seen = {}

    class Decoder(fakes.FakeDecoder):
        def decode(self, z):
            seen[len(seen)] = z.copy()
            return super().decode(z)

    log = fakes.Log()
    networks = replace(log.networks(), decoder=lambda files, device: Decoder(log))
    studio = Studio(files, devices, networks=networks)
    for settings in (
        with_(steps=1, prompt="abcd"),
        with_(steps=1, prompt="abcdefgh"),
        with_(steps=1, prompt="abcd", negative="abcdefgh", cfg=3.0),
    ):
        studio.draw(settings)
    expected = seen[1] + (seen[0] - seen[1]) * np.float32(3)
    np.testing.assert_allclose(seen[2], expected, atol=1e-6)


def test_the_same_seed_gives_the_same_bytes_and_another_another(studio):
    first, again, other = (studio.draw(with_(seed=seed)).png for seed in (5, 5, 6))
    assert first == again and first != other
    high = studio.draw(with_(seed=5 + (1 << 40))).png
    assert high != first, "the noise of steps reads all 64 bits"


def test_where_the_noise_of_steps_comes_from(files, devices, log):
    pictures = [
        Studio(files, devices, networks=log.networks(), source=noise.source(text)).draw(SMALL).png
        for text in ("rocm:32", "cpu", "cpu+1", "cuda:32")
    ]
    assert len(set(pictures[:3])) == 3


# ---------------------------------------------------------------- memory


def test_the_plan_is_told_before_anything_is_opened(files, fakes, log):
    studio = Studio(files, fakes.Devices(2_000_000_000), networks=log.networks())
    assert log.events == []
    for part in (
        "encoder 0.00 GB",
        "DiT 0.00 GB",
        "decoder 0.00 GB",
        "on counted",
        "one at a time",
        "counted has 2.00 GB for them",
    ):
        assert part in studio.described


@pytest.mark.parametrize("keep", [False, True])
def test_a_device_with_too_little_memory_is_refused_with_the_numbers(files, fakes, log, keep):
    devices = fakes.Devices(1000)
    with pytest.raises(GolemError, match=r"the \w+ needs \d+\.\d\d GB .* counted has 0\.00 GB for it"):
        Studio(files, devices, keep=keep, networks=log.networks())
    assert not devices.open and log.events == []


NEEDS = (Need("encoder", 4_000, 400), Need("DiT", 12_000, 100, 0.001), Need("decoder", 100, 0, 0.003))
"""In bytes for megabytes.  4096 pixels take 4 more in the DiT and 12 in the decoder, 1048576 take 1049 and 3146."""


def test_a_dit_that_cannot_stay_is_refused_with_the_numbers():
    with pytest.raises(
        GolemError, match=r"-krea2-keep: 0\.00 GB are needed .* card has 0\.00 GB for them; start without"
    ):
        Plan.make(NEEDS, "card", 12_105 - 1, keep=True)
    plan = Plan.make(NEEDS, "card", 12_116, keep=True)
    assert plan.keep and plan.aside and "the DiT stays, the encoder on the CPU" in plan.told
    with pytest.raises(GolemError, match="-krea2-keep"):
        Plan.make(NEEDS, "cpu", 16_399, keep=True)
    assert not Plan.make(NEEDS, "card", 16_400, keep=True).aside
    assert not Plan.make(NEEDS, "card", 16_399, keep=False).aside


def test_a_dit_makes_room_for_large_pictures_alone():
    plan = Plan.make(NEEDS, "card", 15_000, keep=True)
    assert plan.stays_beside(with_(width=768, height=1024)) and not plan.stays_beside(with_(width=1024, height=1024))
    roomy = Plan.make(NEEDS, "card", 17_000, keep=True)
    assert roomy.stays_beside(with_(width=1024, height=1024)) and not roomy.everything and not roomy.aside


def test_an_encoder_that_does_not_fit_beside_the_dit_stays_on_the_cpu(files, fakes, log):
    needs = needs_of(files)
    devices, cpus = fakes.Devices(needs[1].weights + needs[0].total(0) - 1), fakes.Devices()
    studio = Studio(files, devices, cpus, keep=True, networks=log.networks())
    assert studio.plan.aside
    for _ in range(2):
        studio.draw(SMALL)
        assert len(devices.open) == len(cpus.open) == 1
    assert log.events.count("open encoder") == 1 and cpus.opened == 1
    for place in studio._places.values():
        place.close()


def test_a_kept_dit_is_closed_where_the_decoder_needs_its_room(files, fakes, log):
    needs = needs_of(files)
    devices = fakes.Devices(needs[1].weights + max(need.total(64 * 64) for need in needs))
    studio = Studio(files, devices, keep=True, networks=log.networks())
    large = with_(width=512, height=512, steps=1)
    assert not studio.plan.stays_beside(large)
    studio.draw(SMALL)
    assert len(devices.open) == 1
    studio.draw(large)
    assert not devices.open


def test_a_picture_that_is_too_large_for_the_device_is_refused_with_the_numbers(files, fakes, log):
    devices = fakes.Devices(max(need.total(256 * 256) for need in needs_of(files)))
    studio = Studio(files, devices, networks=log.networks())
    studio.check(with_(width=256, height=256))
    with pytest.raises(
        BadRequest, match=r"^size: for 256x272 the \w+ needs \d\.\d\d GB .*, and counted has"
    ) as refused:
        studio.check(with_(width=256, height=272))
    assert refused.value.param == "size"


def test_a_device_that_does_not_tell_is_trusted(files):
    plan = Plan.make(needs_of(files), "card", None, keep=True)
    assert plan.everything and plan.stays_beside(with_(width=1024, height=1024))
    plan.check(with_(width=1024, height=1024))


# ---------------------------------------------------------------- ways out


@pytest.mark.parametrize("step", [0, 1, 2])
def test_stopping_between_steps_gives_everything_back(studio, log, devices, step):
    done = []
    with pytest.raises(Stopped):
        studio.draw(SMALL, done.append, lambda: len(done) >= step)
    assert len(done) == step and not devices.open
    assert "open decoder" not in log.events
    log.events.clear()
    studio.draw(SMALL)
    assert "decode" in log.events, "the next picture is drawn"


def test_stopping_while_the_dit_is_read(studio, log, devices):
    with pytest.raises(Stopped):
        studio.draw(SMALL, stopped=lambda: "open dit" in log.events)
    assert not devices.open and not any(each.startswith("step") for each in log.events)


def test_a_stopped_picture_leaves_a_kept_dit(keeping, log):
    studio, devices = keeping
    done = []
    with pytest.raises(Stopped):
        studio.draw(SMALL, done.append, lambda: len(done) >= 1)
    assert len(devices.open) == 1 and log.events[-1] == "close dit"


@pytest.mark.parametrize("where", ["open encoder", "encode", "open dit", "text", "step 0.8", "open decoder", "decode"])
def test_whatever_breaks_everything_is_given_back(studio, log, devices, where):
    log.fail = where
    with pytest.raises(RuntimeError, match="broken at"):
        studio.draw(SMALL)
    assert not devices.open
    log.fail = ""
    studio.draw(SMALL)
    assert not devices.open


def test_what_breaks_takes_a_kept_dit_with_it(keeping, log):
    studio, devices = keeping
    log.fail = "decode"
    with pytest.raises(RuntimeError):
        studio.draw(SMALL)
    assert not devices.open


def test_a_listener_that_breaks(studio, devices):
    def told(step):
        raise ValueError("no ears")

    with pytest.raises(ValueError, match="no ears"):
        studio.draw(SMALL, told)
    assert not devices.open


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_no_picture_is_made_of_what_is_no_number(files, devices, fakes, poison):
    class Poisoned(fakes.FakeDiT):
        def velocity(self, z, sigma, text, strength=1.0):
            v = super().velocity(z, sigma, text, strength)
            if sum(each.startswith("step") for each in self.log.events) == 2:
                v[0, 0, 0] = poison
            return v

    log = fakes.Log()
    dit = lambda files, device, lora, columns, progress: Poisoned(log, lora, columns, progress)
    made = replace(log.networks(), dit=dit)
    told: list[int] = []
    with pytest.raises(GolemError, match="the DiT gave numbers that are not finite in step 2"):
        Studio(files, devices, networks=made).draw(with_(steps=4), told.append)
    assert told == [1] and not devices.open and "decode" not in log.events


def test_no_thread_is_left(studio):
    before = threading.active_count()
    studio.draw(SMALL)
    with pytest.raises(Stopped):
        studio.draw(SMALL, stopped=lambda: threading.active_count() > before)
    assert threading.active_count() == before


def test_a_server_that_ends_lets_nothing_begin(studio, devices):
    studio.cancel()
    with pytest.raises(Unavailable, match="stopping"):
        studio.draw(SMALL)
    assert devices.opened == 1


def test_a_picture_under_way_ends_with_the_server(studio, log, devices):
    with pytest.raises(Unavailable):
        studio.draw(SMALL, lambda step: studio.cancel())
    assert not devices.open and sum(each.startswith("step") for each in log.events) == 1


def test_one_picture_at_a_time(studio, log, fakes):
    log.gate = threading.Semaphore(0)
    threads = [threading.Thread(target=studio.draw, args=(with_(prompt=text),)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    log.wait_for("step")
    assert sum(each.startswith("encode ") for each in log.events) == 1
    log.gate.release(6)
    for thread in threads:
        thread.join(10)
    assert log.events.count("decode") == 2
    assert log.events.index("decode") < max(i for i, each in enumerate(log.events) if each.startswith("encode "))


# ---------------------------------------------------------------- LoRAs


@pytest.fixture
def loras(files):
    for i in range(GUESTS + 2):
        (files.loras / f"{i}.safetensors").write_bytes(b"x" * i)
    yield files.loras
    for path in files.loras.iterdir():
        path.unlink()


def test_the_last_lora_is_kept_in_memory(studio, log, loras):
    for strength in (1.0, 0.5):
        studio.draw(with_(lora="1.safetensors", lora_strength=strength))
    assert log.events.count("read 1.safetensors") == 1
    assert "open dit 1.safetensors" in log.events and "text at 0.5" in log.events
    studio.draw(with_(lora="2.safetensors"))
    studio.draw(with_(lora="1.safetensors"))
    assert log.events.count("read 1.safetensors") == 2


def test_a_lora_that_changed_is_read_again(studio, log, loras):
    studio.draw(with_(lora="1.safetensors"))
    (loras / "1.safetensors").write_bytes(b"another")
    studio.draw(with_(lora="1.safetensors"))
    assert log.events.count("read 1.safetensors") == 2


def test_a_lora_in_the_place_of_another_is_read_though_size_and_time_are_the_same(studio, log, loras):
    path = loras / "1.safetensors"
    os.utime(path, (1e9, 1e9))
    studio.draw(with_(lora=path.name))
    other = loras / "other"
    other.write_bytes(b"y")
    os.utime(other, (1e9, 1e9))
    other.replace(path)
    studio.draw(with_(lora=path.name))
    assert log.events.count("read 1.safetensors") == 2


def test_a_strength_of_nought_is_no_lora(studio, log, loras):
    studio.draw(with_(lora="1.safetensors", lora_strength=0.0))
    assert "open dit" in log.events and not any(each.startswith("read") for each in log.events)


def test_a_kept_device_takes_few_loras(keeping, loras):
    studio, devices = keeping
    studio.draw(SMALL)
    begun = devices.opened
    for i in range(GUESTS):
        studio.draw(with_(lora=f"{i}.safetensors"))
    assert devices.opened == begun + 2 * GUESTS, "the DiT's device took them all"
    studio.draw(with_(lora=f"{GUESTS}.safetensors"))
    assert devices.opened == begun + 2 * GUESTS + 3, "and began anew"
    assert len(devices.open) == 1


def test_a_lora_that_is_not_there(studio):
    with pytest.raises(BadRequest, match=r"lora: there is no 'x\.safetensors' in the LoRA folder"):
        studio.check(with_(lora="x.safetensors"))
    with pytest.raises(BadRequest, match=r"lora: 'x\.safetensors' cannot be read: No such file"):
        studio.draw(with_(lora="x.safetensors"))


def test_a_name_that_no_file_can_have_is_no_lora(studio):
    for name in ("é" * 200 + ".safetensors", "\udce9.safetensors"):
        with pytest.raises(BadRequest, match="there is no"):
            studio.check(with_(lora=name))


def test_a_folder_is_no_lora(studio):
    folder = studio.files.loras / "folder.safetensors"
    folder.mkdir()
    try:
        with pytest.raises(BadRequest, match="there is no"):
            studio.check(with_(lora=folder.name))
    finally:
        folder.rmdir()


def test_a_bad_lora_is_the_requests_fault_and_tells_no_path(files, devices):
    (files.loras / "bad.safetensors").write_bytes(b"nothing of the kind")
    try:
        with pytest.raises(BadRequest, match=r"^lora: bad\.safetensors") as refused:
            Studio(files, devices).draw(with_(lora="bad.safetensors"))
        assert str(files.loras) not in str(refused.value)
    finally:
        (files.loras / "bad.safetensors").unlink()


# ---------------------------------------------------------------- before a turn


def test_prompts_of_too_many_tokens(studio):
    long = "cat " * 3000
    with pytest.raises(BadRequest, match=r"^prompt: \d+ tokens with what stands around it, at most 1024"):
        studio.check(with_(prompt=long))
    studio.check(with_(negative=long))
    with pytest.raises(BadRequest, match=r"^negative_prompt: \d+ tokens") as refused:
        studio.check(with_(negative=long, cfg=2.0))
    assert refused.value.param == "negative_prompt"


@pytest.mark.parametrize("text", ["(" * 200 + "a" + ")" * 200, "()" * 3000])
def test_brackets_are_refused_by_the_field_that_has_them(studio, text):
    with pytest.raises(BadRequest, match=r"^negative_prompt: .* brackets") as refused:
        studio.check(with_(negative=text, cfg=2.0))
    assert refused.value.param == "negative_prompt"
