"""Pathway: persistence with a snapshot each second, and a file of changes for each start."""

import json
import sys
from pathlib import Path

import pathway as pw

from benchmarks.kills.feed import DISORDER_S, WINDOW_S, Settings


class Record(pw.Schema):  # type: ignore[misc]
    """A line."""

    key: str
    at: int


def main() -> None:
    """Count until it is killed."""
    settings = Settings(**json.loads(sys.argv[1]))
    records = pw.io.jsonlines.read(
        settings.files,
        schema=Record,
        mode="streaming",
        autocommit_duration_ms=200,
        name="records",
    )
    windows = records.windowby(
        records.at,
        window=pw.temporal.tumbling(duration=WINDOW_S * 1_000),
        instance=records.key,
        behavior=pw.temporal.exactly_once_behavior(DISORDER_S * 1_000),
    )
    counts = windows.reduce(
        key=pw.this._pw_instance,  # noqa: SLF001 - its names
        start_s=pw.this._pw_window_start // 1_000,  # noqa: SLF001 - as above
        count=pw.reducers.count(),
    )
    # It begins its file anew with each start.
    rows = Path(settings.rows) / f"rows-{settings.attempt}.csv"
    pw.io.csv.write(counts, str(rows))
    backend = pw.persistence.Backend.filesystem(f"{settings.scratch}/persisted")
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=1_000),
    )


if __name__ == "__main__":
    main()
