"""What a loaded model can do, as records that an architecture plugin fills in.

The engine and the server speak to roles only; nothing here knows an architecture or a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from golem_core.text.markers import Markers

if TYPE_CHECKING:
    from golem_core.files import Metadata, ModelFile
    from golem_core.graph import Graph
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


@dataclass
class ChatModel:
    """A model that continues token sequences.

    `build` makes the graph of a pass, with an output "logits" of (scored columns, vocab_size).  `suppress` lists
    tokens that are never drawn.  `template` is the file's own chat template, `fallback_template` the Jinja source
    to use without one.  `markers` are what the model writes around thoughts and tool calls; without any, all of an
    answer is content.  `drafting` is there if tokens can be guessed ahead.
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
