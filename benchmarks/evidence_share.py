"""Shares of evidence: what part of the processor time of S1 and S2 at full load goes into what a job tells of itself.

    python -m benchmarks.evidence_share [--records 200000] [--rounds 3]

The pipelines of S1 and S2 with a worker and its master in this thread, as fast as they go, and once in a second of that
thread all that a driver and the processes of a worker do for evidence: a snapshot that is taken and written through a
connection of its own, the account of the worker, a heartbeat, four looks at what the worker is at; all the time the
sample of hot keys, and what reports have for evidence alone.  Each of these is timed where it is done, by the clock of
its thread or of its Postgres session, so other work on the machine does not count; what timing costs does, on the side
of the evidence.  `productions.created_at` is timed by inserts with and without it.

What is left out: one number that is written for each bundle of user code, and the delivery of messages that are longer.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import attrs

import dataflow as df
from benchmarks import harness, stores
from benchmarks.one_worker import run_to_end
from benchmarks.peers.ours_columns import WINDOWS, Event
from benchmarks.peers.ours_latency import COLUMNS, TABLE, CountVisits
from benchmarks.peers.ours_load import RateSource
from benchmarks.workloads import WATERMARK_BOUND_S, events
from runners.millwheel.master.master import Master
from runners.millwheel.model.hot_keys import HotKeys
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.wire.messages import encode
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker import Worker
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.observability.evidence.snapshot_taker import SnapshotTaker
from runners.streaming.heartbeats import Heart, Pulse
from runners.streaming.supervised import SharedPage
from runners.system_clock import SystemClock

_STEP_RECORDS = 5_000
_INTERVAL_S = 1.0
#: A record of S1 is less work, and a run is to last for some seconds.
_TIMES = {"S1": 5, "S2": 1}
#: Rows of an insert that times one column.
_ROWS = 200_000


@attrs.define
class Spent:
    """Processor time by what it went into, in seconds, and how many keys were sampled."""

    seconds: dict[str, float] = attrs.field(factory=dict)
    noted: list[Sequence[int]] = attrs.field(factory=list)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Add the time of this thread until the end."""
        began_ns = time.thread_time_ns()
        yield
        self.add(what, (time.thread_time_ns() - began_ns) / 1e9)

    def add(self, what: str, seconds: float) -> None:
        """Add time."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    def timed(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added."""

        def call(*arguments: Any) -> Any:
            with self.on(what):
                return function(*arguments)

        return call


class Evidence:
    """All that a job tells of itself, once a second while it runs in this thread."""

    def __init__(self, dsn: str, spent: Spent) -> None:
        self._spent, self._due_s = spent, time.process_time()
        self._store = PostgresStore(dsn)
        self._session = self._store.connect().info.backend_pid
        # A job connects once.
        self._before_ns = self._used_ns()
        self._taker = SnapshotTaker("benchmark", 0, "driver", 0)
        self._page, clock = SharedPage(), SystemClock()
        # What it has no sender for is neither sent nor timed.
        self._heart = Heart({}, "", 0, 0, ["count"], clock)  # type: ignore[arg-type]
        self._pulse = Pulse(self._page, ["count"], clock)
        self.snapshots = 0

    def look(self, master: Master) -> None:
        """Tell, if it is time."""
        # Of this process: on a machine that has other things to do a second of it takes longer, and at full load a
        # worker has a core.
        if time.process_time() < self._due_s:
            return
        self._due_s = time.process_time() + _INTERVAL_S
        with self._spent.on("snapshot, driver"):
            snapshot = self._taker.take(master.view())
            self._store.note_snapshot("benchmark", snapshot.write(), snapshot.taken_us)
        with self._spent.on("heartbeat"):
            encode(self._heart.heartbeat(self._page, 1))
            for _ in range(4):
                self._pulse.look()
        self.snapshots += 1

    def close(self) -> None:
        """Add what its session of Postgres has used, and end it."""
        self._spent.add("snapshot, Postgres", (self._used_ns() - self._before_ns) / 1e9)
        self._store.close()

    def _used_ns(self) -> int:
        return int(Path(f"/proc/{self._session}/schedstat").read_text().split()[0])


def s1(path: Path, records: int) -> df.Pipeline:
    """Per-window sums by user of typed rows, as `benchmarks.peers.ours_columns` has them."""
    with path.open("w") as file:
        file.writelines(f"{event.to_json()}\n" for event in events(records))
    p = df.Pipeline()
    (
        p
        | "read"
        >> df.ReadFromJsonLines(
            str(path),
            rows=Event,
            event_time="event_time",
            event_time_unit="ms",
            max_disorder=WATERMARK_BOUND_S,
        )
        | df.WindowInto(WINDOWS["S1"])
        | df.GroupBy("user_id")
        .aggregate_field("value", df.CountCombineFn(), "count")
        .aggregate_field("value", sum, "sum")
        | df.WriteToPostgres(TABLE, columns={"user_id": int, "count": int, "sum": int})
    )
    return p


def s2(_path: Path, records: int) -> df.Pipeline:
    """A stateful row for each record, all of which are there at once."""
    source = RateSource(start_us=0, per_second=1_000, records=records, distinct=100_000)
    p = df.Pipeline()
    (
        p
        | "read" >> df.Read(source)
        | "count" >> df.ParDo(CountVisits())
        | df.WriteToPostgres(TABLE, columns=COLUMNS)
    )
    return p


def shares(dsn: str, pipeline: df.Pipeline) -> tuple[Mapping[str, float], float, int]:
    """Run a pipeline to its end.

    Returns:
        What part of all processor time went into what, in percent; all of it, in seconds; and the number of snapshots.
    """
    spent, note = Spent(), HotKeys.note

    def counted(hot: HotKeys, key_hashes: Sequence[int], keys: Sequence[Any]) -> None:
        spent.noted.append(key_hashes)
        note(hot, key_hashes, keys)

    options = WorkerOptions(steps=StepLimits(records=_STEP_RECORDS))
    with (
        stores.database(dsn) as fresh,
        closing(PostgresStore(fresh)) as store,
        ExitStack() as stack,
    ):
        # Made after the job, as there is nothing to tell before.
        reporters: list[Evidence] = []

        def watched(master: Master) -> None:
            if not reporters:
                reporters.append(stack.enter_context(closing(Evidence(fresh, spent))))
            reporters[0].look(master)

        for kind, name, what in (
            (Worker, "_account", "account"),
            (OwnedRange, "holds", "reports"),
        ):
            stack.enter_context(patch.object(kind, name, spent.timed(what, getattr(kind, name))))
        stack.enter_context(patch.object(HotKeys, "note", counted))
        took = run_to_end(store, fresh, pipeline, options, watched=watched)
        reporters[0].close()
        stack.pop_all()
    sample, again = HotKeys(), spent.noted
    with spent.on("hot keys"):
        for key_hashes in again:
            note(sample, key_hashes, ())
    all_s = took.worker_s + took.postgres_s
    return (
        {what: seconds / all_s * 100 for what, seconds in spent.seconds.items()},
        all_s,
        reporters[0].snapshots,
    )


def created_at_ns(dsn: str) -> float:
    """The cost of the column `created_at` in the insert of a row, in nanoseconds of Postgres."""
    with stores.database(dsn) as fresh, closing(PostgresStore(fresh)) as store:
        connection = store.connect()
        session = connection.info.backend_pid
        common = "(a bigint, b bigint, c bigint, payload bytea"
        connection.execute(f"CREATE TABLE public.plain {common})".encode())
        connection.execute(
            f"CREATE TABLE public.timed {common}, at timestamptz NOT NULL DEFAULT now())".encode()
        )
        used: dict[str, list[int]] = {"plain": [], "timed": []}
        for _ in range(5):
            for name, found in used.items():
                before = int(Path(f"/proc/{session}/schedstat").read_text().split()[0])
                connection.execute(
                    f"INSERT INTO public.{name} (a, b, c, payload) SELECT n, n, n, '\\xffff'::bytea "
                    f"FROM generate_series(1, {_ROWS}) n".encode()
                )
                found.append(
                    int(Path(f"/proc/{session}/schedstat").read_text().split()[0]) - before
                )
        return (min(used["timed"]) - min(used["plain"])) / _ROWS


def main() -> None:
    """Print the table."""
    parser = harness.parser(__doc__)
    harness.add_store_options(parser, rounds=3)
    parser.add_argument(
        "--records", type=int, default=200_000, help="of S2; S1 has five times as many"
    )
    options = parser.parse_args()
    print("| Stream at full load | Processor time, s | Of it | % of that, median and all rounds |")
    print("| --- | ---: | --- | --- |", flush=True)
    with stores.server_at(options.dsn) as dsn, tempfile.TemporaryDirectory() as directory:
        for name, made in {"S1": s1, "S2": s2}.items():
            path = Path(directory, f"{name}.jsonl")
            records = _TIMES[name] * options.records
            found = [shares(dsn, made(path, records)) for _ in range(options.rounds)]
            all_s = median(each for _, each, _ in found)
            kinds = dict.fromkeys(kind for each, _, _ in found for kind in each)
            for kind in kinds:
                print(_line(name, all_s, kind, [each.get(kind, 0.0) for each, _, _ in found]))
            print(_line(name, all_s, "all of it", [sum(each.values()) for each, _, _ in found]))
            print(
                f"({name}: {', '.join(str(count) for _, _, count in found)} snapshots)", flush=True
            )
        print(f"`created_at`: {created_at_ns(dsn):.0f} ns of Postgres for each production")


def _line(name: str, all_s: float, kind: str, percents: list[float]) -> str:
    spread = f"{median(percents):.3f} ({min(percents):.3f} to {max(percents):.3f})"
    return f"| {name} | {all_s:.1f} | {kind} | {spread} |"


if __name__ == "__main__":
    main()
