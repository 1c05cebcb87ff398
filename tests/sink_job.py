"""A stream whose sums, which are emitted early and retracted, go to another Postgres: a driver that tests may kill.

``python -m tests.sink_job CSV STORE OTHER``: the input, and the DSNs.
"""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import dataflow as df
from runners.streaming import StreamingRunner

COLUMNS = {"user": str, "start": datetime, "total": int}
WINDOW_S = 600
#: Slow enough to be killed several times.
RECORDS_PER_SECOND = 1_500


def sums(p: df.Pipeline, path: Path) -> df.PCollection[dict[str, Any]]:
    """Sums of users in ten minutes, after each third value."""
    rows = p | "read" >> df.ReadFromCsv(
        path, event_time=lambda row: float(row["time"]), max_disorder=600
    )
    return (
        rows
        | df.Map(lambda row: (row["user"], int(row["value"])))
        | df.WindowInto(
            df.FixedWindows(WINDOW_S),
            trigger=df.AfterWatermark(early=df.Repeatedly(df.AfterCount(3))),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
        | df.Map(
            lambda pair, window=df.DoFn.WindowParam: {
                "user": pair[0],
                "start": window.start,
                "total": pair[1],
            }
        )
    )


def main(path: Path, store: str, other: str) -> None:
    """Run the job "sinks" to its end."""
    runner = StreamingRunner(
        job="sinks", store=store, records_per_second=RECORDS_PER_SECOND, show_progress=False
    )
    p = df.Pipeline(runner)
    sums(p, path) | df.WriteToPostgres(
        "totals", columns=COLUMNS, key=["user", "start"], dsn=other, lanes=2
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
