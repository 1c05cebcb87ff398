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
from typing import Any, NamedTuple

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
    parsed = (
        p
        | "read" >> df.ReadFromCsv(source, event_time=event_time, max_disorder=MAX_DISORDER)
        | "parse" >> df.ParDo(ParseFlight()).with_outputs(DEAD_LETTERS, main="flights")
    )
    (
        parsed["flights"]
        | "by airport" >> df.Map(airport_delay)
        | "hours"
        >> df.WindowInto(
            df.FixedWindows("1 hour"),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            allowed_lateness=ALLOWED_LATENESS,
        )
        | "delays" >> df.CombinePerKey(HourDelays())
        | "hour rows" >> df.Map(hour_row)
        | "write hours"
        >> df.WriteToPostgres(tables.hours, columns=HOUR_COLUMNS, key=("origin", "window_start"))
    )
    (
        parsed["flights"]
        | "by aircraft" >> df.FlatMap(aircraft_leg)
        | "sessions"
        >> df.WindowInto(
            df.Sessions(SESSION_GAP),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=ALLOWED_LATENESS,
        )
        | "legs" >> df.CombinePerKey(SessionLegs())
        | "session rows" >> df.Map(session_row)
        | "write sessions"
        >> df.WriteToPostgres(
            tables.sessions, columns=SESSION_COLUMNS, key=("tail", "window_start", "window_end")
        )
    )
    (
        parsed[DEAD_LETTERS]
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


def airport_delay(flight: Flight) -> tuple[str, int | None]:
    """The airport, and the delay in minutes, or None for a cancelled flight."""
    return flight.origin, flight.delay_minutes


class Delays(NamedTuple):
    """Sums of delays, as integers only: a sum of floats depends on their order, and a stream has no fixed order."""

    flights: int = 0
    cancelled: int = 0
    total_minutes: int = 0
    max_minutes: int | None = None


class HourDelays(df.CombineFn):
    """Combines delays in minutes, None for a cancelled flight, into the columns of an hour."""

    def create_accumulator(self) -> Delays:
        """No flights."""
        return Delays()

    def add_input(self, accumulator: Delays, value: int | None) -> Delays:
        """One more flight."""
        flights, cancelled, total, longest = accumulator
        if value is None:
            return Delays(flights + 1, cancelled + 1, total, longest)
        return Delays(flights + 1, cancelled, total + value, _longer(longest, value))

    def merge_accumulators(self, accumulators: Iterable[Delays]) -> Delays:
        """All flights."""
        merged = Delays()
        for other in accumulators:
            merged = Delays(
                merged.flights + other.flights,
                merged.cancelled + other.cancelled,
                merged.total_minutes + other.total_minutes,
                _longer(merged.max_minutes, other.max_minutes),
            )
        return merged

    def extract_output(self, accumulator: Delays) -> dict[str, Any]:
        """No mean and no maximum where nothing left."""
        flights, cancelled, total_minutes, max_minutes = accumulator
        departed = flights - cancelled
        return {
            "flights": flights,
            "cancelled": cancelled,
            "mean_delay": total_minutes / departed if departed else None,
            "max_delay": max_minutes,
        }


def _longer(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def hour_row(
    result: tuple[str, dict[str, Any]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, Any]:
    """A row of `HOUR_COLUMNS`."""
    origin, delays = result
    return {
        "origin": origin,
        "window_start": window.start,
        "window_end": window.end,
        **delays,
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


def aircraft_leg(flight: Flight) -> list[tuple[str, tuple[int, int]]]:
    """The aircraft, and the leg's minutes in the air and delay; nothing where nothing was flown."""
    if flight.tail is None or flight.delay_minutes is None:
        return []
    return [(flight.tail, (flight.air_minutes or 0, flight.delay_minutes))]


class Legs(NamedTuple):
    """What an aircraft did; of no legs the worst delay is None."""

    legs: int = 0
    air_minutes: int = 0
    worst_delay: int | None = None


class SessionLegs(df.CombineFn):
    """Combines pairs of minutes in the air and delay, in minutes, into the columns of a session."""

    def create_accumulator(self) -> Legs:
        """No legs."""
        return Legs()

    def add_input(self, accumulator: Legs, value: tuple[int, int]) -> Legs:
        """One more leg."""
        legs, air_minutes, worst_delay = accumulator
        return Legs(legs + 1, air_minutes + value[0], _longer(worst_delay, value[1]))

    def merge_accumulators(self, accumulators: Iterable[Legs]) -> Legs:
        """All legs."""
        merged = Legs()
        for other in accumulators:
            merged = Legs(
                merged.legs + other.legs,
                merged.air_minutes + other.air_minutes,
                _longer(merged.worst_delay, other.worst_delay),
            )
        return merged

    def extract_output(self, accumulator: Legs) -> dict[str, Any]:
        """The accumulator is the output."""
        return dict(zip(Legs._fields, accumulator, strict=True))


def session_row(
    result: tuple[str, dict[str, Any]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, Any]:
    """A row of `SESSION_COLUMNS`; the window ends six hours after the last leg was to leave."""
    tail, legs = result
    return {
        "tail": tail,
        "window_start": window.start,
        "window_end": window.end,
        **legs,
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
