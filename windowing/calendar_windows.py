"""CalendarWindows: days, weeks, months and years in the calendar of a time zone.  Dataflow Model, section 1.2.

A window starts at the first instant at which the clocks of its time zone show midnight or later, so a day with a change
of the clocks has 23, 25 or another number of hours, and a day whose midnight is skipped starts where the clocks go on.

Zones are those of `windowing.time_zones`: window bounds are state, so every process of a job must use the same ones.
pendulum is not used: it moves a skipped midnight by the whole change, and takes the second of two midnights.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Any

import attrs

from windowing.errors import WindowError
from windowing.time_zones import check_zone, zone_named
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    to_datetime,
    to_timestamp_us,
)
from windowing.window import Window
from windowing.window_fn import WindowFn

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_EPOCH = date(1970, 1, 1)
_DAY = timedelta(days=1)
#: With more window starts than this, the cache of a process drops the oldest.
_STARTS_MAX = 1 << 14


class CalendarUnit(Enum):
    """The unit of a calendar window's length; a week is seven days, a year twelve months."""

    DAYS = "days"
    MONTHS = "months"


@attrs.frozen
class CalendarWindows(WindowFn):
    """Windows of whole days, weeks, months or years in a time zone; made by the methods of those names.

    Attributes:
        unit: what a window is so many of.
        count: how many of them; positive.
        time_zone: a name of the IANA database, such as ``"Europe/Berlin"`` or ``"UTC"``.
        start: a date on which a window starts; the others are counted from it, in both directions.
    """

    unit: CalendarUnit
    count: int
    time_zone: str
    start: date

    @classmethod
    def days(cls, n: int = 1, *, time_zone: str, start: date = _EPOCH) -> "CalendarWindows":
        """Windows of ``n`` days.

        Args:
            n: the number of days.
            time_zone: a name of the IANA database.
            start: a date on which a window starts.

        Raises:
            WindowError: an argument is not allowed; the message names it.
        """
        return cls._of(CalendarUnit.DAYS, "days", n, 1, time_zone, start)

    @classmethod
    def weeks(
        cls, n: int = 1, *, time_zone: str, first_day: str = "monday", start: date = _EPOCH
    ) -> "CalendarWindows":
        """Windows of ``n`` weeks that start on a ``first_day``.

        Args:
            n: the number of weeks.
            time_zone: a name of the IANA database.
            first_day: the English name of a day of the week, in lower case.
            start: a date in a week in which a window starts.

        Raises:
            WindowError: an argument is not allowed; the message names it.
        """
        if first_day not in _WEEKDAYS:
            raise WindowError(
                f"{first_day!r} is not a day of the week",
                hint=f"it is one of {', '.join(_WEEKDAYS)}",
            )
        start = _checked_start(start)
        since_first = (start.weekday() - _WEEKDAYS.index(first_day)) % 7
        if start.toordinal() <= since_first:
            since_first -= 7  # that day would be before the year 1
        first = date.fromordinal(start.toordinal() - since_first)
        return cls._of(CalendarUnit.DAYS, "weeks", n, 7, time_zone, first)

    @classmethod
    def months(cls, n: int = 1, *, time_zone: str, start: date = _EPOCH) -> "CalendarWindows":
        """Windows of ``n`` months that start on ``start``'s day of the month, at most the 28th.

        Args:
            n: the number of months.
            time_zone: a name of the IANA database.
            start: a date on which a window starts.

        Raises:
            WindowError: an argument is not allowed; the message names it.
        """
        return cls._of(CalendarUnit.MONTHS, "months", n, 1, time_zone, start)

    @classmethod
    def years(cls, n: int = 1, *, time_zone: str, start: date = _EPOCH) -> "CalendarWindows":
        """Windows of ``n`` years that start on ``start``'s month and day, at most the 28th, as for a fiscal year.

        Args:
            n: the number of years.
            time_zone: a name of the IANA database.
            start: a date on which a window starts.

        Raises:
            WindowError: an argument is not allowed; the message names it.
        """
        return cls._of(CalendarUnit.MONTHS, "years", n, 12, time_zone, start)

    @classmethod
    def _of(
        cls, unit: CalendarUnit, name: str, n: int, each: int, time_zone: str, start: date
    ) -> "CalendarWindows":
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise WindowError(
                f"calendar windows need a positive whole number of {name}, not {n!r}",
                hint="for windows of a part of a day use df.FixedWindows",
            )
        start = _checked_start(start)
        if unit is CalendarUnit.MONTHS and start.day > 28:
            raise WindowError(
                f"windows of {name} cannot start on day {start.day} of a month",
                detail="not every month has one",
                hint="start on a day from 1 to 28",
            )
        check_zone(time_zone, WindowError)
        return cls(unit, n * each, time_zone, start)

    def first_day(self, window: Window) -> date:
        """The date on which a window starts by the clocks of its time zone: its name, in a table or on a bill.

        Args:
            window: one of these windows.
        """
        return _local_date(self.time_zone, window.start_us)

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The one window around the event time."""
        return (self._window_around(timestamp_us),)

    def assign_bundle(
        self,
        timestamps_us: Sequence[int],
        values: Sequence[Any],
    ) -> Sequence[Sequence[Window]]:
        """The one window around each event time; the calendar is read once for each window."""
        starts_us: list[int] = []
        found: list[tuple[Window]] = []
        assigned: list[tuple[Window]] = []
        start_us = end_us = 0
        for timestamp_us in timestamps_us:
            if not start_us <= timestamp_us < end_us:
                at = bisect_right(starts_us, timestamp_us)
                if not at or found[at - 1][0].end_us <= timestamp_us:
                    window = self._window_around(timestamp_us)
                    starts_us.insert(at, window.start_us)
                    found.insert(at, (window,))
                    at += 1
                shared = found[at - 1]
                start_us, end_us = shared[0]
            assigned.append(shared)
        return assigned

    def _window_around(self, timestamp_us: int) -> Window:
        number = self._number_about(_local_date(self.time_zone, timestamp_us))
        # The number may be one too many; and where clocks went back over midnight, the same date comes twice.
        while timestamp_us < self._start_us(number):
            number -= 1
        while timestamp_us >= (end_us := self._start_us(number + 1)) < MAX_TIMESTAMP_US:
            number += 1
        return Window(self._start_us(number), end_us)

    def _number_about(self, day: date) -> int:
        """The number of the window that a date is in, or of the one after it, counted from the window at ``start``."""
        if self.unit is CalendarUnit.DAYS:
            return (day - self.start).days // self.count
        months = (day.year - self.start.year) * 12 + day.month - self.start.month
        return months // self.count

    def _start_us(self, number: int) -> int:
        """The first instant of a window in microseconds, clamped to the years 1 to 9999."""
        units = number * self.count
        if self.unit is CalendarUnit.DAYS:
            ordinal = self.start.toordinal() + units
            if ordinal < 1:
                return MIN_TIMESTAMP_US
            if ordinal > date.max.toordinal():
                return MAX_TIMESTAMP_US
            return _midnight_us(self.time_zone, ordinal)
        years, month = divmod(self.start.month - 1 + units, 12)
        year = self.start.year + years
        if year < date.min.year:
            return MIN_TIMESTAMP_US
        if year > date.max.year:
            return MAX_TIMESTAMP_US
        return _midnight_us(self.time_zone, date(year, month + 1, self.start.day).toordinal())


def _checked_start(start: object) -> date:
    if not isinstance(start, date) or isinstance(start, datetime):
        raise WindowError(
            f"{start!r} is not a date on which calendar windows could start",
            detail="they start at midnight in their time zone",
            hint="give a datetime.date",
        )
    # A plain date, because that of pendulum has other arithmetic and another repr.
    return date(start.year, start.month, start.day)


def _local(time_zone: str, timestamp_us: int) -> datetime:
    """The local date and time; near the ends of time, where the year would be out of range, the minimum or maximum."""
    try:
        shown = to_datetime(timestamp_us).astimezone(zone_named(time_zone, WindowError))
    except OverflowError:
        return datetime.min if timestamp_us < 0 else datetime.max  # noqa: DTZ901 - a wall clock's
    return shown.replace(tzinfo=None)


def _local_date(time_zone: str, timestamp_us: int) -> date:
    return _local(time_zone, timestamp_us).date()


@lru_cache(_STARTS_MAX)
def _midnight_us(time_zone: str, ordinal: int) -> int:
    """The first instant, in microseconds, at which clocks show this date or a later one."""
    midnight = datetime.combine(date.fromordinal(ordinal), datetime.min.time())
    first_us = _clamped_us(midnight.replace(tzinfo=zone_named(time_zone, WindowError), fold=0))
    second_us = _clamped_us(midnight.replace(tzinfo=zone_named(time_zone, WindowError), fold=1))
    if first_us <= second_us:  # midnight comes once, or twice
        return first_us
    # Midnight is skipped: clocks show a time before it at second_us, and no longer at first_us.
    low_us, high_us = second_us, first_us
    while low_us + 1 < high_us:
        middle_us = (low_us + high_us) // 2
        if _local(time_zone, middle_us) < midnight:
            low_us = middle_us
        else:
            high_us = middle_us
    return high_us


def _clamped_us(moment: datetime) -> int:
    try:
        return to_timestamp_us(moment.astimezone(UTC))
    except OverflowError:
        return MIN_TIMESTAMP_US if moment.year == date.min.year else MAX_TIMESTAMP_US
