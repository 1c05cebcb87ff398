"""A job that follows the changes of a table: ``python -m tests.changes_job SOURCE STORE JOB``, until it is killed.

Table ``orders (id, customer, amount)`` of the source becomes ``totals (customer, orders, amount)`` of the store.
"""

import sys
from collections.abc import Iterable
from typing import Any

import dataflow as df
from runners.streaming import StreamingRunner

SLOT = "orders_of_a_job"
TOTALS = {"customer": str, "orders": int, "amount": int}


def pair(row: dict[str, Any]) -> tuple[str, int]:
    return row["customer"], row["amount"]


def total(group: tuple[str, Iterable[int]]) -> dict[str, Any]:
    amounts = list(group[1])
    return {"customer": group[0], "orders": len(amounts), "amount": sum(amounts)}


def build(pipeline: df.Pipeline, source: str) -> None:
    (
        pipeline
        | df.ReadFromPostgres("orders", dsn=source, changes=True, slot=SLOT)
        | df.Map(pair)
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterProcessingTime(0.1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.GroupByKey()
        | df.Map(total)
        | df.WriteToPostgres("totals", columns=TOTALS, key=["customer"])
    )


def main() -> None:
    source, store, job = sys.argv[1:]
    runner = StreamingRunner(store=store, job=job, show_progress=False)
    pipeline = df.Pipeline(runner)
    build(pipeline, source)
    pipeline.run().wait_until_finish()


if __name__ == "__main__":
    main()
