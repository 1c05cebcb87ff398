"""How many changes of a table a second are read from a replication slot, as typed rows, by one reader.

    python -m benchmarks.postgres_changes [--changes 400000] [--rounds 3]

A server of its own in a temporary directory; half of the changes insert rows, a quarter replaces one (the old row and
the new one are two records), a quarter deletes one, in transactions of a thousand.  They are in the log before the
reader begins.  The best of the rounds counts; the time of the processor is the reader's alone, without the server's.
"""

import sys
import time
from contextlib import closing
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

import dataflow as df
from benchmarks import harness
from runners.embedded.temporary import FOLLOWED, temporary_postgres

#: Records that are asked for in one go, as by a worker.
_READ_RECORDS = 1 << 12
#: The goal, in changes a second.
GOAL = 100_000
_TABLE = """
CREATE TABLE items (id int8 PRIMARY KEY, customer int8, price float8, shop text, at timestamptz);
ALTER TABLE items REPLICA IDENTITY FULL"""
_INSERT = """
INSERT INTO items SELECT n, n % 1000, n * 0.37, 'shop-' || n % 100, timestamptz '2026-01-01Z' + n * interval '1 ms'
FROM generate_series({first}, {last}) AS n"""
_UPDATE = "UPDATE items SET price = price + 1 WHERE id BETWEEN {first} AND {middle}"
_DELETE = "DELETE FROM items WHERE id > {middle} AND id <= {last}"
_TRANSACTION = 1_000


class Item(NamedTuple):
    """One row."""

    id: int
    customer: int
    price: float
    shop: str
    at: datetime


def change(dsn: str, changes: int) -> int:
    """Make changes; how many records they are.

    Args:
        dsn: of the server.
        changes: how many, a multiple of four thousand.
    """
    inserted = changes // 2
    with psycopg.connect(dsn, autocommit=True) as connection:
        for first in range(0, inserted, _TRANSACTION):
            last = first + _TRANSACTION - 1
            numbers = {"first": first, "last": last, "middle": (first + last) // 2}
            for statement in (_INSERT, _UPDATE, _DELETE):
                connection.execute(statement.format(**numbers).encode())
    return inserted + 2 * (inserted // 2) + inserted // 2


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    parser.add_argument("--changes", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    best, best_processor = float("inf"), float("inf")
    for number in range(options.rounds):
        with temporary_postgres(FOLLOWED) as dsn:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(_TABLE.encode())
            reading: Any = df.ReadFromPostgres(
                "items", dsn=dsn, changes=True, slot=f"bench_{number}", rows=Item, event_time="at"
            )
            source = reading._source  # noqa: SLF001 - a scan without a pipeline
            (split,) = source.splits(1)
            with closing(source.open(split, None, fence=1)) as reader:
                batch = reader.read(1)  # the copy of an empty table, which makes the slot
                records = change(dsn, options.changes)
                begun, processor = time.perf_counter(), time.process_time()
                read = 0
                while read < records:
                    batch = reader.read(_READ_RECORDS)
                    read += len(batch.values)
                best = min(best, time.perf_counter() - begun)
                best_processor = min(best_processor, time.process_time() - processor)
            if read != records:
                sys.exit(f"{read} records were read, and {records} were made")
    changes = options.changes
    print(f"{changes / best:12,.0f} changes a second ({records / best:,.0f} records)")
    print(f"{changes / best_processor:12,.0f} changes a second of the reader's processor")
    print(f"the goal is {GOAL:,} changes a second")


if __name__ == "__main__":
    main()
