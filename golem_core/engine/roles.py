"""What a loaded model can do, as records that an architecture plugin fills in.

The engine and the server speak to roles only; nothing here knows an architecture or a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from golem_core.errors import Unsupported
from golem_core.text.markers import Markers

if TYPE_CHECKING:
    import numpy as np

    from golem_core.files import Metadata, ModelFile
    from golem_core.graph import Columns, Graph
    from golem_core.text import ChatTemplate, Tokenizer


@dataclass(frozen=True)
class SamplingDefaults:
    """How a model is best sampled when a request doesn't say."""

    temperature: float = 1.0
    top_k: int = 64
    top_p: float = 0.95
    min_p: float = 0.05

    @classmethod
    def read(cls, metadata: Metadata) -> SamplingDefaults:
        """A file's own `general.sampling.*`, and the values above for those that it does not state.

        A top-k of 0 or below is off.  Raises BadFile naming key and value for what no sampler can use.
        """
        given = metadata.scoped("general.sampling")
        return cls(
            temperature=given.number("temp", float, cls.temperature, low=0, high=1e6),
            top_k=max(0, given.number("top_k", int, cls.top_k)),
            top_p=given.number("top_p", float, cls.top_p, low=0, high=1),
            min_p=given.number("min_p", float, cls.min_p, low=0, high=1),
        )


@dataclass(frozen=True)
class Drafting:
    """How the tokens that may follow are guessed ahead of a model's passes, with a small graph beside its own.

    `build` makes the model's graph with one more output, "hidden": float32 (n,) for every column.  `guess` makes the
    small one.  A column of it is a position of the model's: its token is the one *after* that position, and
    `input("hidden", (n,))` is the model's row of the position.  Its outputs for scored columns are "logits"
    (vocab_size,) over the token that comes next, and "hidden" (n,), which stands for the model's row when the guess is
    carried further.  It may have rings of keys and values, no recurrent states.
    """

    build: Callable[[], Graph]
    guess: Callable[[], Graph]


@dataclass(frozen=True)
class MediaGraph:
    """A graph that encodes media, run over at most `columns` columns, which are of at most `runs` slots.

    Every run begins with recurrent states at their beginning, and positions at 0.
    """

    build: Callable[[], Graph]
    columns: int
    runs: int = 1


class RunGraph(Protocol):
    """What runs the graphs of a `MediaKind`, handed to its `encode`."""

    def __call__(self, name: str, columns: Columns, /) -> dict[str, np.ndarray]:
        """Run the graph of that name; output name -> float32 (rows, *shape).

        No more columns and runs than its `MediaGraph` says.
        """
        ...


@dataclass(frozen=True)
class MediaKind:
    """How pictures ("image") or recordings ("audio") become rows of a prompt.

    The chat template leaves the token `placeholder` where one stands; the tokens `begin`, the rows, and the tokens
    `end` take its place.  A picture is uint8 (height, width, 3), RGB; a recording is float32 (samples,) between -1
    and 1, one channel of `rate` samples a second.  `count(array)` is how many rows it becomes, or raises BadRequest
    saying why it cannot be taken; `encode(array, run)` makes them, float32 (count, width), by running `graphs`.
    `together`: the rows see each other, however far apart they stand.  `most` is the greatest count.  `places(array)`
    says where the rows stand on each of the model's axes, whole numbers (count, axes) from 0 on; None: as tokens do.
    """

    name: Literal["image", "audio"]
    placeholder: int
    begin: tuple[int, ...]
    end: tuple[int, ...]
    graphs: Mapping[str, MediaGraph]
    count: Callable[[np.ndarray], int]
    encode: Callable[[np.ndarray, RunGraph], np.ndarray]
    most: int
    together: bool = False
    rate: int = 16_000
    places: Callable[[np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True)
class Media:
    """What a projector file adds to a conversation model.

    `build` makes the model's graph with `or_given` after its embedding, for rows of `width` numbers, and with
    attention over `spans` if the rows of any kind see each other.  `axes`: on how many axes the graph is told where a
    column stands, by `given_places`; 0 where it is not.  `written` is what becomes of a conversation's text, as the
    chat template wrote it, before it is cut into tokens.
    """

    build: Callable[[], Graph]
    width: int
    kinds: tuple[MediaKind, ...]
    axes: int = 0
    written: Callable[[str], str] = str

    @property
    def together(self) -> int:
        """The most rows that a pass may have to take together; 0 where none have to."""
        return max((kind.most for kind in self.kinds if kind.together), default=0)

    def kind(self, name: str) -> MediaKind | None:
        """How media of that name are taken; None if they are not."""
        return next((kind for kind in self.kinds if kind.name == name), None)


@dataclass
class ChatModel:
    """A model that continues token sequences.

    `build` makes the graph of a pass, with an output "logits" of (scored columns, vocab_size).  `suppress` lists
    tokens that are never drawn.  `template` is the file's own chat template, `fallback_template` the Jinja source
    to use without one.  `markers` are what the model writes around thoughts and tool calls; without any, all of an
    answer is content.  `drafting` is there if tokens can be guessed ahead.  `projector` binds a file that comes beside
    the model and makes rows of pictures and recordings, and raises BadFile or Unsupported for one that does not fit;
    `media` is what a bound one adds.
    """

    name: str
    architecture: str
    vocab_size: int
    context_train: int
    build: Callable[[], Graph]
    tokenizer: Tokenizer
    template: ChatTemplate | None
    fallback_template: str | None
    file: ModelFile
    suppress: tuple[int, ...] = ()
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    markers: Markers = field(default_factory=Markers)
    drafting: Drafting | None = None
    projector: Callable[[ModelFile], Media] | None = None
    media: Media | None = None

    def bound(self, file: ModelFile) -> ChatModel:
        """The model with a projector file.  Raises BadFile or Unsupported for one that does not fit.

        Tokens are not guessed ahead with one: what guesses has no rows for media.
        """
        if self.projector is None:
            raise Unsupported(f"{file.path}: the architecture {self.architecture!r} takes no projector")
        media = self.projector(file)
        return replace(self, build=media.build, drafting=None, media=media)


@dataclass
class Embedder:
    """A model that gives a text a vector.

    `build` makes the graph of a pass in which texts lie end to end, each with a slot of its own and positions from 0;
    its output "embedding" is (texts, dimensions), one row per run, before it is made a unit vector.  `limit` is the
    most positions of a text, those of `tokenizer`'s special tokens included.  `matryoshka`: the first components of
    a vector, made a unit vector, are a vector of the text too (arXiv:2205.13147).
    """

    name: str
    architecture: str
    vocab_size: int
    dimensions: int
    limit: int
    build: Callable[[], Graph]
    tokenizer: Tokenizer
    file: ModelFile
    matryoshka: bool = False


@dataclass(frozen=True)
class Architecture:
    """An architecture loader: the names that files give it, the role it fills, and how a file is opened."""

    names: tuple[str, ...]
    role: type
    open: Callable[[ModelFile], Any]
