"""A loaded embedding model: texts or token ids in, vectors out.

with golem_core.load_embedder("model.gguf") as embedder:
    vectors = embedder.embed(["search_query: rivers", "search_document: The Seine flows through Paris."])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.engine.embedding import COUNTED
from golem_core.errors import BadRequest

if TYPE_CHECKING:
    from golem_core.engine.embedding import EmbeddingEngine
    from golem_core.engine.roles import Embedder

__all__ = ["LoadedEmbedder", "unit"]


class LoadedEmbedder:
    """An embedding model on a device.  Use it as a context manager, or close it; it serves many threads at once."""

    def __init__(self, model: Embedder, engine: EmbeddingEngine, device: Any):
        self.model = model
        self.engine = engine
        self._device = device

    @property
    def name(self) -> str:
        """The model's name: its file's without `.gguf`, or its directory's."""
        return self.model.name

    @property
    def dimensions(self) -> int:
        """The width of a vector."""
        return self.model.dimensions

    @property
    def limit(self) -> int:
        """The most tokens of a text, those around it included."""
        return self.model.limit

    def close(self) -> None:
        """End what is under way and let go of device and file."""
        self.engine.close()
        self._device.close()
        self.model.file.close()

    def __enter__(self) -> LoadedEmbedder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def tokenize(self, text: str, *, truncate: bool = False) -> list[int]:
        """The ids of `text` with the tokens that belong around it; the names of control tokens are plain text.

        `truncate`: no more than the model takes: the first ids, and the last one if it is one that ends texts.
        Without it, a text that is very much too long is not read to its end.
        """
        tokenizer, limit = self.model.tokenizer, self.model.limit
        ids = tokenizer.encode(text, add_special=True, limit=limit if truncate else COUNTED * limit)
        if not truncate or len(ids) <= limit:
            return ids
        return ids[: limit - 1] + ids[-1:] if tokenizer.add_eos else ids[:limit]

    def check_dimensions(self, dimensions: int | None) -> int | None:
        """How many components of a vector to keep, or None for all; BadRequest for what the model does not offer."""
        if dimensions is None:
            return None
        if dimensions < 1:
            raise BadRequest(f"dimensions: expected a number of at least 1, got {dimensions}", param="dimensions")
        if dimensions >= self.model.dimensions:
            return None
        if not self.model.matryoshka:
            raise BadRequest(
                f"dimensions: {dimensions} of {self.model.dimensions} components are no vector of {self.name}, which "
                "was not trained for that",
                param="dimensions",
            )
        return dimensions

    def embed(
        self,
        texts: Sequence[str | Sequence[int]],
        *,
        dimensions: int | None = None,
        normalize: bool = True,
        truncate: bool = False,
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """float32 (texts, dimensions): a vector for each text, or each list of token ids, in order.

        They are unit vectors unless `normalize` is False.  `dimensions` keeps the first so many components, and
        `truncate` cuts texts that are too long.  Raises BadRequest for texts that are too long, ids outside the
        vocabulary, and dimensions that the model does not offer; GolemError where the pass fails or gives a vector that
        is not finite.
        """
        kept = self.check_dimensions(dimensions)
        if not texts:
            return np.empty((0, kept or self.model.dimensions), np.float32)
        ids = [self.tokenize(each, truncate=truncate) if isinstance(each, str) else each for each in texts]
        vectors = self.engine.submit(ids).result().vectors[:, :kept]
        return unit(vectors) if normalize else vectors


def unit(vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """float32 rows of `vectors` (n, dimensions) divided by their lengths; a row of zeros stays one."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(np.sum(wide * wide, 1, keepdims=True))
    return (wide / np.where(lengths == 0, 1, lengths)).astype(np.float32)
