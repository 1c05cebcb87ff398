"""The main job on the direct runner: each kind of row by itself, and January against a recount."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import dataflow as df
from examples import flight_delays
from examples.flight_delays import TableNames, build
from examples.flights_data import flights_csv, scheduled_departure
from runners.direct import DirectRunner

COLUMNS = ("time_hour", "minute", "origin", "tailnum", "dep_time", "dep_delay", "air_time")
HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2013, 1, 1, tzinfo=UTC)

Rows = Sequence[Mapping[str, Any]]


@attrs.frozen(kw_only=True)
class Answer:
    """What a run left."""

    hours: Rows
    sessions: Rows
    dead_letters: Rows
    late: Rows


def run(source: Path, *, bundle_records: int = 1) -> Answer:
    pipeline = df.Pipeline(DirectRunner(bundle_records=bundle_records))
    tables = TableNames.with_suffix("test")
    build(pipeline, source, tables)
    result = pipeline.run()
    result.wait_until_finish()
    return Answer(
        hours=result.read_table(tables.hours),
        sessions=result.read_table(tables.sessions),
        dead_letters=result.read_table(tables.dead_letters),
        late=result.late_records(),
    )


def flight(hour: int, delay: int | None = 0, **fields: str) -> dict[str, str]:
    """A flight with nothing wrong, half past an hour of the first day; no delay: cancelled."""
    at = MIDNIGHT + hour * HOUR
    return {
        "time_hour": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "minute": "30",
        "origin": "JFK",
        "tailnum": "N1",
        "dep_time": "NA" if delay is None else "1200",
        "dep_delay": "NA" if delay is None else str(delay),
        "air_time": "NA" if delay is None else "100",
        **fields,
    }


def csv_of(path: Path, rows: Iterable[Mapping[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def run_rows(directory: Path, *rows: Mapping[str, str]) -> Answer:
    return run(csv_of(directory / "flights.csv", rows))


def session(start: float, end: float, legs: int, air_minutes: int, worst: int) -> dict[str, Any]:
    """A session of N1 by the hours of its first and last scheduled departure."""
    return {
        "tail": "N1",
        "window_start": MIDNIGHT + start * HOUR,
        "window_end": MIDNIGHT + (end + 6) * HOUR,
        "legs": legs,
        "air_minutes": air_minutes,
        "worst_delay": worst,
    }


def test_hour_has_its_flights_cancellations_mean_and_longest_delay(tmp_path: Path) -> None:
    answer = run_rows(tmp_path, flight(9, -4), flight(9, 11), flight(9, None), flight(9, 3))

    assert answer.hours == [
        {
            "origin": "JFK",
            "window_start": MIDNIGHT + 9 * HOUR,
            "window_end": MIDNIGHT + 10 * HOUR,
            "flights": 4,
            "cancelled": 1,
            "mean_delay": 10 / 3,
            "max_delay": 11,
        }
    ]


def test_hour_in_which_nothing_left_has_no_mean_and_no_maximum(tmp_path: Path) -> None:
    (hour,) = run_rows(tmp_path, flight(9, None)).hours

    assert (hour["flights"], hour["cancelled"]) == (1, 1)
    assert hour["mean_delay"] is None
    assert hour["max_delay"] is None


def test_airports_and_hours_are_kept_apart(tmp_path: Path) -> None:
    answer = run_rows(tmp_path, flight(9), flight(9, origin="EWR"), flight(10), flight(10))

    counted = {(row["origin"], row["window_start"].hour): row["flights"] for row in answer.hours}
    assert counted == {("JFK", 9): 1, ("EWR", 9): 1, ("JFK", 10): 2}


def test_cancelled_flight_is_not_flown_and_nothing_is_missing(tmp_path: Path) -> None:
    answer = run_rows(tmp_path, flight(9, 5), flight(11, None))

    assert answer.sessions == [session(9.5, 9.5, 1, 100, 5)]
    assert answer.dead_letters == []


@pytest.mark.parametrize("delay", [None, 20])
def test_flight_without_aircraft_is_in_its_hour_in_no_session_and_a_dead_letter(
    tmp_path: Path, delay: int | None
) -> None:
    answer = run_rows(tmp_path, flight(9, delay, tailnum="NA"))

    assert [row["flights"] for row in answer.hours] == [1]
    assert answer.sessions == []
    (letter,) = answer.dead_letters
    assert letter["reason"].startswith("tailnum is missing")


def test_diverted_flight_is_a_leg_of_no_minutes_and_a_dead_letter(tmp_path: Path) -> None:
    answer = run_rows(tmp_path, flight(9, 5), flight(10, 40, air_time="NA"))

    assert answer.sessions == [session(9.5, 10.5, 2, 100, 40)]
    (letter,) = answer.dead_letters
    assert letter["reason"].startswith("air_time is missing")
    assert letter["event_time"] == MIDNIGHT + 10.5 * HOUR


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"origin": "NA"}, "origin is missing"),
        ({"origin": ""}, "origin is missing"),
        ({"dep_delay": "1x"}, "dep_delay is not a number of minutes: '1x'"),
        ({"dep_delay": "12345"}, "dep_delay is not a number of minutes: '12345'"),
        ({"air_time": "1e9"}, "air_time is not a number of minutes: '1e9'"),
        ({"dep_delay": "NA"}, "dep_delay is missing, but dep_time says that the flight left"),
        ({"dep_time": "NA"}, "dep_time is missing, but dep_delay says that the flight left"),
        ({"minute": "x"}, "time_hour and minute are not a time"),
        ({"minute": "9" * 30}, "time_hour and minute are not a time"),
        ({"time_hour": "NA"}, "time_hour and minute are not a time"),
    ],
)
def test_unusable_row_is_counted_nowhere_and_a_dead_letter(
    tmp_path: Path, fields: dict[str, str], reason: str
) -> None:
    row = flight(9, 5) | fields
    answer = run_rows(tmp_path, row, flight(9, 5))

    assert [hour["flights"] for hour in answer.hours] == [1]
    assert answer.sessions == [session(9.5, 9.5, 1, 100, 5)]
    (letter,) = answer.dead_letters
    assert letter == {
        "reason": reason,
        "event_time": None if "time_hour" in reason else MIDNIGHT + 9.5 * HOUR,
        "row": json.dumps(row, sort_keys=True),
    }


def test_flight_behind_the_watermark_corrects_its_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = flight(9, 0), flight(20, 0, tailnum="N2"), flight(9, 660)

    (nine, _) = run_rows(tmp_path, *rows).hours
    assert (nine["flights"], nine["mean_delay"], nine["max_delay"]) == (2, 330, 660)

    # It was late indeed: without allowed lateness it is dropped, and kept as a late record.
    monkeypatch.setattr(flight_delays, "ALLOWED_LATENESS", timedelta(0))
    answer = run_rows(tmp_path, *rows)
    assert [hour["flights"] for hour in answer.hours] == [1, 1]
    assert {record["transform"] for record in answer.late} == {"delays", "legs"}


def test_late_flight_joins_two_sessions_and_their_rows_are_gone(tmp_path: Path) -> None:
    before = flight(0, 5), flight(10, 6), flight(20, 0, tailnum="N2"), flight(30, 0, tailnum="N2")
    apart = [row for row in run_rows(tmp_path, *before).sessions if row["tail"] == "N1"]
    assert apart == [session(0.5, 0.5, 1, 100, 5), session(10.5, 10.5, 1, 100, 6)]

    answer = run_rows(tmp_path, *before, flight(5, 1500))
    joined = [row for row in answer.sessions if row["tail"] == "N1"]
    assert joined == [session(0.5, 10.5, 3, 300, 1500)]
    assert answer.late == []


def test_legs_exactly_six_hours_apart_are_two_sessions(tmp_path: Path) -> None:
    assert len(run_rows(tmp_path, flight(0), flight(6)).sessions) == 2
    assert len(run_rows(tmp_path, flight(0), flight(6, minute="29")).sessions) == 1


# --- January, counted again in plain Python ---------------------------------------------------


@pytest.fixture(scope="module")
def january() -> list[dict[str, str]]:
    with flights_csv(1).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def answer() -> Answer:
    return run(flights_csv(1), bundle_records=1_000)


def counted_hours(flights: Iterable[Mapping[str, str]]) -> dict[tuple[str, datetime], Any]:
    delays: dict[tuple[str, datetime], list[str]] = defaultdict(list)
    for row in flights:
        hour = scheduled_departure(row).replace(minute=0)
        delays[row["origin"], hour].append(row["dep_delay"])
    counted = {}
    for key, values in delays.items():
        left = [int(value) for value in values if value != "NA"]
        counted[key] = (
            len(values),
            values.count("NA"),
            sum(left) / len(left) if left else None,
            max(left, default=None),
        )
    return counted


def counted_sessions(flights: Iterable[Mapping[str, str]]) -> set[tuple[Any, ...]]:
    legs: dict[str, list[tuple[datetime, int, int]]] = defaultdict(list)
    for row in flights:
        if row["dep_time"] != "NA" and row["tailnum"] != "NA":
            air_minutes = 0 if row["air_time"] == "NA" else int(row["air_time"])
            leg = (scheduled_departure(row), air_minutes, int(row["dep_delay"]))
            legs[row["tailnum"]].append(leg)
    counted = set()
    for tail, flown in legs.items():
        flown.sort()
        first = 0
        for number in range(1, len(flown) + 1):
            if number < len(flown) and flown[number][0] - flown[number - 1][0] < 6 * HOUR:
                continue
            times, air, delays = zip(*flown[first:number], strict=True)
            end = times[-1] + 6 * HOUR
            counted.add((tail, times[0], end, len(times), sum(air), max(delays)))
            first = number
    return counted


@pytest.mark.slow
def test_hours_of_january_are_those_of_a_recount(
    january: list[dict[str, str]], answer: Answer
) -> None:
    found = {
        (row["origin"], row["window_start"]): (
            row["flights"],
            row["cancelled"],
            row["mean_delay"],
            row["max_delay"],
        )
        for row in answer.hours
    }

    assert found == counted_hours(january)
    assert len(answer.hours) == len(found)
    assert all(row["window_end"] - row["window_start"] == HOUR for row in answer.hours)


@pytest.mark.slow
def test_sessions_of_january_are_those_of_a_recount(
    january: list[dict[str, str]], answer: Answer
) -> None:
    found = {tuple(row.values()) for row in answer.sessions}

    assert found == counted_sessions(january)
    assert len(answer.sessions) == len(found)


@pytest.mark.slow
def test_every_row_of_january_that_lacks_something_is_a_dead_letter(
    january: list[dict[str, str]], answer: Answer
) -> None:
    lacking = [
        row
        for row in january
        if row["tailnum"] == "NA" or (row["dep_time"] != "NA" and row["air_time"] == "NA")
    ]

    found = sorted(letter["row"] for letter in answer.dead_letters)
    assert found == sorted(json.dumps(row, sort_keys=True) for row in lacking)


@pytest.mark.slow
def test_no_flight_of_january_is_dropped(january: list[dict[str, str]], answer: Answer) -> None:
    assert answer.late == []
    assert sum(row["flights"] for row in answer.hours) == len(january)


@pytest.mark.slow
def test_no_flight_of_the_year_can_be_dropped() -> None:
    """However the input is cut into bundles: the watermark here is ahead of any real one."""
    newest, furthest_behind = datetime.min.replace(tzinfo=UTC), timedelta(0)
    with flights_csv(None).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            at = scheduled_departure(row)
            newest = max(newest, at)
            furthest_behind = max(furthest_behind, newest - at)

    # Some are late, and none is later than its window's state lives.
    assert flight_delays.MAX_DISORDER < furthest_behind
    assert furthest_behind < flight_delays.MAX_DISORDER + flight_delays.ALLOWED_LATENESS
