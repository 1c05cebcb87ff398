"""The laws of columns, as functions that a test calls (`dataflow.testing.laws`): columns say what single rows say."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.column_combine_fn import Accumulators, ColumnCombineFn, ColumnGroups
from dataflow.columns import column_values
from dataflow.combine_fn import CombineFn, columns_of
from dataflow.errors import PipelineError
from windowing.checks import checked_columns
from windowing.errors import WindowError
from windowing.timestamps import format_timestamp
from windowing.window import Window, windows_of
from windowing.window_columns import WindowColumns
from windowing.window_fn import WindowFn, assigns_columns


def check_window_columns(
    window_fn: WindowFn, timestamps_us: Iterable[int], *, may_decline: bool = False
) -> None:
    """Check that `WindowFn.assign_columns` assigns these event times the windows that `assign_windows` does.

    All at once, in two parts, and each alone; in the same order.

    Args:
        window_fn: yours, or any other that has columns.
        timestamps_us: event times, microseconds since 1970.
        may_decline: whether it may also return None for them; else that is a failure too, because a law is not tested
            by event times for which there are no columns.

    Raises:
        AssertionError: it does not; shows an event time and its windows.
        PipelineError: the function has no columns, or a subclass has overridden what they stand for.
    """
    if not assigns_columns(window_fn):
        raise _no_columns(type(window_fn).__name__, "assign_columns", "assign_windows")
    times_us = list(timestamps_us)
    complaint = _window_complaint(window_fn, times_us, may_decline=may_decline)
    # Raised in one place only, for hypothesis takes two places for two mistakes, and shrinks each.
    if complaint:
        raise AssertionError(complaint)


def check_combine_columns(
    combine_fn: CombineFn,
    values: Iterable[Any] | pa.Array,
    *,
    by: Callable[[Any], Any] = lambda output: output,
    may_decline: bool = False,
) -> None:
    """Check that `CombineFn.columns` folds these values to what the function itself makes of them, one by one.

    However they are grouped: folded at once, or in parts that are merged as columns; where the accumulators of columns
    are merged with those of rows; and where accumulators of rows become columns.  Results are of the same type, too.

    Args:
        combine_fn: yours, or any other that has columns.
        values: what is combined, as an Arrow array or as what `pyarrow.array` makes one of.
        by: makes of a result what is compared, for example ``lambda mean: round(mean, 9)`` for floats.
        may_decline: whether it may also return None for them; else that is a failure too, because a law is not tested
            by values for which there are no columns.

    Raises:
        AssertionError: it does not; shows the values and both results.
        PipelineError: the function has no columns, or a subclass has overridden what they stand for.
    """
    columns = columns_of(combine_fn)
    if columns is None:
        raise _no_columns(type(combine_fn).__name__, "columns", "the methods for single values")
    array = values if isinstance(values, pa.Array) else pa.array(list(values))
    complaint = None
    if len(array):
        complaint = _CombineLaw(combine_fn, columns, array, by).complaint(may_decline=may_decline)
    if complaint:
        raise AssertionError(complaint)


def _no_columns(name: str, method: str, others: str) -> PipelineError:
    return PipelineError(
        f"{name} has no columns whose law could be checked",
        detail=f"its class has no {method}, or a subclass overrides {others} and not {method}",
        hint=f"define {method} in the class that defines {others}, or below it",
    )


def _window_complaint(
    window_fn: WindowFn, times_us: Sequence[int], *, may_decline: bool
) -> str | None:
    middle = len(times_us) // 2
    parts = [times_us, times_us[:middle], times_us[middle:], *([each] for each in times_us)]
    for part in filter(None, parts):
        try:
            found = checked_columns(window_fn, np.array(part, np.int64))
        except WindowError as error:
            return str(error)
        complaint = _window_difference(window_fn, part, found)
        if found is None and not may_decline:
            complaint = f"{type(window_fn).__name__}.assign_columns declines {_times(part)}"
        if complaint:
            return complaint
    return None


def _window_difference(
    window_fn: WindowFn, times_us: Sequence[int], found: WindowColumns | None
) -> str | None:
    if found is None:
        return None
    by_column: list[list[Window]] = [[] for _ in times_us]
    elements = range(len(times_us)) if found.elements is None else found.elements.tolist()
    windows = windows_of(found.starts_us.tolist(), found.ends_us.tolist())
    for element, window in zip(elements, windows, strict=True):
        by_column[element].append(window)
    for time_us, in_columns in zip(times_us, by_column, strict=True):
        alone = list(window_fn.assign_windows(time_us, None))
        if alone != in_columns or any(type(each) is not Window for each in alone):
            return (
                f"{type(window_fn).__name__}.assign_columns does not say what assign_windows says\n"
                f"  of the event time {format_timestamp(time_us)}\n  alone in {_shown(alone)}\n"
                f"  in columns in {_shown(in_columns)}, with {_times(times_us)}"
            )
    return None


class _CombineLaw:
    def __init__(
        self,
        combine_fn: CombineFn,
        columns: ColumnCombineFn,
        array: pa.Array,
        by: Callable[[Any], Any],
    ) -> None:
        self._combine_fn, self._columns, self._by = combine_fn, columns, by
        self._array, self._values = array, column_values(array)
        self._has_declined = False

    def complaint(self, *, may_decline: bool) -> str | None:
        try:
            for labels in self._groupings():
                self._check(labels)
        except AssertionError as error:
            return str(error)
        if self._has_declined and not may_decline:
            return f"{self._name} declines the values {self._values!r}"
        return None

    @property
    def _name(self) -> str:
        return f"{type(self._combine_fn).__name__}.columns"

    def _groupings(self) -> Iterator[list[int]]:
        """A label for each value, in several ways."""
        size = len(self._values)
        yield [0] * size
        yield list(range(size))
        yield [index % 2 for index in range(size)]
        yield [-(index % 3) for index in range(size)]

    def _check(self, labels: Sequence[int]) -> None:
        by_label: dict[int, list[Any]] = {}
        for label, value in zip(labels, self._values, strict=True):
            by_label.setdefault(label, []).append(value)
        names = sorted(by_label)
        expected = [self._output(self._folded(by_label[name])) for name in names]
        whole = self._lifted(0, len(labels), labels)
        if whole is not None:
            self._compare(names, expected, whole, "folded at once")
            self._check_rows(names, expected, by_label, whole)
        for cut in {1, len(labels) // 2, len(labels) - 1} - {0, len(labels)}:
            self._check_merge(names, expected, labels, cut)

    def _check_merge(
        self, names: Sequence[int], expected: Sequence[Any], labels: Sequence[int], cut: int
    ) -> None:
        first, second = self._lifted(0, cut, labels), self._lifted(cut, len(labels), labels)
        if first is None or second is None or _types(first) != _types(second):
            return
        joined = tuple(np.concatenate(each) for each in zip(first, second, strict=True))
        places = [*sorted(set(labels[:cut])), *sorted(set(labels[cut:]))]
        merged = self._columns.merge(joined, _groups(places))
        if merged is None:
            self._has_declined = True
            return
        self._compare(names, expected, merged, f"merged from the first {cut} and the others")

    def _check_rows(
        self,
        names: Sequence[int],
        expected: Sequence[Any],
        by_label: dict[int, list[Any]],
        whole: Accumulators,
    ) -> None:
        """Accumulators of columns and of rows can be mixed, and each can become the other."""
        fn, columns = self._combine_fn, self._columns
        for name, alone, row in zip(names, expected, columns.rows(whole), strict=True):
            more = by_label[name]
            twice = self._output(self._folded([*more, *more]))
            mixed = self._output(fn.merge_accumulators([row, self._folded(more)]))
            self._same(more, twice, mixed, "merged with an accumulator of single values")
            again = self._output(self._folded(more))
            self._same(more, alone, again, "folded one by one again, so it is not deterministic")
        rows = [self._folded(by_label[name]) for name in names]
        back = columns.from_rows(rows, whole)
        if back is not None:
            self._compare(names, expected, back, "made of accumulators of single values")

    def _lifted(self, start: int, end: int, labels: Sequence[int]) -> Accumulators | None:
        groups = _groups(labels[start:end])
        found = self._columns.lift(self._array.slice(start, end - start), groups)
        self._has_declined |= found is None
        assert found is None or all(len(each) == len(groups) for each in found), (
            f"{self._name}: lift returns {[len(each) for each in found or ()]} places for {len(groups)} groups"
        )
        return found

    def _compare(
        self, names: Sequence[int], expected: Sequence[Any], found: Accumulators, how: str
    ) -> None:
        results = column_values(self._columns.results(found))
        rows = [self._output(row) for row in self._columns.rows(found)]
        for outputs, kind in ((results, "result"), (rows, "row")):
            assert len(outputs) == len(names), (
                f"{self._name} has {len(outputs)} {kind}s for {len(names)} groups, {how}"
            )
            for wanted, output in zip(expected, outputs, strict=True):
                self._same(self._values, wanted, output, f"in columns, {how}, the {kind}")

    def _same(self, values: Sequence[Any], expected: Any, found: Any, how: str) -> None:
        is_same = type(expected) is type(found) and self._by(expected) == self._by(found)
        assert is_same, (
            f"{self._name} does not say what single values say\n"
            f"  values: {list(values)!r}\n  one by one: {expected!r}\n  {how}: {found!r}"
        )

    def _folded(self, values: Sequence[Any]) -> Any:
        return self._combine_fn.add_inputs(self._combine_fn.create_accumulator(), list(values))

    def _output(self, accumulator: Any) -> Any:
        return self._combine_fn.extract_output(accumulator)


def _groups(labels: Sequence[int]) -> ColumnGroups:
    found = np.array(labels, np.int64)
    order = np.argsort(found, kind="stable")
    is_new = np.ones(len(found), np.bool_)
    is_new[1:] = found[order][1:] != found[order][:-1]
    return ColumnGroups(order, np.flatnonzero(is_new))


def _types(arrays: Accumulators) -> list[np.dtype[Any]]:
    return [each.dtype for each in arrays]


def _times(times_us: Sequence[int]) -> str:
    return f"the event times {', '.join(map(format_timestamp, times_us))}"


def _shown(windows: Sequence[Window]) -> str:
    return " and ".join(map(str, windows)) or "nothing"
