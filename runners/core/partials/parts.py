"""PartialParts: partials of which some are columns or unfolded and others are not, so that each kind stays as it is."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from runners.core.columns.partials import LabelT, PartialColumns, divided
from runners.core.partials.partial import Partial
from runners.core.partials.unfolded import UnfoldedPartials


class PartialParts(Sequence[Partial]):
    """Partials of one grouping, in parts of different kinds.

    Args:
        parts: lists, columns, and unfolded partials.
    """

    def __init__(self, parts: Sequence[Sequence[Partial]]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Partial]:
        return chain.from_iterable(self.parts)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


def parts_of(partials: Sequence[Partial]) -> Sequence[Sequence[Partial]]:
    """Partials as lists, columns, and unfolded partials."""
    return partials.parts if type(partials) is PartialParts else (partials,)


def records_in(partials: Sequence[Partial]) -> int:
    """The number of records that partials hold, where they are not folded yet; of others the number of partials."""
    return sum(
        part.records if isinstance(part, UnfoldedPartials) else len(part)
        for part in parts_of(partials)
    )


def together(several: Iterable[Sequence[Partial]]) -> Sequence[Partial]:
    """Join partials into one sequence: columns and unfolded ones stay what they are, and lists become one list."""
    parts: list[Sequence[Partial]] = []
    rows: list[Partial] = []
    for part in chain.from_iterable(map(parts_of, several)):
        if isinstance(part, PartialColumns | UnfoldedPartials):
            parts.append(part)
        else:
            rows.extend(part)
    if not parts:
        return rows
    if rows:
        parts.append(rows)
    return parts[0] if len(parts) == 1 else PartialParts(parts)


def by_label(
    partials: Sequence[Partial], label_of: Callable[[Any], LabelT]
) -> Mapping[LabelT, Sequence[Partial]]:
    """The partials grouped by the label of their key.

    Args:
        partials: of one grouping.
        label_of: returns the label of a key.
    """
    if type(partials) is list:
        return _rows_by_label(partials, label_of)
    found: dict[LabelT, list[Sequence[Partial]]] = defaultdict(list)
    for part in parts_of(partials):
        if isinstance(part, PartialColumns):
            for label, columns in divided(part, label_of):
                found[label].append(columns)
            continue
        for label, rows in _rows_by_label(part, label_of).items():
            found[label].append(rows)
    return {label: together(several) for label, several in found.items()}


def _rows_by_label(
    rows: Iterable[Partial], label_of: Callable[[Any], LabelT]
) -> Mapping[LabelT, list[Partial]]:
    found: dict[LabelT, list[Partial]] = defaultdict(list)
    for each in rows:
        found[label_of(each[0])].append(each)
    return found
