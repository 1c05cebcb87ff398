"""Serving an application until somebody interrupts it."""

import secrets
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from dataflow.errors import DataflowError
from runners.ui.guard import Access

LOOPBACK = frozenset({"127.0.0.1", "localhost"})
_TOKEN_MIN = 16


def read_token(path: Path) -> str:
    """A token that programs have too, from a file.

    Args:
        path: of a text; white space around it does not count.

    Raises:
        DataflowError: it cannot be read, or is too short to be secret.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataflowError(f"the token in {path} cannot be read", detail=str(error)) from error
    if len(token) < _TOKEN_MIN:
        raise DataflowError(
            f"the token in {path} has fewer than {_TOKEN_MIN} characters",
            hint="for example: openssl rand -hex 24",
        )
    return token


def serve(
    make: Callable[[Access], Starlette],
    *,
    host: str,
    port: int,
    names: tuple[str, ...],
    token: str | None,
    show_keys: bool,
    report: Callable[[str, str], None],
) -> None:
    """Serve an application; returns when it is interrupted.

    Args:
        make: makes it, for those who may see it.
        host: address to listen at; at another than loopback, a token is needed.
        port: number of the port; 0: any that is free.
        names: under which it may be asked for beside the address.
        token: that is needed wherever it listens; None: one is made up where one is needed.
        show_keys: whether keys, records and what errors say of them are shown.
        report: called with the address, when it is about to be served, and with a query that has the token if that was
            made up.

    Raises:
        OSError: the port is taken, or the address is none of this machine.
    """
    made_up = secrets.token_urlsafe(24) if token is None and host not in LOOPBACK else None
    access = Access(
        hosts=(*sorted(LOOPBACK), host, *names), token=token or made_up, show_keys=show_keys
    )
    config = uvicorn.Config(
        make(access), host=host, port=port, log_level="warning", access_log=False,
        server_header=False,
    )  # fmt: skip
    listening = config.bind_socket()
    # Who asks before the server has started waits, and is not refused.
    listening.listen()
    place = f"http://{names[0] if names else host}:{listening.getsockname()[1]}/"
    report(place, "" if made_up is None else f"?token={made_up}")
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()
