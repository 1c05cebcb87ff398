"""Measure this project beside its peers, in one run on one machine.

    make bench                                        every case once, at a million events
    make bench CASE="B2 S1" ARGS="--size 5000000"     single cases
    make bench CASE=NEXMARK                           all of docs/nexmark.md
    python -m benchmarks.bench --help

Every run is a fresh process, and its answer is compared with one that was worked out independently.  Runs that will be
compared are made one after the other.  Prints tables of ratios, and writes every run as a line of JSON.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness, pages, plot
from benchmarks.cases import LATENCY, THROUGHPUT
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.peers.registry import DEFAULT, PEERS
from benchmarks.recording import recording
from benchmarks.runs import Bench, Options
from benchmarks.tables import Result

CASES = {name: case.title for name, case in THROUGHPUT.items()} | LATENCY
#: What stands for several cases.
GROUPS = {"NEXMARK": tuple(NEXMARK), "NEXMARK-LATENCY": tuple(NEXMARK_LATENCY)}
#: Options that are not given, by their names.
DEFAULTS: Mapping[str, Any] = {
    "peers": list(DEFAULT),
    "size": [1_000_000],
    "rate": [1_000],
    "seconds": 10,
}
#: The same for the parts of a group that is measured without peers being named: as many events as the slowest of them
#: reads in some ten seconds.
PARTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "NEXMARK": (
        {
            "case": ["NEXMARK"],
            "peers": ["ours", "ours-columns", "flink-sql", "spark-df", "beam"],
            "size": [300_000],
        },
        {
            "case": ["NEXMARK-LATENCY"],
            "peers": ["ours", "ours-columns"],
            "rate": [10_000],
            "seconds": 20,
        },
    )
}


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    epilog = "\n".join(
        [
            "cases:",
            *(f"  {name:4} {title}" for name, title in CASES.items()),
            "peers:",
            *(f"  {name:13} {' '.join(peer.cases)}: {peer.note}" for name, peer in PEERS.items()),
        ]
    )
    found = harness.parser(__doc__, epilog=epilog)
    add = found.add_argument
    choices = [*CASES, *GROUPS]
    add("--case", nargs="+", choices=choices, default=list(CASES), metavar="CASE")
    add("--peers", nargs="+", choices=PEERS, metavar="PEER", help="default: those with no download")
    add("--size", nargs="+", type=int, help="records, or words in B5; default: a million")
    add("--rate", nargs="+", type=int, help="events a second, in S2, LAG and latency")
    add("--seconds", type=int, help="how long these are measured; default: 10")
    add("--warm-up", type=int, default=5, help="how many seconds they run before that")
    add("--plot", type=Path, help="where to draw the ratios, as SVG")
    add("--read", nargs="+", type=Path, help="measure nothing; print the tables of such files")
    harness.add_recording_options(found, timeout_s=600, page=pages.PAGE.name)
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
    return harness.failures(results)


def parts_of(given: argparse.Namespace) -> list[Options]:
    """The runs that the command line asks for, in parts that have options of their own."""
    parts = PARTS.get(given.case[0]) if len(given.case) == 1 and given.peers is None else None
    if parts is None:
        return [options_of(given)]
    return [
        options_of(argparse.Namespace(**(vars(given) | {"case": part["case"]})), part)
        for part in parts
    ]


def options_of(given: argparse.Namespace, part: Mapping[str, Any] | None = None) -> Options:
    """The options of the runs, from the command line.

    Args:
        given: the command line.
        part: options that are not given, before `DEFAULTS`.
    """
    chosen = {**DEFAULTS, **(part or {})}
    chosen |= {name: value for name, value in vars(given).items() if value is not None}
    return Options(
        cases=[name for case in given.case for name in GROUPS.get(case, (case,))],
        peers=chosen["peers"],
        sizes=chosen["size"],
        rates=chosen["rate"],
        reps=given.reps,
        seconds=chosen["seconds"],
        warm_up_s=given.warm_up,
        timeout_s=given.timeout,
        cache=given.cache,
    )


def command(options: Options) -> str:
    """The command that makes the same runs again, without paths."""
    group = next((name for name, cases in GROUPS.items() if cases == tuple(options.cases)), None)
    words: dict[str, object] = {
        "case": group or options.cases,
        "peers": options.peers,
        "size": options.sizes,
        "rate": options.rates,
        "reps": options.reps,
        "seconds": options.seconds,
        "warm-up": options.warm_up_s,
    }
    return harness.command("benchmarks.bench", words)


def measure(given: argparse.Namespace) -> list[Result]:
    """Make all runs; the first result of each part has the machine and the options."""
    results: list[Result] = []
    for options in parts_of(given):
        with recording(given, "results", command(options)) as record:
            for result in Bench(options, record.server).results():
                record.note(result)
        results += record.results
    return results


if __name__ == "__main__":
    raise SystemExit(main())
