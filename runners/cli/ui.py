"""The command ``ui``: a page of the jobs in a store."""

import argparse
from collections.abc import Callable

from dataflow.errors import DataflowError
from dataflow.io.extras import require
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.registry import store_dsn
from runners.system_clock import SystemClock

_PORT = 8042


def show_page(asked: argparse.Namespace) -> None:
    """Serve the page until it is interrupted.

    Args:
        asked: the parsed command line, with ``store``, ``host``, ``port``, ``name``, ``role`` and ``show_keys``.

    Raises:
        DataflowError: the extra is not installed, or the address cannot be listened at.
    """
    for library in ("starlette", "uvicorn", "jinja2"):
        require(library, "ui", "dataflow ui")
    from runners.ui.server import serve  # noqa: PLC0415 - an extra

    store = ReadOnlyStore(store_dsn(asked.store), role=asked.role)
    # What is wrong with the store is said now, and not on the page.
    store.read({})
    try:
        serve(
            store,
            SystemClock(),
            host=asked.host,
            port=asked.port,
            names=tuple(asked.name),
            show_keys=asked.show_keys,
            report=lambda address: print(f"jobs are shown at {address}", flush=True),
        )
    except OSError as error:
        raise DataflowError(
            f"nothing can be served at {asked.host}, port {asked.port}",
            detail=str(error),
            hint="give another one with --port; --port 0 takes any that is free",
        ) from error


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    page = add(
        "ui",
        "serve a page of the jobs in a store",
        "It reads the store alone, so it answers when no driver does, and changes nothing. It listens on this machine "
        "only; with another --host, whoever looks at it needs the token that is printed, and what is between should "
        "encrypt. Needs the extra ui.",
        "dataflow ui --store postgresql://reader@db.example.org/flights",
    )
    page.add_argument(
        "--host", default="127.0.0.1", help="address to listen at; by default 127.0.0.1"
    )
    page.add_argument(
        "--port", type=int, default=_PORT, help=f"port; 0: any that is free; by default {_PORT}"
    )
    page.add_argument(
        "--name",
        action="append",
        default=[],
        help="a name of the host under which browsers may ask for it, behind a proxy; may be given several times",
    )
    page.add_argument(
        "--role", help="role of Postgres to become: one that has only SELECT on the schema dataflow"
    )
    page.add_argument(
        "--show-keys",
        action="store_true",
        help="show keys, records and what errors say of them, which are data of your users",
    )
    page.set_defaults(do=show_page, needs_store=False)
