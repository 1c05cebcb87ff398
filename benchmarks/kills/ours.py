"""Ours: the rows of ended windows, into a table without a key, so that one written twice would be there twice."""

from pathlib import Path
from typing import Any

import dataflow as df
from benchmarks.kills.feed import DISORDER_S, WINDOW_S, Settings
from dataflow.computations import WatchFiles

TABLE = "counts"


def row(total: tuple[str, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    """The row of a key and window."""
    return {"key": total[0], "start_s": int(window.start.timestamp()), "count": total[1]}


def main() -> None:
    """Count until it is killed."""
    settings = Settings.from_command_line()
    records = df.ReadFromJsonLines(
        f"{Path(settings.files)}/*.jsonl",
        event_time=lambda record: record["at"] / 1_000,
        max_disorder=DISORDER_S,
    )
    with df.Pipeline(
        "streaming", job="kills", store=settings.store, workers=2, show_progress=False
    ) as p:
        (
            p
            | WatchFiles(records, poll=0.2)
            | df.Map(lambda record: (record["key"], 1))
            | df.WindowInto(df.FixedWindows(WINDOW_S))
            | df.CombinePerKey(sum)
            | "row" >> df.Map(row)
            | df.WriteToPostgres(TABLE, columns={"key": str, "start_s": int, "count": int})
        )


if __name__ == "__main__":
    main()
