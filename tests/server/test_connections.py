"""Connections that say nothing more are closed, and more of them than the system allows are waited for in peace."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
import time

import pytest

from golem_core.server import connections
from golem_core.server.connections import Connection, Strain

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"messages": [{"role": "user", "content": "abcdefgh"}], "stream": true}'


@pytest.fixture
def impatient(monkeypatch, start):
    monkeypatch.setattr(Connection, "patience", 0.3)
    return start()


def closes(connection: socket.socket, within: float) -> bool:
    connection.settimeout(within)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    return True


def says(connection: socket.socket, what: bytes) -> None:
    """Read until what is expected has come."""
    connection.settimeout(5)
    said = b""
    while what not in said:
        piece = connection.recv(65536)
        assert piece, said
        said += piece


@pytest.mark.parametrize(
    "sent",
    [b"", HEAD[:20], HEAD, HEAD + b"Content-Length: 100\r\n\r\n{", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"],
)
def test_a_request_that_does_not_come_whole_is_given_up(impatient, sent) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(sent)
        assert closes(connection, 3)
    assert impatient.engine.generations == []
    assert impatient.chat().status_code == 200


def test_so_is_the_beginning_of_another_request(impatient) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(HEALTH)
        says(connection, b'{"status":"ok"}')
        connection.sendall(HEALTH[:30])
        assert closes(connection, 3)


def test_between_requests_and_during_an_answer_there_is_more_time(impatient) -> None:
    impatient.engine.token_delay = 0.1
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        says(connection, b"[DONE]")
        assert not closes(connection, 0.7)
        connection.sendall(HEALTH)
        says(connection, b'{"status":"ok"}')


def test_a_body_that_comes_slowly_is_waited_for(impatient) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY))
        for at in range(0, len(BODY), 10):
            time.sleep(0.1)
            connection.sendall(BODY[at : at + 10])
        says(connection, b"[DONE]")


CROWDED = """
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
from golem_core.options import Address
from golem_core.server.app import listen
from golem_core.server.web import Runner

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})

bound = listen(Address("127.0.0.1", 0))
print(bound.getsockname()[1], flush=True)
Runner(app, bound).run()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_where_no_connection_can_be_taken_that_is_said_once_and_later_ones_are() -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", CROWDED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
        time.sleep(2.5)
        for each in crowd:
            each.close()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(HEALTH)
            says(connection, b"\r\n\r\nok")
        server.terminate()
        _, said = server.communicate(timeout=10)
    finally:
        server.kill()
        server.wait()
    assert said == "no more connections can be taken until others end: Too many open files\n"


def test_other_errors_of_the_loop_are_told_as_they_are(capfd, caplog) -> None:
    loop = asyncio.new_event_loop()
    strain = Strain()
    for _ in range(3):
        strain(loop, {"message": "m", "exception": OSError(errno.EMFILE, "Too many open files")})
    strain(loop, {"message": "something else", "exception": ValueError("x")})
    loop.close()
    assert capfd.readouterr().err.count("no more connections") == 1
    assert "something else" in caplog.text


def test_a_process_may_have_many_open_files() -> None:
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        connections.allow_many()
        assert 256 < resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= connections.MOST_FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
