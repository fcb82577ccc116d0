"""Where pictures and recordings stand in a prompt, and what is refused before anything is encoded."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core.engine.roles import Media, MediaGraph, MediaKind
from golem_core.errors import BadRequest, GolemError
from golem_core.graph import Columns, Graph
from golem_core.graph.reference import Reference
from golem_core.media.encoder import KEPT, MediaEncoder
from golem_core.media.prompt import MOST_MEDIA, MediaReader
from golem_core.media.sources import Files, Medium
from golem_core.options import Address
from golem_core.server.loading import _media

from .hostile import picture, saved, tone, written

PICTURE, SOUND = 90, 91


def build() -> Graph:
    g = Graph()
    g.output("twice", g.scale(g.input("x", (4,)), by=2.0))
    return g


def count(array: np.ndarray) -> int:
    if len(array) % 7 == 0:
        raise BadRequest("sevens are not taken")
    return len(array) % 7


def encode(array: np.ndarray, run) -> np.ndarray:
    n = count(array)
    x = np.full((n, 4), float(array.reshape(-1)[:500].mean()))
    return run("g", Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs={"x": x}))["twice"]


class Device:
    """Runs meanings, and counts the runs."""

    def __init__(self):
        self.ran = 0

    def compile(self, graph, *, slots, context, width, scored):
        device, reference = self, Reference(graph, slots=slots, context=context)

        class Pass:
            saved_bytes = 0

            def run(self, columns):
                device.ran += 1
                return reference.run(columns)

        return Pass()


def reader(encode=encode) -> tuple[MediaReader, Device]:
    graphs = {"g": MediaGraph(build, 8)}
    kinds = (
        MediaKind("image", PICTURE, (80,), (81, 82), graphs, count, encode, most=6, together=True),
        MediaKind("audio", SOUND, (), (), graphs, count, encode, most=6, rate=8_000),
    )
    device = Device()
    return MediaReader(MediaEncoder(Media(build, 4, kinds), device)), device


def image(height: int, seed: int = 0) -> Medium:
    return Medium("image", saved(picture(20 + seed, height), "PNG"), f"picture {height}")


def sound(samples: int) -> Medium:
    return Medium("audio", written(tone(1, 8_000)[:samples], 8_000, "WAV"), f"recording {samples}")


def anything(_: int) -> None:
    pass


def test_every_placeholder_stands_for_one_in_order():
    media, _ = reader()
    prompt, spans = media.place([5, PICTURE, 6, SOUND, PICTURE, 7], [sound(8), image(3), image(5)], anything)
    assert [token for token in prompt if token >= 0] == [5, 80, 81, 82, 6, 80, 81, 82, 7]
    assert [(span.start, len(span.rows), span.whole) for span in spans] == [(2, 3, True), (8, 1, False), (10, 5, True)]
    assert all(max(prompt[span.start : span.stop]) < 0 for span in spans)
    rows = [token for token in prompt if token < 0]
    assert len(set(rows)) == len(rows) == 9
    again, _ = media.place([PICTURE, 1], [image(3)], anything)
    assert again[1:4] == prompt[2:5]
    other, _ = media.place([PICTURE, 1], [image(3, seed=1)], anything)
    assert set(other[1:4]).isdisjoint(rows)


def test_what_was_encoded_lately_is_not_encoded_again():
    media, device = reader()
    for _ in range(3):
        media.place([PICTURE, PICTURE, 1], [image(3), image(4)], anything)
    assert device.ran == 2
    for seed in range(KEPT):
        media.place([PICTURE, 1], [image(5, seed)], anything)
    media.place([PICTURE, 1], [image(3)], anything)
    assert device.ran == 3 + KEPT


def test_room_is_asked_for_before_anything_is_encoded():
    media, device = reader()

    def full(count: int) -> None:
        if count > 9:
            raise BadRequest(f"no room for {count}", code="context_length_exceeded")

    with pytest.raises(BadRequest, match="no room for 11") as refusal:  # 3 tokens, 3 around the picture, and 5 rows
        media.place([1, 2, PICTURE, 3], [image(5)], full)
    assert refusal.value.code == "context_length_exceeded" and device.ran == 0
    media.place([1, PICTURE, 3], [image(3)], full)
    with pytest.raises(BadRequest, match="no room"):
        media.place([1, 2, 3, PICTURE, 3], [image(3)], full)
    assert device.ran == 1


@pytest.mark.parametrize(
    ("tokens", "given", "words"),
    [
        ([PICTURE, PICTURE, 1], [3], "1 picture was sent, and the chat template has written 2 places for one"),
        ([1], [3], "1 picture was sent, and the chat template has written 0 places for one"),
        ([PICTURE, 1], [], "0 pictures were sent, and the chat template has written 1 place for one"),
        ([PICTURE, 1], [7], "picture 7: sevens are not taken"),
        ([PICTURE] * (MOST_MEDIA + 1), [3] * (MOST_MEDIA + 1), f"{MOST_MEDIA} at most"),
    ],
)
def test_what_does_not_fit_is_refused(tokens, given, words):
    media, _ = reader()
    with pytest.raises(BadRequest) as refusal:
        media.place(tokens, [image(height) for height in given], anything)
    assert words in str(refusal.value)


def test_a_damaged_file_is_named_by_its_place():
    media, _ = reader()
    with pytest.raises(BadRequest, match=r"messages\[0\]\.content\[1\]\.image_url: the picture can't be read: "):
        media.place([PICTURE, 1], [Medium("image", b"no", "messages[0].content[1].image_url")], anything)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros((2, 4)), r"shape \[2, 4\], not \[3, 4\]"),
        (np.zeros((3, 5)), r"shape \[3, 5\], not \[3, 4\]"),
        (np.full((3, 4), np.nan), "the projector made rows of the image that are not finite"),
    ],
)
def test_a_package_that_makes_other_rows_than_it_says_is_an_error(rows, words):
    media, _ = reader(lambda array, run: rows)
    with pytest.raises(GolemError, match=words) as failure:
        media.place([PICTURE, 1], [image(3)], anything)
    assert not isinstance(failure.value, BadRequest)


class Loaded:
    encoder = object()


def test_files_are_read_for_this_machine_only(tmp_path):
    def files(folder: str | None, host: str) -> Files | None:
        found = _media(Loaded(), {"media-path": folder, "addr": Address(host, 80)})  # type: ignore[arg-type]
        assert found is not None
        return found.files

    for host in ("127.0.0.1", "localhost", "::1"):
        assert files(str(tmp_path), host) == Files(tmp_path)
        assert files(None, host) == Files()
    for host in ("0.0.0.0", "", "192.168.0.7"):
        assert files(None, host) is None
        with pytest.raises(GolemError, match="-media-path"):
            files(str(tmp_path), host)
