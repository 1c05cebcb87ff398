"""Keys that can be written in several ways: all user code that sees one must always see the same."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

_HOUR = timedelta(hours=1)
_SUMMER = (datetime(2024, 3, 31, 2), datetime(2024, 10, 27, 3))  # noqa: DTZ001 - what the clocks show


class _Zone(tzinfo):
    """One whose clocks are an hour ahead of UTC, and two in the summer."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        """The offset by what the clocks show; in an hour that they show twice or never by the fold (PEP 495)."""
        return _HOUR + self.dst(at)

    def dst(self, at: datetime | None) -> timedelta:
        """How much of it is because of the summer."""
        assert at is not None
        shown, (first, last) = at.replace(tzinfo=None, fold=0), _SUMMER
        if first <= shown < first + _HOUR:
            return _HOUR * at.fold
        if last - _HOUR <= shown < last:
            return _HOUR * (1 - at.fold)
        return _HOUR if first <= shown < last else timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        """Its name."""
        return "Zone"

    def __reduce__(self) -> str:
        # One object wherever it is: with two, Python would compare moments.
        return "_ZONE"


_ZONE, _EAST = _Zone(), timezone(timedelta(hours=9))
#: Its clocks show this twice, an hour apart.
_TWICE = datetime(2024, 10, 27, 2, 30, tzinfo=_ZONE)
#: And never this.
_NEVER = datetime(2024, 3, 31, 2, 30, tzinfo=_ZONE)

#: For each key of the scripts (`runners.testing.simulator.scripts.KEYS`) the ways to write one.
SPELLINGS: Sequence[Sequence[Any]] = (
    (True, 1, 1.0),
    (_TWICE, _TWICE.astimezone(UTC), _TWICE.astimezone(_EAST)),
    (_TWICE.replace(fold=1), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)),
    ((0, _TWICE), (False, _TWICE.astimezone(UTC)), (-0.0, _TWICE)),
    (_NEVER, _NEVER.astimezone(UTC), _NEVER.astimezone(_EAST)),
)


def spelled(pair: tuple[int, int]) -> tuple[Any, int]:
    """The record of a script with a key that is written in one of its ways."""
    key, number = pair
    ways = SPELLINGS[key]
    return ways[number % len(ways)], number


def as_shown(pair: tuple[Any, Any]) -> tuple[str, Any]:
    """A result with everything that a user's function can make of its key."""
    return repr(pair[0]), pair[1]
