"""Phase shifts: the same for equal keys, in every process and release, and spread evenly."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import dataflow as df
from dataflow.coders import encode_key, hash_key
from windowing import phase_shifted

HOURLY = df.PhaseShiftedWindows(timedelta(hours=1))


@pytest.mark.parametrize(
    ("key", "equal"),
    [
        (1, 1.0),
        (1, True),
        (("a", 0), ("a", -0.0)),
        (
            datetime(2024, 1, 1, 12, tzinfo=UTC),
            datetime(2024, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))),
        ),
    ],
)
def test_equal_keys_are_shifted_equally(key: Any, equal: Any) -> None:
    """Each in a process that has not seen the other."""
    phase_shifted._remembered_hash.cache_clear()
    shift_us = HOURLY.shift_us(key)
    phase_shifted._remembered_hash.cache_clear()

    assert key == equal
    assert shift_us == HOURLY.shift_us(equal)


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("make", [lambda at: at, lambda at: ("a", at)])
def test_instants_of_an_hour_that_comes_twice_are_shifted_apart(make: Any, fold: int) -> None:
    """Whichever a process has seen first; Python calls them equal."""
    phase_shifted._remembered_hash.cache_clear()
    at = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    other = at.replace(fold=1 - fold)

    assert make(at) == make(other)
    for each in (at, other):
        assert HOURLY.shift_us(make(each)) == HOURLY.shift_us(make(each.astimezone(UTC)))
    assert HOURLY.shift_us(make(at)) != HOURLY.shift_us(make(other))


def test_shifts_never_change() -> None:
    """State in a store depends on them; and hash() of text is another one in every process."""
    keys = ["a", "ö", b"a", 1, 1.5, None, ("a", 1), date(2024, 1, 1)]
    seconds = [HOURLY.shift_us(key) // 1_000_000 for key in keys]

    assert [1823, 2236, 3395, 1330, 2277, 2795, 1571, 2465] == seconds


def test_shifts_are_spread_and_independent_of_key_ranges() -> None:
    """Over the whole size, also for the keys of one half of the key space."""
    keys = [f"user {number}" for number in range(2000)]
    for chosen in (keys, [key for key in keys if hash_key(encode_key(key)) < 1 << 63]):
        minutes = [HOURLY.shift_us(key) // 60_000_000 for key in chosen]
        quarters = [sum(m // 15 == number for m in minutes) for number in range(4)]

        assert min(quarters) > 0.8 * len(chosen) / 4


@pytest.mark.parametrize("element", [5, "ab", ["a", 1], ("a", 1, 2)])
def test_elements_other_than_pairs_are_refused(element: Any) -> None:
    with pytest.raises(df.WindowError, match=r"need .key, value. pairs"):
        HOURLY.assign_windows(0, element)


@pytest.mark.parametrize(
    "key",
    [["a"], ("a", ["b"]), object(), ("a", frozenset()), datetime(2024, 1, 1), {}],  # noqa: DTZ001 - without a time zone, as the test says
)
def test_keys_without_a_stable_hash_are_refused(key: Any) -> None:
    with pytest.raises(df.WindowError, match="cannot shift by the key"):
        HOURLY.assign_windows(0, (key, 1))


def test_dates_are_keys() -> None:
    assert HOURLY.shift_us(date(2024, 1, 1)) != HOURLY.shift_us(date(2024, 1, 2))
