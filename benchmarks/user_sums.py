"""Per-minute sums by user over JSON lines, with Python functions: a stream whose records are little work."""

import json
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import dataflow as df

USERS = 10_000
#: Of event time, however many records there are.
SPAN_MS = 3_600_000
DISORDER_MS = 60_000


def write_events(path: Path, records: int) -> None:
    """Write events as JSON lines: users by Zipf's law, times in order but for a minute.

    Args:
        path: the file.
        records: how many events.
    """
    random = Random(5)
    weights = [1 / (rank + 1) for rank in range(USERS)]
    users = random.choices(range(USERS), weights, k=records)
    with path.open("w") as file:
        for number, user in enumerate(users):
            at_ms = number * SPAN_MS // records + random.randrange(DISORDER_MS)
            event = {"user": user, "at": at_ms, "value": random.randrange(1_000)}
            file.write(json.dumps(event) + "\n")


def row(pair: tuple[int, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    """One for each user and minute."""
    return {"user": pair[0], "minute": int(window.start.timestamp()), "total": pair[1]}


def pipeline(path: Path) -> df.Pipeline:
    """Sums by user and minute."""
    p = df.Pipeline()
    (
        p
        | df.ReadFromJsonLines(
            str(path),
            event_time=lambda event: event["at"] / 1_000,
            max_disorder=timedelta(milliseconds=DISORDER_MS),
        )
        | df.Map(lambda event: (event["user"], event["value"]))
        | df.WindowInto(df.FixedWindows(60))
        | df.CombinePerKey(sum)
        | df.Map(row)
        | df.WriteToPostgres("sums", columns={"user": int, "minute": int, "total": int})
    )
    return p
