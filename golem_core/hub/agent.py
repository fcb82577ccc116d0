"""Answering a turn: the model is asked, the tools that it calls are run, and it is asked again, until it only speaks.

Each message is in the store before the next step.  An error ends the turn as an assistant message of its own, and
the conversation goes on.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence

from golem_core.errors import GolemError
from golem_core.hub.config import Config
from golem_core.hub.errors import CallbackFailed
from golem_core.hub.memory import Memory
from golem_core.hub.messages import Message, ToolDef
from golem_core.hub.providers import ModelRef, Providers
from golem_core.hub.store import Store
from golem_core.hub.tools import Tools
from golem_core.hub.turns import Turn
from golem_core.server.log import say_defect

__all__ = ["Agent", "repaired", "title_of"]

INTERRUPTED = "error: interrupted"
PATIENCE = 30.0
"""Seconds that a turn waits for a provider to be there again."""

NOTICE = 1.0
"""Seconds after a broken call in which the end of the provider's process is noticed."""


class Agent:
    """Answers turns with the models that the settings name at each call."""

    def __init__(
        self,
        store: Store,
        providers: Providers,
        tools: Tools,
        memory: Memory,
        config: Callable[[], Config],
        say: Callable[[str], None],
        stopping: threading.Event,
    ):
        self.store = store
        self.providers = providers
        self.tools = tools
        self.memory = memory
        self.config = config
        self.say = say
        self.stopping = stopping

    def run(self, turn: Turn) -> None:
        """Answer a turn, and add its last event when the answer is in the store."""
        try:
            text = self._answer(turn)
        except (GolemError, sqlite3.Error, OSError) as error:
            self._fail(turn, str(error) or type(error).__name__)
        except Exception as error:
            say_defect(error)
            self._fail(turn, f"internal error: {type(error).__name__}")
        else:
            turn.add("done", text=text)
            self._afterwards(turn)

    def _answer(self, turn: Turn) -> str:
        if not turn.begun:
            self.store.begin(turn.id, title_of(turn.text))
            turn.begun = True
        if turn.resumed:
            self._wait_for_provider()
        history, missing = repaired(self.store.messages(turn.conversation))
        if missing:
            self.store.append(turn.conversation, *missing)
        known = self._recalled(turn)
        rounds = 0
        while True:
            config = self.config()
            tools = self.tools.definitions()
            answer = self._asked(config.default_model, [*known, *history], tools)
            if not answer.tool_calls:
                self.store.finish(turn.id, turn.conversation, answer)
                return answer.content
            rounds += 1
            if config.max_tool_rounds and rounds > config.max_tool_rounds:
                raise GolemError(f"exceeded {config.max_tool_rounds} tool rounds")
            self.store.append(turn.conversation, answer)
            history.append(answer)
            for call in answer.tool_calls:
                if self.stopping.is_set():
                    raise GolemError("the server is stopping")
                name, arguments = call.function.name, call.function.arguments
                result = self.tools.call(name, arguments)
                message = Message("tool", result, tool_call_id=call.id)
                self.store.append(turn.conversation, message)
                history.append(message)
                line = " ".join(f"[{name}] {arguments}".split())
                turn.add("log", line=line, name=name, args=arguments, result=result)
                self.say(line)

    def _asked(self, model: ModelRef, messages: Sequence[Message], tools: Sequence[ToolDef]) -> Message:
        """The model's next message.  A provider whose process ended, even during the call, is waited for."""
        until = time.monotonic() + PATIENCE
        while True:
            generation = self.providers.generation(model)
            try:
                return self.providers.chat(model, messages, tools)
            except CallbackFailed as error:
                if not error.unheard or not self._returned(model, generation, until):
                    raise

    def _returned(self, model: ModelRef, generation: int, until: float) -> bool:
        """Whether another registration of a provider came in place of the one of `generation`."""
        noticed = time.monotonic() + NOTICE
        while not self.stopping.is_set() and time.monotonic() < until:
            found = self.providers.generation(model)
            if found and found != generation:
                return True
            gone = not found and self.providers.registry.returning(model.provider)
            if not gone and (not found or time.monotonic() >= noticed):
                return False
            self.stopping.wait(0.05)
        return False

    def _recalled(self, turn: Turn) -> list[Message]:
        """What is remembered about a turn's text, as a system message."""
        try:
            memories = self.memory.recall(turn.text)
        except (GolemError, sqlite3.Error) as error:
            self.say(f"memory: {error}")
            return []
        if not memories:
            return []
        listed = "\n".join(f"- {each}" for each in memories)
        return [Message("system", f"You remember from earlier conversations:\n{listed}")]

    def _fail(self, turn: Turn, reason: str) -> None:
        """End a turn with an error; what the model called and did not get is answered first."""
        try:
            if turn.begun and not (self.stopping.is_set() and self._unanswered(turn)):
                missing = repaired(self.store.messages(turn.conversation))[1]
                self.store.finish(turn.id, turn.conversation, *missing, Message("assistant", reason))
        except (GolemError, sqlite3.Error) as error:
            self.say(f"turn {turn.id}: the error could not be written down: {error}")
        self.say(f"turn {turn.id}: {reason}")
        turn.add("error", error=reason)

    def _unanswered(self, turn: Turn) -> bool:
        """Whether nothing has come of a turn yet, so that the next process can begin it again."""
        messages = self.store.messages(turn.conversation)
        return bool(messages) and messages[-1].role == "user"

    def _afterwards(self, turn: Turn) -> None:
        """What nobody waits for: a better title, and what is worth remembering."""
        try:
            fast, remembers = self.config().fast_model, self.memory.active()
            messages = self.store.messages(turn.conversation) if fast or remembers else []
        except (GolemError, sqlite3.Error) as error:
            self.say(f"after a turn: {error}")
            return
        work: list[Callable[[], object]] = []
        if fast and sum(message.role == "user" for message in messages) == 1:
            work.append(lambda: self._name(turn.conversation, fast, messages))
        if remembers:
            work.append(lambda: self.memory.extract(turn.conversation, messages))
        if work:
            threading.Thread(target=self._quietly, args=(work,), name=f"after {turn.id}", daemon=True).start()

    def _quietly(self, work: Sequence[Callable[[], object]]) -> None:
        for each in work:
            try:
                each()
            except (GolemError, sqlite3.Error) as error:
                self.say(f"after a turn: {error}")

    def _name(self, conversation: str, model: ModelRef, messages: Sequence[Message]) -> None:
        said = "\n\n".join(f"{each.role}: {each.content[:2000]}" for each in messages)
        request = f"Name this conversation in at most six words. Answer with the name alone.\n\n{said}"
        title = title_of(self.providers.chat(model, [Message("user", request)]).content)
        if title:
            self.store.rename(conversation, title)

    def _wait_for_provider(self) -> None:
        """Give the extensions of a server that has just started the time to register."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not self.providers.can_chat(self.config().default_model):
            if self.stopping.wait(0.2):
                return


def title_of(text: str) -> str:
    """A title made of a text: its first line, without the quotes around it, at most 80 characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for opening, closing in ('""', "''", "“”", "«»", "``"):
        if len(line) > 1 and line[0] == opening and line[-1] == closing:
            line = line[1:-1].strip()
    return line[:80].rstrip()


def repaired(history: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """`history` in which every call has a result, and the results that had to be added at its end.

    Calls lose their results when the process dies between the two.  Results that belong before the end are put into
    what is returned only: their place in the store is taken.
    """
    whole: list[Message] = []
    open_calls: list[str] = []
    for message in history:
        if message.role == "tool":
            if message.tool_call_id in open_calls:
                open_calls.remove(message.tool_call_id)
        else:
            whole += [Message("tool", INTERRUPTED, tool_call_id=each) for each in open_calls]
            open_calls = [call.id for call in message.tool_calls]
        whole.append(message)
    missing = [Message("tool", INTERRUPTED, tool_call_id=each) for each in open_calls]
    return [*whole, *missing], missing
