"""What becomes of a stream while a session holds a snapshot of the database for long.

    python -m benchmarks.stream_under_snapshot [--rate 10000] [--under 30] [--before 5] [--after 2] [--seconds 60]
        [--results FILE]

Runs S2 (`benchmarks.peers.ours_latency`) without a pause: some periods of a minute without a snapshot, then with one
``REPEATABLE READ`` held, as a dump holds it, then without it again.  Prints what each period had: rows committed a
second, how long they took, and the processors of Postgres; then the medians with the snapshot by those without, and
the goals.
"""

import json
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from itertools import groupby
from pathlib import Path
from statistics import median

import attrs
import psycopg

import dataflow as df
from benchmarks import harness, pages, stores, tables
from benchmarks.goals import SNAPSHOT
from benchmarks.peers.ours_latency import COLUMNS, LEAD_S, TABLE, CountVisits
from benchmarks.peers.ours_load import RateSource
from benchmarks.peers.ours_session import MASTER, warm_context
from benchmarks.processes import server_cpu_s
from runners.streaming import StreamingRunner
from windowing.timestamps import US_PER_SECOND

#: Users come again after so many records.
_DISTINCT = 1_000_000
#: The goals: so much of the rows a second, and so many times the 99th percentile.
ROWS_LEAST, P99_MOST = 0.9, 2.0

_PERIODS = f"""
WITH timed AS MATERIALIZED (
    SELECT created_us - %(start_us)s AS created_us,
           (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint - %(start_us)s AS committed_us
    FROM {TABLE}),
created AS (
    SELECT created_us / %(period_us)s AS period,
           percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY (committed_us - created_us) / 1000.0) AS ms
    FROM timed GROUP BY 1),
committed AS (
    SELECT committed_us / %(period_us)s AS period, count(*) AS found FROM timed GROUP BY 1)
SELECT period, ms, coalesce(found, 0) FROM created LEFT JOIN committed USING (period) ORDER BY period"""


@attrs.frozen(kw_only=True)
class Period:
    """A part of the stream: rows committed in it a second, and the latency of what was created in it, in ms."""

    phase: str
    rows: float
    p50: float
    p95: float
    p99: float
    postgres: float


def phases(before: int, under: int, after: int) -> list[str]:
    """The phase of each period."""
    return ["before"] * before + ["under"] * under + ["after"] * after


def watch(server: int, dsn: str, planned: Sequence[str], start_us: int, each_s: int) -> list[float]:
    """Hold a snapshot in the periods that are for it; returns the processors that Postgres used in each.

    Args:
        server: the process id of Postgres.
        dsn: of the database.
        planned: the phase of each period.
        start_us: when the first of them begins.
        each_s: how many seconds each has.
    """
    used = list[float]()
    for phase, periods in groupby(planned):
        with stores.open_snapshot(dsn) if phase == "under" else nullcontext():
            for _ in periods:
                began_s = server_cpu_s(server)
                end_s = start_us / US_PER_SECOND + (len(used) + 1) * each_s
                time.sleep(max(0.0, end_s - time.time()))
                used.append((server_cpu_s(server) - began_s) / each_s)
    return used


def measure(rate: int, planned: Sequence[str], each_s: int) -> list[Period]:
    """Run the stream with the snapshot held in some periods of it.

    Args:
        rate: records a second.
        planned: the phase of each period.
        each_s: how many seconds each has.
    """
    warm_context()
    with stores.commit_stamping_server() as server, server.database("under_snapshot") as dsn:
        start_us = time.time_ns() // 1_000 + LEAD_S * US_PER_SECOND
        source = RateSource(
            start_us=start_us,
            per_second=rate,
            records=rate * each_s * len(planned),
            distinct=_DISTINCT,
        )
        runner = StreamingRunner(
            job="under_snapshot", store=dsn, master=MASTER, show_progress=False
        )
        pipeline = df.Pipeline(runner)
        (
            pipeline
            | "read" >> df.Read(source)
            | "count" >> df.ParDo(CountVisits())
            | df.WriteToPostgres(TABLE, columns=COLUMNS)
        )
        running = pipeline.run()
        used = watch(server.pid, dsn, planned, start_us, each_s)
        running.wait_until_finish()
        with closing(psycopg.connect(dsn)) as connection:
            found = connection.execute(
                _PERIODS, {"start_us": start_us, "period_us": each_s * US_PER_SECOND}
            ).fetchall()
    return [
        Period(
            phase=planned[number],
            rows=committed / each_s,
            **{f"p{percent}": float(ms) for percent, ms in zip((50, 95, 99), spread, strict=True)},
            postgres=used[number],
        )
        for number, spread, committed in found
    ]


def period_table(found: Sequence[Period]) -> str:
    """Each period."""
    rows = [
        [str(number), each.phase, f"{each.rows:,.0f}"]
        + [f"{ms:,.1f}" for ms in (each.p50, each.p95, each.p99)]
        + [f"{each.postgres:.2f}"]
        for number, each in enumerate(found, 1)
    ]
    header = ["Period", "Snapshot", "Rows a second", "Median ms", "95 %", "99 %", "Postgres' CPUs"]
    return tables.markdown(header, "ll", rows, numbers_first=True)


def by_before(found: Sequence[Period], name: str, last: int = 5) -> float:
    """A figure of the last periods under the snapshot by that of those before it, but for the first.

    Args:
        found: all periods.
        name: of the figure.
        last: how many of those under the snapshot count: what it costs grows.
    """
    before = [each for each in found if each.phase == "before"]
    before = before[1:] or before
    under = [each for each in found if each.phase == "under"][-last:]
    under_it, before_it = (
        median(float(getattr(each, name)) for each in several) for several in (under, before)
    )
    return under_it / before_it


def outcome(found: Sequence[Period], last: int = 5) -> list[str]:
    """The last periods under the snapshot by those before it, but for the first, and whether the goals are met.

    Args:
        found: all periods.
        last: how many of those under the snapshot count: what it costs grows.
    """
    rows, p50, p99, postgres = (
        by_before(found, name, last) for name in ("rows", "p50", "p99", "postgres")
    )

    def met(*, is_met: bool) -> str:
        return "met" if is_met else "not met"

    return [
        f"rows a second {rows:.2f} (goal: at least {ROWS_LEAST:g}, {met(is_met=rows >= ROWS_LEAST)})",
        f"99 % {p99:.2f} (goal: below {P99_MOST:g}, {met(is_met=p99 < P99_MOST)})",
        f"median {p50:.2f}",
        f"Postgres' processors {postgres:.2f}",
    ]


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--rate", type=int, default=10_000, help="records a second")
    add("--seconds", type=int, default=60, help="how long a period is")
    add("--under", type=int, default=30, help="periods under the snapshot")
    add("--before", type=int, default=5, help="periods before it")
    add("--after", type=int, default=2, help="periods after it")
    add(
        "--results",
        type=Path,
        help="a file of results of make bench, which gets a line for the goals",
    )
    options = parser.parse_args()
    machine = tables.machine()
    print(machine, flush=True)
    found = measure(
        options.rate, phases(options.before, options.under, options.after), options.seconds
    )
    print(period_table(found))
    print(
        f"\nThe last periods under the snapshot, by those before it, at {options.rate:,} a second:"
    )
    for line in outcome(found):
        print(f"  {line}")
    if options.results is not None:
        rows, p99 = (by_before(found, name) for name in ("rows", "p99"))
        words = {name: getattr(options, name) for name in ("rate", "seconds", "under", "before")}
        command = harness.command("benchmarks.stream_under_snapshot", words)
        result = {"case": SNAPSHOT, "rep": 0, "check": "ok", "rows": rows, "p99": p99}
        with options.results.open("a", encoding="utf-8") as file:
            for each in (pages.machine_line(machine, command), result):
                file.write(f"{json.dumps(each)}\n")


if __name__ == "__main__":
    main()
