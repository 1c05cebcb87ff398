"""CountWindows: windows of so many elements, over a logical time of each key.

The paper's tuple-based windows: the elements of a key have the logical timestamps 0, 1, 2, ... in their order, and
windows are intervals of that time.  A window is complete when the sequence of its key has passed its end; the
watermark measures another time, and has no part in it.  Why it is a stateful DoFn and no window function: ADR 0012.

Dataflow Model, sections 1.2 and 2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dataflow.combine_fn import CombineFn, ListCombineFn, as_combine_fn
from dataflow.do_fn import DoFn
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import ParDo
from dataflow.type_vars import K, V
from dataflow.user_state import ReadModifyWriteStateSpec, TimerSpec, on_timer
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US, to_datetime

_SEQUENCE = ReadModifyWriteStateSpec("sequence")
_OPEN = ReadModifyWriteStateSpec("open windows")
_REST = TimerSpec("rest", TimeDomain.EVENT)
_END_OF_TIME = to_datetime(MAX_TIMESTAMP_US)


class CountWindows(PTransform[Any, Any]):
    """``(key, value)`` pairs to ``(key, result)`` for every so many elements of a key.

    ``CountWindows(10)``: every 10 elements.  ``CountWindows(10, period=5)``: after every 5 elements the last 10; the
    first result has only 5.  ``CountWindows(5, period=10)``: after every 10 elements the last 5; those before them are
    in no window.

    It counts in each event-time window by itself: give the days with `WindowInto`, and it counts by the day.  What is
    in windows that are not complete when the event-time window has expired (in the global window: when the input has
    ended) is emitted then, the earliest window first, unless ``emit_trailing`` is false.  A result has the event time
    of the element that completed it; what is emitted at the end has the end of the event-time window.

    Args:
        size: elements in a window; positive.
        period: elements from the end of a window to the end of the next; positive; ``size`` if not given.
        combine_fn: what a result is, as for `CombinePerKey`; the list of the values in order if not given.
        time_sorted: whether the order is that of event times, instead of arrival.  A result then waits for the
            watermark, and is the same on every runner as long as nothing is late.  By default it is where the input
            ends by itself; in batch it is in any case.
        emit_leading: whether windows that begin before the first element are emitted, which have fewer than ``size``.
        emit_trailing: whether windows that are not complete at the end are emitted.  Without it what is in them alone
            is in no result.

    Raises:
        PipelineError: ``size`` or ``period`` is not a positive integer; when applied, the input may be retracted, or
            its windows may merge.
    """

    def __init__(
        self,
        size: int,
        *,
        period: int | None = None,
        combine_fn: CombineFn | Callable[[list[Any]], Any] | None = None,
        time_sorted: bool | None = None,
        emit_leading: bool = True,
        emit_trailing: bool = True,
    ) -> None:
        for name, given in (("size", size), ("period", size if period is None else period)):
            if not isinstance(given, int) or isinstance(given, bool) or given < 1:
                raise PipelineError(
                    f"count windows need a positive {name}, not {given!r}",
                    hint="it is a number of elements",
                )
        combined = ListCombineFn() if combine_fn is None else as_combine_fn(combine_fn)
        self._fn = _CountWindowsDoFn(size, size if period is None else period, combined)
        self._fn.emit_leading, self._fn.emit_trailing = emit_leading, emit_trailing
        self._fn.requires_time_sorted_input = time_sorted

    def expand(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, Any]]:
        """Add the stateful DoFn.

        Raises:
            PipelineError: the input may be retracted.
        """
        if pcoll.node.retracted_by:
            raise PipelineError(
                f"{pcoll.pipeline.here()} counts elements, and its input may be retracted by "
                f"{pcoll.node.retracted_by}",
                detail="without an element all windows of its key after it would be others",
                hint="set that grouping's accumulation_mode to ACCUMULATING or DISCARDING; or count "
                "changes, with df.ToChangelog() before it",
            )
        return pcoll | "count" >> ParDo(self._fn)


class _CountWindowsDoFn(DoFn):
    """Keeps the windows that are open: their accumulators by their ends.

    Windows are ``[end - size, end)`` of logical time, for each ``end`` that is a multiple of the period.
    """

    emit_leading = emit_trailing = True

    def __init__(self, size: int, period: int, combine_fn: CombineFn) -> None:
        self._size, self._period, self._combine_fn = size, period, combine_fn

    def process(
        self,
        element: tuple[Any, Any],
        /,
        sequence: Any = DoFn.StateParam(_SEQUENCE),
        opened: Any = DoFn.StateParam(_OPEN),
        rest: Any = DoFn.TimerParam(_REST),
    ) -> Iterator[tuple[Any, Any]]:
        key, value = element
        number: int = sequence.read() or 0
        windows: dict[int, Any] = opened.read() or {}
        for end in self._ends_of_windows_around(number):
            if end not in windows:
                windows[end] = self._combine_fn.create_accumulator()
            windows[end] = self._combine_fn.add_input(windows[end], value)
        number += 1
        if number in windows:
            yield key, self._combine_fn.extract_output(windows.pop(number))
        if not windows and number % self._period == 0:
            # From here on all state is as it was in the beginning, so nothing has to be kept.
            sequence.clear()
            opened.clear()
            rest.clear()
        else:
            sequence.write(number)
            opened.write(windows)
            if self.emit_trailing:
                rest.set(_END_OF_TIME)  # fires when the window expires

    @on_timer(_REST)
    def emit_the_rest(
        self, key: Any = DoFn.KeyParam, opened: Any = DoFn.StateParam(_OPEN)
    ) -> Iterator[tuple[Any, Any]]:
        """Emit the windows that will not be complete any more, the earliest first."""
        for _, accumulator in sorted(opened.read().items(), key=lambda each: each[0]):
            yield key, self._combine_fn.extract_output(accumulator)

    def _ends_of_windows_around(self, number: int) -> range:
        next_end = (number // self._period + 1) * self._period
        if not self.emit_leading:
            next_end = max(next_end, -(-self._size // self._period) * self._period)
        return range(next_end, number + self._size + 1, self._period)
