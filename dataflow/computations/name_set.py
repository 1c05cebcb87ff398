"""NameSet: names that have been seen, kept in little room where they are numbered.

``part-0001.csv`` to ``part-9999.csv`` are one entry, whatever the order in which they come.  No name is ever taken for
another one.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable

#: Prefix, number of digits, suffix, and the numbers between them as ``first, last, first, last ...``, ascending.
NameRun = tuple[str, int, str, tuple[int, ...]]

_LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)


class NameSet:
    """A set of names that only grows."""

    def __init__(self, runs: Iterable[NameRun] = ()) -> None:
        self._bounds = {run[:3]: list(run[3]) for run in runs}

    def add(self, name: str) -> None:
        """Put a name in."""
        template, number = _split(name)
        bounds = self._bounds.setdefault(template, [])
        at = bisect_right(bounds, number)
        if at % 2 or bounds[at - 1 : at] == [number]:
            return  # it is within the bounds of an interval already
        joins_before = bounds[at - 1 : at] == [number - 1]
        joins_after = bounds[at : at + 1] == [number + 1]
        bounds[at - joins_before : at + joins_after] = [
            *([] if joins_before else [number]),
            *([] if joins_after else [number]),
        ]

    def __contains__(self, name: str) -> bool:
        template, number = _split(name)
        bounds = self._bounds.get(template, [])
        at = bisect_right(bounds, number)
        return bool(at % 2) or bounds[at - 1 : at] == [number]

    def runs(self) -> tuple[NameRun, ...]:
        """The set as plain data."""
        return tuple((*template, tuple(bounds)) for template, bounds in self._bounds.items())


def _split(name: str) -> tuple[tuple[str, int, str], int]:
    """The text around the last number of a name, with the number of its digits; and the number."""
    match = _LAST_NUMBER.fullmatch(name)
    if match is None:
        return (name, 0, ""), 0
    prefix, digits, suffix = match.groups()
    return (prefix, len(digits), suffix), int(digits)
