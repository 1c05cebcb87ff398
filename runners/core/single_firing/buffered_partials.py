"""BufferedPartials: partials of windows that are still open, columns as columns and rows as rows."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from runners.core.columns.partials import PartialColumns
from runners.core.partials.merging import PartialMerging
from runners.core.partials.partial import Partial
from runners.core.single_firing.column_windows import ColumnWindows
from runners.core.single_firing.row_windows import RowWindows
from windowing.window import Window
from windowing.window_columns import Int64s


class BufferedPartials:
    """A buffer of partials of one grouping whose windows all fire once.

    Args:
        merging: merges them.
    """

    def __init__(self, merging: PartialMerging) -> None:
        self._columns, self._rows = ColumnWindows(merging), RowWindows(merging)

    def __len__(self) -> int:
        return len(self._columns) + len(self._rows)

    @property
    def next_end_us(self) -> int:
        """The end of the window that ends first, in microseconds."""
        return min(self._columns.next_end_us, self._rows.next_end_us)

    @property
    def nbytes(self) -> int:
        """How many bytes the partials have: columns in memory, and rows where they are stored."""
        return self._columns.nbytes + self._rows.nbytes

    @property
    def stored_row_bytes(self) -> int:
        """How many bytes the rows had when that was last noted."""
        return self._rows.noted_bytes

    @property
    def is_unfoldable(self) -> bool:
        """Whether columns cannot be merged, so that their number would only grow."""
        return self._columns.is_unfoldable

    @property
    def parts(self) -> list[Sequence[Partial]]:
        """The partials, in parts of one kind."""
        return _parts(self._columns.parts, self._rows.rows)

    def hold(self, partials: Sequence[Partial], nbytes: int = 0) -> None:
        """Add partials.

        Args:
            partials: of one kind; may be changed from here on.
            nbytes: how many bytes they came in.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if isinstance(partials, PartialColumns):
            self._columns.hold(partials)
        else:
            self._rows.hold(partials, nbytes)

    def note_size(self, nbytes: int) -> None:
        """Note how many bytes all partials have where they are stored; it counts for rows, of which it is not known."""
        if len(self._rows):
            self._rows.note_size(nbytes)

    def fold(self) -> None:
        """Merge the partials into as few as possible.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        self._columns.fold()
        self._rows.fold()

    @property
    def next_column_end_us(self) -> int:
        """The end of the first window with columns, in microseconds."""
        return self._columns.next_end_us

    def column_ends_us(self, until_us: int) -> Int64s:
        """The ends of the windows of columns that end at or before an instant, all in microseconds."""
        return self._columns.ends_us(until_us)

    def row_ends_us(self, until_us: int) -> Int64s:
        """The ends of the windows of rows that end at or before an instant, one for each key, all in microseconds."""
        return self._rows.ends_us(until_us)

    def pop_rows(self, end_us: int, most: int) -> list[Partial]:
        """Remove and return the rows of some keys of windows that end at an instant.

        Args:
            end_us: the instant, in microseconds.
            most: how many keys, at most.
        """
        return self._rows.pop_part(end_us, most)

    def forget(self, key: Any, window: Window | None) -> None:
        """Forget the rows of a key and window, if there are any.

        Args:
            key: the key.
            window: the window; None, as of a cell with all windows of a key, has no rows.
        """
        if window is not None:
            self._rows.forget(key, window)

    def pop_due(self, until_us: int) -> list[Sequence[Partial]]:
        """Remove and return the partials of windows that end at or before an instant, in microseconds."""
        return _parts(self._columns.pop_due(until_us), self._rows.pop_due(until_us))

    def pop_windows(self, windows: Collection[Window]) -> list[Sequence[Partial]]:
        """Remove and return the partials of some windows."""
        return _parts(self._columns.pop_windows(windows), self._rows.pop_windows(windows))

    def pop_all(self) -> list[Sequence[Partial]]:
        """Remove and return all partials."""
        return _parts(self._columns.pop_all(), self._rows.pop_all())


def windows_of(part: Sequence[Partial]) -> Iterable[Window]:
    """The windows of partials of one kind."""
    return part.windows if isinstance(part, PartialColumns) else (each[1] for each in part)


def _parts(columns: Sequence[PartialColumns], rows: Sequence[Partial]) -> list[Sequence[Partial]]:
    return [*columns, rows] if rows else [*columns]
