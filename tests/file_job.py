"""A stream whose sums go to Parquet files: a driver that tests may kill.

``python -m tests.file_job CSV STORE FOLDER``: the input, the DSN, and where to.
"""

import sys
from datetime import datetime
from pathlib import Path

import dataflow as df
from runners.streaming import StreamingRunner
from tests.sink_job import RECORDS_PER_SECOND, WINDOW_S

COLUMNS = {"user": str, "start": datetime, "total": int}
#: Batches that are killed while they wait, and while they are written.
BATCHING = df.Batching(max_delay_ms=300, max_bytes=1 << 20, max_rows=500)


def main(path: Path, store: str, folder: str) -> None:
    """Run the job "files" to its end."""
    runner = StreamingRunner(
        job="files", store=store, records_per_second=RECORDS_PER_SECOND, show_progress=False
    )
    p = df.Pipeline(runner)
    (
        p
        | "read"
        >> df.ReadFromCsv(path, event_time=lambda row: float(row["time"]), max_disorder=600)
        | df.Map(lambda row: (row["user"], int(row["value"])))
        | df.WindowInto(df.FixedWindows(WINDOW_S))
        | df.CombinePerKey(sum)
        | df.Map(
            lambda pair, window=df.DoFn.WindowParam: {
                "user": pair[0],
                "start": window.start,
                "total": pair[1],
            }
        )
        | df.WriteToParquet(
            folder,
            columns=COLUMNS,
            naming="hour={window_start:%H}/sums",
            shards=2,
            batching=BATCHING,
        )
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
