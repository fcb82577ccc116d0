"""The hub's folder and its conf.json: which models channels talk to, and what is installed.

The folder is GOLEM_HOME, or ~/.golem.  The file is read whenever something in it is wanted, so that a change counts
from the next turn on, and it is written whole or not at all; keys that are not known here stay.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from golem_core.errors import GolemError
from golem_core.hub.providers import ModelRef
from golem_core.hub.registry import LOCAL

__all__ = ["Config", "Home"]

DEFAULTS: dict[str, Any] = {
    "default_model": {"provider": LOCAL, "model": "local"},
    "max_tool_rounds": 20,
    "memory": {"embedding": {"provider": LOCAL, "model": "local"}, "budget_tokens": 800, "min_similarity": 0.5},
    "extensions": {},
}


class Config:
    """The settings as they stand in the file now.  Every property raises GolemError naming a key that is wrong."""

    def __init__(self, values: dict[str, Any], path: Path):
        self.values = values
        self.path = path

    @property
    def default_model(self) -> ModelRef:
        """The model that channels talk to."""
        return self._ref("default_model") or ModelRef(LOCAL, "local")

    @property
    def fast_model(self) -> ModelRef | None:
        """The model that names conversations, if one is to."""
        return self._ref("fast_model")

    @property
    def embedding(self) -> ModelRef | None:
        """The model that memories are found by."""
        return self._ref("memory", "embedding")

    @property
    def max_tool_rounds(self) -> int:
        """How often a turn may call tools; 0 is as often as it likes."""
        return int(self._number(DEFAULTS["max_tool_rounds"], "max_tool_rounds"))

    @property
    def memory_budget(self) -> int:
        """Tokens of memories that a turn is told."""
        return int(self._number(DEFAULTS["memory"]["budget_tokens"], "memory", "budget_tokens"))

    @property
    def min_similarity(self) -> float:
        """How near a memory must be to be told."""
        return self._number(DEFAULTS["memory"]["min_similarity"], "memory", "min_similarity")

    @property
    def extensions(self) -> Mapping[str, Any]:
        """What is recorded about installed extensions, by their names."""
        found = self._get("extensions")
        if not isinstance(found, dict | None):
            raise GolemError(f"{self.path}: extensions: expected an object, got {found!r}")
        return found or {}

    def extension(self, name: str) -> Mapping[str, Any]:
        """What is recorded about an installed extension."""
        found = self.extensions.get(name)
        if not isinstance(found, dict | None):
            raise GolemError(f"{self.path}: extensions.{name}: expected an object, got {found!r}")
        return found or {}

    def environment(self, name: str) -> Mapping[str, str]:
        """The environment variables of an installed extension."""
        found = self.extension(name).get("env")
        if not isinstance(found, dict | None):
            raise GolemError(f"{self.path}: extensions.{name}.env: expected an object, got {found!r}")
        for variable, value in (found or {}).items():
            where = f"{self.path}: extensions.{name}.env.{variable}"
            if not isinstance(value, str):
                raise GolemError(f"{where}: expected a text, got {value!r}")
            if not variable or "=" in variable or "\0" in variable + value:
                raise GolemError(f"{where}: no environment variable can be that")
        return found or {}

    def _get(self, *keys: str) -> Any:
        value: Any = self.values
        for place, key in enumerate(keys):
            if not isinstance(value, dict):
                raise GolemError(f"{self.path}: {'.'.join(keys[:place])}: expected an object, got {value!r}")
            value = value.get(key)
            if value is None:
                return None
        return value

    def _ref(self, *keys: str) -> ModelRef | None:
        value = self._get(*keys)
        if value is None:
            return None
        if not isinstance(value, dict) or not isinstance(value.get("provider"), str):
            raise GolemError(f'{self.path}: {".".join(keys)}: expected {{"provider": …, "model": …}}')
        return ModelRef(value["provider"], str(value.get("model") or ""))

    def _number(self, default: float, *keys: str) -> float:
        value = self._get(*keys)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
            raise GolemError(f"{self.path}: {'.'.join(keys)}: expected a number of at least 0, got {value!r}")
        return value


class Home:
    """The hub's folder."""

    def __init__(self, path: Path | None = None):
        named = os.path.expanduser(os.environ.get("GOLEM_HOME") or os.path.join("~", ".golem"))
        self.path = path or Path(named if named.startswith("~") else os.path.abspath(named))
        self.extensions = self.path / "extensions"
        self.skills = self.path / "skills"
        self.conversations = self.path / "conversations.db"
        self.memories = self.path / "memory" / "memories.db"
        self.conf = self.path / "conf.json"

    def make(self) -> None:
        """Make the folder, and conf.json with its defaults, where they are missing.  Raises GolemError."""
        if self.path.parts[0].startswith("~"):
            raise GolemError(f"{self.path}: it is not known where that is; name a folder with GOLEM_HOME")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.conf.exists():
                self.write(DEFAULTS)
        except OSError as error:
            raise GolemError(f"{self.path}: {error.strerror or error}; name another folder with GOLEM_HOME") from None

    def config(self) -> Config:
        """The settings; defaults where there is no file.  Raises GolemError for a file that is not JSON."""
        try:
            values = json.loads(self.conf.read_text(encoding="utf-8"))
        except FileNotFoundError:
            values = DEFAULTS
        except (OSError, ValueError) as error:
            raise GolemError(f"{self.conf}: {error}") from None
        except RecursionError:
            raise GolemError(f"{self.conf}: nested too deeply") from None
        if not isinstance(values, dict):
            raise GolemError(f"{self.conf}: expected an object")
        return Config(values, self.conf)

    def write(self, values: Mapping[str, Any]) -> None:
        """Replace conf.json; it is its owner's alone, since it may hold keys."""
        handle, name = tempfile.mkstemp(prefix=".conf.", dir=self.path)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(values, file, indent=2, ensure_ascii=False)
                file.write("\n")
            os.replace(name, self.conf)
        except BaseException:
            os.unlink(name)
            raise

    def record(self, name: str, about: Mapping[str, Any] | None) -> None:
        """Keep what is known of an installed extension, or with None forget it."""
        self.make()
        values = dict(self.config().values)
        extensions = dict(self.config().extensions)
        if about is None:
            extensions.pop(name, None)
        else:
            extensions[name] = dict(about)
        self.write(values | {"extensions": extensions})

    def lock(self) -> int | None:
        """Take the lock that a running server holds, as a file descriptor; None when another process has it.

        Raises GolemError on systems without such locks, which have no process groups either.
        """
        try:
            import fcntl
        except ImportError:
            raise GolemError("extensions and channels need a system with POSIX locks and process groups") from None
        held = os.open(self.path / "serve.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return None
        return held

    def served(self) -> bool:
        """Whether a server is running on this folder."""
        if not (self.path / "serve.lock").exists():
            return False
        held = self.lock()
        if held is None:
            return True
        os.close(held)
        return False
