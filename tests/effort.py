"""How many examples a test tries, where that is not simply the number of the profile.

Most laws take a millisecond for an example; a run of a simulated cluster takes fifty.  And what is stated for each of
twenty window functions is tried twenty times as often.  In CI, where hypothesis draws the same examples every time,
such tests share a smaller number among their cells.  `make nightly` looks for what nobody has seen, in each cell with
all the examples of its profile.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

_PROFILE = settings.get_current_profile_name()
_EXAMPLES = settings.get_profile(_PROFILE).max_examples
#: In CI: of all the cells of a test together.
_LENGTHY, _COSTLY, _STATED = 4, 8, 80
#: And of each cell at least: as many as in the daily loop, or more.
_LEAST_LENGTHY, _LEAST = 2, 3
#: In the daily loop: of each cell.
_DAILY_LENGTHY, _DAILY_COSTLY, _DAILY_STATED = 2, 2, 4


def by_profile(usual: int, *, nightly: int, ci: int | None = None) -> int:
    """One of these, by the profile; in CI mostly as many as by hand, so that a failure there is one here."""
    return {"ci": ci or usual, "nightly": nightly}.get(_PROFILE, usual)


def each_third(cells: Iterable[Any], first: int) -> list[Any]:
    """Parametrizes a test by many pipelines, of which `make test` takes a third; the others have the mark ``nightly``.

    Args:
        cells: what it is parametrized by, in an order that stays.
        first: of the third, 0 to 2; tests of one kind take different ones, so that each pipeline is in some of them.
    """
    return [
        each if index % 3 == first else pytest.param(each, marks=pytest.mark.nightly)
        for index, each in enumerate(cells)
    ]


def costly(cells: int = 1) -> settings:
    """Decorates a test whose examples take tens of milliseconds; ``cells``: how often it is parametrized."""
    return _examples(_DAILY_COSTLY, max(_LEAST, _COSTLY // cells))


def lengthy(cells: int = 1) -> settings:
    """Decorates a test whose examples take a second or more; ``cells``: how often it is parametrized."""
    return _examples(_DAILY_LENGTHY, max(_LEAST_LENGTHY, _LENGTHY // cells))


def stated(cells: int) -> settings:
    """Decorates a law that is stated for so many things, one by one."""
    return _examples(_DAILY_STATED, max(_LEAST, _STATED // cells))


def _examples(dev: int, ci: int) -> settings:
    examples = {"ci": min(_EXAMPLES, ci), "nightly": _EXAMPLES}
    return settings(max_examples=examples.get(_PROFILE, dev))
