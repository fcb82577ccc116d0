"""The two servers that are compared, each as a process of its own: started, asked, and weighed."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PEER = "xllamacpp"
PATIENCE = 600  # seconds that a server has to become ready, and to answer


class Server:
    """A server in a process, listening on a port of this machine.  Leaving the `with` block ends it."""

    def __init__(self, name: str, command: list[str], port: int, environment: Mapping[str, str] | None = None):
        self.name, self.port = name, port
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **(environment or {})},
        )
        try:
            self.ready_seconds = self._until_healthy()
        except BaseException:
            self.close()
            raise

    def _until_healthy(self) -> float:
        while time.perf_counter() - self.started < PATIENCE:
            if self._process.poll() is not None:
                self._log.seek(0)
                said = self._log.read().decode(errors="replace")[-2000:]
                raise SystemExit(f"{self.name} ended with status {self._process.returncode}:\n{said}")
            with contextlib.suppress(OSError, http.client.HTTPException), self._connection() as connection:
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return time.perf_counter() - self.started
            time.sleep(0.005)
        raise SystemExit(f"{self.name} was not ready after {PATIENCE} seconds")

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _answer(self, path: str, body: Mapping[str, Any]) -> Iterator[http.client.HTTPResponse]:
        with self._connection() as connection:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise SystemExit(f"{self.name} answered {path} with {response.status}: {response.read(500)!r}")
            yield response

    def get(self, path: str) -> Any:
        """The JSON that a GET is answered with."""
        with self._connection() as connection:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that a POST of `body` is answered with."""
        with self._answer(path, body) as response:
            return json.loads(response.read())

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer, as they come."""
        with self._answer(path, body) as response:
            for line in response:
                if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
                    event = json.loads(data)
                    if "error" in event:
                        raise SystemExit(f"{self.name} failed while it answered: {event['error']}")
                    yield event

    @property
    def process(self) -> int:
        return self._process.pid

    def memory(self, field: str = "VmHWM") -> int | None:
        """Bytes resident at most so far (VmHWM) or now (VmRSS); None where the system has no /proc."""
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def golem(
    model: Path, *, slots: int, context: int, threads: int, cache: Path | None = None, projector: Path | None = None
) -> Server:
    """`golem serve` with `slots` conversations of `context` positions each, and its kernels in `cache`."""
    beside = {} if projector is None else {"mmproj": projector}
    return _golem(cache, model=model, parallel=slots, context=slots * context, threads=threads, **beside)


def golem_embedder(model: Path, *, threads: int) -> Server:
    """`golem serve` with an embedding model alone."""
    return _golem(None, embed=model, threads=threads)


def _golem(cache: Path | None, **options: Any) -> Server:
    port = _free_port()
    options["addr"] = f"127.0.0.1:{port}"
    arguments = [text for name, value in options.items() for text in (f"-{name}", str(value))]
    program = "from golem_core.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", *arguments]
    environment = {"PYTHONDONTWRITEBYTECODE": ""}  # what Python compiles is kept, as an installer leaves it
    if cache is not None:
        environment["GOLEM_CACHE"] = str(cache)
    return Server("golem", command, port, environment)


def peer(
    python: str,
    model: Path,
    *,
    slots: int,
    context: int,
    threads: int,
    flash: str = "auto",
    batch: int | None = None,
    projector: Path | None = None,
) -> Server:
    """llama.cpp's server, likewise; with a `batch`, for embeddings in passes of so many positions."""
    port = _free_port()
    settings = {
        "model": str(model.resolve()),
        "port": port,
        "slots": slots,
        "context": context,
        "threads": threads,
        "flash": flash,
    }
    if batch is not None:
        settings["batch"] = batch
    if projector is not None:
        settings["projector"] = str(projector.resolve())
    command = [python, str(Path(__file__).with_name("_peer.py")), json.dumps(settings)]
    return Server(f"llama.cpp (flash attention {flash})", command, port)


def peer_python(given: str | None) -> str:
    """A Python that has the peer: the one given, this one, or one made for it in the user's cache folder."""
    if given is not None:
        return given
    if importlib.util.find_spec(PEER) is not None:
        return sys.executable
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "golem" / "peer"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists() or subprocess.run([python, "-c", f"import {PEER}"], capture_output=True).returncode:
        print(f"installing {PEER} into {folder}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "-q", PEER], check=True)
    return str(python)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]
