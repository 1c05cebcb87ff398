"""A stream whose input is a streaming data source of Spark: a driver that tests may kill.

``python -m tests.spark_numbers_job FOLDER KIND STORE OUTPUT``: of `tests.spark_numbers`; the DSN; and a folder.
"""

import sys
from typing import NamedTuple

import dataflow as df
from runners.streaming import StreamingRunner
from tests.spark_numbers import GrowingNumbers


class Number(NamedTuple):
    """A row of the input."""

    number: int


def main(folder: str, kind: str, store: str, output: str) -> None:
    """Run the job "numbers", which has no end."""
    runner = StreamingRunner(job="numbers", store=store, show_progress=False)
    p = df.Pipeline(runner)
    options = {"folder": folder, "kind": kind}
    (
        p
        | df.ReadFromSparkDataSource(
            GrowingNumbers,
            options,
            rows=Number,
            event_time=lambda row: 1_000_000 + row.number,
            stream=True,
        )
        | df.Map(lambda row: f"{row.number}")
        | df.WriteToText(output, suffix=".txt", batching=df.Batching(max_delay_ms=100))
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
