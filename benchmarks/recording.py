"""Where the results of one command go: each a line of JSON in a file, as soon as it is there."""

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

from benchmarks import pages, stores, tables
from benchmarks.stores import Server
from benchmarks.tables import Result


class Recording:
    """The results recorded so far; ``server``: the Postgres of all its runs."""

    def __init__(self, server: Server, file: TextIO) -> None:
        self.server, self._file = server, file
        self.results: list[Result] = []

    def note(self, result: Result) -> None:
        """Keep a result."""
        self.results.append(result)
        self._file.write(json.dumps(result) + "\n")
        self._file.flush()


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """Have SIGTERM raise, so that what a run has started ends with it; `timeout` and supervisors send it."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def recording(given: argparse.Namespace, name: str, command: str) -> Iterator[Recording]:
    """Record and print first on what machine, and by which command, the following results are measured.

    Args:
        given: has in ``results`` the file, or else in ``cache`` the folder.
        name: what such a file's name begins with.
        command: in words.
    """
    given.cache.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = given.results or given.cache / f"{name}-{now:%Y%m%d-%H%M%S}.jsonl"
    with (
        ended_by_signal(),
        stores.commit_stamping_server() as server,
        path.open("a", encoding="utf-8") as file,
    ):
        found = Recording(server, file)
        machine = tables.machine(stores.flush_ms(server.home))
        found.note(pages.machine_line(machine, command))
        print(machine)
        yield found
    print(f"\nevery run: {path}")
