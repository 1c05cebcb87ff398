"""How many examples a test tries, where that is not simply the number of the profile.

Most laws take a millisecond for an example; a run of a simulated cluster takes fifty.  And what is stated for each of
twenty window functions is tried twenty times as often.  In CI, where hypothesis draws the same examples every time,
such tests share a smaller number among their cells.  `make nightly` looks for what nobody has seen, in each cell with
all the examples of its profile.
"""

from hypothesis import settings

_PROFILE = settings.get_current_profile_name()
_EXAMPLES = settings.get_profile(_PROFILE).max_examples
#: In CI: of all the cells of a test together.
_LENGTHY, _COSTLY, _STATED = 24, 100, 1_000
#: And of each cell at least: as many as the profile dev tries, or more.
_LEAST_LENGTHY, _LEAST = 10, 20


def by_profile(*, dev: int, ci: int, nightly: int) -> int:
    """One of these, as the profile says."""
    return {"ci": ci, "nightly": nightly}.get(_PROFILE, dev)


def costly(cells: int = 1) -> settings:
    """Decorates a test whose examples take tens of milliseconds; ``cells``: how often it is parametrized."""
    return _sharing(_COSTLY, cells, _LEAST)


def lengthy(cells: int = 1) -> settings:
    """Decorates a test whose examples take a second or more; ``cells``: how often it is parametrized."""
    return _sharing(_LENGTHY, cells, _LEAST_LENGTHY)


def stated(cells: int) -> settings:
    """Decorates a law that is stated for so many things, one by one."""
    return _sharing(_STATED, cells, _LEAST)


def _sharing(total: int, cells: int, least: int) -> settings:
    share = max(least, total // cells)
    return settings(max_examples=min(_EXAMPLES, share) if _PROFILE == "ci" else _EXAMPLES)
