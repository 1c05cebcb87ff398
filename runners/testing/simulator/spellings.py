"""Keys that can be written in several ways: whoever sees one must always see the same."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

_BERLIN, _TOKYO = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")
#: The clocks of Berlin show this twice, an hour apart.
_TWICE = datetime(2024, 10, 27, 2, 30, tzinfo=_BERLIN)
#: And never this.
_NEVER = datetime(2024, 3, 31, 2, 30, tzinfo=_BERLIN)

#: For each key of the scripts (`runners.testing.simulator.scripts.KEYS`) the ways to write one.
SPELLINGS: Sequence[Sequence[Any]] = (
    (True, 1, 1.0),
    (_TWICE, _TWICE.astimezone(UTC), _TWICE.astimezone(_TOKYO)),
    (_TWICE.replace(fold=1), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)),
    ((0, _TWICE), (False, _TWICE.astimezone(UTC)), (-0.0, _TWICE)),
    (_NEVER, _NEVER.astimezone(UTC), _NEVER.astimezone(_TOKYO)),
)


def spelled(pair: tuple[int, int]) -> tuple[Any, int]:
    """The record of a script with a key that is written in one of its ways."""
    key, number = pair
    ways = SPELLINGS[key]
    return ways[number % len(ways)], number


def as_shown(pair: tuple[Any, Any]) -> tuple[str, Any]:
    """A result with everything that a user's function can make of its key."""
    return repr(pair[0]), pair[1]
