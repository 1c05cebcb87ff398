"""Time zones by name: from the package tzdata, never from the machine.

Window bounds and event times are state, so every process of a job must use the same rules.
"""

from collections.abc import Callable
from datetime import tzinfo
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from windowing.errors import DataflowError


@lru_cache(None)
def zone_named(name: str, error: Callable[..., DataflowError]) -> tzinfo:
    """The rules of a time zone.

    Args:
        name: of the IANA database, such as ``"Europe/Berlin"``.
        error: makes the error to raise, from a fact, ``detail=`` and ``hint=``.

    Raises:
        DataflowError: there is no such zone; the one that ``error`` makes.
    """
    check_zone(name, error)
    rules = resources.files("tzdata.zoneinfo").joinpath(*name.split("/"))
    with rules.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def check_zone(name: object, error: Callable[..., DataflowError]) -> None:
    """Refuse what is not the name of a time zone.

    Args:
        name: of the zone, as the user gave it.
        error: the class of the error.

    Raises:
        DataflowError: there is no such zone; the one that ``error`` makes.
    """
    if name in _zone_names():
        return
    near = get_close_matches(str(name), _zone_names(), n=3)
    raise error(
        f"{name!r} is not a time zone",
        detail=f"similar ones are {', '.join(near)}" if near else "",
        hint='give a name of the IANA database, such as "Europe/Berlin" or "UTC"',
    )


@lru_cache(1)
def _zone_names() -> tuple[str, ...]:
    return tuple(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())
