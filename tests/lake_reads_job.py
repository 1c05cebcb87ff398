"""A stream whose input is a table of Delta Lake that changes: a driver that tests may kill.

``python -m tests.lake_reads_job STORE INPUT OUTPUT``: the DSN, and the two tables.
"""

import sys
from typing import NamedTuple

import dataflow as df
from runners.streaming import StreamingRunner
from tests.lake_job import BATCHING


class Sale(NamedTuple):
    """A row of the input."""

    shop: str
    amount: int


def main(store: str, source: str, target: str) -> None:
    """Run the job "lake-reads", which has no end."""
    runner = StreamingRunner(job="lake-reads", store=store, show_progress=False)
    p = df.Pipeline(runner)
    (
        p
        | df.ReadFromDelta(source, rows=Sale, changes=True, poll=0.2)
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
        | df.Map(lambda pair: {"shop": pair[0], "total": pair[1]})
        | df.WriteToDelta(
            target, columns={"shop": str, "total": int}, key="shop", batching=BATCHING
        )
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
