"""A channel for Telegram: a bot that answers in its chats.

TELEGRAM_TOKEN is the bot's token.  TELEGRAM_CHATS, ids separated by commas, says whom it answers; without it, it
answers everybody.  TELEGRAM_API names another server of the Bot API.
"""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from golem import Channel, Client, GolemError

POLL_SECONDS = 20
LONGEST = 4096
"""Characters that a message of Telegram may have."""


class Telegram(Channel):
    """Each chat is a conversation of its own."""

    def run(self, client: Client, stop: threading.Event) -> None:
        """Answer messages until the extension is stopped."""
        token = os.environ.get("TELEGRAM_TOKEN")
        if not token:
            raise SystemExit("TELEGRAM_TOKEN is not set")
        allowed = {chat.strip() for chat in os.environ.get("TELEGRAM_CHATS", "").split(",") if chat.strip()}
        base = f"{os.environ.get('TELEGRAM_API', 'https://api.telegram.org').rstrip('/')}/bot{token}"
        chats: dict[int, ThreadPoolExecutor] = {}
        for message in _messages(base, stop):
            chat, text = message["chat"]["id"], message.get("text")
            if text and (not allowed or str(chat) in allowed):
                # Messages of one chat are answered in order, those of different chats at once.
                worker = chats.setdefault(chat, ThreadPoolExecutor(1))
                worker.submit(self._answer, client, base, chat, text)

    def _answer(self, client: Client, base: str, chat: int, text: str) -> None:
        try:
            answer = client.send(f"{self.id}:{chat}", self.id, text) or "…"
        except GolemError as error:
            answer = f"error: {error}"
        for start in range(0, len(answer), LONGEST):
            try:
                _call(base, "sendMessage", chat_id=chat, text=answer[start : start + LONGEST])
            except OSError as error:
                print(f"chat {chat}: the answer could not be sent: {error}", flush=True)


def _messages(base: str, stop: threading.Event) -> Iterator[dict[str, Any]]:
    """The messages that arrive, each once."""
    offset = 0
    while not stop.is_set():
        try:
            updates = _call(base, "getUpdates", offset=offset, timeout=POLL_SECONDS)
        except (OSError, ValueError) as error:
            print(f"getUpdates: {error}", flush=True)
            stop.wait(3)
            continue
        for update in updates:
            offset = max(offset, update["update_id"] + 1)
            if "message" in update:
                yield update["message"]


def _call(base: str, method: str, **fields: Any) -> Any:
    """The result of a method of the Bot API; OSError if it fails.  The token, part of the URL, is in no error."""
    request = urllib.request.Request(
        f"{base}/{method}", json.dumps(fields).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=POLL_SECONDS + 10) as answer:
        return json.load(answer)["result"]
