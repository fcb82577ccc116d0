"""A channel for a terminal: `nc 127.0.0.1 8090`, one text a line, and the answers come back.

CONSOLE_PORT names another port.  Each connection is a conversation of its own.
"""

from __future__ import annotations

import os
import socketserver
import threading
import uuid

from golem import Channel, Client, GolemError


class Console(Channel):
    """Lines of a connection are turns of a conversation."""

    def run(self, client: Client, stop: threading.Event) -> None:
        """Take connections until the extension is stopped."""
        channel = self.id

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                conversation = f"{channel}-{uuid.uuid4().hex[:8]}"
                for line in self.rfile:
                    text = line.decode("utf-8", "replace").strip()
                    if not text:
                        continue
                    try:
                        answer = client.send(conversation, channel, text)
                    except GolemError as error:
                        answer = f"error: {error}"
                    self.wfile.write(answer.encode() + b"\n")

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        with Server(("127.0.0.1", int(os.environ.get("CONSOLE_PORT", "8090"))), Connection) as server:
            print(f"listening on port {server.server_address[1]}", flush=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stop.wait()
            server.shutdown()
