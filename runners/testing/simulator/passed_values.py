"""Panes whose values went before them (`PassOnFn`), as panes with all of their values, wherever these went."""

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import attrs

from dataflow.transforms.changelog import Change
from dataflow.views import ViewPart
from triggers.accumulation import AccumulationMode

#: By label, key and window: the values that have gone, by the number of the pane that they belong to.
Passed = MutableMapping[tuple[str, str, Any], dict[int, list[Any]]]


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
            gone.setdefault(index, []).extend(content.values)
            continue
        count, rest = content
        first = index if mode is AccumulationMode.DISCARDING else 0
        values = [
            each for number in sorted(gone) if first <= number <= index for each in gone[number]
        ]
        if len(values) != count:
            raise IncompleteError(f"{len(values)} values have gone before a pane of {count}")
        yield attrs.evolve(change, value=(key, [*values, *rest]))
