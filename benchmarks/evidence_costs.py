"""Costs of evidence: the processor time of streams with what they leave in their store of themselves, and without.

    python -m benchmarks.evidence_costs worker [--records 200000] [--rounds 5]
    python -m benchmarks.evidence_costs snapshot [--records 100000] [--rounds 5]
    python -m benchmarks.evidence_costs stream [--rates 1000,20000] [--seconds 12] [--rounds 3]
    python -m benchmarks.evidence_costs created_at [--commits 4000] [--rounds 5]
    python -m benchmarks.evidence_costs scrape [--records 20000] [--rounds 3]
    python -m benchmarks.evidence_costs traces [--records 100000] [--ratios 0.01,1] [--rounds 5]

``worker``: the stream of `benchmarks.stream_costs` in this process, whose worker reports on itself or does not.
``snapshot``: what a driver does once a second for that stream: it takes the snapshot, writes it, and Postgres keeps it.
``stream``: real streams on Spark at a rate, a stateful row for each record, with ``evidence=True`` and ``False``:
processor time of the driver, of all Python workers, of Spark's Java, and of Postgres, in the same seconds of each run.
``created_at``: commits of one production, with the default of `productions.created_at` and without it.
``scrape``: what Prometheus asks of a store that has that stream: of the program that answers, and of Postgres.
``traces``: that stream with bundles traced, and a collector in another process; and, without any, what a step pays for
that it could be traced.

Rounds alternate which of the two comes first.  Prints the medians, the least and most difference of a round,
and the least of all rounds, which other work on the machine disturbs least.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

import psutil

import dataflow as df
from benchmarks import harness, stores, user_sums
from benchmarks.commit_writer import Writer
from benchmarks.one_worker import run_to_end
from benchmarks.otlp_sink import collector
from benchmarks.peers.ours_latency import COLUMNS, TABLE, CountVisits
from benchmarks.peers.ours_load import RateSource
from benchmarks.peers.ours_session import MASTER, warm_context
from benchmarks.processes import family, server_cpu_s
from runners.millwheel.master.master import Master
from runners.millwheel.master.view import MasterView
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.tracing import BundleTracer
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.millwheel.worker.worker_step import WorkerStep
from runners.observability.evidence.snapshot_taker import SnapshotTaker
from runners.observability.metrics.collector import Exposition, StoreCollector
from runners.observability.metrics.readout import read_out
from runners.streaming import StreamingRunner
from runners.streaming.otel_spans import OtelSpans
from runners.system_clock import SystemClock

#: Processor seconds by what has used them.
Used = Mapping[str, float]
_STEP_RECORDS = 5_000
_SNAPSHOTS = 1_000
_SCRAPES, _STEPS, _SPANS = 200, 1_000_000, 20_000
#: From the start of a job until its load is measured: its workers start, and its state is warm.
_LEAD_S, _WARM_UP_S = 6, 5


def worker_used(dsn: str, path: Path, *, reports: bool) -> Used:
    """A stream to its end in this thread."""
    options = WorkerOptions(steps=StepLimits(records=_STEP_RECORDS), reports_on_itself=reports)
    with stores.database(dsn) as fresh, closing(PostgresStore(fresh)) as store:
        took = run_to_end(store, fresh, user_sums.pipeline(path), options)
    return {"worker": took.worker_s, "Postgres": took.postgres_s}


def print_snapshot_costs(dsn: str, path: Path) -> None:
    """Take and write snapshots of what the master of a stream knew at its end, and print what each took."""
    views: list[MasterView] = []
    options = WorkerOptions(steps=StepLimits(records=_STEP_RECORDS))

    def watched(master: Master) -> None:
        views[:] = [master.view()]

    with stores.database(dsn) as fresh, closing(PostgresStore(fresh)) as store:
        run_to_end(store, fresh, user_sums.pipeline(path), options, watched=watched)
        taker, server = SnapshotTaker("benchmark", 0, "driver", 0), stores.server_of(fresh)
        before_s, before_postgres_s = time.process_time(), server_cpu_s(server)
        size = 0
        for _ in range(_SNAPSHOTS):
            document = taker.take(views[0]).write()
            store.note_snapshot("benchmark", document, views[0].taken_us)
            size = len(document)
        driver_us, postgres_us = (
            used_s / _SNAPSHOTS * 1e6
            for used_s in (
                time.process_time() - before_s,
                server_cpu_s(server) - before_postgres_s,
            )
        )
    print(
        f"| a snapshot, us | {size} bytes | {driver_us:.0f} driver | {postgres_us:.0f} Postgres |"
    )


def print_scrape_costs(dsn: str, path: Path) -> None:
    """Answer scrapes of the store of a stream that has been read to its end, and print what each took."""
    views: list[MasterView] = []
    options = WorkerOptions(steps=StepLimits(records=_STEP_RECORDS))

    def watched(master: Master) -> None:
        views[:] = [master.view()]

    with stores.database(dsn) as fresh, closing(PostgresStore(fresh)) as store:
        run_to_end(store, fresh, user_sums.pipeline(path), options, watched=watched)
        snapshot = SnapshotTaker("benchmark", 0, "driver", 0).take(views[0])
        store.note_snapshot("benchmark", snapshot.write(), views[0].taken_us)
        with closing(ReadOnlyStore(fresh)) as reader:
            exposition = Exposition(
                StoreCollector(partial(read_out, reader), SystemClock(), shared_ms=0)
            )
            exposition.answer("")
            server = stores.server_of(fresh)
            before_s, before_postgres_s = time.process_time(), server_cpu_s(server)
            for _ in range(_SCRAPES):
                body, _ = exposition.answer("")
            own_ms, postgres_ms = (
                used_s / _SCRAPES * 1e3
                for used_s in (
                    time.process_time() - before_s,
                    server_cpu_s(server) - before_postgres_s,
                )
            )
    series = sum(not line.startswith(b"#") for line in body.splitlines())
    print(
        f"| a scrape, ms | {series} series, {len(body)} bytes | {own_ms:.1f} exporter | {postgres_ms:.1f} Postgres |"
    )


def traced_used(dsn: str, path: Path, endpoint: str, ratio: float, *, traces: bool) -> Used:
    """A stream to its end in this thread, and the thread that sends its spans."""
    options = WorkerOptions(steps=StepLimits(records=_STEP_RECORDS))
    spans = OtelSpans(endpoint, ratio, {}) if traces else None
    with stores.database(dsn) as fresh, closing(PostgresStore(fresh)) as store:
        took = run_to_end(store, fresh, user_sums.pipeline(path), options, spans=spans)
    if spans is not None:
        spans.close()
    return {"worker": took.worker_s, "Postgres": took.postgres_s}


def print_untraced_step() -> None:
    """Print what a step pays where nothing is traced."""
    tracing, step = BundleTracer(None, SystemClock()), WorkerStep()
    before_s = time.process_time()
    for _ in range(_STEPS):
        tracing.begin()
        tracing.take_in({}, ())
        tracing.done(step)
    took_ns = (time.process_time() - before_s) / _STEPS * 1e9
    print(f"| ns a step, nothing traced | worker | 0 | {took_ns:.0f} | | | |", flush=True)


def print_span(endpoint: str) -> None:
    """Print what a span costs its worker, with the thread that sends it."""
    spans = OtelSpans(endpoint, 1.0, {})
    now_us = SystemClock().now_us()
    before_s = time.process_time()
    for _ in range(_SPANS):
        span = spans.begin("process stage", now_us, {"dataflow.stage": "stage"}, None)
        assert span is not None
        span.end(now_us, {"dataflow.ranges": ["stage[0]"]})
        # As in a worker, which has other things to do: the queue must not run over.
        if span.context[-1] == 0:
            time.sleep(0.05)
    spans.close()
    took_us = (time.process_time() - before_s) / _SPANS * 1e6
    print(f"| us a span that is sent | worker | 0 | {took_us:.0f} | | | |", flush=True)


def stream_used(dsn: str, per_second: int, seconds: int, *, evidence: bool) -> Used:
    """Some seconds of a stream on Spark whose driver is this process."""
    start_s = time.time() + _LEAD_S
    source = RateSource(
        start_us=int(start_s * 1e6),
        per_second=per_second,
        records=per_second * 600,
        distinct=100_000,
    )
    with stores.database(dsn) as fresh:
        runner = StreamingRunner(
            job="benchmark", store=fresh, master=MASTER, show_progress=False, gather=False,
            evidence=evidence,
        )  # fmt: skip
        pipeline = df.Pipeline(runner)
        (
            pipeline
            | "read" >> df.Read(source)
            | "count" >> df.ParDo(CountVisits())
            | df.WriteToPostgres(TABLE, columns=COLUMNS)
        )
        result = pipeline.run()
        try:
            server = stores.server_of(fresh)
            time.sleep(max(0.0, start_s + _WARM_UP_S - time.time()))
            before = used_until_now(server)
            time.sleep(max(0.0, start_s + _WARM_UP_S + seconds - time.time()))
            after = used_until_now(server)
        finally:
            result.cancel()
    return {kind: after[kind] - before[kind] for kind in after}


def used_until_now(server: int) -> Used:
    """Processor time of the processes of a stream that live now."""
    own = psutil.Process()
    used = {"driver": time.process_time(), "workers": 0.0, "Java": 0.0}
    used["Postgres"] = server_cpu_s(server)
    servers = {each.pid for each in family(server)}
    for process in own.children(recursive=True):
        if process.pid not in servers:
            times = process.cpu_times()
            used["Java" if "java" in process.name() else "workers"] += times.user + times.system
    return used


def commits_used(dsn: str, commits: int, *, has_default: bool) -> Used:
    """Small commits, of which each has one production for another range."""
    with stores.database(dsn) as fresh, closing(PostgresStore(fresh)) as store:
        writer = Writer(store)
        if not has_default:
            # With all tables of jobs, which inherit both; null then.
            store.connect().execute(
                "ALTER TABLE dataflow.productions "
                "ALTER created_at DROP NOT NULL, ALTER created_at DROP DEFAULT"
            )
        server = stores.server_of(fresh)
        for _ in range(200):
            writer.small()
        before = server_cpu_s(server)
        for _ in range(commits):
            writer.small()
        return {"Postgres": server_cpu_s(server) - before}


def compare(what: str, rounds: int, measure: Callable[..., Used], scale: float) -> None:
    """Print what both ways use, in medians, and how much they differ.

    Args:
        what: is compared.
        rounds: how often each is run, after one run that is not counted.
        measure: runs it with or without.
        scale: what seconds are multiplied with.
    """
    measure(way=True)
    found: dict[bool, list[Used]] = {True: [], False: []}
    for number in range(rounds):
        for way in (number % 2 == 0, number % 2 == 1):
            found[way].append({**(used := measure(way=way)), "all": sum(used.values())})
    for kind in found[True][0]:
        pairs = [
            (on[kind] * scale, off[kind] * scale)
            for on, off in zip(found[True], found[False], strict=True)
        ]
        on, off = (median(each) for each in zip(*pairs, strict=True))
        percents = sorted((a - b) / b * 100 for a, b in pairs if b)
        least_on, least_off = (min(each) for each in zip(*pairs, strict=True))
        least = f"{least_off:.2f} and {least_on:.2f}"
        spread = f"{percents[0]:+.1f} to {percents[-1]:+.1f}" if percents else "-"
        middle = f"{median(percents):+.1f}" if percents else "-"
        print(
            f"| {what} | {kind} | {off:.2f} | {on:.2f} | {middle} | {spread} | {least} |",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = harness.parser(__doc__)
    parser.add_argument(
        "case", choices=["worker", "snapshot", "stream", "created_at", "scrape", "traces"]
    )
    harness.add_store_options(parser, rounds=3)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rates", default="1000,20000", help="records a second")
    parser.add_argument("--seconds", type=int, default=12, help="how long a stream is measured")
    parser.add_argument("--ratios", default="0.01,1", help="of bundles that are traced")
    parser.add_argument("--commits", type=int, default=4_000)
    options = parser.parse_args()
    print("| What | Of | Without | With | Difference, % | of the rounds, % | Least of both |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    with stores.server_at(options.dsn) as dsn, tempfile.TemporaryDirectory() as directory:
        run_case(options, dsn, Path(directory, "events.jsonl"))


def run_case(options: argparse.Namespace, dsn: str, path: Path) -> None:
    """Measure the case that was asked for."""
    if options.case == "worker":
        user_sums.write_events(path, options.records)
        compare(
            "us a record",
            options.rounds,
            lambda *, way: worker_used(dsn, path, reports=way),
            1e6 / options.records,
        )
    elif options.case == "created_at":
        compare(
            "us a commit",
            options.rounds,
            lambda *, way: commits_used(dsn, options.commits, has_default=way),
            1e6 / options.commits,
        )
    elif options.case == "snapshot":
        user_sums.write_events(path, options.records)
        for _ in range(options.rounds):
            print_snapshot_costs(dsn, path)
    elif options.case == "scrape":
        user_sums.write_events(path, options.records)
        for _ in range(options.rounds):
            print_scrape_costs(dsn, path)
    elif options.case == "traces":
        compare_traces(options, dsn, path)
    else:
        warm_context()
        for rate in map(int, options.rates.split(",")):
            compare(
                f"ms a second, {rate:,} records a second",
                options.rounds,
                lambda *, way, rate=rate: stream_used(dsn, rate, options.seconds, evidence=way),
                1e3 / options.seconds,
            )


def compare_traces(options: argparse.Namespace, dsn: str, path: Path) -> None:
    """Measure streams whose bundles are traced, and the step of one whose are not."""
    user_sums.write_events(path, options.records)
    print_untraced_step()
    with collector() as endpoint:
        print_span(endpoint)
        for ratio in map(float, options.ratios.split(",")):
            compare(
                f"us a record, {ratio:g} of bundles traced",
                options.rounds,
                lambda *, way, ratio=ratio: traced_used(dsn, path, endpoint, ratio, traces=way),
                1e6 / options.records,
            )


if __name__ == "__main__":
    main()
