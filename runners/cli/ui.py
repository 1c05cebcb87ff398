"""The commands ``ui`` and ``serve-metrics``: a page of the jobs in a store, and their metrics, until interrupted."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dataflow.errors import DataflowError
from dataflow.io.extras import require
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.observability.metrics.documents import DASHBOARD_FILE, GENERATED, RULES_FILE
from runners.registry import store_dsn
from runners.system_clock import SystemClock

_PAGE_PORT, _METRICS_PORT = 8042, 9464


def show_page(asked: argparse.Namespace) -> None:
    """Serve the page until it is interrupted.

    Args:
        asked: the parsed command line, with ``store``, ``host``, ``port``, ``name``, ``role``, ``token_file`` and
            ``show_keys``.

    Raises:
        DataflowError: the extra is not installed, or the address cannot be listened at.
    """
    for library in ("starlette", "uvicorn", "jinja2", "prometheus_client"):
        require(library, "ui", "dataflow ui")
    from runners.ui.app import make_app  # noqa: PLC0415 - an extra

    store = ReadOnlyStore(store_dsn(asked.store), role=asked.role)
    # What is wrong with the store is said now, and not on the page.
    store.read({})
    _serve(
        asked, lambda access: make_app(store, SystemClock(), access), "jobs are shown at {}",
        show_keys=asked.show_keys,
    )  # fmt: skip


def serve_metrics(asked: argparse.Namespace) -> None:
    """Serve metrics until it is interrupted; or write the files that go with them.

    Args:
        asked: the parsed command line, with ``store``, ``host``, ``port``, ``name``, ``role``, ``token_file`` and
            ``write``.

    Raises:
        DataflowError: the extra is not installed, the address cannot be listened at, or the files cannot be written.
    """
    if asked.write is not None:
        _write_files(asked.write)
        return
    for library in ("starlette", "uvicorn", "prometheus_client"):
        require(library, "metrics", "dataflow serve-metrics")
    from runners.ui.metrics_site import make_metrics_app  # noqa: PLC0415 - an extra

    # The store may come later than this program, and may go: that is a metric.
    store = ReadOnlyStore(store_dsn(asked.store), role=asked.role)
    _serve(
        asked, lambda access: make_metrics_app(store, SystemClock(), access),
        "metrics are at {}metrics", show_keys=False,
    )  # fmt: skip


def _serve(
    asked: argparse.Namespace, make: Callable[[Any], Any], text: str, *, show_keys: bool
) -> None:
    from runners.ui.server import read_token, serve  # noqa: PLC0415 - an extra

    token = None if asked.token_file is None else read_token(asked.token_file)
    try:
        serve(
            make,
            host=asked.host,
            port=asked.port,
            names=tuple(asked.name),
            token=token,
            show_keys=show_keys,
            report=lambda address, query: print(text.format(address) + query, flush=True),
        )
    except OSError as error:
        raise DataflowError(
            f"nothing can be served at {asked.host}, port {asked.port}",
            detail=str(error),
            hint="give another one with --port; --port 0 takes any that is free",
        ) from error


def _write_files(folder: Path) -> None:
    try:
        for name in (DASHBOARD_FILE, RULES_FILE):
            (folder / name).write_bytes((GENERATED / name).read_bytes())
            print(folder / name)
    except OSError as error:
        raise DataflowError(
            f"nothing can be written to {folder}",
            detail=str(error),
            hint="name a folder that is there",
        ) from error


def add_commands(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the commands to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    page = add(
        "ui",
        "serve a page of the jobs in a store",
        "It reads the store alone, so it answers when no driver does, and changes nothing. It listens on this machine "
        "only; with another --host, whoever looks at it needs the token that is printed, and what is between should "
        "encrypt. It has the metrics of serve-metrics at /metrics. Needs the extra ui.",
        "dataflow ui --store postgresql://reader@db.example.org/flights",
    )
    page.add_argument(
        "--show-keys",
        action="store_true",
        help="show keys, records and what errors say of them, which are data of your users",
    )
    page.set_defaults(do=show_page, needs_store=False)
    metrics = add(
        "serve-metrics",
        "serve metrics of the jobs in a store to Prometheus",
        "It reads the store alone, once for each scrape, so it answers when no driver does, and no job notices it. It "
        "listens on this machine only; with another --host, a token is needed. Needs the extra metrics.",
        "dataflow serve-metrics --store postgresql://reader@db.example.org/flights",
    )
    metrics.add_argument(
        "--write",
        metavar="FOLDER",
        type=Path,
        help="serve nothing; write a dashboard for Grafana and alert rules for Prometheus into this folder",
    )
    metrics.set_defaults(do=serve_metrics, needs_store=False)
    for parser, port in ((page, _PAGE_PORT), (metrics, _METRICS_PORT)):
        _add_options(parser, port)


def _add_options(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at; by default 127.0.0.1"
    )
    parser.add_argument(
        "--port", type=int, default=port, help=f"port; 0: any that is free; by default {port}"
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        help="a name of the host under which it may be asked for, behind a proxy; may be given several times",
    )
    parser.add_argument(
        "--role", help="role of Postgres to become: one that has only SELECT on the schema dataflow"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="needed of whoever asks, in a cookie or as Authorization: Bearer; without it one is made up, where one is "
        "needed",
    )
