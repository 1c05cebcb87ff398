"""Measure this project beside its peers, in one run on one machine.

    make bench                                        every case once, at a million events
    make bench CASE="B2 S1" ARGS="--size 5000000"     single cases
    python -m benchmarks.bench --help

Every run is a fresh process, and its answer is compared with one that was worked out independently.  Runs that will be
compared are made one after the other.  Prints tables of ratios, and writes every run as a line of JSON.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from benchmarks import pages, plot, tables
from benchmarks.cases import LATENCY, THROUGHPUT
from benchmarks.peers.registry import DEFAULT, PEERS
from benchmarks.recording import recording
from benchmarks.runs import Bench, Options, Result

CASES = {name: case.title for name, case in THROUGHPUT.items()} | LATENCY
DEFAULT_SIZE = 1_000_000
DEFAULT_RATE = 1_000


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    cache = platformdirs.user_cache_path("dataflow-sdk", appauthor=False) / "benchmarks"
    epilog = "\n".join(
        [
            "cases:",
            *(f"  {name:4} {title}" for name, title in CASES.items()),
            "peers:",
            *(f"  {name:13} {' '.join(peer.cases)}: {peer.note}" for name, peer in PEERS.items()),
        ]
    )
    found = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--case", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    add("--peers", nargs="+", choices=PEERS, default=list(DEFAULT), metavar="PEER")
    add("--size", nargs="+", type=int, default=[DEFAULT_SIZE], help="records, or words in B5")
    add("--rate", nargs="+", type=int, default=[DEFAULT_RATE], help="events a second, in S2, LAG")
    add("--reps", type=int, default=1, help="how often each run is made")
    add("--seconds", type=int, default=10, help="how long S2 and LAG are measured")
    add("--warm-up", type=int, default=5, help="how many seconds they run before that")
    add("--timeout", type=float, default=600, help="seconds that one run may take")
    add("--cache", type=Path, default=cache, help="where data and environments are kept")
    add("--results", type=Path, help="where to write the runs; default: in the cache, by the time")
    add("--plot", type=Path, help="where to draw the ratios, as SVG")
    add("--read", nargs="+", type=Path, help="measure nothing; print the tables of such files")
    add("--write-docs", action="store_true", help=f"and put them into {pages.PAGE.name}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns how many runs failed or gave a wrong answer."""
    given = parser().parse_args(arguments)
    results = pages.read(given.read) if given.read else measure(given)
    for title, table in pages.sections(results).items():
        print(f"\n{title}\n\n{table}")
    if given.plot:
        given.plot.write_text(plot.draw(results), "utf-8")
    if given.write_docs:
        pages.write(results)
    return sum(not tables.is_good(each) for each in results if each["case"] != pages.MACHINE)


def options_of(given: argparse.Namespace) -> Options:
    """The options of the runs, from the command line."""
    return Options(
        cases=given.case,
        peers=given.peers,
        sizes=given.size,
        rates=given.rate,
        reps=given.reps,
        seconds=given.seconds,
        warm_up_s=given.warm_up,
        timeout_s=given.timeout,
        cache=given.cache,
    )


def command(options: Options) -> str:
    """The command that makes the same runs again, without paths."""
    words: dict[str, Sequence[object]] = {
        "case": options.cases,
        "peers": options.peers,
        "size": options.sizes,
        "rate": options.rates,
        "reps": [options.reps],
        "seconds": [options.seconds],
        "warm-up": [options.warm_up_s],
    }
    given = " ".join(f"--{name} {' '.join(map(str, each))}" for name, each in words.items())
    return f"python -m benchmarks.bench {given}"


def measure(given: argparse.Namespace) -> list[Result]:
    """Make all runs; the first result has the machine and the options."""
    options = options_of(given)
    with recording(given, "results", command(options)) as record:
        for result in Bench(options, record.server).results():
            record.note(result)
    return record.results


if __name__ == "__main__":
    raise SystemExit(main())
