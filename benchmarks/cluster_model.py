"""What a stream would do on more machines than there are here, worked out from what its steps cost on this one.

    python -m benchmarks.cluster_model                      measures the costs, then the table; minutes
    python -m benchmarks.cluster_model --workers 2 10 --rate 100
    python -m benchmarks.cluster_model --write-docs         and put the table into docs/costs.md

The workers and the driver are the real ones, on virtual time: `benchmarks.scale.cluster` explains how, and what it
leaves out.  Only the costs are measured.
"""

import argparse
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import attrs

from benchmarks import harness, pages, stores, tables
from benchmarks.latency import percentile
from benchmarks.scale.cluster import Cluster, Outcome, Shape
from benchmarks.scale.costs import Costs, measured

PAGE = pages.ROOT / "docs" / "costs.md"
#: Of a server; more are added when there are more workers than these, and for each server.
CORES = 16
HEADER = [
    "Workers",
    "Records a second, each",
    "Postgres servers",
    "Median, ms",
    "99 %, ms",
    "Committed a second",
    "Commits a second",
    "A worker's core",
    "Postgres, cores",
    "The driver's core",
    "Watermark lag, ms",
]


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    found = harness.parser(__doc__)
    add = found.add_argument
    add("--workers", nargs="+", type=int, default=[2, 10, 100, 1_000])
    add("--rate", nargs="+", type=int, default=[100, 500], help="records a second of a worker")
    add("--seconds", type=float, default=0.5, help="of virtual time that are looked at")
    add("--warm-up", type=float, default=0.3, help="and before that")
    add("--server-for", type=int, default=20, help="workers that have a Postgres together")
    add("--unmeasured", action="store_true", help="by the costs that are written in the code")
    add("--write-docs", action="store_true", help=f"put the table into {PAGE.name}")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    given = parser().parse_args(arguments)
    costs, machine = (Costs(), "") if given.unmeasured else measured_here()
    text = costs_text(costs)
    print(text)
    rows = []
    for shape in shapes(given):
        rows.append(row(shape, Cluster(shape, costs).run()))
        print(" | ".join(rows[-1]), flush=True)
    table = tables.markdown(HEADER, "", rows, numbers_first=True)
    print(f"\n{table}")
    if given.write_docs:
        parts = {"Model": table, "Model costs": f"{machine}\n\n{text}".strip()}
        PAGE.write_text(pages.filled_in(PAGE.read_text("utf-8"), parts), "utf-8")


def shapes(given: argparse.Namespace) -> Iterator[Shape]:
    """All clusters; first those that can be compared with a run, as all of them is on two cores."""
    looked = {"seconds": given.seconds, "warm_up_s": given.warm_up}
    for rate in given.rate:
        yield Shape(workers=2, rate=rate, cores=2, is_one_machine=True, **looked)
        for workers in given.workers:
            servers = -(-workers // given.server_for)
            yield Shape(workers=workers, rate=rate, servers=servers, cores=CORES, **looked)


def measured_here() -> tuple[Costs, str]:
    """The costs of this machine, and its description."""
    with stores.commit_stamping_server() as server:
        flush_ms = stores.flush_ms(server.home)
        costs = measured(server.dsn)
    return costs, f"{datetime.now(UTC):%Y-%m-%d}: {tables.machine(flush_ms)}"


def costs_text(costs: Costs) -> str:
    """The costs in a line of text."""
    found = attrs.asdict(costs)
    return ", ".join(f"`{name}` {value:.0f}" for name, value in found.items() if value is not None)


def row(shape: Shape, outcome: Outcome) -> list[str]:
    """A row of the table."""
    name = f"{shape.workers:,}"
    latencies_ms, lags_ms = sorted(outcome.latencies_ms), sorted(outcome.lags_ms)
    lag = f"{percentile(lags_ms, 50):,.0f}" if lags_ms else "-"
    return [
        f"{name}, on two cores" if shape.is_one_machine else name,
        f"{shape.rate:,}",
        "-" if shape.is_one_machine else f"{shape.servers:,}",
        f"{percentile(latencies_ms, 50):,.1f}" if latencies_ms else "-",
        f"{percentile(latencies_ms, 99):,.1f}" if latencies_ms else "-",
        f"{outcome.committed:,.0f} of {outcome.offered:,.0f}",
        f"{outcome.commits:,.0f}",
        f"{outcome.worker_cores:.0%}",
        f"{outcome.postgres_cores:,.1f}",
        f"{outcome.driver_cores:.0%}",
        lag,
    ]


if __name__ == "__main__":
    main()
