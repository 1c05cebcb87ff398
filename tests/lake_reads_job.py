"""A stream from a table of a lake that changes to another one: a driver that tests may kill.

``python -m tests.lake_reads_job STORE PLACE CATALOGUE``: the DSN, the folder or address of the tables, and the
catalogue of Iceberg tables, as for `tests.lake_job`; an empty one: they are Delta tables.
"""

import sys
from typing import Any, NamedTuple

import dataflow as df
from runners.streaming import StreamingRunner
from tests.lake_job import BATCHING, catalog

#: Of Delta tables, in their place; and of Iceberg tables.
SALES, TOTALS = "sales", "totals"
ICEBERG_SALES, ICEBERG_TOTALS = "shop.sales", "shop.totals"
POLL_S = 0.2
COLUMNS: dict[str, Any] = {"shop": str, "total": int}


class Sale(NamedTuple):
    """A row of the input."""

    shop: str
    amount: int


def main(store: str, place: str, catalogue: str) -> None:
    """Run the job "lake-reads", which has no end."""
    runner = StreamingRunner(job="lake-reads", store=store, show_progress=False)
    p = df.Pipeline(runner)
    read: Any
    write: Any
    if catalogue:
        tables = catalog(catalogue, place)
        read = df.ReadFromIceberg(
            ICEBERG_SALES, catalog=tables, rows=Sale, changes=True, poll=POLL_S
        )
        write = df.WriteToIceberg(
            ICEBERG_TOTALS, catalog=tables, columns=COLUMNS, changelog="sign", batching=BATCHING
        )
    else:
        read = df.ReadFromDelta(f"{place}/{SALES}", rows=Sale, changes=True, poll=POLL_S)
        write = df.WriteToDelta(f"{place}/{TOTALS}", columns=COLUMNS, key="shop", batching=BATCHING)
    (
        p
        | "read" >> read
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
        | df.Map(lambda pair: {"shop": pair[0], "total": pair[1]})
        | "write" >> write
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
