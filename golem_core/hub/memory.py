"""What is remembered across conversations: short facts with their embeddings.

After an answer a model is asked for the facts worth keeping; before one, those nearest to the new text are told.
Memory is at work while the embedding model that the settings name is there.  Vectors are compared with those of the
same model only; facts that another one embedded are embedded anew before the next ones are kept.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.hub.config import Config
from golem_core.hub.errors import CallbackFailed
from golem_core.hub.messages import Message
from golem_core.hub.providers import ModelRef, Providers
from golem_core.hub.store import private_file

__all__ = ["Memory", "memories_in"]

LIMIT = 20
SAME = 0.97
"""Cosine similarity from which two facts count as one."""

AT_ONCE = 64
"""Facts that are embedded anew in one call, so that it ends in time."""

SCHEMA = {
    "type": "object",
    "properties": {"memories": {"type": "array", "items": {"type": "string"}}},
    "required": ["memories"],
    "additionalProperties": False,
}

_REQUEST = (
    "Below is the end of a conversation. List the facts about the user that will still matter in other conversations: "
    "who they are, what they like, what they have decided. Each is one short sentence. List nothing that was only "
    'asked or is true of the world. Answer as JSON: {"memories": ["…"]}, with an empty list if there is nothing.'
)


class Memory:
    """The facts in the database at `path`, which is made when the first one is kept."""

    def __init__(self, path: Path, providers: Providers, config: Callable[[], Config]):
        self._path = path
        self._providers = providers
        self._config = config
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None

    def active(self) -> bool:
        """Whether the embedding model is there."""
        embedding = self._config().embedding
        return embedding is not None and self._providers.can_embed(embedding)

    def recall(self, text: str) -> list[str]:
        """The facts nearest to a text, the nearest first, as many as the budget holds.  Raises GolemError."""
        config = self._config()
        model = config.embedding
        if model is None or not self._providers.can_embed(model) or not self._path.exists():
            return []
        vector = self._embed(model, [text])[0]
        found: list[str] = []
        left = config.memory_budget * 4  # a token has about four characters
        for similarity, fact in self._nearest(model, vector)[:LIMIT]:
            if similarity < config.min_similarity or len(fact) > left:
                break
            found.append(fact)
            left -= len(fact)
        return found

    def extract(self, conversation: str, messages: Sequence[Message]) -> list[str]:
        """Keep what the end of a conversation says that is new; returns it.  Raises GolemError."""
        config = self._config()
        embedding = config.embedding
        if embedding is None:
            return []
        self._renew(embedding)
        said = "\n\n".join(f"{each.role}: {each.content}" for each in messages[-6:] if each.content)
        asked = [Message("system", _REQUEST), Message("user", said[-6000:])]
        model = config.fast_model or config.default_model
        facts = memories_in(self._providers.structured(model, asked, "memories", SCHEMA))
        kept = []
        for fact, vector in zip(facts, self._embed(embedding, facts) if facts else [], strict=True):
            nearest = self._nearest(embedding, vector)
            if not nearest or nearest[0][0] < SAME:
                self._keep(conversation, fact, embedding, vector)
                kept.append(fact)
        return kept

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _embed(self, embedding: ModelRef, texts: Sequence[str]) -> list[np.ndarray]:
        vectors = [np.asarray(each, np.float32) for each in self._providers.embed(embedding, texts)]
        lengths = [float(np.linalg.norm(each)) for each in vectors]
        if not all(np.isfinite(each) and each > 0 for each in lengths):
            raise CallbackFailed(f"{embedding.provider}: an embedding has no direction")
        return [each / length for each, length in zip(vectors, lengths, strict=True)]

    def _renew(self, embedding: ModelRef) -> None:
        """Embed the facts that another model embedded."""
        name = self._providers.embedder(embedding)
        if not self._path.exists():
            return
        with self._lock:
            rows = self._open().execute("SELECT id, fact FROM memories WHERE model != ?", (name,)).fetchall()
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            vectors = self._embed(embedding, [fact for _, fact in some])
            renewed = [(name, *_stored(each), identity) for (identity, _), each in zip(some, vectors, strict=True)]
            with self._lock, self._open() as database:
                database.execute("BEGIN")
                database.executemany("UPDATE memories SET model = ?, width = ?, vector = ? WHERE id = ?", renewed)

    def _nearest(self, embedding: ModelRef, vector: np.ndarray) -> list[tuple[float, str]]:
        """(cosine similarity, fact) of every fact that the same model embedded, nearest first."""
        like = (self._providers.embedder(embedding), len(vector))
        with self._lock:
            found = self._open().execute("SELECT fact, vector FROM memories WHERE model = ? AND width = ?", like)
            rows = found.fetchall()
        if not rows:
            return []
        table = np.frombuffer(b"".join(row[1] for row in rows), np.float32).reshape(len(rows), len(vector))
        return sorted(zip((table @ vector).tolist(), (row[0] for row in rows), strict=True), reverse=True)

    def _keep(self, conversation: str, fact: str, embedding: ModelRef, vector: np.ndarray) -> None:
        name = self._providers.embedder(embedding)
        with self._lock:
            self._open().execute(
                "INSERT INTO memories (conversation_id, fact, model, width, vector, created_at) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (conversation, fact, name, *_stored(vector), time.time()),
            )

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            private_file(self._path)
            self._database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS memories (id INTEGER PRIMARY KEY, conversation_id TEXT NOT NULL, "
                "fact TEXT NOT NULL, width INTEGER NOT NULL, vector BLOB NOT NULL, created_at REAL NOT NULL, "
                "model TEXT NOT NULL DEFAULT '')"
            )
            columns = [row[1] for row in self._database.execute("PRAGMA table_info(memories)")]
            if "model" not in columns:  # made before it was written down who embedded a fact
                self._database.execute("ALTER TABLE memories ADD COLUMN model TEXT NOT NULL DEFAULT ''")
        return self._database


def _stored(vector: np.ndarray) -> tuple[int, bytes]:
    return len(vector), vector.astype(np.float32).tobytes()


def memories_in(value: Any) -> list[str]:
    """The facts in what a model answered: an array, or an object with `memories`; of texts, or objects with one."""
    if isinstance(value, dict):
        value = value.get("memories")
    if not isinstance(value, list):
        raise CallbackFailed("the model listed no memories")
    texts = [each if isinstance(each, str) else _text(each) for each in value]
    return [" ".join(each.split())[:500] for each in texts if each.strip()]


def _text(entry: Any) -> str:
    if isinstance(entry, dict):
        return next((each for each in entry.values() if isinstance(each, str)), "")
    return ""
