"""How fast a table of Postgres is read as typed rows, beside ``COPY`` of the same table to a file, by psql.

    python -m benchmarks.postgres_scan [--rows 2000000] [--rounds 5]

Key chunks have the same rows, made of texts, by the primary key.

A server of its own in a temporary directory; both read all columns by one session, in alternating rounds; the best of
each counts.  Rows one by one, as without the extra ``adbc``, are read once.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

import dataflow as df
from benchmarks import harness
from dataflow.io.postgres_reads.table_rows import RowsReader
from dataflow.source import SourceReader, SplitStatus
from runners.embedded.locate import find_programs
from runners.embedded.temporary import temporary_postgres

#: Records that are asked for in one go, as by a worker.
_READ_RECORDS = 1 << 14
#: The goal: at most so many times the time of COPY.
GOAL = 2.0
_TABLE = """
CREATE TABLE items AS
SELECT n AS "user", n * 0.37::float8 AS price, (ARRAY['north', 'south', 'east', 'west'])[1 + n % 4] AS shop,
       timestamptz '2026-01-01Z' + n * interval '1 ms' AS at, 'item-' || n % 50000 AS name
FROM generate_series(1, {rows}::int8) AS n"""


class Item(NamedTuple):
    """One row."""

    user: int
    price: float
    shop: str
    at: datetime
    name: str


def copy(dsn: str) -> int:
    """Copy the table to a file; how many rows.

    Args:
        dsn: of the server.
    """
    programs = find_programs(Path("none"), None)
    with tempfile.NamedTemporaryFile() as file:
        words = f"\\copy items to '{file.name}'"
        done = subprocess.run(
            [programs / "psql", dsn, "-c", words], capture_output=True, text=True, check=True
        )
    return int(done.stdout.removeprefix("COPY "))


def read(reader: SourceReader) -> int:
    """Read to the end; how many rows.

    Args:
        reader: of the whole table.
    """
    rows, status = 0, SplitStatus.ACTIVE
    with closing(reader):
        while status is not SplitStatus.FINISHED:
            batch = reader.read(_READ_RECORDS)
            rows, status = rows + len(batch.values), batch.status
    return rows


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with temporary_postgres() as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_TABLE.format(rows=options.rows).encode())
            connection.execute('ALTER TABLE items ADD PRIMARY KEY ("user")')
            connection.execute("VACUUM ANALYZE items")
        reading: Any = df.ReadFromPostgres("items", dsn=dsn, rows=Item, event_time="at")
        source, whole = reading._source, (0, None, None)  # noqa: SLF001 - a scan without a pipeline
        keyed: Any = df.ReadFromPostgres(
            "items", dsn=dsn, rows=Item, event_time="at", key_chunks=True
        )
        by_key = keyed._source  # noqa: SLF001 - as above
        scans: dict[str, Callable[[], int]] = {
            "COPY to a file": lambda: copy(dsn),
            "columns": lambda: read(source.open(whole, None, fence=0)),
            "key chunks": lambda: read(by_key.open((None, None), None, fence=0)),
        }
        best = dict.fromkeys(scans, float("inf"))
        for _ in range(options.rounds):
            for name, scan in scans.items():
                best[name] = min(best[name], _took_s(scan, options.rows))
        best["rows one by one"] = _took_s(lambda: read(RowsReader(source, whole, 0)), options.rows)
    for name, took in best.items():
        print(
            f"{name:16}{took:8.2f} s, {options.rows / took:12,.0f} rows a second, "
            f"{took / best['COPY to a file']:.2f} times COPY"
        )
    print(f"the goal for columns is at most {GOAL} times")


def _took_s(scan: Callable[[], int], rows: int) -> float:
    begun = time.perf_counter()
    found = scan()
    took = time.perf_counter() - begun
    if found != rows:
        sys.exit(f"{found} rows were read, and the table has {rows}")
    return took


if __name__ == "__main__":
    main()
