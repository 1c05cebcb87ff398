"""Times as people write and read them: texts that become instants and durations, and ages that become words.

Wherever this SDK takes a time it takes text, because this module gives `windowing.timestamps` what reads it.
An instant is ISO 8601 text with an offset, or with the name of a zone behind it; a duration is ISO 8601 text, or words.

**Invariant:** a text means the same instant or length on every machine and at every time: zones are those of the
package tzdata, and no clock is read.  What names no instant, or has no fixed length, is refused.

pendulum is known here alone (`setup.cfg`), and imported when something needs it.  Three of its habits are kept out: it
reads ``"now"``, takes a text without a zone for UTC, and counts numbers of a duration modulo 2**32.
"""

import re
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

from windowing.errors import TimeError, no_time
from windowing.time_zones import zone_named
from windowing.timestamps import (
    NO_MONTHS_HINT,
    DurationLike,
    TimestampLike,
    read_texts_with,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)

_INSTANT_HINT = 'write it as "2024-03-31T14:30:00Z", "2024-03-31T14:30+02:00" or "2024-03-31 14:30 Europe/Paris"'
_DURATION_HINT = (
    'write it with its units: "10 minutes", "1 hour 30 minutes", "90s" or "PT90M"; '
    "or give a timedelta, or a number of seconds"
)

#: What nearly every record has; Python's own parser takes it for a hundredth of what pendulum's does.
_COMMON = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
#: A local time, and a zone as a word or in brackets (RFC 9557).
_ZONED = re.compile(r"([0-9].*[0-9Z])(?: ([A-Za-z][\w+/-]*)| ?\[([^\[\]]+)\])", re.ASCII)
_ISO_DURATION = re.compile(r"([+-]?)(P(?=.*[0-9])[0-9WYMDTHS.,]+)")
#: More digits than pendulum's parser can hold.
_TOO_MANY_DIGITS = re.compile(r"[0-9]{10}")
_PART = r"[0-9]+(?:\.[0-9]+)? ?[A-Za-zµμ]+"
_WORDS = re.compile(rf"([+-]?) ?({_PART}(?:(?:,|,? and)? ?{_PART})*)")
_NUMBER_AND_UNIT = re.compile(r"([0-9.]+) ?([A-Za-zµμ]+)")
_UNITS_US = {
    name: length_us
    for names, length_us in (
        ("us µs μs microsecond microseconds", 1),
        ("ms millisecond milliseconds", 1_000),
        ("s sec secs second seconds", 1_000_000),
        ("m min mins minute minutes", 60_000_000),
        ("h hr hrs hour hours", 3_600_000_000),
        ("d day days", 86_400_000_000),
        ("w week weeks", 604_800_000_000),
    )
    for name in names.split()
}
_CALENDAR_UNITS = frozenset(
    ["mo", "month", "months", "quarter", "quarters", "y", "yr", "yrs", "year", "years"]
)
#: Units of an exact text, in words and in ISO 8601, each in microseconds.
_WRITTEN = (
    ("day", "D", 86_400_000_000),
    ("hour", "H", 3_600_000_000),
    ("minute", "M", 60_000_000),
    ("second", "S", 1_000_000),
)


def instant(value: TimestampLike, *, time_zone: str | None = None) -> datetime:
    """An instant that somebody wrote, as a datetime in UTC; for event times in local time, and to compute with.

    Example::

        df.ReadFromCsv("visits.csv", event_time=lambda row: df.instant(row["at"], time_zone="Europe/Paris"))

    A local time that the clocks show twice is the first of the two, or, for a datetime, what its ``fold`` says; write
    its offset for the second.  One that they skip is read with the offset before the change, as in Python.  Digits
    behind the microseconds are cut off.

    Args:
        value: text, an aware datetime, or seconds since 1970.
        time_zone: the zone of a text or datetime that names none, by its name in the IANA database.

    Raises:
        TimeError: ``value`` is no instant; there is no such zone; or the offset of a text is not that of the zone
            behind it.
    """
    if isinstance(value, str):
        return to_datetime(to_timestamp_us(_moment(value, time_zone)))
    if time_zone is not None and isinstance(value, datetime) and value.utcoffset() is None:
        value = value.replace(tzinfo=zone_named(time_zone, no_time))
    return to_datetime(to_timestamp_us(value))


def duration(value: DurationLike) -> timedelta:
    """A length of time that somebody wrote.

    Args:
        value: text such as ``"10 minutes"``, ``"1h 30m"`` or ``"PT90M"``, a timedelta, or seconds.

    Raises:
        TimeError: ``value`` is no length of time, counts months or years, or is more than a timedelta holds.
    """
    try:
        return timedelta(microseconds=to_duration_us(value))
    except OverflowError:
        raise no_time(
            f"{value!r} is longer than a timedelta can be", hint="give a shorter duration"
        ) from None


def duration_text(duration_us: int) -> str:
    """A length of microseconds as ISO 8601 text, exactly: ``PT1H30M``."""
    parts = [(unit, count) for _, unit, count in _counted(duration_us)]
    days = "".join(f"{count}{unit}" for unit, count in parts if unit == "D")
    rest = "".join(f"{count}{unit}" for unit, count in parts if unit != "D")
    if not parts:
        rest = "0S"
    return f"{'-' * (duration_us < 0)}P{days}{'T' * bool(rest)}{rest}"


def in_words(duration_us: int) -> str:
    """A length of microseconds in words, exactly: ``1 hour 30 minutes``."""
    words = " ".join(
        f"{count} {name}{'' if count == '1' else 's'}" for name, _, count in _counted(duration_us)
    )
    return f"{'-' * (duration_us < 0)}{words or '0 seconds'}"


def behind(then_us: int, now_us: int) -> str:
    """How far an instant is behind another one, in words, by its largest unit: ``3 minutes behind``, or ``ahead``.

    Args:
        then_us: the moment, in microseconds since 1970.
        now_us: the clock, in microseconds since 1970.
    """
    return f"{_apart(then_us, now_us)} {'behind' if then_us <= now_us else 'ahead'}"


def ago(then_us: int, now_us: int) -> str:
    """How long ago an instant was, in words, by its largest unit: ``3 minutes ago``, or ``in 3 minutes``.

    Args:
        then_us: the moment, in microseconds since 1970.
        now_us: the clock, in microseconds since 1970.
    """
    apart = _apart(then_us, now_us)
    return f"{apart} ago" if then_us <= now_us else f"in {apart}"


def _apart(one_us: int, other_us: int) -> str:
    pendulum = _pendulum()
    first, last = (pendulum.instance(to_datetime(each)) for each in sorted((one_us, other_us)))
    words: str = pendulum.format_diff(pendulum.interval(first, last), absolute=True, locale="en")
    return words


def _counted(duration_us: int) -> list[tuple[str, str, str]]:
    """The name of each unit, its letter, and how often it is in a length; the fraction of a second is with these."""
    left_us, found = abs(duration_us), []
    for name, letter, length_us in _WRITTEN:
        count, left_us = divmod(left_us, length_us)
        text = str(count)
        if letter == "S" and left_us:
            text += f".{left_us:06}".rstrip("0")
        if text != "0":
            found.append((name, letter, text))
    return found


def _timestamp_us(text: str) -> int:
    return to_timestamp_us(_moment(text, None))


def _moment(text: str, time_zone: str | None) -> datetime:
    """The instant of a text, as an aware datetime."""
    if _COMMON.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise _no_instant(text) from None
    found = _ZONED.fullmatch(text.strip())
    local, named = (found[1], found[2] or found[3]) if found else (text.strip(), None)
    moment = _iso(local)
    if moment is None:
        raise _no_instant(text)
    if named is not None and moment.tzinfo is not None and not local.endswith("Z"):
        _check_offset(text, moment, named)
    if moment.tzinfo is None and (zone := named or time_zone) is not None:
        moment = moment.replace(tzinfo=zone_named(zone, no_time))
    if moment.tzinfo is None:
        raise no_time(
            f"{text!r} has no time zone, so it names no instant",
            hint=f'say which zone is meant, e.g. "{text}Z" for UTC, "{text} Europe/Paris", or '
            'df.instant(text, time_zone="Europe/Paris")',
        )
    return moment


def _iso(text: str) -> datetime | None:
    """A date, or date and time, of ISO 8601; naive if it has no offset, and None if it is none."""
    pendulum = _pendulum()
    if not text[:4].isdecimal() or not text.isascii():
        return None  # pendulum reads "now", too
    try:
        found = pendulum.parse(text, exact=True, tz=None)
    except (ValueError, OverflowError):
        return None
    if isinstance(found, pendulum.DateTime):
        offset = found.utcoffset()
        wall = datetime.combine(found.date(), found.time())
        return wall if offset is None else wall.replace(tzinfo=timezone(offset))
    if isinstance(found, pendulum.Date):
        return datetime(found.year, found.month, found.day)  # noqa: DTZ001 - the zone is put in later
    return None


def _check_offset(text: str, moment: datetime, named: str) -> None:
    zone = zone_named(named, no_time)
    try:
        offset = moment.astimezone(zone).utcoffset()
    except OverflowError:
        offset = None  # beyond the years 1 to 9999
    if offset != moment.utcoffset():
        raise no_time(
            f"{text!r} has an offset that is not that of {named}",
            hint="correct the offset, or leave out one of the two",
        )


def _duration_us(text: str) -> int:
    bare = text.strip()
    if found := _ISO_DURATION.fullmatch(bare):
        length_us = _iso_duration_us(text, found[2])
    elif found := _WORDS.fullmatch(bare):
        length_us = _words_us(text, found[2])
    else:
        raise _no_duration(text, "it has no unit" if _is_number(bare) else "")
    return -length_us if found[1] == "-" else length_us


def _iso_duration_us(text: str, unsigned: str) -> int:
    if _TOO_MANY_DIGITS.search(unsigned):
        raise _no_duration(text, "it has a number of more than nine digits")
    try:
        found: Any = _pendulum().parse(unsigned, exact=True, tz=None)
    except (ValueError, OverflowError):
        raise _no_duration(text) from None
    if found.years or found.months:
        raise _no_fixed_length(text)
    return to_duration_us(found)


def _words_us(text: str, unsigned: str) -> int:
    total_us = Fraction(0)
    for number, written in _NUMBER_AND_UNIT.findall(unsigned):
        # A single letter is lower case: M is a month to some.
        unit = written if len(written) == 1 else written.lower()
        if unit in _CALENDAR_UNITS:
            raise _no_fixed_length(text)
        if unit not in _UNITS_US:
            raise _no_duration(text, f"{written!r} is not a unit of time")
        total_us += Fraction(number) * _UNITS_US[unit]
    return round(total_us)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _no_instant(text: str) -> TimeError:
    return no_time(f"{text!r} is not a timestamp", hint=_INSTANT_HINT)


def _no_duration(text: str, why: str = "") -> TimeError:
    return no_time(f"{text!r} is not a duration", detail=why, hint=_DURATION_HINT)


def _no_fixed_length(text: str) -> TimeError:
    return no_time(
        f"{text!r} counts months or years, which have no fixed length", hint=NO_MONTHS_HINT
    )


def _pendulum() -> Any:
    import pendulum  # noqa: PLC0415 - a tenth of what importing this SDK takes, and most programs give numbers

    return pendulum


read_texts_with(timestamp_us=_timestamp_us, duration_us=_duration_us)
