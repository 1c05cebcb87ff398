"""Copies bytes between sockets: ``python -m tests.tcp_relay LISTEN UPSTREAM``, each ``tcp:HOST:PORT`` or ``unix:PATH``.

A Unix socket is reached from every network namespace, so two of these lead from one into another.
"""

import contextlib
import socket
import sys
import threading

_CHUNK_BYTES = 1 << 16


def _opened(place: str) -> tuple[int, str | tuple[str, int]]:
    kind, _, rest = place.partition(":")
    if kind == "unix":
        return socket.AF_UNIX, rest
    host, _, port = rest.rpartition(":")
    return socket.AF_INET, (host, int(port))


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            target.sendall(chunk)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def main(listen: str, upstream: str) -> None:
    """Serve until it is killed."""
    family, address = _opened(listen)
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(128)
    while True:
        client, _ = listener.accept()
        family, address = _opened(upstream)
        server = socket.socket(family)
        try:
            server.connect(address)
        except OSError:
            client.close()
            continue
        for pair in ((client, server), (server, client)):
            threading.Thread(target=_copy, args=pair, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
