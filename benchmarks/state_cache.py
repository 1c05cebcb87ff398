"""The effect of a cache of state: CPU of a worker and of Postgres against its size (MillWheel, figure 16).

    python -m benchmarks.state_cache [--dsn DSN] [--keys 1000] [--windows 15] [--rounds 1]

One worker buffers records in windows of a minute, which are fetched when the watermark passes their end; event times
are up to five minutes ahead of it, so about five windows of each key are open.  The input is the same in each row.  The
first row has all state in memory, the others a part of it: the state that is needed last is evicted first, or, to
compare, the state that was used longest ago.  Without a DSN it starts a server of its own in a temporary directory.
"""

from contextlib import closing
from random import Random
from unittest.mock import patch

import attrs

import dataflow as df
from benchmarks import harness, stores
from benchmarks.one_worker import run_to_end
from runners.millwheel.model.counts import CacheCounts
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.worker.state import cell_cache
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.scripted_source import Batch, ScriptedSource
from windowing.timestamps import US_PER_SECOND

OPEN_WINDOWS = 5
MINUTE_US = 60 * US_PER_SECOND
RECORDS_PER_BATCH = 500
#: Records of one key and window.
RECORDS_PER_CELL = 3
VALUE = "v" * 300
#: The parts of the state that are kept in memory.
PARTS = (1 / 4, 1 / 8, 1 / 16, 0)


@attrs.frozen(kw_only=True)
class Row:
    """What one run took."""

    worker_s: float
    postgres_s: float
    most_bytes: int
    counts: CacheCounts

    @property
    def both_s(self) -> float:
        """Processor seconds of worker and Postgres together."""
        return self.worker_s + self.postgres_s


#: The default trigger fires then too; but its windows are buffered in the journal until they do, and have no cells.
MINUTES = df.WindowInto(
    df.FixedWindows(60),
    trigger=df.AfterWatermark(),
    accumulation_mode=df.AccumulationMode.DISCARDING,
)


def source(keys: int, windows: int) -> ScriptedSource:
    """A source that is equal whenever it is asked for."""
    random = Random(16)
    records = keys * windows * RECORDS_PER_CELL
    batches = []
    for first in range(0, records, RECORDS_PER_BATCH):
        watermark_us = first * windows * MINUTE_US // records
        values = [(random.randrange(keys), VALUE) for _ in range(RECORDS_PER_BATCH)]
        times_us = [watermark_us + random.randrange(OPEN_WINDOWS * MINUTE_US) for _ in values]
        batches.append(Batch(values, times_us, watermark_us))
    return ScriptedSource(batches)


def measure(dsn: str, records: ScriptedSource, cache_bytes: int) -> Row:
    """Run the pipeline to its end, in this thread, and return the processor time that it took.

    Args:
        dsn: of the Postgres.
        records: the input.
        cache_bytes: the bound of the first grouping's state in memory, in bytes.
    """
    p = df.Pipeline()
    (
        p
        | "read" >> df.Read(records)
        | "minutes" >> MINUTES
        | "buffer" >> df.GroupByKey()
        | "size" >> df.Map(lambda pair: (pair[0] % 10, len(pair[1])))
        | "sum" >> df.CombinePerKey(sum)
    )
    # The second grouping, which has little state, has the same share.
    options = WorkerOptions(state_cache_bytes=2 * cache_bytes)
    seen: list[CacheCounts] = []
    with closing(PostgresStore(dsn)) as store:
        took = run_to_end(
            store,
            dsn,
            p,
            options,
            watched=lambda master: seen.append(master.statistics().cell_cache),
        )
    return Row(
        worker_s=took.worker_s,
        postgres_s=took.postgres_s,
        most_bytes=max(each.bytes_buffered for each in seen),
        counts=seen[-1],
    )


def show(name: str, order: str, row: Row, whole: Row) -> None:
    """A line of the table."""
    counts = row.counts
    needed = counts.hits + counts.misses
    share = counts.hits / needed if needed else 1.0
    figures = (row.both_s, row.worker_s, row.postgres_s)
    bases = (whole.both_s, whole.worker_s, whole.postgres_s)
    both, mine, theirs = (a / b for a, b in zip(figures, bases, strict=True))
    print(
        f"| {name:>5} | {order:16} | {share:6.0%} | {counts.loads:6} "
        f"| {both:5.2f} | {mine:6.2f} | {theirs:8.2f} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = harness.parser(__doc__)
    harness.add_store_options(parser, rounds=1)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--windows", type=int, default=15)
    options = parser.parse_args()
    records = source(options.keys, options.windows)

    def run(cache_bytes: int, records: ScriptedSource = records) -> Row:
        with stores.database(dsn) as empty:
            return measure(empty, records, cache_bytes)

    def best(cache_bytes: int) -> Row:
        return min((run(cache_bytes) for _ in range(options.rounds)), key=lambda row: row.both_s)

    with stores.server_at(options.dsn) as dsn:
        run(0, source(options.keys // 10, options.windows))  # to warm up
        whole = best(1 << 40)
        print(f"state: {whole.most_bytes / 1e6:.0f} MB as the cache counts it")
        print(
            f"all in memory: worker {whole.worker_s:.1f} s, Postgres {whole.postgres_s:.1f} s of CPU"
        )
        print("| cache | goes first       |   hits |  loads |  both | worker | Postgres |")
        print("| ----: | ---------------- | -----: | -----: | ----: | -----: | -------: |")
        show("all", "nothing", whole, whole)
        for part in PARTS:
            name = f"1/{round(1 / part)}" if part else "0"
            cache_bytes = int(whole.most_bytes * part)
            show(name, "needed last", best(cache_bytes), whole)
            if part:
                with patch.object(cell_cache, "needed_us", lambda *_: 0):
                    show(name, "used longest ago", best(cache_bytes), whole)


if __name__ == "__main__":
    main()
