"""What a stream does as its ranges, workers, keys and backlog grow, and when something dies under load.

    python -m benchmarks.stream_scale                             all of it, half an hour
    python -m benchmarks.stream_scale --case latency --rate 1000 --keys 100 10000
    python -m benchmarks.stream_scale --write-docs                and put the tables into docs/scale.md
    python -m benchmarks.stream_scale --help

Every run is a fresh process with real Spark, in an empty database of a server that the command starts, and its answer
is compared with one that was worked out independently.  Prints tables, and writes every run as a line of JSON.
"""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.recording import recording
from benchmarks.scale import report
from benchmarks.scale.backlog_job import BATCH
from benchmarks.scale.faults import LIMITS_S
from benchmarks.scale.jobs import ALL_IN_MEMORY
from benchmarks.scale.runs import BACKLOG, KEYS, LATENCY, RECOVERY, ScaleBench, Settings
from benchmarks.tables import Result
from benchmarks.task import Task

CASES = (LATENCY, KEYS, BACKLOG, RECOVERY)
#: The parameters that stay the same while another one grows.
BASE_RANGES, BASE_WORKERS, BASE_KEYS = 8, 2, 10_000

Planned = tuple[Task, Result]


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    found = harness.parser(__doc__)
    add = found.add_argument
    add("--case", nargs="+", type=str.upper, choices=CASES, default=list(CASES), metavar="CASE")
    add("--rate", nargs="+", type=int, default=[1_000, 5_000], help="records a second, of latency")
    add("--ranges", nargs="+", type=int, default=[2, 8, 32], help="key ranges, of latency")
    add("--workers", nargs="+", type=int, default=[1, 2, 4], help="of latency")
    add("--keys", nargs="+", type=int, default=[100, 10_000, 1_000_000], help="of latency")
    add("--seconds", type=int, default=10, help="how long latency is measured")
    add("--warm-up", type=int, default=5, help="how many seconds it runs before that")
    add("--cache-mb", type=int, default=256, help="of state in memory of each worker, of latency")
    add("--many-keys", type=int, default=1_000_000, help="of the case keys")
    add("--value-bytes", type=int, default=300, help="that a key gets at each visit, of keys")
    add("--caches-mb", nargs="+", type=int, default=[16, 256, -1], help="of keys; -1: everything")
    add("--size", type=int, default=2_000_000, help="records of a day, of backlog")
    add("--fault", nargs="+", choices=LIMITS_S, default=list(LIMITS_S), metavar="FAULT")
    add("--fault-rate", type=int, default=2_000, help="records a second, of recovery")
    add("--after", type=int, default=15, help="seconds that a job goes on after a fault")
    add("--bound-ms", type=float, default=250.0, help="of latency, within which it has recovered")
    add("--read", type=Path, help="measure nothing; print the tables of a file of results")
    harness.add_recording_options(found, timeout_s=900, page=report.PAGE.name)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns how many runs failed or gave a wrong answer."""
    given = parser().parse_args(arguments)
    if given.read:
        results = [json.loads(line) for line in given.read.read_text("utf-8").splitlines()]
    else:
        results = measure(given)
    for title, table in report.sections(results).items():
        print(f"\n{title}\n\n{table}")
    if given.write_docs:
        report.write(results)
    return harness.failures(results)


def planned(given: argparse.Namespace) -> Iterator[Planned]:
    """All runs, each with what identifies it."""
    plans = {
        LATENCY: _latency,
        KEYS: _keys,
        BACKLOG: _backlog,
        RECOVERY: _recovery,
    }
    for case in given.case:
        for _ in range(given.reps):
            yield from plans[case](given)


def _latency(given: argparse.Namespace) -> Iterator[Planned]:
    base = {"ranges": BASE_RANGES, "workers": BASE_WORKERS, "keys": BASE_KEYS}
    # Each parameter that grows takes its base value once too; that run is made only once.
    grown = [{**base, name: amount} for name in base for amount in getattr(given, name)]
    for rate, what in itertools.product(given.rate, _different(grown)):
        task = Task(
            case=LATENCY,
            size=0,
            out="",
            rate=rate,
            seconds=given.seconds,
            warm_up_s=given.warm_up,
            workers=what["workers"],
            ranges=what["ranges"],
            keys=what["keys"],
            cache_bytes=given.cache_mb << 20,
        )
        yield task, {"rate": rate, **what}


def _different(amounts: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    return [each for number, each in enumerate(amounts) if each not in amounts[:number]]


def _keys(given: argparse.Namespace) -> Iterator[Planned]:
    for cache_mb in given.caches_mb:
        what = {"keys": given.many_keys, "value_bytes": given.value_bytes}
        task = Task(
            case=KEYS,
            size=0,
            out="",
            workers=BASE_WORKERS,
            ranges=BASE_RANGES,
            cache_bytes=ALL_IN_MEMORY if cache_mb < 0 else cache_mb << 20,
            **what,
        )
        yield task, {"cache_mb": cache_mb, **what}


def _backlog(given: argparse.Namespace) -> Iterator[Planned]:
    for variant in ("", BATCH):
        task = Task(case=BACKLOG, size=given.size, out="", variant=variant)
        yield task, {"size": given.size, "variant": variant or "stream"}


def _recovery(given: argparse.Namespace) -> Iterator[Planned]:
    for fault in given.fault:
        task = Task(
            case=RECOVERY,
            size=0,
            out="",
            rate=given.fault_rate,
            seconds=given.after,
            warm_up_s=given.warm_up,
            workers=BASE_WORKERS,
            ranges=BASE_RANGES,
            keys=BASE_KEYS,
            cache_bytes=given.cache_mb << 20,
        )
        yield task, {"rate": given.fault_rate, "fault": fault, "bound_ms": given.bound_ms}


def command(given: argparse.Namespace) -> str:
    """The command that makes the same runs again, without paths."""
    defaults = parser().parse_args([])
    changed = {
        name: value
        for name, value in vars(given).items()
        if name not in ("cache", "results", "read", "write_docs", "timeout")
        and value != getattr(defaults, name)
    }
    return harness.command("benchmarks.stream_scale", changed)


def measure(given: argparse.Namespace) -> list[Result]:
    """Make all runs; the first result has the machine and the options."""
    settings = Settings(timeout_s=given.timeout, bound_ms=given.bound_ms, cache=given.cache)
    with recording(given, "scale", command(given)) as record:
        bench = ScaleBench(settings, record.server)
        for task, what in planned(given):
            words = ", ".join(f"{name} {value}" for name, value in what.items())
            print(f"{task.case.lower()}, {words}: ", end="", flush=True)
            result = bench.result(task, what)
            print(report.in_a_line(result), flush=True)
            record.note(result)
    return record.results


if __name__ == "__main__":
    raise SystemExit(main())
