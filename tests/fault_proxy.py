"""A TCP proxy in front of Postgres that cuts, delays, and loses or keeps back the answer to a commit.

It stands on a free port of the loopback interface and copies bytes, one thread for each direction of a connection.
Not here: losing the very next request or answer of a store, whatever it is; that is `fix_proxy`.
"""

import contextlib
import socket
import threading
import time
from queue import SimpleQueue

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CHUNK_BYTES = 1 << 16
#: How the server reports that a transaction is durable: the tag of COMMIT (CommandComplete, its length, its tag); or,
#: of the pipeline of several statements that a production is, that it waits for the next one in no transaction.
_COMMIT = b"C\x00\x00\x00\x0bCOMMIT\x00"
_BOUND, _READY = b"2\x00\x00\x00\x04", b"Z\x00\x00\x00\x05I"
_HOLD_MAX_S = 60.0


class FaultProxy:
    """A proxy whose faults are set by the thread of the test, and happen in the threads of the connections."""

    def __init__(self, dsn: str) -> None:
        upstream = conninfo_to_dict(dsn)
        self._upstream = f"{upstream['host']}/.s.PGSQL.{upstream['port']}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._lose_commits = self._hold_commits = 0
        #: Before each chunk, in both directions.
        self.delay_s = 0.0
        #: Each of the next connections is cut after so many writes of the client's.
        self.cut_after: list[int] = []
        #: Connections opened so far.
        self.connections = 0
        #: Counts answers to commits that never arrived, or are being kept back.
        self.commits_lost = 0
        #: Those of them that were answers to productions.
        self.productions_lost = 0
        self._withheld: SimpleQueue[int] = SimpleQueue()
        self._release = threading.Event()
        port = self._listener.getsockname()[1]
        self.dsn = make_conninfo(
            dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable"
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """End every connection in both directions, with a reset; return how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(*pair)
        return len(pairs)

    def lose_commits(self, count: int) -> None:
        """Lose the answers to the next commits, and end their connections."""
        with self._lock:
            self._lose_commits = count

    def hold_commit(self) -> int:
        """Wait until the answer to a commit is here, and keep it: durable, and nobody knows.

        Returns:
            The client's port: who it is that does not know.
        """
        self._release.clear()
        with self._lock:
            self._hold_commits = 1
        return self._withheld.get(timeout=_HOLD_MAX_S)

    def release(self) -> None:
        """Let the answer go that was kept back."""
        self._release.set()

    def close(self) -> None:
        """End everything."""
        self._listener.close()
        self._release.set()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._upstream)
                except OSError:
                    _end(client, server)
                    continue
                with self._lock:
                    self._pairs.append((client, server))
                for copy in (self._copy_requests, self._copy_answers):
                    threading.Thread(target=copy, args=(client, server), daemon=True).start()

    def _copy_requests(self, client: socket.socket, server: socket.socket) -> None:
        left = self.cut_after.pop(0) if self.cut_after else None
        with contextlib.suppress(OSError):
            while chunk := client.recv(_CHUNK_BYTES):
                if left is not None:
                    left -= 1
                    if left < 0:
                        break
                time.sleep(self.delay_s)
                server.sendall(chunk)
        _end(client, server)

    def _copy_answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := server.recv(_CHUNK_BYTES):
                time.sleep(self.delay_s)
                is_production = chunk.count(_BOUND) > 1 and chunk.endswith(_READY)
                is_commit = is_production or _COMMIT in chunk
                if is_commit and not self._passes(client, is_production=is_production):
                    break
                client.sendall(chunk)
        _end(client, server)

    def _passes(self, client: socket.socket, *, is_production: bool) -> bool:
        """Whether the answer to a commit arrives; it may be kept back for a while before."""
        with self._lock:
            is_lost, is_withheld = self._lose_commits > 0, self._hold_commits > 0
            self._lose_commits -= is_lost
            self._hold_commits -= is_withheld
            self.commits_lost += is_lost
            self.productions_lost += is_lost and is_production
        if is_withheld:
            self._withheld.put(client.getpeername()[1])
            self._release.wait(_HOLD_MAX_S)
        return not is_lost


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
