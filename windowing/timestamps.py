"""Instants and durations: integer microseconds inside, and standard types at the interface.

The core computes with plain integers named ``..._us``: microseconds since 1970-01-01T00:00:00 UTC, and microseconds.
Every public argument that is a time or a duration goes through `to_timestamp_us` or `to_duration_us`, which take
`datetime` (so pendulum's too), `timedelta` (likewise), plain numbers of **seconds**, and text.  Text is read by
`dataflow.times`, which registers itself here: this layer knows neither formats nor the package that reads them.

**Invariant:** every instant lies in ``[MIN_TIMESTAMP_US, MAX_TIMESTAMP_US]``, which both `datetime` and
Postgres' ``timestamptz`` can represent.

ADR-0002.  Reads no clock.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from numbers import Real

import numpy as np

from windowing.errors import no_time

#: What a user may pass for an instant: an aware datetime, text with a zone, or seconds since the epoch.
TimestampLike = datetime | float | str
#: What a user may pass for a duration: a timedelta, text, or seconds.
DurationLike = timedelta | float | str

US_PER_SECOND = 1_000_000
#: What to do about a duration of months or years.
NO_MONTHS_HINT = (
    "give weeks, days, hours, minutes or seconds; windows of months and years are "
    "df.CalendarWindows.months(...) and .years(...)"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

#: Before everything that can happen; the watermark of a source that has reported none yet.
MIN_TIMESTAMP_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
#: After everything that can happen; the watermark of a source that has ended.
MAX_TIMESTAMP_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

#: From so many floats on, an array of them is scaled and rounded faster than each.
_ARRAY_MIN = 64

#: What reads text, by what it reads.
_READERS: dict[str, Callable[[str], int]] = {}


def read_texts_with(
    *, timestamp_us: Callable[[str], int], duration_us: Callable[[str], int]
) -> None:
    """Have texts that users give as times read by these functions.

    Args:
        timestamp_us: returns microseconds since 1970, or raises `TimeError`.
        duration_us: returns microseconds, or raises `TimeError`.
    """
    _READERS.update({"a timestamp": timestamp_us, "a duration": duration_us})


def to_timestamp_us(value: TimestampLike) -> int:
    """Convert an instant that a user gave into microseconds since the epoch.

    Raises:
        TimeError: ``value`` is a datetime or a text without a time zone, not a time at all, not finite, or outside
            the years 1 to 9999.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise no_time(
                f"{value!r} has no time zone, so it names no instant",
                hint="give the zone that is meant, e.g. value.replace(tzinfo=datetime.UTC)",
            )
        # Subtracting (not .timestamp()) keeps microseconds exact and works before 1970 everywhere.
        # The base class's own operators, because pendulum's round and refuse plain timedeltas.
        instant_us = timedelta.__floordiv__(datetime.__sub__(value, _EPOCH), _MICROSECOND)
    else:
        instant_us = _scaled_us(value, "a timestamp")
    if not MIN_TIMESTAMP_US <= instant_us <= MAX_TIMESTAMP_US:
        raise no_time(
            f"{value!r} is outside the years 1 to 9999 in UTC",
            hint="plain numbers are seconds since 1970; divide milliseconds by 1,000 and "
            "microseconds by 1,000,000",
        )
    return instant_us


def to_timestamps_us(values: Sequence[TimestampLike]) -> list[int]:
    """Convert several instants as `to_timestamp_us`; much faster if all are plain numbers of one type.

    Raises:
        TimeError: as `to_timestamp_us`.
    """
    kinds = set(map(type, values))
    found: list[int] = []
    if kinds == {float} and len(values) >= _ARRAY_MIN:
        with np.errstate(over="ignore"):
            instants_us = np.rint(np.array(values) * US_PER_SECOND)
        # As Python's, whose comparison with an integer is exact; what is no number is not within the bounds either.
        lowest_us, highest_us = float(instants_us.min()), float(instants_us.max())
        if MIN_TIMESTAMP_US <= lowest_us and highest_us <= MAX_TIMESTAMP_US:
            return instants_us.astype(np.int64).tolist()  # type: ignore[no-any-return]
    elif kinds == {float} and math.isfinite(sum(values)):  # type: ignore[arg-type]
        # Seconds that are finite may be microseconds that are not.
        with suppress(OverflowError):
            found = [round(value * US_PER_SECOND) for value in values]  # type: ignore[operator, arg-type]
    elif kinds == {int}:
        found = [value * US_PER_SECOND for value in values]  # type: ignore[operator, misc]
    if found and MIN_TIMESTAMP_US <= min(found) and max(found) <= MAX_TIMESTAMP_US:
        return found
    return [to_timestamp_us(value) for value in values]


def to_duration_us(value: DurationLike) -> int:
    """Convert a duration that a user gave into microseconds.

    Raises:
        TimeError: ``value`` is not a duration, not finite, or counts calendar months or years,
            which have no fixed length.
    """
    if isinstance(value, timedelta):
        # pendulum's Interval, between two instants, has months as well, but also a fixed length.
        is_anchored = hasattr(value, "start")
        if not is_anchored and any(getattr(value, name, 0) for name in ("months", "years")):
            raise no_time(
                f"{value!r} counts months or years, which have no fixed length",
                hint=NO_MONTHS_HINT,
            )
        return timedelta.__floordiv__(value, _MICROSECOND)
    return _scaled_us(value, "a duration")


def to_datetime(timestamp_us: int) -> datetime:
    """The instant as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=timestamp_us)


def format_timestamp(timestamp_us: int) -> str:
    """The instant as ISO 8601 text; the ends of time are named in words."""
    if timestamp_us <= MIN_TIMESTAMP_US:
        return "the beginning of time"
    if timestamp_us >= MAX_TIMESTAMP_US:
        return "the end of time"
    return to_datetime(timestamp_us).isoformat()


def clamp_timestamp_us(timestamp_us: int) -> int:
    """The nearest instant in range: window bounds near the ends of time are clamped to them."""
    return min(max(timestamp_us, MIN_TIMESTAMP_US), MAX_TIMESTAMP_US)


def _scaled_us(value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value * US_PER_SECOND
    if isinstance(value, str) and _READERS:
        return _READERS[what](value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise no_time(
            f"{value!r} is not {what}",
            detail=f"its type is {type(value).__name__}",
            hint="give a datetime with a time zone, a timedelta, text, or a number of seconds",
        )
    try:
        scaled_us = float(value) * US_PER_SECOND
    except OverflowError:
        scaled_us = math.inf
    if not math.isfinite(scaled_us):
        raise no_time(f"{value!r} is not {what}", hint="give a finite number of seconds")
    return round(scaled_us)
