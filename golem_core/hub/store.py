"""Conversations on disk: SQLite in WAL mode, one writer.

What was accepted is written before it is acknowledged, so that a turn survives the death of the process: it waits in
`turns` until its answer is written.  Every method may be called from any thread.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from golem_core.hub.errors import Refused
from golem_core.hub.messages import FunctionCall, Message, ToolCall

__all__ = ["Conversation", "Store", "Waiting", "private_file"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, channel TEXT NOT NULL, title TEXT NOT NULL, updated_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS messages (
    conversation_id TEXT NOT NULL REFERENCES conversations(id), seq INTEGER NOT NULL, role TEXT NOT NULL,
    content TEXT NOT NULL, tool_call_id TEXT NOT NULL, PRIMARY KEY (conversation_id, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tool_calls (
    conversation_id TEXT NOT NULL, message_seq INTEGER NOT NULL, call_seq INTEGER NOT NULL, id TEXT NOT NULL,
    type TEXT NOT NULL, name TEXT NOT NULL, arguments TEXT NOT NULL,
    PRIMARY KEY (conversation_id, message_seq, call_seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, conversation_id TEXT NOT NULL,
    channel TEXT NOT NULL, text TEXT NOT NULL, begun INTEGER NOT NULL DEFAULT 0);
"""


@dataclass(frozen=True)
class Conversation:
    """A conversation without its messages; `updated_at` is in Unix seconds."""

    id: str
    channel: str
    title: str
    updated_at: float


@dataclass(frozen=True)
class Waiting:
    """A turn that was accepted and has no answer yet.

    `begun` says how many processes have begun it; from the first on its message is among the messages.
    """

    id: str
    conversation: str
    channel: str
    text: str
    begun: int


def private_file(path: Path) -> None:
    """Make sure that a file is there and is its owner's alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    path.chmod(0o600)


class Store:
    """The database at `path`; `clock` says the Unix time."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time):
        private_file(path)
        self._clock = clock
        self._lock = threading.RLock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        for line in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", "PRAGMA busy_timeout = 10000"):
            self._database.execute(line)
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the database; nothing may be asked after that."""
        with self._lock:
            self._database.close()

    # ------------------------------------------------------------ turns

    def accept(self, turn: str, conversation: str, channel: str, text: str) -> None:
        """Write down a turn that waits.  Refused (409) where the conversation is another channel's."""
        with self._writing() as database:
            database.execute(
                "INSERT INTO conversations VALUES (?, ?, '', ?) ON CONFLICT DO NOTHING",
                (conversation, channel, self._clock()),
            )
            found = database.execute("SELECT channel FROM conversations WHERE id = ?", (conversation,)).fetchone()
            if found[0] != channel:
                raise Refused(409, f"conversation belongs to another channel: {found[0]}")
            database.execute(
                "INSERT INTO turns (id, conversation_id, channel, text) VALUES (?, ?, ?, ?)",
                (turn, conversation, channel, text),
            )

    def begin(self, turn: str, title: str) -> None:
        """Turn a waiting turn's text into the conversation's next message; `title` is taken where there is none."""
        with self._writing() as database:
            conversation, text = database.execute(
                "SELECT conversation_id, text FROM turns WHERE id = ?", (turn,)
            ).fetchone()
            database.execute("UPDATE turns SET begun = 1 WHERE id = ?", (turn,))
            database.execute("UPDATE conversations SET title = ? WHERE id = ? AND title = ''", (title, conversation))
            self._append(conversation, [Message("user", text)])

    def begin_again(self, turn: str) -> None:
        """Note that another process goes on with a turn that was begun."""
        with self._writing() as database:
            database.execute("UPDATE turns SET begun = begun + 1 WHERE id = ?", (turn,))

    def finish(self, turn: str, conversation: str, *messages: Message) -> None:
        """Append the last messages of a turn; it waits no longer."""
        with self._writing() as database:
            self._append(conversation, messages)
            database.execute("DELETE FROM turns WHERE id = ?", (turn,))

    def waiting(self) -> list[Waiting]:
        """The turns without an answer, in the order in which they were accepted."""
        with self._lock:
            rows = self._database.execute("SELECT id, conversation_id, channel, text, begun FROM turns ORDER BY number")
            return [Waiting(*row) for row in rows]

    # ------------------------------------------------------------ conversations

    def append(self, conversation: str, *messages: Message) -> None:
        """Append messages to a conversation."""
        with self._writing():
            self._append(conversation, messages)

    def rename(self, conversation: str, title: str) -> None:
        """Give a conversation another title."""
        with self._writing() as database:
            database.execute("UPDATE conversations SET title = ? WHERE id = ?", (title, conversation))

    def conversations(self, channel: str | None = None) -> list[Conversation]:
        """All conversations, or those of a channel; the latest first."""
        with self._lock:
            rows = self._database.execute(
                "SELECT id, channel, title, updated_at FROM conversations WHERE ?1 IS NULL OR channel = ?1 "
                "ORDER BY updated_at DESC, id",
                (channel,),
            )
            return [Conversation(*row) for row in rows]

    def conversation(self, identity: str) -> Conversation:
        """One conversation; Refused (404) if there is none."""
        with self._lock:
            row = self._database.execute(
                "SELECT id, channel, title, updated_at FROM conversations WHERE id = ?", (identity,)
            ).fetchone()
        if row is None:
            raise Refused(404, "conversation not found")
        return Conversation(*row)

    def messages(self, conversation: str) -> list[Message]:
        """The messages of a conversation in order."""
        with self._lock:
            calls: dict[int, list[ToolCall]] = {}
            for seq, identity, kind, name, arguments in self._database.execute(
                "SELECT message_seq, id, type, name, arguments FROM tool_calls WHERE conversation_id = ? "
                "ORDER BY message_seq, call_seq",
                (conversation,),
            ):
                calls.setdefault(seq, []).append(ToolCall(FunctionCall(name, arguments), identity, kind))
            rows = self._database.execute(
                "SELECT seq, role, content, tool_call_id FROM messages WHERE conversation_id = ? ORDER BY seq",
                (conversation,),
            )
            return [Message(role, content, calls.get(seq, []), answered) for seq, role, content, answered in rows]

    def _append(self, conversation: str, messages: Sequence[Message]) -> None:
        database = self._database
        (last,) = database.execute(
            "SELECT coalesce(max(seq), 0) FROM messages WHERE conversation_id = ?", (conversation,)
        ).fetchone()
        for seq, message in enumerate(messages, last + 1):
            database.execute(
                "INSERT INTO messages VALUES (?, ?, ?, ?, ?)",
                (conversation, seq, message.role, message.content, message.tool_call_id),
            )
            database.executemany(
                "INSERT INTO tool_calls VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (conversation, seq, number, call.id, call.type, call.function.name, call.function.arguments)
                    for number, call in enumerate(message.tool_calls)
                ],
            )
        database.execute("UPDATE conversations SET updated_at = ? WHERE id = ?", (self._clock(), conversation))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")
