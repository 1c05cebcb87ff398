"""Calendar windows where calendars are difficult: changing clocks, midnights skipped and repeated, the ends of time."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest

import dataflow as df
from tests.strategies import CLOCK_CHANGES
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    to_timestamp_us,
)

HOUR_US = 3_600_000_000
Calendar = df.CalendarWindows


def window_at(fn: df.WindowFn, moment: datetime) -> df.Window:
    (window,) = fn.assign_windows(to_timestamp_us(moment), None)
    return window


def noon(day: str, zone: str) -> datetime:
    return datetime.fromisoformat(day).replace(hour=12, tzinfo=ZoneInfo(zone))


def dates(window: df.Window, zone: str = "UTC") -> tuple[str, str]:
    """The first dates in and after a window, which starts and ends at midnight."""
    start, end = (at.astimezone(ZoneInfo(zone)) for at in (window.start, window.end))
    assert start.time() == end.time() == datetime.min.time()
    return str(start.date()), str(end.date())


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2024-03-31", 23),
        ("Europe/Berlin", "2024-10-27", 25),
        ("Europe/Berlin", "2024-10-28", 24),
        ("America/New_York", "2024-03-10", 23),
        ("America/New_York", "2024-11-03", 25),
        ("Australia/Lord_Howe", "2024-10-06", 23.5),
        ("Australia/Lord_Howe", "2024-04-07", 24.5),
        ("Asia/Kathmandu", "2024-03-31", 24),
        ("Asia/Kathmandu", "1986-01-01", 23.75),  # +05:30 became +05:45
        ("America/Havana", "2024-03-10", 23),  # no midnight: the day begins at one o'clock
        ("America/Havana", "2024-11-03", 25),  # two midnights: it begins with the first
        ("America/Toronto", "1919-03-31", 23.5),  # clocks went from 23:30 to 00:30
        ("Pacific/Apia", "2011-12-31", 24),  # there was no 30 December
    ],
)
def test_days_are_as_long_as_by_the_clocks(zone: str, day: str, hours: float) -> None:
    window = window_at(Calendar.days(time_zone=zone), noon(day, zone))
    first = window.start.astimezone(ZoneInfo(zone))
    before = (window.start - timedelta(microseconds=1)).astimezone(ZoneInfo(zone))

    assert hours == (window.end_us - window.start_us) / HOUR_US
    assert first.date() == date.fromisoformat(day)
    assert Calendar.days(time_zone=zone).first_day(window) == first.date()
    assert before.date() < first.date()


@pytest.mark.parametrize(
    ("zone", "changing"),
    [
        *CLOCK_CHANGES,
        ("America/Havana", "2024-03-10"),
        ("America/Toronto", "1919-03-31"),
        ("Pacific/Apia", "2011-12-31"),
        ("Asia/Kathmandu", "1986-01-01"),
    ],
)
def test_minutes_around_a_change_are_in_the_window_of_their_date(zone: str, changing: str) -> None:
    """Every ten minutes of five days: the same date, the same window."""
    around = noon(changing, zone).astimezone(UTC)
    moments = [around + timedelta(minutes=10 * step) for step in range(-360, 360)]
    fn = Calendar.days(time_zone=zone)
    by_date: dict[date, set[Any]] = {}
    for moment in moments:
        local = moment.astimezone(ZoneInfo(zone)).date()
        by_date.setdefault(local, set()).add(window_at(fn, moment))

    assert all(len(windows) == 1 for windows in by_date.values())
    assert len(by_date) == len(set.union(*by_date.values()))


def test_days_agree_with_pendulum() -> None:
    """Where midnight comes once."""
    fn = Calendar.days(time_zone="Europe/Paris")
    for number in range(0, 366 * 60, 7):
        moment = pendulum.datetime(1975, 1, 1, 5, tz="Europe/Paris").add(days=number)
        window = window_at(fn, moment)

        assert moment.start_of("day") == window.start
        assert moment.add(days=1).start_of("day") == window.end


def test_weeks_start_on_the_day_asked_for() -> None:
    moment = noon("2024-02-29", "UTC")  # a Thursday

    assert dates(window_at(Calendar.weeks(time_zone="UTC"), moment)) == ("2024-02-26", "2024-03-04")
    for first_day, start in [("sunday", "2024-02-25"), ("thursday", "2024-02-29")]:
        fn = Calendar.weeks(time_zone="UTC", first_day=first_day)
        assert start == dates(window_at(fn, moment))[0]


@pytest.mark.parametrize("first_day", ["monday", "tuesday", "sunday"])
def test_weeks_may_be_counted_from_the_first_days_of_time(first_day: str) -> None:
    moment = noon("2024-02-29", "UTC")
    expected = window_at(Calendar.weeks(time_zone="UTC", first_day=first_day), moment)
    for day in range(1, 9):
        fn = Calendar.weeks(time_zone="UTC", first_day=first_day, start=date(1, 1, day))
        assert expected == window_at(fn, moment)


def test_longer_windows_are_counted_from_start() -> None:
    moment = noon("2024-02-29", "UTC")
    fortnight = Calendar.weeks(2, time_zone="UTC", start=date(2024, 2, 22))
    quarter = Calendar.months(3, time_zone="UTC")
    decade = Calendar.years(10, time_zone="UTC")
    ten_days = Calendar.days(10, time_zone="UTC", start=date(2025, 1, 1))

    assert ("2024-02-19", "2024-03-04") == dates(window_at(fortnight, moment))
    assert ("2024-01-01", "2024-04-01") == dates(window_at(quarter, moment))
    assert ("2020-01-01", "2030-01-01") == dates(window_at(decade, moment))
    assert ("2024-02-26", "2024-03-07") == dates(window_at(ten_days, moment))


def test_months_and_years_start_on_the_day_asked_for() -> None:
    salary = Calendar.months(time_zone="Europe/Berlin", start=date(2020, 1, 15))
    fiscal = Calendar.years(time_zone="Europe/London", start=date(2020, 4, 6))
    berlin = [noon(day, "Europe/Berlin") for day in ("2024-03-14", "2024-03-15")]

    assert [
        ("2024-02-15", "2024-03-15"),
        ("2024-03-15", "2024-04-15"),
    ] == [dates(window_at(salary, moment), "Europe/Berlin") for moment in berlin]
    assert ("2023-04-06", "2024-04-06") == dates(
        window_at(fiscal, noon("2024-04-05", "Europe/London")), "Europe/London"
    )


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize("make", [Calendar.days, Calendar.weeks, Calendar.months, Calendar.years])
def test_windows_end_where_time_ends(make: Any, zone: str) -> None:
    (first,) = make(time_zone=zone).assign_windows(MIN_TIMESTAMP_US, None)
    (last,) = make(time_zone=zone).assign_windows(MAX_TIMESTAMP_US - 1, None)

    assert first.start_us == MIN_TIMESTAMP_US < first.end_us
    assert last.start_us < last.end_us == MAX_TIMESTAMP_US


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Honolulu", "Etc/GMT+1"])
def test_the_first_date_of_all_begins_at_its_midnight(zone: str) -> None:
    """West of Greenwich, where the beginning of time is still the date before that."""
    midnight = datetime(1, 1, 1, tzinfo=ZoneInfo(zone))
    midnight_us = to_timestamp_us(datetime(1, 1, 1, tzinfo=UTC) - midnight.utcoffset())  # type: ignore[operator]
    days = Calendar.days(time_zone=zone)
    (before,) = days.assign_windows(midnight_us - 1, None)
    (first,) = days.assign_windows(midnight_us, None)

    assert (before.start_us, before.end_us) == (MIN_TIMESTAMP_US, midnight_us)
    assert first.start_us == midnight_us


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Calendar.days(0, time_zone="UTC"), "positive whole number of days, not 0"),
        (lambda: Calendar.weeks(-1, time_zone="UTC"), "positive whole number of weeks, not -1"),
        (lambda: Calendar.months(1.5, time_zone="UTC"), "number of months, not 1.5"),  # type: ignore[arg-type]
        (lambda: Calendar.years(True, time_zone="UTC"), "number of years, not True"),
        (lambda: Calendar.days(time_zone="Europe/Berln"), "similar ones are Europe/Berlin"),
        (lambda: Calendar.days(time_zone="../passwd"), "is not a time zone"),
        (lambda: Calendar.days(time_zone=UTC), "is not a time zone"),  # type: ignore[arg-type]
        (
            lambda: Calendar.days(time_zone="UTC", start=datetime(2024, 1, 1, tzinfo=UTC)),
            "is not a date",
        ),
        (lambda: Calendar.weeks(time_zone="UTC", first_day="Sun"), "'Sun' is not a day"),
        (
            lambda: Calendar.months(time_zone="UTC", start=date(2024, 1, 31)),
            "cannot start on day 31",
        ),
        (
            lambda: Calendar.years(time_zone="UTC", start=date(2024, 2, 29)),
            "cannot start on day 29",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(make: Any, message: str) -> None:
    with pytest.raises(df.WindowError, match=message):
        make()


def test_a_start_of_pendulum_is_a_date() -> None:
    start = pendulum.date(2024, 1, 15)

    plain = Calendar.months(time_zone="UTC", start=date(2024, 1, 15))
    given = Calendar.months(time_zone="UTC", start=start)

    assert plain == given
    # What state in a store is known by.
    assert repr(plain) == repr(given)
