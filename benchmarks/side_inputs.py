"""The memory of a worker of a stream with side inputs, against how much there is of these, and of what waits for them.

    python -m benchmarks.side_inputs [--dsn DSN] [--entries 10000 50000 200000] [--cache-mib 8]

One worker in one thread, with state in Postgres; each line is of processes of their own, and memory is how far the
resident size rose above that before the run: at its peak, and when half of the elements have been seen.
Entries are pairs of a number and a text of 200 bytes, in two shards:

* ``dict``, ``list``: a side input of so many entries, in which 20,000 elements look something up;
* ``accumulating``: a dict whose window fires four times, with all that has come, before it has so many entries;
* ``retracted``: a dict of so many entries, each of which the source retracts once and replaces, in a window that fires
  as often as so many have come;
* ``wait``: so many elements that wait for a side input of one entry, which comes when they are all there;
* ``kept``: so many elements, a hundred in each window, beside a side input that is corrected five times in each: they
  are kept, retracted, and emitted again.

State in memory is bounded (``--cache-mib``); ``whole`` is the same with no bound (``--bounded``: that is left out).
Without a DSN it starts a server of its own in a temporary directory.
"""

import ctypes
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import attrs
import psutil

import dataflow as df
from benchmarks import harness, stores
from benchmarks.one_worker import run_to_end
from runners.millwheel.master.master import Master
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.worker.worker_options import WorkerOptions
from windowing.timestamps import MAX_TIMESTAMP_US, US_PER_SECOND

LOOKED_UP = ("dict", "list", "accumulating", "retracted")
KINDS = (*LOOKED_UP, "wait", "kept")
MIB = 1 << 20
LOOKUPS = 20_000
TEXT_BYTES = 200
#: The elements of one window of ``kept``, and how often the side input says something in it.
PER_WINDOW, CORRECTIONS = 100, 5
#: How often the window of ``accumulating`` fires, about.
FIRINGS = 4
#: So many times nothing is read before a source that waits for another one begins: that one has arrived by then.
PAUSE_READS = 50


class Turns:
    """What the sources and functions of this process tell each other, and `measure`.

    ``finished``: how many sources have come to their end; ``calls``: how often an element was seen beside its view.
    """

    finished = 0
    calls = 0


@attrs.frozen
class Rows(df.Source):
    """Numbered rows, made when they are read.

    Attributes:
        count: how many there are.
        per_window: so many have the event times of one minute; 0: all have the first.
        turn: after how many other sources they begin.
        pace: of so many of another source one is read, so that both are at the same minute.
        is_bounded: whether it is known to come to an end.
        replaced: so many of the first rows are replaced, one after the other, each by two rows: its retraction, and
            another one with its number.
    """

    count: int
    per_window: int = 0
    turn: int = 0
    pace: int = 1
    is_bounded: bool = False
    replaced: int = 0

    has_arrival_order = True

    @property
    def emits_retractions(self) -> bool:
        """Whether some are replaced."""
        return self.replaced > 0

    def row(self, place: int) -> tuple[tuple[int, str], int]:
        """The row at a place, and its sign."""
        if not self.replaced or place < self.replaced:
            return (place, _text(place)), 1
        number, is_new = divmod(place - self.replaced, 2)
        return (number, _text(self.replaced * is_new + number)), 1 if is_new else -1

    def splits(self, desired: int) -> Sequence[int]:
        """One split."""
        del desired
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        """A reader from the row with the number ``position``."""
        del split, fence
        return _Reader(self, position or 0)


class _Reader(df.SourceReader):
    def __init__(self, rows: Rows, position: int) -> None:
        self._rows, self._next, self._pause = rows, position, PAUSE_READS if rows.turn else 0
        self._has_ended = False

    def read(self, max_records: int) -> df.SourceBatch:
        rows = self._rows
        last = min(self._next + max(1, max_records // rows.pace), rows.count)
        if Turns.finished < rows.turn or self._pause:
            self._pause -= Turns.finished >= rows.turn
            last = self._next
        is_end = last == rows.count
        signed = [rows.row(place) for place in range(self._next, last)]
        times_us = [self._time_us(number) for number in range(self._next, last)]
        self._next = last
        if is_end and not self._has_ended:
            Turns.finished += 1
            self._has_ended = True
        return df.SourceBatch(
            values=[row for row, _ in signed],
            signs=[sign for _, sign in signed] if rows.replaced else None,
            timestamps_us=times_us,
            position=last,
            watermark_us=MAX_TIMESTAMP_US if is_end else self._time_us(last),
            status=df.SplitStatus.FINISHED if is_end else df.SplitStatus.ACTIVE,
        )

    def _time_us(self, number: int) -> int:
        window = number // self._rows.per_window if self._rows.per_window else 0
        return window * 60 * US_PER_SECOND


def _text(number: int) -> str:
    return f"{number:0{TEXT_BYTES}}"


def pipeline(kind: str, entries: int) -> df.Pipeline:
    """A pipeline of one kind, with so many entries, or elements."""
    p = df.Pipeline()
    if kind in ("dict", "list"):
        side = p | "side" >> df.Read(Rows(entries, is_bounded=True))
        elements = p | "elements" >> df.Read(Rows(LOOKUPS, turn=1))
        view: Any = df.AsDict(side, shards=2) if kind == "dict" else df.AsList(side, shards=2)
        seen = elements | "look" >> df.Map(_looked_up, view, entries)
    elif kind in LOOKED_UP:
        elements = p | "elements" >> df.Read(Rows(LOOKUPS, turn=1))
        view = df.AsDict(_revised(p, kind, entries), shards=2, retracts=False)
        # Those that the first pane has are in each that follows.
        seen = elements | "look" >> df.Map(_looked_up, view, entries // FIRINGS)
    elif kind == "wait":
        elements = p | "elements" >> df.Read(Rows(entries))
        side = p | "side" >> df.Read(Rows(1, turn=1, is_bounded=True))
        seen = elements | "look" >> df.Map(_beside, df.AsList(side, shards=2))
    else:
        windows = entries // PER_WINDOW
        elements = p | "elements" >> df.Read(Rows(entries, per_window=PER_WINDOW))
        side = p | "side" >> df.Read(
            Rows(windows * CORRECTIONS, per_window=CORRECTIONS, pace=PER_WINDOW // CORRECTIONS)
        )
        seen = (
            elements
            | "minutes" >> df.WindowInto(df.FixedWindows(60))
            | "look" >> df.Map(_beside, df.AsList(side | "corrected" >> _corrected(), shards=2))
        )
    (
        seen
        | "one" >> df.WithKeys(lambda _: None)
        | "sum" >> _corrected(df.GlobalWindows())
        | df.Count.PerKey()
    )
    return p


def _revised(p: df.Pipeline, kind: str, entries: int) -> Any:
    """A side input of so many entries whose window fires several times."""
    modes = df.AccumulationMode
    if kind == "accumulating":
        read = p | "side" >> df.Read(Rows(entries, is_bounded=True))
        return read | "several panes" >> df.WindowInto(
            df.GlobalWindows(),
            trigger=df.AfterWatermark(early=df.AfterCount(entries // FIRINGS)),
            accumulation_mode=modes.ACCUMULATING,
        )
    changes = p | "side" >> df.Read(Rows(3 * entries, is_bounded=True, replaced=entries))
    return changes | "several panes" >> df.WindowInto(
        df.GlobalWindows(),
        trigger=df.AfterWatermark(early=df.AfterCount(entries)),
        accumulation_mode=modes.ACCUMULATING_AND_RETRACTING,
    )


def _corrected(window_fn: df.WindowFn | None = None) -> df.WindowInto:
    return df.WindowInto(
        window_fn or df.FixedWindows(60),
        trigger=df.AfterWatermark(early=df.AfterCount(1)),
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )


def _looked_up(element: tuple[int, str], view: Any, entries: int) -> int:
    # Neighbours are not asked for one after the other.
    found = view[element[0] * 7_919 % entries]
    Turns.calls += 1
    return len(found)


def _beside(element: tuple[int, str], view: Any) -> int:
    Turns.calls += 1
    return element[0] + len(view)


def measure(dsn: str, kind: str, entries: int, cache_bytes: int | None) -> dict[str, float]:
    """Run a pipeline in this process: how far its memory rose, and what the worker's processor took."""
    before, resident = _resident(), list[int]()
    seen = entries if kind in ("wait", "kept") else LOOKUPS

    def watched(_: Master) -> None:
        if not resident and 2 * Turns.calls >= seen:
            resident.append(_resident())

    with closing(PostgresStore(dsn)) as store:
        options = WorkerOptions(state_cache_bytes=cache_bytes)
        took = run_to_end(store, None, pipeline(kind, entries), options, watched=watched)
    assert Turns.calls >= seen, f"{Turns.calls} of {seen} elements have seen their view"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak": peak - before, "resident": resident[0] - before, "worker_s": took.worker_s}


def _resident() -> int:
    """How large this process is, without what it does not use any more."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def main() -> None:
    """Print the table."""
    parser = harness.parser(__doc__)
    harness.add_store_options(parser, rounds=1)
    parser.add_argument("--entries", type=int, nargs="+", default=[10_000, 50_000, 200_000])
    parser.add_argument("--cache-mib", type=int, default=8)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--bounded", action="store_true", help="leave out what has no bound")
    parser.add_argument("--one", action="store_true", help="one run in this process, as JSON")
    options = parser.parse_args()
    if options.one:
        cache_bytes = options.cache_mib * MIB if options.cache_mib else None
        found = measure(options.dsn, options.kinds[0], options.entries[0], cache_bytes)
        print(json.dumps(found))
        return

    def run(dsn: str, kind: str, entries: int, cache_mib: int) -> str:
        with stores.database(dsn) as empty:
            arguments = ["--dsn", empty, "--kinds", kind, "--entries", str(entries)]
            done = subprocess.run(
                [
                    *(sys.executable, "-m", __spec__.name, "--one", *arguments),
                    *("--cache-mib", str(cache_mib)),
                ],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        found = json.loads(done.stdout)
        return (
            f"{found['peak'] / MIB:.0f} | {found['resident'] / MIB:.0f} | {found['worker_s']:.1f}"
        )

    with stores.server_at(options.dsn) as dsn:
        whole = "" if options.bounded else " whole: peak | then | CPU, s |"
        print(f"| | entries | peak, MiB | then, MiB | CPU, s |{whole}")
        print("| --- |" + " ---: |" * (4 if options.bounded else 7))
        for kind in options.kinds:
            for entries in options.entries:
                caches_mib = [options.cache_mib] if options.bounded else [options.cache_mib, 0]
                figures = [run(dsn, kind, entries, each) for each in caches_mib]
                print(f"| {kind} | {entries:,} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
