"""A proxy in front of Postgres that loses a request, or its answer, at a chosen moment.

It stands on a Unix socket of its own and copies bytes between client and server.
"""

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CHUNK_BYTES = 1 << 20


class PostgresProxy:
    """Copies bytes until asked to lose some; owned by the thread of the test."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self._upstream = conninfo_to_dict(dsn)
        self._listener = socket.socket(socket.AF_UNIX)
        self.socket_path = directory / ".s.PGSQL.5432"
        self._listener.bind(str(self.socket_path))
        self._listener.listen()
        self._loses: str | None = None
        #: Sizes of what the client has written, one entry for each time something arrived.
        self.requests_bytes: list[int] = []
        self.dsn = make_conninfo(
            dsn, host=str(directory), port=5432, sslmode="disable", gssencmode="disable"
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_request(self) -> None:
        """Lose the next request of the client, and end its connection."""
        self._loses = "request"

    def lose_answer(self) -> None:
        """Lose the answer to the next request of the client, and end the connection."""
        self._loses = "answer"

    def close(self) -> None:
        self._listener.close()

    def _connect_upstream(self) -> socket.socket:
        host = str(self._upstream.get("host", "localhost"))
        port = int(str(self._upstream.get("port", 5432)))
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(f"{host}/.s.PGSQL.{port}")
        return upstream

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connect_upstream()
                for copy in (self._copy_requests, self._copy_answers):
                    threading.Thread(target=copy, args=(client, server), daemon=True).start()

    def _copy_requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := client.recv(_CHUNK_BYTES):
                self.requests_bytes.append(len(chunk))
                if self._loses == "request":
                    self._loses = None
                    break
                server.sendall(chunk)
        _cut(client, server)

    def _copy_answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := server.recv(_CHUNK_BYTES):
                if self._loses == "answer":
                    self._loses = None
                    break
                client.sendall(chunk)
        _cut(client, server)


def _cut(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@pytest.fixture
def proxy(store_dsn: str) -> Iterator[PostgresProxy]:
    """A proxy in front of the test's own database."""
    directory = Path(tempfile.mkdtemp(prefix="dataflow-px-"))
    proxy = PostgresProxy(store_dsn, directory)
    yield proxy
    proxy.close()
    shutil.rmtree(directory)
