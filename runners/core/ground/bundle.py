"""Bundle: the unit in which elements flow, as columns (ADR 0021).

A column that would have the same value for every element is None: all in the global window, no pane, all signs +1.
Values, instants and windows may be arrays that look like lists (`dataflow.columns`).
"""

from collections.abc import Sequence
from typing import Any

import attrs

from dataflow.columns import picked
from windowing.pane import PaneInfo
from windowing.window import GLOBAL_WINDOW, Window
from windowing.window_columns import Int64s


@attrs.define
class Bundle:
    """Elements as parallel columns.

    Attributes:
        signs: +1 emits the element, -1 retracts it.
        emitted_panes: for each element the `EmittedPane` of the grouping that it comes from, where that grouping can
            retract what it emits.
    """

    values: Sequence[Any]
    timestamps_us: Sequence[int]
    windows: Sequence[Window] | None = None
    panes: Sequence[PaneInfo] | None = None
    signs: Sequence[int] | None = None
    emitted_panes: Sequence[Any] | None = None
    _kinds: frozenset[type] | None = attrs.field(default=None, init=False, eq=False, repr=False)

    @property
    def kinds(self) -> frozenset[type]:
        """The types of the values, collected when they are read for the first time."""
        if self._kinds is None:
            self._kinds = frozenset(map(type, self.values))
        return self._kinds

    def __len__(self) -> int:
        return len(self.values)

    def with_values(self, values: Sequence[Any]) -> "Bundle":
        """A bundle with other values at the same times, windows and panes."""
        return attrs.evolve(self, values=values)

    def take(
        self,
        indexes: Sequence[int] | Int64s,
        values: Sequence[Any],
        *,
        windows: Sequence[Window] | None = None,
        timestamps_us: Sequence[int] | None = None,
    ) -> "Bundle":
        """A bundle of ``values``; each has the other columns of the element at its index, except for the columns given.

        Args:
            indexes: one for each value, of the element that it comes from.
            values: of the new bundle.
            windows: of the values; None: those of the elements.
            timestamps_us: event times of the values, in microseconds; None: those of the elements.
        """
        return Bundle(
            values,
            self._times_at(indexes) if timestamps_us is None else timestamps_us,
            _picked(self.windows, indexes) if windows is None else windows,
            _picked(self.panes, indexes),
            _picked(self.signs, indexes),
            _picked(self.emitted_panes, indexes),
        )

    def _times_at(self, indexes: Sequence[int] | Int64s) -> Sequence[int]:
        """Event times at these indexes; of records that all have the same one, as of texts without a time, fast."""
        times = self.timestamps_us
        if not (type(times) is list and times and times[0] == times[-1]):
            return picked(times, indexes)
        is_one = times.count(times[0]) == len(times)
        return [times[0]] * len(indexes) if is_one else picked(times, indexes)

    def window_at(self, index: int) -> Window:
        """The window of one element."""
        return GLOBAL_WINDOW if self.windows is None else self.windows[index]


def _picked(column: Sequence[Any] | None, indexes: Sequence[int] | Int64s) -> Sequence[Any] | None:
    return None if column is None else picked(column, indexes)
