"""The main job: how late flights leave, by airport and hour, and what each aircraft did in a day.

One pipeline, run in batch and as a stream, ends with the same rows:

* `flight_hours`: for each airport and hour of *scheduled* departure the flights, the cancellations,
  the mean and the longest delay.
  A flight arrives when it really left, so an hour is corrected for as long as its flights leave.
* `aircraft_sessions`: for each aircraft the runs of flights less than six hours apart: legs,
  minutes in the air, the worst delay.
  A late flight can join two sessions: both rows are retracted, and one takes their place.
* `flight_dead_letters`: every row that lacks something, with the reason; see
  `examples.flight_parsing`, which decides that.

Run it with ``python -m examples.flight_delays --help``.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

import dataflow as df
from dataflow.table import ColumnType
from examples.flight_parsing import (
    DEAD_LETTERS,
    NO_EVENT_TIME,
    Flight,
    ParseFlight,
    Row,
    event_time,
)

#: The watermark follows the newest scheduled departure at this distance.  It is a guess, as they
#: all are: three flights in a hundred leave later than that, and are late data.
MAX_DISORDER = df.duration("2 hours")
#: The longest delay of the year is 1,301 minutes, so with two days no flight is dropped.
ALLOWED_LATENESS = df.duration("2 days")
SESSION_GAP = df.duration("6 hours")


@attrs.frozen
class TableNames:
    """Where the results go."""

    hours: str = "flight_hours"
    sessions: str = "aircraft_sessions"
    dead_letters: str = "flight_dead_letters"

    @classmethod
    def with_suffix(cls, suffix: str) -> "TableNames":
        """Table names for one job alone, so that jobs can be compared side by side."""
        plain = cls()
        return cls(
            f"{plain.hours}_{suffix}",
            f"{plain.sessions}_{suffix}",
            f"{plain.dead_letters}_{suffix}",
        )


def build(p: df.Pipeline, source: Path, tables: TableNames) -> None:
    """Add the whole job to a pipeline; ``source`` is a CSV file in arrival order."""
    flights, dead_letters = (
        p
        | "read" >> df.ReadFromCsv(source, event_time=event_time, max_disorder=MAX_DISORDER)
        | "parse" >> df.ParDo(ParseFlight()).with_outputs(DEAD_LETTERS)
    )
    (
        flights
        | "by airport" >> df.Map(airport_delay)
        | "hours"
        >> df.WindowInto(
            df.FixedWindows("1 hour"),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            allowed_lateness=ALLOWED_LATENESS,
        )
        | "delays" >> df.CombinePerKey(df.TupleCombineFn(sum, sum, sum, longest))
        | "hour rows" >> df.Map(hour_row)
        | "write hours"
        >> df.WriteToPostgres(tables.hours, columns=HOUR_COLUMNS, key=("origin", "window_start"))
    )
    (
        flights
        | "by aircraft" >> df.FlatMap(aircraft_leg)
        | "sessions"
        >> df.WindowInto(
            df.Sessions(SESSION_GAP),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=ALLOWED_LATENESS,
        )
        | "legs" >> df.CombinePerKey(df.TupleCombineFn(sum, sum, max))
        | "session rows" >> df.Map(session_row)
        | "write sessions"
        >> df.WriteToPostgres(
            tables.sessions, columns=SESSION_COLUMNS, key=("tail", "window_start", "window_end")
        )
    )
    (
        dead_letters
        | "dead letter rows" >> df.Map(dead_letter_row)
        | "write dead letters"
        >> df.WriteToPostgres(tables.dead_letters, columns=DEAD_LETTER_COLUMNS)
    )


# --- airports: flights and delays by the hour --------------------------------------------------

HOUR_COLUMNS: Mapping[str, ColumnType] = {
    "origin": str,
    "window_start": datetime,
    "window_end": datetime,
    "flights": int,
    "cancelled": int,
    "mean_delay": float,
    "max_delay": int,
}


def airport_delay(flight: Flight) -> tuple[str, tuple[int, int, int, int | None]]:
    """The airport, and of the flight what is added up, and its delay: one flight, one or none cancelled, minutes.

    They are integers only: a sum of floats depends on their order, and a stream has no fixed order.
    """
    delay = flight.delay_minutes
    return flight.origin, (1, int(delay is None), delay or 0, delay)


@df.associative
def longest(delays: Iterable[int | None]) -> int | None:
    """The longest delay; None where nothing left."""
    return max((delay for delay in delays if delay is not None), default=None)


def hour_row(
    result: tuple[str, tuple[int, int, int, int | None]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, Any]:
    """A row of `HOUR_COLUMNS`; no mean and no maximum where nothing left."""
    origin, (flights, cancelled, total_minutes, max_delay) = result
    departed = flights - cancelled
    return {
        "origin": origin,
        "window_start": window.start,
        "window_end": window.end,
        "flights": flights,
        "cancelled": cancelled,
        "mean_delay": total_minutes / departed if departed else None,
        "max_delay": max_delay,
    }


# --- aircraft: sessions of legs ----------------------------------------------------------------

SESSION_COLUMNS: Mapping[str, ColumnType] = {
    "tail": str,
    "window_start": datetime,
    "window_end": datetime,
    "legs": int,
    "air_minutes": int,
    "worst_delay": int,
}


def aircraft_leg(flight: Flight) -> list[tuple[str, tuple[int, int, int]]]:
    """The aircraft, and of one leg the minutes in the air and the delay; nothing where nothing was flown."""
    if flight.tail is None or flight.delay_minutes is None:
        return []
    return [(flight.tail, (1, flight.air_minutes or 0, flight.delay_minutes))]


def session_row(
    result: tuple[str, tuple[int, int, int]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, Any]:
    """A row of `SESSION_COLUMNS`; the window ends six hours after the last leg was to leave."""
    tail, (legs, air_minutes, worst_delay) = result
    return {
        "tail": tail,
        "window_start": window.start,
        "window_end": window.end,
        "legs": legs,
        "air_minutes": air_minutes,
        "worst_delay": worst_delay,
    }


# --- dead letters ------------------------------------------------------------------------------

DEAD_LETTER_COLUMNS: Mapping[str, ColumnType] = {
    "reason": str,
    "event_time": datetime,
    "row": str,
}


def dead_letter_row(
    letter: tuple[str, Row], timestamp: datetime = df.DoFn.TimestampParam
) -> dict[str, Any]:
    """A row of `DEAD_LETTER_COLUMNS`; the same CSV row is always the same text."""
    reason, row = letter
    return {
        "reason": reason,
        "event_time": None if timestamp == NO_EVENT_TIME else timestamp,
        "row": json.dumps(row, sort_keys=True),
    }


if __name__ == "__main__":
    # Under their own names, not __main__'s: workers import what they run, and pickles name it.
    import sys

    from examples.flight_cli import main

    sys.exit(main())
