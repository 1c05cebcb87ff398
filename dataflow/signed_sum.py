"""The signed sum of what a collection has emitted and retracted: the elements that are left.

Dataflow Model, section 2.3.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any

from dataflow.transforms.changelog import Change


class FoldError(AssertionError):
    """The emissions and retractions of a collection do not add up."""


def signed_sum(changes: Iterable[Change[Any]]) -> list[Change[Any]]:
    """The elements that were emitted and not retracted.

    Raises:
        FoldError: something was retracted that had not been emitted.
    """
    changes = list(changes)
    emitted = Multiset(change for change in changes if change.sign > 0)
    for change in changes:
        if change.sign < 0 and not emitted.take(change):
            raise FoldError(f"retracted without having been emitted: {shown(change)}")
    return list(emitted)


class Multiset:
    """Changes by window and value; values that cannot be hashed are looked for one by one."""

    def __init__(self, changes: Iterable[Change[Any]]) -> None:
        self._found: dict[Any, list[tuple[int, Change[Any]]]] = defaultdict(list)
        for number, change in enumerate(changes):
            self._found[_place(change)].append((number, change))

    def __iter__(self) -> Iterator[Change[Any]]:
        """What is left, in the order in which it came."""
        left = sorted(chain.from_iterable(self._found.values()), key=itemgetter(0))
        return (change for _, change in left)

    def take(self, change: Change[Any]) -> bool:
        """Remove one with the window and the value of ``change``, if there is one."""
        found = self._found.get(_place(change), [])
        for index, (_, each) in enumerate(found):
            if each.value == change.value:
                del found[index]
                return True
        return False


def shown(change: Change[Any]) -> str:
    """A change in words."""
    pane = change.pane
    return f"{change.value!r} in window {change.window}, pane {pane.index} ({pane.timing.value})"


def _place(change: Change[Any]) -> Any:
    try:
        return change.window, hash(change.value)
    except TypeError:
        return change.window, None
