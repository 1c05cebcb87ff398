"""The cost of a join over all time that fires at every record: orders against a table of four rows.

    python -m benchmarks.joins [--records 5000 10000 20000 40000]

Prints seconds of processor time of the direct runner, the garbage collector switched off; a join of N orders emits N
pairs.  `CoGroupByKey` emits the whole group at each pane, and a function makes the pairs of it; `Join` emits what has
changed.
"""

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import dataflow as df
from benchmarks import harness
from dataflow.testing import TestStream
from runners.direct import DirectRunner

CITIES = [(number, f"city {number}") for number in range(4)]
#: Orders that come together, as a read of a stream would have them.
BATCH_RECORDS = 100

Join = Callable[[df.PCollection[Any], df.PCollection[Any]], df.PCollection[Any]]


def by_group(orders: df.PCollection[Any], cities: df.PCollection[Any]) -> df.PCollection[Any]:
    """Join by `CoGroupByKey`, which emits the whole group at each pane."""
    groups = {"orders": orders, "cities": cities} | df.CoGroupByKey()
    return groups | "pairs" >> df.FlatMap(_pairs)


def _pairs(group: tuple[int, dict[str, list[Any]]]) -> Iterator[tuple[int, tuple[Any, Any]]]:
    key, values = group
    return ((key, (order, city)) for order in values["orders"] for city in values["cities"])


def by_difference(orders: df.PCollection[Any], cities: df.PCollection[Any]) -> df.PCollection[Any]:
    """Join by `Join`, which emits what has changed."""
    return (orders, cities) | df.Join()


def measure(join: Join, records: int) -> float:
    """Seconds of processor time for a join of so many orders."""
    left = records
    pipeline = df.Pipeline(DirectRunner(bundle_records=BATCH_RECORDS))
    stream = TestStream().add_elements(CITIES)
    for start in range(0, records, BATCH_RECORDS):
        batch = range(start, min(records, start + BATCH_RECORDS))
        stream = stream.add_elements([(number % len(CITIES), (number,)) for number in batch])
    both = (
        pipeline
        | stream
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Always(),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
    )
    orders: df.PCollection[Any] = both | "orders" >> df.Filter(
        lambda pair: isinstance(pair[1], tuple)
    )
    cities: df.PCollection[Any] = both | "cities" >> df.Filter(
        lambda pair: isinstance(pair[1], str)
    )

    def count(change: df.Change[Any]) -> None:
        nonlocal left
        left -= change.sign

    join(orders, cities) | df.ToChangelog() | df.Map(count)
    gc.collect()
    gc.disable()
    try:
        start_s = time.process_time()
        pipeline.run().wait_until_finish()
        took_s = time.process_time() - start_s
    finally:
        gc.enable()
    assert left == 0, left
    return took_s


def main() -> None:
    """Measure both for each number of records, and print the table."""
    parser = harness.parser(__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[5_000, 10_000, 20_000, 40_000])
    arguments = parser.parse_args()
    print(f"{'records':>8} {'CoGroupByKey':>14} {'Join':>8}")
    for records in arguments.records:
        groups_s, join_s = measure(by_group, records), measure(by_difference, records)
        print(f"{records:>8,} {groups_s:>12.2f} s {join_s:>6.2f} s")


if __name__ == "__main__":
    main()
