"""A stream that copies Parquet files as they appear: a driver that tests may kill, and that does not end.

``python -m tests.watch_job PATTERN STORE FOLDER``: the input, the DSN, and where to.
"""

import sys
from typing import NamedTuple

import dataflow as df
from dataflow.computations import WatchFiles
from runners.streaming import StreamingRunner

COLUMNS = {"id": int, "at": int}


class Row(NamedTuple):
    """A row of the input."""

    id: int
    at: int


def main(pattern: str, store: str, folder: str) -> None:
    """Run the job "watch"."""
    runner = StreamingRunner(job="watch", store=store, show_progress=False)
    p = df.Pipeline(runner)
    read = df.ReadFromParquet(
        pattern, rows=Row, event_time="at", event_time_unit="s", max_disorder=60
    )
    (
        p
        | WatchFiles(read, poll=0.1)
        | df.Map(lambda row: {"id": row.id, "at": row.at})
        | df.WriteToParquet(folder, columns=COLUMNS, batching=df.Batching(max_delay_ms=200))
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
