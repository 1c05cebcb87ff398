"""What ids of records cost, and how often the filter in front of their table is wrong.

    python -m benchmarks.record_ids [--ids 200000] [--store postgresql://...]

First the false-positive rate, measured with new ids, beside its target; then the processor time of each record in a
source's step and its commit, with ids and without, over a store in memory or the one that is named.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import attrs

import dataflow as df
from benchmarks import harness
from dataflow.record_ids import record_digest
from dataflow.source import SourceBatch
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.counts import IdCounts
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed, Store
from runners.millwheel.worker.dedup.id_filter import IdFilter
from runners.millwheel.worker.productions import note_durable, note_submitted, production_of
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.source_computation import SourceComputation
from runners.registry import open_store

RECORDS_PER_STEP = 5_000
US_PER_SECOND = 1_000_000
JOB = "benchmark of record ids"


class Numbers(df.Source):
    """Orders with ids, a thousand to a second of event time; some come again within the next two steps."""

    is_bounded = False

    def __init__(self, records: int, copies: float) -> None:
        self.records, self.copies = records, copies

    def splits(self, desired: int) -> Sequence[int]:
        """One."""
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        """From a number on."""
        return NumbersReader(self.records, self.copies)


class NumbersReader(df.SourceReader):
    """Made beforehand, so that making them is not measured."""

    def __init__(self, records: int, copies: float) -> None:
        self._batches = iter(list(self._made(records, copies)))

    def read(self, max_records: int) -> SourceBatch:
        """The next ones."""
        return next(self._batches)

    def _made(self, records: int, copies: float) -> Iterator[SourceBatch]:
        back = 2 * RECORDS_PER_STEP
        every = round(1 / copies) if copies else 0
        for start in range(0, records, RECORDS_PER_STEP):
            numbers = [
                number - back if every and number % every == 0 and number >= back else number
                for number in range(start, start + RECORDS_PER_STEP)
            ]
            yield SourceBatch(
                values=[{"id": f"order {number:012}", "amount": number} for number in numbers],
                timestamps_us=[number * 1_000 for number in numbers],
                position=start + RECORDS_PER_STEP,
                watermark_us=(start - RECORDS_PER_STEP) * 1_000,
            )


def order_id(order: Any) -> str:
    """The id of an order."""
    return str(order["id"])


@attrs.frozen
class Cost:
    """``us``: processor time of this process for each record; ``wall_us``: on the clock."""

    us: float
    wall_us: float
    counts: IdCounts


def measure(store: Store, records: int, *, copies: float, record_ids: df.RecordIds | None) -> Cost:
    """Steps of one source, each with its commit."""
    pipeline = df.Pipeline("direct")
    pipeline | "read" >> df.Read(Numbers(records, copies), record_ids=record_ids) | df.Map(order_id)
    execution = plan(pipeline.graph())
    spec = job_spec(JOB, "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    store.reset_job(JOB)
    store.open_job(spec)
    (stage,) = execution.sources()
    source = SourceComputation(JOB, execution, stage, Router(execution), store, tries=None)
    source.setup()
    for taken in store.acquire(JOB, [each.range_id for each in spec.ranges], "me").values():
        range_id = source.take(taken).range_id
    started_s, started_wall_s = time.process_time(), time.perf_counter()
    for _ in range(0, records, RECORDS_PER_STEP):
        step, _ = source.read(range_id, RECORDS_PER_STEP, now_us=0)
        assert step is not None
        sealed = step.seal()
        assert store.commit(production_of(JOB, sealed, {})) == Committed()
        note_submitted(sealed)
        note_durable(sealed)
    us = (time.process_time() - started_s) * US_PER_SECOND / records
    wall_us = (time.perf_counter() - started_wall_s) * US_PER_SECOND / records
    store.reset_job(JOB)
    return Cost(us, wall_us, source.id_counts)


def false_positives(count: int) -> None:
    """Print the rates of filters with as many ids as expected, and with many more."""
    print(f"{'expected':>10} {'held':>10} {'target':>8} {'measured':>9} {'bytes an id':>12}")
    kept = [record_digest(number) for number in range(count)]
    new = [record_digest(-number) for number in range(1, count + 1)]
    for expected, rate in itertools.product((count, count // 50), (0.1, 0.01, 0.001)):
        id_filter = IdFilter(expected, rate)
        id_filter.add([(digest, 0) for digest in kept])
        measured = len(id_filter.maybes(new)) / len(new)
        size = id_filter.size_bytes / count
        print(f"{expected:10,} {count:10,} {rate:8} {measured:9.5f} {size:12.2f}")


def costs(store: Store, count: int) -> None:
    """The costs with ids and without."""
    print(f"\n{'':28} {'us a record':>12} {'on the clock':>13} {'asked in vain':>14}")
    ids = df.RecordIds(of=order_id, slack=60)
    small = df.RecordIds(of=order_id, slack=60, expected_ids=1_000, false_positive_rate=0.1)
    for name, copies, record_ids in (
        ("without ids", 0.0, None),
        ("with ids", 0.0, ids),
        ("with ids, 1 % copies", 0.01, ids),
        ("with ids, 20 % copies", 0.2, ids),
        ("and a rate of 0.1", 0.2, small),
    ):
        cost = measure(store, count, copies=copies, record_ids=record_ids)
        in_vain = f"{cost.counts.false_positive_rate:.5f}" if record_ids else ""
        print(f"{name:28} {cost.us:12.2f} {cost.wall_us:13.2f} {in_vain:>14}")


def main() -> None:
    """Print both tables."""
    parser = harness.parser(__doc__)
    parser.add_argument("--ids", type=int, default=200_000)
    parser.add_argument("--store", help="DSN of a Postgres; without it a store in memory")
    options = parser.parse_args()
    false_positives(options.ids)
    with closing(open_store(options.store) if options.store else MemoryStore()) as store:
        costs(store, options.ids)


if __name__ == "__main__":
    main()
