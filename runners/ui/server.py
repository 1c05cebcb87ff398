"""Serving the page until somebody interrupts it."""

import secrets
from collections.abc import Callable

import uvicorn

from runners.core.ground.clock import Clock
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.ui.app import Access, make_app

LOOPBACK = frozenset({"127.0.0.1", "localhost"})


def serve(
    store: ReadOnlyStore,
    clock: Clock,
    *,
    host: str,
    port: int,
    names: tuple[str, ...],
    show_keys: bool,
    report: Callable[[str], None],
) -> None:
    """Serve the page; returns when it is interrupted.

    Args:
        store: what it shows.
        clock: that of this machine.
        host: address to listen at; at another than loopback, a token is needed to see the page.
        port: number of the port; 0: any that is free.
        names: under which it may be asked for beside the address.
        show_keys: whether keys, records and what errors say of them are shown.
        report: called with the address, when it is about to be served.

    Raises:
        OSError: the port is taken, or the address is none of this machine.
    """
    token = None if host in LOOPBACK else secrets.token_urlsafe(24)
    access = Access(hosts=(*sorted(LOOPBACK), host, *names), token=token, show_keys=show_keys)
    config = uvicorn.Config(
        make_app(store, clock, access), host=host, port=port, log_level="warning",
        access_log=False, server_header=False,
    )  # fmt: skip
    listening = config.bind_socket()
    # Who asks before the server has started waits, and is not refused.
    listening.listen()
    place = f"http://{names[0] if names else host}:{listening.getsockname()[1]}/"
    report(place if token is None else f"{place}?token={token}")
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()
