"""A stream whose input is a table that stands still: a driver that tests may kill.

``python -m tests.rows_job SOURCE STORE OUTPUT HOW``: the DSNs, a folder, and "snapshot" or "key-chunks".
"""

import sys

import dataflow as df
from runners.streaming import StreamingRunner

#: Slow enough to be killed several times.
RECORDS_PER_SECOND = 1_500


def main(source: str, store: str, output: str, how: str) -> None:
    """Run the job "rows" to its end."""
    runner = StreamingRunner(
        job="rows", store=store, records_per_second=RECORDS_PER_SECOND, show_progress=False
    )
    p = df.Pipeline(runner)
    (
        p
        | df.ReadFromPostgres("numbers", dsn=source, key_chunks=how == "key-chunks")
        | df.Map(lambda row: f"{row['n']}")
        | df.WriteToText(output, suffix=".txt", batching=df.Batching(max_delay_ms=100))
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
