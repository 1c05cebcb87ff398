"""Rows of the flights' CSV to flights, and what happens to those that lack something.

Nothing is lost silently: a row that lacks something is a dead letter with the reason, also where
the rest of it is counted.

============================== ============== ============= ==============
A row in which                 counts in the  counts in the is a dead
...                            airport's hour aircraft's    letter
                                              session
============================== ============== ============= ==============
dep_time is NA                 as cancelled   no: not flown no: that is an
                                                            answer
tailnum is NA                  yes            no            yes
air_time is NA, though it left yes            as a leg of   yes
(it was diverted)                             no minutes
origin or the time is missing  no             no            yes
a number is malformed          no             no            yes
dep_time and dep_delay         no             no            yes
contradict each other
============================== ============== ============= ==============
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import dataflow as df
from examples.flights_data import scheduled_departure

#: The event time of a row that has none: it is a dead letter, and no window ever sees it.
NO_EVENT_TIME = datetime.min.replace(tzinfo=UTC)

Row = Mapping[str, str]

#: The extra output of `ParseFlight`: what a row lacks, and the row.
DEAD_LETTERS = df.OutputTag[tuple[str, Row]]("dead_letters")


def event_time(row: Row) -> datetime:
    """When the flight was to leave, or `NO_EVENT_TIME`."""
    try:
        return scheduled_departure(row)
    except (KeyError, ValueError, OverflowError):
        return NO_EVENT_TIME


class Flight(NamedTuple):
    """The fields of a row that the job needs; None where the row has no value."""

    origin: str
    tail: str | None
    #: None: cancelled.
    delay_minutes: int | None
    air_minutes: int | None


class ParseFlight(df.DoFn):
    """Rows to `Flight`; what is missing goes to the output `DEAD_LETTERS` as ``(reason, row)``."""

    def process(self, row: Row, /, timestamp: datetime = df.DoFn.TimestampParam) -> Iterator[Any]:
        """A flight, its dead letters, or both."""
        try:
            if timestamp == NO_EVENT_TIME:
                raise ValueError("time_hour and minute are not a time")  # noqa: TRY301 - one way out for all that is wrong with a line
            flight = parse_flight(row)
        except ValueError as error:
            yield df.TaggedOutput(DEAD_LETTERS, (str(error), row))
            return
        yield flight
        for reason in gaps(flight):
            yield df.TaggedOutput(DEAD_LETTERS, (reason, row))


def parse_flight(row: Row) -> Flight:
    """A flight from a row.

    Raises:
        ValueError: the row cannot be used at all; the message has the reason.
    """
    origin = _text(row, "origin")
    if origin is None:
        raise ValueError("origin is missing")
    flight = Flight(
        origin=origin,
        tail=_text(row, "tailnum"),
        delay_minutes=_minutes(row, "dep_delay"),
        air_minutes=_minutes(row, "air_time"),
    )
    has_left = _text(row, "dep_time") is not None
    if has_left and flight.delay_minutes is None:
        raise ValueError("dep_delay is missing, but dep_time says that the flight left")
    if not has_left and flight.delay_minutes is not None:
        raise ValueError("dep_time is missing, but dep_delay says that the flight left")
    return flight


def gaps(flight: Flight) -> Iterator[str]:
    """The reasons for dead letters whose flight is still counted: a usable flight lacks something."""
    if flight.tail is None:
        yield "tailnum is missing: counted in its hour, in no session"
    elif flight.delay_minutes is not None and flight.air_minutes is None:
        yield "air_time is missing: the leg is counted, its time in the air is not"


def _text(row: Row, name: str) -> str | None:
    text = row.get(name, "")
    return None if text in {"", "NA"} else text


def _minutes(row: Row, name: str) -> int | None:
    text = _text(row, name)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,4}", text):
        raise ValueError(f"{name} is not a number of minutes: {text!r}")
    return int(text)
