"""A server of HTTP for tests of requests that are sent: it keeps each key once, and fails when a test wants it to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: What it answers to a request: a status, or None for a connection that is cut when the request was taken.
Fate = Callable[[bytes], int | None]


class Target:
    """What a server has been sent.

    Attributes:
        bodies: those that it has taken, by key; in the order of the first of each.
        requests: how many there were, by key.
        headers: of the last one.
        fate: decides on answers.
    """

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        self.bodies: dict[str, bytes] = {}
        self.requests: dict[str, int] = {}
        self.headers: dict[str, str] = {}
        self.url = ""
        self.lock = threading.Lock()

    @property
    def values(self) -> list[Any]:
        """All bodies, decoded."""
        with self.lock:
            return [json.loads(body) for body in self.bodies.values()]

    def take(self, key: str, body: bytes, headers: dict[str, str]) -> int | None:
        with self.lock:
            self.headers = headers
            self.requests[key] = self.requests.get(key, 0) + 1
            status = self.fate(body)
            if status is None or status == 200:
                assert self.bodies.setdefault(key, body) == body, "a key has two bodies"
            return status


@contextmanager
def http_target(fate: Fate = lambda _: 200) -> Iterator[Target]:
    target = Target(fate)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True  # Whoever sent it was killed meanwhile.
                return
            status = target.take(self.headers["Idempotency-Key"], body, dict(self.headers))
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "0")
            if status == 307:
                self.send_header("Location", target.url)
            answer = b"" if status == 200 else b"no"
            self.send_header("Content-Length", f"{len(answer)}")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Say nothing of clients that are killed."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    target.url = f"http://127.0.0.1:{server.server_address[1]}/in"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield target
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
