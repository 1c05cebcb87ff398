"""A TCP proxy in front of a server whose clock jumps, as its clients see it: times in what it says are moved.

For servers that make system calls themselves, on which libfaketime has no hold.  A time is moved by how far the clock
was off then, so a message keeps the time that it was stored with.
"""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

_CHUNK_BYTES = 1 << 16
# A year before is that of what never happened.
_TIME = re.compile(rb"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?")
#: What may be the beginning of a time, at the end of a chunk.
_BEGUN = re.compile(rb"\d[-\dT:.]{0,30}$")
_FORM = "%Y-%m-%dT%H:%M:%S"


class ClockProxy:
    """A proxy on a free port; `jump` is that of `tests.fake_clock.FakeClock`."""

    def __init__(self, port: int) -> None:
        self._upstream, self._jumps = port, list[tuple[float, int]]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients = list[socket.socket]()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def jump(self, offset_s: int) -> None:
        """From now on the clock is so far ahead of the real one, or behind it."""
        self._jumps.append((time.time(), offset_s))

    def now_s(self) -> float:
        """What the clock shows."""
        return time.time() + (self._jumps[-1][1] if self._jumps else 0)

    def close(self) -> None:
        """End all connections, and take no more."""
        for opened in (self._listener, *self._clients):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for each in self._threads:
            each.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=[client]))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._upstream)) as server:
            asking = threading.Thread(target=self._copy, args=(client, server, False))
            asking.start()
            self._copy(server, client, True)
            asking.join()

    def _copy(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        kept = b""
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                if is_answer:
                    chunk, kept = self._moved(kept + chunk)
                target.sendall(chunk)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _moved(self, answer: bytes) -> tuple[bytes, bytes]:
        """What is sent on, and what may be the beginning of a time, whose rest is on its way."""
        moved = _TIME.sub(self._move, answer)
        begun = _BEGUN.search(moved)
        end = len(moved) if begun is None else begun.start()
        return moved[:end], moved[end:]

    def _move(self, found: re.Match[bytes]) -> bytes:
        at = datetime.strptime(found[1].decode(), _FORM).replace(tzinfo=UTC)
        at_s = at.timestamp() + float(found[2] or 0)
        offsets = [each for since_s, each in self._jumps if since_s <= at_s]
        moved = at + timedelta(seconds=offsets[-1] if offsets else 0)
        return f"{moved:{_FORM}}".encode() + (found[2] or b"")


@contextmanager
def jumping_clock(port: int) -> Iterator[ClockProxy]:
    """A server on a port, by a clock that is right at first."""
    proxy = ClockProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
