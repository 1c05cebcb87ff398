"""Times at the edge: what people use becomes exact microseconds, or an error that helps."""

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import pendulum
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from tests.ids import shown
from windowing import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    Window,
    timestamps,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)
from windowing.timestamps import format_timestamp, to_timestamps_us

INSTANTS_US = st.integers(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US)
LENGTHS_US = st.integers(-(10**17), 10**17)
ZONES = st.sampled_from(
    [UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=12)), pendulum.timezone("UTC")]
)


@given(instant_us=INSTANTS_US)
def test_datetime_round_trip(instant_us: int) -> None:
    """Every instant survives as a datetime, to the microsecond."""
    assert instant_us == to_timestamp_us(to_datetime(instant_us))


@given(
    instant_us=st.integers(MIN_TIMESTAMP_US + 10**11, MAX_TIMESTAMP_US - 10**11),
    zone=st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu"]),
)
def test_pendulum_datetimes(instant_us: int, zone: str) -> None:
    """pendulum's are taken exactly, far from 1970 as well, in any zone and across DST."""
    moment = pendulum.instance(to_datetime(instant_us)).in_timezone(zone)

    assert instant_us == to_timestamp_us(moment)


@given(length_us=LENGTHS_US)
def test_durations(length_us: int) -> None:
    """timedelta and pendulum's Duration are taken exactly, negative ones too."""
    length = timedelta(microseconds=length_us)

    assert length_us == to_duration_us(length)
    assert length_us == to_duration_us(
        pendulum.duration(
            days=length.days, seconds=length.seconds, microseconds=length.microseconds
        )
    )


@given(seconds=st.integers(-62_135_596_800, 253_402_300_799))
def test_whole_seconds(seconds: int) -> None:
    """Numbers are seconds; integers are exact."""
    assert seconds * 1_000_000 == to_timestamp_us(seconds) == to_duration_us(seconds)


@given(
    values=st.one_of(
        st.lists(st.floats(-1e11, 1e13)),
        st.lists(st.floats(), min_size=1, max_size=3),
        st.lists(st.integers(-(10**11), 10**12)),
        st.lists(st.floats() | st.integers() | st.booleans() | st.none() | st.datetimes()),
        st.lists(st.datetimes(timezones=st.just(UTC)) | st.floats(-1e9, 1e9)),
    ),
    array_min=st.sampled_from([1, 64]),
)
@example(values=[1.8e302], array_min=64)
@example(values=[1.0, math.nan], array_min=64)
@example(values=[1.0, math.inf], array_min=64)
@example(values=[1.8e302, -1.8e302], array_min=64)
@example(values=[1.0, math.nan], array_min=1)
@example(values=[1.8e308, 1.0], array_min=1)
# The first instant of the year 10000, and the last before it that a float has; and halves of a microsecond.
@example(values=[253402300800.0], array_min=1)
@example(values=[math.nextafter(253402300800.0, 0)], array_min=1)
@example(values=[5e-7, 1.5e-6, 2.5e-6, -5e-7], array_min=1)
def test_many_instants_at_once(values: list[Any], array_min: int) -> None:
    """They are what each is by itself, and refused for the first that is refused."""
    expected, refusal = None, "none"
    try:
        expected = [to_timestamp_us(value) for value in values]
    except df.TimeError as error:
        refusal = error.fact
    if expected is None:
        with (
            patch.object(timestamps, "_ARRAY_MIN", array_min),
            pytest.raises(df.TimeError, match=re.escape(refusal)),
        ):
            to_timestamps_us(values)
    else:
        with patch.object(timestamps, "_ARRAY_MIN", array_min):
            found = to_timestamps_us(values)
        assert expected == found
        assert all(type(each) is int for each in found)


@pytest.mark.parametrize("value", [1.8e302, -1.8e302, Fraction(10**400), 10**400])
def test_more_seconds_than_there_are(value: Any) -> None:
    with pytest.raises(df.TimeError):
        to_timestamp_us(value)
    if not isinstance(value, int):
        with pytest.raises(df.TimeError, match="finite"):
            to_duration_us(value)


@pytest.mark.parametrize(
    ("value", "expected_us"),
    [
        (0.000001, 1),
        (-0.5, -500_000),
        (1_700_000_000.123456, 1_700_000_000_123_456),
        (Fraction(1, 4), 250_000),
    ],
)
def test_parts_of_seconds(value: Any, expected_us: int) -> None:
    assert expected_us == to_timestamp_us(value)
    assert expected_us == to_duration_us(value)


def test_the_time_between_two_pendulum_instants_is_a_duration() -> None:
    """It counts months for people, but its length is fixed."""
    between = pendulum.datetime(2024, 3, 1) - pendulum.datetime(2024, 1, 1)

    assert 60 * 86_400_000_000 == to_duration_us(between)


class _Nowhere(pendulum.tz.timezone.FixedTimezone):  # type: ignore[misc, name-defined, unused-ignore]
    def utcoffset(self, dt: Any) -> Any:
        return None


@pytest.mark.parametrize(
    "naive",
    [
        datetime(2024, 1, 1),  # noqa: DTZ001 - without a time zone, as the test says
        pendulum.naive(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=_Nowhere(0)),
    ],
    ids=["datetime", "pendulum", "zone without an offset"],
)
def test_naive_datetimes_are_refused(naive: datetime) -> None:
    with pytest.raises(df.TimeError, match="no time zone") as caught:
        to_timestamp_us(naive)

    assert "tzinfo=datetime.UTC" in caught.value.hint


@pytest.mark.parametrize(
    "calendar", [pendulum.duration(months=1), pendulum.duration(years=2, days=1)], ids=shown
)
def test_calendar_durations_are_refused(calendar: timedelta) -> None:
    """A month has no fixed length."""
    with pytest.raises(df.TimeError, match="months or years"):
        to_duration_us(calendar)


@pytest.mark.parametrize("wrong", ["12:00", None, True, [1], 1j], ids=shown)
def test_other_types_are_refused(wrong: Any) -> None:
    with pytest.raises(df.TimeError, match="is not a timestamp"):
        to_timestamp_us(wrong)
    with pytest.raises(df.TimeError, match="is not a duration"):
        to_duration_us(wrong)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_numbers_without_end_are_refused(wrong: float) -> None:
    with pytest.raises(df.TimeError):
        to_timestamp_us(wrong)
    with pytest.raises(df.TimeError):
        to_duration_us(wrong)


@pytest.mark.parametrize(
    "outside",
    [
        1_700_000_000_000,
        -(10**12),
        10**400,
        1e300,
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
    ],
    ids=lambda each: repr(each)[:30],
)
def test_instants_outside_the_calendar_are_refused(outside: Any) -> None:
    """Also milliseconds given as seconds; and years that only a zone's offset leads out of."""
    with pytest.raises(df.TimeError, match="outside the years 1 to 9999") as caught:
        to_timestamp_us(outside)

    assert "milliseconds" in caught.value.hint


def test_instants_as_text() -> None:
    assert "1970-01-01T00:00:00.000001+00:00" == format_timestamp(1)
    assert "[the beginning of time, the end of time)" == str(
        Window(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US)
    )


def test_window_bounds_as_datetimes() -> None:
    window = Window(0, 60_000_000)

    assert datetime(1970, 1, 1, tzinfo=UTC) == window.start
    assert datetime(1970, 1, 1, 0, 1, tzinfo=UTC) == window.end
