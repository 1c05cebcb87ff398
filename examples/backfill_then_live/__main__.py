"""The command line: ``python -m examples.backfill_then_live [--seed N]``, and options of the stream.

The history is there, the job reads it and goes live; then hours come one by one, and some rides that were forgotten in
the history.  At last one batch reads all files, and its totals are compared with those of the job.

Exit status: 0, or 1 where they differ.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import dataflow as df

from .folder import BACKFILL_HOURS, LIVE_HOURS, close, write_forgotten, write_hours
from .pipeline import build

TABLES = ("station_days", "trips")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job, then a batch over the same files, and compare; returns the exit status."""
    options, rest = df.parse_options(arguments)
    parser = argparse.ArgumentParser(prog="python -m examples.backfill_then_live")
    parser.add_argument("--seed", type=int, default=1, help="of the rides (1)")
    parser.add_argument("--pause", type=float, default=0.2, help="between two hours, in seconds")
    asked = parser.parse_args(rest)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_hours(folder, 0, BACKFILL_HOURS, asked.seed)
        live: df.PipelineOptions = {**options, "runner": "backfill-then-live", "job": "rides"}
        live.setdefault("fresh", True)
        job = df.Pipeline(**live)
        build(job, folder)
        # Returns when the history is read, and the stream has started.
        result = job.run()
        print("the history:", *counts(result, ""))
        for hour in range(BACKFILL_HOURS, BACKFILL_HOURS + LIVE_HOURS):
            write_hours(folder, hour, hour + 1, asked.seed)
            time.sleep(asked.pause)
        write_forgotten(folder, asked.seed)
        close(folder)
        result.wait_until_finish()
        print("and live:   ", *counts(result, ""))
        return compare(result, batch_of(folder, options))


def batch_of(folder: Path, options: df.PipelineOptions) -> df.PipelineResult:
    """One batch over all files, by the same code.

    Args:
        folder: of the files.
        options: where the store and Spark are, if they were given.
    """
    batch: df.PipelineOptions = {"runner": "batch", "job": "rides-batch", "fresh": True}
    if "store" in options:
        batch["store"] = options["store"]
    if "master" in options:
        batch["master"] = options["master"]
    p = df.Pipeline(**batch)
    build(p, folder, "batch_")
    result = p.run()
    result.wait_until_finish()
    return result


def counts(result: df.PipelineResult, prefix: str) -> list[str]:
    """How much there is of each table."""
    rows = {table: result.read_table(prefix + table) for table in TABLES}
    return [
        f"{len(found):,} rows of {table} with {sum(row['rides'] for row in found):,} rides;"
        for table, found in rows.items()
    ]


def compare(job: df.PipelineResult, batch: df.PipelineResult) -> int:
    """Print whether both have the same rows; returns 1 if not.

    Args:
        job: the history, and then live.
        batch: of everything.
    """
    print("one batch:  ", *counts(batch, "batch_"))
    differing = 0
    for table in TABLES:
        found, wanted = (
            {tuple(row.items()) for row in rows}
            for rows in (job.read_table(table), batch.read_table(f"batch_{table}"))
        )
        for row in sorted(found ^ wanted, key=str):
            print("only in", "the job:" if row in found else "the batch:", dict(row))
        differing += len(found ^ wanted)
    print("NOT the same" if differing else "the same")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
