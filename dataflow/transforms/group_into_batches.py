"""GroupIntoBatches: the values of each key in lists of a size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dataflow.do_fn import DoFn
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.serialization import dumps
from dataflow.state_handles import BagState, ReadModifyWriteState, clear_all
from dataflow.times import in_words
from dataflow.transforms.never_retracted import check_never_retracted
from dataflow.transforms.par_do import ParDo
from dataflow.type_vars import K, V
from dataflow.user_state import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerHandle,
    TimerSpec,
    on_timer,
)
from windowing.time_domain import TimeDomain
from windowing.timestamps import DurationLike, to_duration_us
from windowing.window import Window

_BATCH = BagStateSpec("batch")
_SIZE = ReadModifyWriteStateSpec("size")
_WINDOW_END = TimerSpec("window end", TimeDomain.EVENT)
_WAITED = TimerSpec("waited", TimeDomain.PROCESSING)


class GroupIntoBatches(PTransform[Any, Any]):
    """``(key, value)`` pairs to ``(key, values)``, a list for every so many values of a key and window.

    The values of a list that is not full are kept as state of their key, so a failure loses and repeats none.  They are
    emitted when the watermark reaches the end of their window (in the global window: when the input has ended), and
    what comes later is emitted at once.  Which values share a list follows the order of event times where the input
    ends by itself, and in a stream that of arrival.  A list has the event time of the value that completed it; what is
    emitted by a timer has that of the timer.

    Args:
        size: the most values in a list; positive.
        max_bytes: a list is emitted when its values have this many bytes, pickled, or more; None: any number.
        max_duration: how long, by the clock, the first value of a list waits at most; `timedelta`, text or seconds;
            None: as long as its window.  In batch the clock does not move before all input is there.

    Raises:
        PipelineError: ``size`` or ``max_bytes`` is not a positive integer, or ``max_duration`` not positive; when
            applied, the input may be retracted, or its windows may merge.
        TimeError: ``max_duration`` is not a duration.
    """

    def __init__(
        self,
        size: int,
        *,
        max_bytes: int | None = None,
        max_duration: DurationLike | None = None,
    ) -> None:
        for name, given in (("size", size), ("max_bytes", 1 if max_bytes is None else max_bytes)):
            if not isinstance(given, int) or isinstance(given, bool) or given < 1:
                raise PipelineError(
                    f"GroupIntoBatches needs a positive {name}, not {given!r}",
                    hint="size is a number of values, max_bytes one of bytes",
                )
        duration_us = None if max_duration is None else to_duration_us(max_duration)
        if duration_us is not None and duration_us <= 0:
            raise PipelineError(
                f"GroupIntoBatches needs a positive max_duration, not {in_words(duration_us)}",
                hint="leave it out to wait until the window ends",
            )
        self._fn = _BatchesFn(size, max_bytes, max_duration)

    def expand(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, list[V]]]:
        """Add the stateful DoFn."""
        check_never_retracted(
            pcoll,
            "makes lists of elements",
            "the lists that have been emitted could not be found again",
            "use df.GroupByKey(), or put df.ToChangelog() before it",
        )
        with pcoll.pipeline.without_handling():
            return pcoll | "batch" >> ParDo(self._fn)


class _BatchesFn(DoFn):
    # Documented: in a stream, lists are made in the order of arrival.
    is_made_for_arrival_order = True

    def __init__(self, size: int, max_bytes: int | None, max_duration: DurationLike | None) -> None:
        self._size, self._max_bytes, self._max_duration = size, max_bytes, max_duration

    def process(
        self,
        element: tuple[Any, Any],
        /,
        window: Window = DoFn.WindowParam,
        batch: BagState = DoFn.StateParam(_BATCH),
        size: ReadModifyWriteState = DoFn.StateParam(_SIZE),
        window_end: TimerHandle = DoFn.TimerParam(_WINDOW_END),
        waited: TimerHandle = DoFn.TimerParam(_WAITED),
    ) -> Iterator[tuple[Any, list[Any]]]:
        key, value = element
        number, bytes_so_far = size.read() or (0, 0)
        if self._max_bytes is not None:
            bytes_so_far += len(dumps(value))
        batch.add(value)
        number += 1
        if number >= self._size or bytes_so_far >= (self._max_bytes or float("inf")):
            yield key, batch.read()
            clear_all(batch, size, window_end, waited)
            return
        size.write((number, bytes_so_far))
        if number == 1:
            window_end.set(window.end)
            if self._max_duration is not None:
                waited.set_after(self._max_duration)

    @on_timer(_WINDOW_END)
    def emit_at_the_end(
        self,
        key: Any = DoFn.KeyParam,
        batch: BagState = DoFn.StateParam(_BATCH),
        size: ReadModifyWriteState = DoFn.StateParam(_SIZE),
        waited: TimerHandle = DoFn.TimerParam(_WAITED),
    ) -> Iterator[tuple[Any, list[Any]]]:
        yield key, batch.read()
        clear_all(batch, size, waited)

    @on_timer(_WAITED)
    def emit_what_has_waited(
        self,
        key: Any = DoFn.KeyParam,
        batch: BagState = DoFn.StateParam(_BATCH),
        size: ReadModifyWriteState = DoFn.StateParam(_SIZE),
        window_end: TimerHandle = DoFn.TimerParam(_WINDOW_END),
    ) -> Iterator[tuple[Any, list[Any]]]:
        yield key, batch.read()
        clear_all(batch, size, window_end)
