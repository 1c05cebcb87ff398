"""How fast the Postgres store commits and reads, and how much of what it overwrites stays in its page.

    python -m benchmarks.store_commits [--dsn DSN] [--rounds 3] [--fillfactor 50 ...]

Without a DSN it starts a server of its own in a temporary directory.  With one it creates databases there and drops
them.  Prints the median of small commits, cells written and read per second, and the share of HOT updates, best of the
rounds (shares: the last); ``--fillfactor`` repeats it with other settings for cells.
"""

import statistics
import time
from contextlib import closing

import psycopg
from psycopg import sql

from benchmarks import harness, stores
from benchmarks.commit_writer import BUNDLE, VALUE, Writer
from runners.millwheel.model.production import CellWrite
from runners.millwheel.store.postgres import PostgresStore

SMALL_COMMITS = 1_000
CELLS = 200_000
UPDATES = """SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
             WHERE schemaname = 'dataflow' AND n_tup_upd > 0 ORDER BY relname"""


def cells_from(first: int) -> list[CellWrite]:
    """A bundle's worth, whose hashes are all over the range."""
    numbers = range(first, first + BUNDLE)
    return [CellWrite("count", n * 7919 % CELLS << 40, b"key %d" % n, VALUE) for n in numbers]


def measure(dsn: str, fillfactor: int | None) -> tuple[dict[str, float], dict[str, float]]:
    """One round on an empty database: figures, and shares of HOT updates by table."""
    found: dict[str, float] = {}
    with closing(PostgresStore(dsn)) as store:
        if fillfactor:
            store.connect().execute(
                sql.SQL("ALTER TABLE dataflow.cells SET (fillfactor = {})").format(fillfactor)
            )
        writer = Writer(store)
        small_s = [writer.small() for _ in range(SMALL_COMMITS)]
        found["small commit, median, ms"] = statistics.median(small_s[100:]) * 1e3
        for kind in ("new cells per second", "cells overwritten per second"):
            seconds = sum(writer.commit(cells=cells_from(n)) for n in range(0, CELLS, BUNDLE))
            found[kind] = CELLS / seconds
        started_s = time.perf_counter()
        read = sum(map(len, writer.pages()))
        found["cells read per second"] = read / (time.perf_counter() - started_s)
    with psycopg.connect(dsn, autocommit=True) as admin:
        time.sleep(0.1)
        shares = {name: 100.0 * hot / all_ for name, all_, hot in admin.execute(UPDATES)}
    return found, shares


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    harness.add_store_options(parser, rounds=3)
    parser.add_argument("--fillfactor", type=int, nargs="*", default=[None])
    options = parser.parse_args()
    with stores.server_at(options.dsn) as dsn:
        for fillfactor in options.fillfactor:
            rounds = []
            for _ in range(options.rounds):
                with stores.database(dsn) as empty:
                    rounds.append(measure(empty, fillfactor))
            if fillfactor:
                print(f"fillfactor of cells: {fillfactor}")
            for kind in rounds[0][0]:
                best = min if kind.endswith("ms") else max
                print(f"{kind}: {best(found[kind] for found, _ in rounds):,.3f}")
            print("HOT updates, percent:", {k: round(v, 1) for k, v in rounds[-1][1].items()})


if __name__ == "__main__":
    main()
