"""What a record of a stream costs: processor time of a worker and of Postgres, by size of step.

    python -m benchmarks.stream_costs [--records 200000] [--steps 500,5000,50000] [--profile]
        [--lineage panes|records]

Per-minute sums by user over JSON lines, exactly once, with Python functions: the worker and its master in this process,
so that nothing but their work is measured, whatever else the machine does.
"""

import cProfile
import pstats
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs

import dataflow as df
from benchmarks import harness, stores
from benchmarks.one_worker import run_to_end
from benchmarks.user_sums import pipeline, write_events
from runners.core.ground.lineage import Lineage, checked_lineage
from runners.millwheel.model.production import Production
from runners.millwheel.store.port import UnderWay
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker_options import WorkerOptions


@attrs.frozen(kw_only=True)
class Costs:
    """Processor seconds of one run."""

    worker_s: float
    postgres_s: float
    commits: int
    productions: int


class CountingStore(PostgresStore):
    """Counts its commits, and what is sent with them."""

    commits = productions = 0

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        """Send the production."""
        self.commits += 1
        self.productions += len(production.checkpoints)
        return super().submit(production, ready)


def run(
    dsn: str,
    p: df.Pipeline,
    *,
    records: int,
    ranges: int = 2,
    profile: cProfile.Profile | None = None,
    lineage: Lineage | None = None,
) -> Costs:
    """Run a pipeline to its end, in this thread.

    Args:
        dsn: of a new database.
        p: the pipeline.
        records: how many a step reads at most.
        ranges: key ranges of each grouping.
        profile: is enabled during the run.
        lineage: how much is recorded of where rows come from; None: nothing.
    """
    options = WorkerOptions(steps=StepLimits(records=records))
    with closing(CountingStore(dsn)) as store:
        took = run_to_end(store, dsn, p, options, ranges=ranges, profile=profile, lineage=lineage)
        return Costs(
            worker_s=took.worker_s,
            postgres_s=took.postgres_s,
            commits=store.commits,
            productions=store.productions,
        )


def main() -> None:
    """Print the table."""
    parser = harness.parser(__doc__)
    harness.add_store_options(parser, rounds=2)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--steps", default="500,5000,50000", help="records in a step")
    parser.add_argument("--profile", action="store_true", help="where the worker's time goes")
    parser.add_argument(
        "--lineage", choices=[each.value for each in Lineage], help="record where rows come from"
    )
    options = parser.parse_args()
    print("| Records in a step | Commits | Worker, us a record | Postgres, us a record |")
    print("| ---: | ---: | ---: | ---: |")
    rows = []
    with stores.server_at(options.dsn) as dsn, tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "events.jsonl"
        write_events(path, options.records)
        for step in map(int, options.steps.split(",")):
            lineage = checked_lineage(options.lineage)
            profile = cProfile.Profile() if options.profile else None
            found = []
            for _ in range(options.rounds):
                # A result table belongs to one job, and each round is a job of its own.
                with stores.database(dsn) as fresh:
                    costs = run(
                        fresh, pipeline(path), records=step, profile=profile, lineage=lineage
                    )
                    found.append(costs)
            worker_us, postgres_us = (
                min(getattr(each, name) for each in found) / options.records * 1e6
                for name in ("worker_s", "postgres_s")
            )
            commits = found[0].commits
            print(f"| {step:,} | {commits:,} | {worker_us:.1f} | {postgres_us:.1f} |", flush=True)
            rows.append((commits, worker_us * options.records, postgres_us * options.records))
            if profile is not None:
                pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    first, last = rows[0], rows[-1]
    if first[0] != last[0]:
        worker_us, postgres_us = (
            (a - b) / (first[0] - last[0]) for a, b in zip(first[1:], last[1:], strict=True)
        )
        print(f"a commit: {worker_us:.0f} us of a worker, {postgres_us:.0f} us of Postgres")


if __name__ == "__main__":
    main()
