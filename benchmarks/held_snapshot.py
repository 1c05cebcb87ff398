"""What commits cost Postgres while a session holds a snapshot, and which rows make them dear.

    python -m benchmarks.held_snapshot [--commits 4000] [--window 500] [--rate 0] [--shape SHAPE ...]

A snapshot that is held (a dump, a long query, a session that sits in a transaction) keeps every version of every row
that was written since, so whoever looks for the present version of a row may pass all former ones.
Each shape of a commit is made by two stores in turn, in two databases of one server: with one ``REPEATABLE READ`` open
in the second, which ends before the last window.
Prints the processor time of the server's process per commit by windows of commits, and the pages that a commit of the
last window under the snapshot looked at, by table.  Statistics are collected while tables are small, as it happens.
Both hardly depend on what else the machine does; the time that a commit took does, and is left out.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import psutil

from benchmarks import harness, stores, tables
from runners.millwheel.model.ids import Channel, CommitMark, Fence, RangeId, Receipt
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, Checkpoint, JournalEntry, Production
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore

#: Sends to itself, and gets what the other one sends.
ONLY, SOURCE = RangeId("count", 0), RangeId("read", 0)
OUT, IN = Channel(ONLY, ONLY), Channel(SOURCE, ONLY)

#: A commit out of so many brings cells and timers up to date, and deletes entries of the journal.
COMPACT_EVERY = 100
#: So many commits are made by one store before it is the other one's turn.
TURN = 20
_PAGES = """SELECT regexp_replace(relname, '_[0-9]+$', ''),
                   sum(heap_blks_hit + heap_blks_read + COALESCE(idx_blks_hit + idx_blks_read, 0)
                       + COALESCE(toast_blks_hit + toast_blks_read, 0))::bigint
            FROM pg_statio_user_tables WHERE schemaname = 'dataflow' GROUP BY 1"""
_CELLS = [CellWrite("count", key, b"key %d" % key, b"v" * 60) for key in range(10)]

#: Parts of a production, from its number and the tokens of the ranges.
_Shape = Callable[[int, Mapping[RangeId, int]], Mapping[str, Any]]


def _fences(number: int, _: Mapping[RangeId, int]) -> dict[str, Any]:
    return {"watermarks_us": {ONLY: number, SOURCE: number}, "positions": {SOURCE: b"%d" % number}}


def _entry(number: int, tokens: Mapping[RangeId, int]) -> dict[str, Any]:
    parts: dict[str, Any] = {"journal": [JournalEntry(ONLY, 10, b"e" * 600)]}
    if number % COMPACT_EVERY == 0:
        parts |= {"cells": _CELLS, "compacted": {ONLY: number - 1}}
    return parts | _fences(number, tokens)


def _channels(number: int, tokens: Mapping[RangeId, int]) -> dict[str, Any]:
    last = {each: CommitMark(token, number - 1) for each, token in tokens.items()}
    return _entry(number, tokens) | {
        "delivered": {IN: number},
        "origins": {IN: last[SOURCE]},
        "acknowledged": {OUT: number - 1},
        "receipts": {OUT: Receipt(last[ONLY], is_remembered=False)},
    }


def _sent(number: int, tokens: Mapping[RangeId, int]) -> dict[str, Any]:
    sent = Checkpoint(OUT, number, 0, b"p" * 500)
    return _channels(number, tokens) | {"checkpoints": [sent]}


def _cells(number: int, tokens: Mapping[RangeId, int]) -> dict[str, Any]:
    return _fences(number, tokens) | {"cells": _CELLS}


#: What commits have, by name.
SHAPES: Mapping[str, _Shape] = {
    "fences": _fences,
    "entry": _entry,
    "channels": _channels,
    "sent": _sent,
    "cells": _cells,
}
TITLES = {
    "fences": "watermarks of two ranges, and the position of one",
    "entry": f"that, and an entry of the journal, which is compacted every {COMPACT_EVERY} commits (ten cells)",
    "channels": "that, one delivery and one acknowledgement",
    "sent": "that, and a production made, of which the one before is deleted",
    "cells": "ten cells overwritten, without the journal",
}


def processor_us(pid: int) -> float:
    """The processor time of a process so far, in microseconds.

    The kernel's accounts are exact to the nanosecond where it keeps them, and otherwise to a hundredth of a second.
    """
    accounts = Path(f"/proc/{pid}/schedstat")
    if accounts.exists():
        return int(accounts.read_text("ascii").split()[0]) / 1e3
    times = psutil.Process(pid).cpu_times()
    return (times.user + times.system) * 1e6


class Committer:
    """Owns the ranges of a new database, commits on them, and counts what that takes its process of the server.

    Args:
        dsn: of the database.
        shape: one of `SHAPES`.
    """

    def __init__(self, dsn: str, shape: str) -> None:
        self.store = PostgresStore(dsn)
        ranges = [
            RangeSpec(range_id=ONLY, keys=even_ranges(1)[0]),
            RangeSpec(range_id=SOURCE, split=b""),
        ]
        self.store.open_job(JobSpec(job="job", mode="streaming", fingerprint="", ranges=ranges))
        taken = self.store.acquire("job", [ONLY, SOURCE], "me")
        self._tokens = {range_id: each.row.token for range_id, each in taken.items()}
        self._shape, self._number = SHAPES[shape], 0
        self._pid = self.store.connect().info.backend_pid

    def commit(self, count: int, rate: float) -> float:
        """Make so many commits; returns the processor time of the server for all of them, in microseconds.

        Args:
            count: how many.
            rate: how many a second, at most; 0: as many as go.
        """
        before_us = processor_us(self._pid)
        for _ in range(count):
            started_s = time.monotonic()
            self._commit()
            if rate:
                time.sleep(max(0.0, started_s + 1 / rate - time.monotonic()))
        return processor_us(self._pid) - before_us

    def _commit(self) -> None:
        self._number += 1
        fences = [
            Fence(range_id=range_id, token=token, bundle=self._number)
            for range_id, token in self._tokens.items()
        ]
        parts = self._shape(self._number, self._tokens)
        outcome = self.store.commit(Production(job="job", fences=fences, **parts))
        assert outcome == Committed(), f"a commit did not happen: {outcome}"

    def pages(self) -> dict[str, int]:
        """The pages of each table, with its indexes, that this database has looked at so far."""
        opened = self.store.connect()
        # Otherwise the server counts what a session has done only now and then.
        opened.execute("SELECT pg_stat_force_next_flush()")
        return dict(opened.execute(_PAGES).fetchall())


@attrs.frozen(kw_only=True)
class Window:
    """Some commits: how many were made until their end, and microseconds of the server for each, without and with."""

    until: int
    free_us: float
    snapshot_us: float
    has_snapshot: bool = True


@attrs.frozen(kw_only=True)
class Measured:
    """One shape: its windows, and the pages that a commit of the last one under the snapshot looked at, by table."""

    windows: Sequence[Window]
    free_pages: Mapping[str, float]
    snapshot_pages: Mapping[str, float]

    @property
    def growth(self) -> float:
        """What a commit of the last window under the snapshot costs, by what it costs without."""
        last = [each for each in self.windows if each.has_snapshot][-1]
        return last.snapshot_us / last.free_us


def measure(dsns: tuple[str, str], shape: str, commits: int, window: int, rate: float) -> Measured:
    """Measure a shape in two empty databases.

    Args:
        dsns: the databases; a snapshot is held in the second.
        shape: one of `SHAPES`.
        commits: how many are made while it is held.
        window: how many of them are averaged.
        rate: how many a second each store makes, at most; 0: as many as go.
    """
    free, other = (Committer(dsn, shape) for dsn in dsns)
    with closing(free.store), closing(other.store):
        windows = [_window(free, other, 0, window, rate, has_snapshot=False)]
        for each in (free, other):
            # As the server does it by itself at some moment; plans are made anew then.
            each.store.connect().execute("ANALYZE")
        with stores.open_snapshot(dsns[1]):
            while windows[-1].until < commits:
                before = free.pages(), other.pages()
                windows.append(
                    _window(free, other, windows[-1].until, window, rate, has_snapshot=True)
                )
            after = free.pages(), other.pages()
        windows.append(_window(free, other, windows[-1].until, window, rate, has_snapshot=False))
    free_pages, snapshot_pages = (
        {name: (pages - was[name]) / window for name, pages in now.items() if pages > was[name]}
        for was, now in zip(before, after, strict=True)
    )
    return Measured(windows=windows, free_pages=free_pages, snapshot_pages=snapshot_pages)


def _window(
    free: Committer, other: Committer, until: int, window: int, rate: float, *, has_snapshot: bool
) -> Window:
    """Commit by turns; what was made before the snapshot does not count as made under it."""
    free_us = snapshot_us = 0.0
    for _ in range(0, window, TURN):
        free_us += free.commit(TURN, rate)
        snapshot_us += other.commit(TURN, rate)
    made = -(-window // TURN) * TURN
    return Window(
        until=until + window if has_snapshot else until,
        free_us=free_us / made,
        snapshot_us=snapshot_us / made,
        has_snapshot=has_snapshot,
    )


def cost_table(found: Mapping[str, Measured]) -> str:
    """Microseconds per commit with the snapshot, and in brackets without, by commits since it was taken."""
    columns = [
        "before" if index == 0 else "ended" if not each.has_snapshot else f"{each.until:,}"
        for index, each in enumerate(next(iter(found.values())).windows)
    ]
    rows = [
        [shape, *(f"{each.snapshot_us:,.0f} ({each.free_us:,.0f})" for each in one.windows)]
        for shape, one in found.items()
    ]
    return tables.markdown(["commits since", *columns], "l", rows)


def page_table(found: Mapping[str, Measured]) -> str:
    """Pages that a commit looks at, by table, the dearest first; those that the snapshot leaves alone are left out."""
    rows = []
    for shape, one in found.items():
        more = {
            name: pages - one.free_pages.get(name, 0.0)
            for name, pages in one.snapshot_pages.items()
        }
        dear = sorted(more, key=lambda name: -more[name])
        rows += [
            [
                shape,
                name,
                f"{one.free_pages.get(name, 0.0):,.1f}",
                f"{one.snapshot_pages[name]:,.1f}",
            ]
            for name in dear
            if more[name] >= 1.0
        ]
    return tables.markdown(["shape", "table", "pages without", "pages with"], "ll", rows)


def main() -> None:
    """Measure and print."""
    epilog = "\n".join(["shapes:", *(f"  {name:9} {title}" for name, title in TITLES.items())])
    parser = harness.parser(__doc__, epilog=epilog)
    add = parser.add_argument
    add("--commits", type=int, default=4_000, help="how many are made under the snapshot")
    add("--window", type=int, default=500, help="how many of them are averaged")
    add("--rate", type=float, default=0.0, help="commits a second of each store; 0: what goes")
    add("--shape", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="SHAPE")
    options = parser.parse_args()
    found = dict[str, Measured]()
    with stores.server_at(None) as server:
        for shape in options.shape:
            with (
                stores.database(server, "free") as free,
                stores.database(server, "snapshot") as other,
            ):
                dsns = free, other
                found[shape] = measure(dsns, shape, options.commits, options.window, options.rate)
    print("Processor time of the server per commit in µs, with the snapshot (and without):\n")
    print(cost_table(found))
    print("\nPages that a commit looks at in the last window:\n")
    print(page_table(found))
    print("\nWith the snapshot, by without, at its end:")
    for shape, one in sorted(found.items(), key=lambda each: -each[1].growth):
        print(f"  {one.growth:5.2f}  {shape}: {TITLES[shape]}")


if __name__ == "__main__":
    main()
