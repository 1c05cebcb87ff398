"""Panes whose values went before them (`PassOnFn`), as panes with all of their values, wherever these went."""

from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping
from itertools import repeat
from typing import Any

import attrs

from dataflow.transforms.changelog import Change
from dataflow.views import SignedViewPart, ViewPart
from triggers.accumulation import AccumulationMode

#: By label, key and window: the values that have gone, each with its sign, by the number of the pane that they belong
#: to.
Passed = MutableMapping[tuple[str, str, Any], dict[int, list[tuple[Any, int]]]]


class IncompleteError(Exception):
    """A pane says that other values have gone before it than did."""


def whole_panes(
    label: str, mode: AccumulationMode, changes: Iterable[Change[Any]], passed: Passed
) -> Iterator[Change[Any]]:
    """Panes with all of their values, in a list.

    Args:
        label: of the grouping.
        mode: in which its panes relate.
        changes: what it has emitted and retracted, in order: values that go before, and panes.
        passed: what has gone before, which is added to.

    Raises:
        IncompleteError: a pane has not the values that it says.
    """
    for change in changes:
        key, content = change.value
        gone = passed.setdefault((label, repr(key), change.window), {})
        index = change.pane.index
        if isinstance(content, ViewPart):
            signs = content.signs if isinstance(content, SignedViewPart) else repeat(1)
            gone.setdefault(index, []).extend(zip(content.values, signs, strict=False))
            continue
        count, rest = content
        first = index if mode is AccumulationMode.DISCARDING else 0
        signed = [
            each for number in sorted(gone) if first <= number <= index for each in gone[number]
        ]
        if len(signed) != count:
            raise IncompleteError(f"{len(signed)} values have gone before a pane of {count}")
        yield attrs.evolve(change, value=(key, [*_there(signed), *rest]))


def _there(signed: Iterable[tuple[Any, int]]) -> Iterator[Any]:
    """The values that have not been retracted."""
    counts = Counter[Any]()
    plain = list[Any]()
    for value, sign in signed:
        if sign > 0:
            plain.append(value)
        else:
            counts[value] += 1
    for value in plain:
        # Which of equal ones is retracted means nothing; only those of which some are need be found again.
        if counts and counts[value] > 0:
            counts[value] -= 1
        else:
            yield value
