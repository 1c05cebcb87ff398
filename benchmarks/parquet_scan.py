"""How much processor time a scan of typed rows from Parquet takes, beside `pyarrow.parquet` alone.

    python -m benchmarks.parquet_scan [--rows 4000000] [--names 50000] [--rounds 5]

All read every column of the same file on one thread, in alternating rounds; the best of each counts.  polars scans it
too, in the environment that the other benchmarks have for it, where that can be made.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dataflow as df
from benchmarks import harness
from benchmarks.environments import UnavailableError, interpreter
from benchmarks.peers.registry import PEERS
from dataflow.source import SplitStatus

#: Records that are asked for in one go, as by a worker.
_READ_RECORDS = 1 << 14
#: The goal: so many times the processor time of another scan.
GOAL = 1.5
_POLARS = """
import sys, time
import polars
begun = time.process_time()
rows = polars.read_parquet(sys.argv[1], use_pyarrow=False).height
print(time.process_time() - begun, rows)
"""


class Item(NamedTuple):
    """One row."""

    user: int
    price: float
    shop: str
    at: datetime
    name: str


def write(path: Path, rows: int, names: int) -> None:
    """Write numbers, times, text of four values and text of many.

    Args:
        path: of the file.
        rows: how many.
        names: how many texts the column of many has; as many as rows, and no dictionary holds them.
    """
    drawn = np.random.default_rng(1)
    shops = np.array(["north", "south", "east", "west"])
    columns = {
        "user": pa.array(drawn.integers(0, 100_000, rows)),
        "price": pa.array(drawn.random(rows)),
        "shop": pa.array(shops[drawn.integers(0, len(shops), rows)]),
        "at": pa.array(np.arange(rows) * 1_000, pa.timestamp("us", "UTC")),
        "name": pa.array([f"item-{number % names}" for number in range(rows)]),
    }
    pq.write_table(pa.table(columns), path, row_group_size=1 << 20)


def by_arrow(path: Path) -> int:
    """The rows that Arrow reads."""
    with closing(pq.ParquetFile(path)) as file:
        groups = range(file.num_row_groups)
        return sum(file.read_row_group(each, use_threads=False).num_rows for each in groups)


def by_source(path: Path) -> int:
    """The rows that our source reads, with their event times."""
    read: Any = df.ReadFromParquet(path, rows=Item, event_time="at", max_disorder=60)
    source, rows = read._source, 0  # noqa: SLF001 - a scan without a pipeline
    for split in source.splits(1):
        with closing(source.open(split, None, fence=0)) as reader:
            status = SplitStatus.ACTIVE
            while status is not SplitStatus.FINISHED:
                batch = reader.read(_READ_RECORDS)
                rows, status = rows + len(batch.values), batch.status
    return rows


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--names", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--cache", type=Path, default=harness.cache_folder(), help="of environments"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "items.parquet")
        write(path, options.rows, options.names)
        scans: dict[str, Callable[[], float]] = {
            "pyarrow.parquet": lambda: _took_s(by_arrow, path, options.rows),
            "ReadFromParquet": lambda: _took_s(by_source, path, options.rows),
        }
        try:
            python = interpreter(PEERS["polars"], options.cache / "environments")
        except UnavailableError as error:
            print(error)
        else:
            scans["polars"] = lambda: _polars_took_s(python, path, options.rows)
        best = dict.fromkeys(scans, float("inf"))
        for _ in range(options.rounds):
            for name, scan in scans.items():
                best[name] = min(best[name], scan())
    for name, took in best.items():
        ratio = best["ReadFromParquet"] / took
        print(f"{name:20}{took:8.3f} s of processor time; ours takes {ratio:.2f} times that")
    print(f"the goal is at most {GOAL} times")


def _took_s(scan: Callable[[Path], int], path: Path, rows: int) -> float:
    begun = time.process_time()
    found = scan(path)
    took = time.process_time() - begun
    _check(found, rows)
    return took


def _polars_took_s(python: str, path: Path, rows: int) -> float:
    command = [python, "-c", _POLARS, str(path)]
    threads = {**os.environ, "POLARS_MAX_THREADS": "1"}
    output = subprocess.run(command, env=threads, capture_output=True, check=True).stdout
    took, found = output.split()
    _check(int(found), rows)
    return float(took)


def _check(found: int, rows: int) -> None:
    if found != rows:
        sys.exit(f"{found} rows were read, and the file has {rows}")


if __name__ == "__main__":
    main()
