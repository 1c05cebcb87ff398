"""Checks of a grouping when it is added: can its panes ever be emitted, and can any of its input be lost?

**Refused:** a trigger that waits for the end of a window that has none, because its input has none and the window is
all of time.  Nothing would ever be emitted (the paper's 2.2 and 2.3; Beam calls it an "unsafe trigger").

Likewise one that waits for the end of its window behind a grouping over all of time whose panes have the event times of
records and may be retracted at any time: the watermark stays behind the first of them for ever (ADR 0035).
Windows of event time over elements whose event times nobody gives: all would be in one window, in the year 1.

**Warned of**, as a `DataLossWarning`:

* The same window and a trigger that fires, but not for ever: what comes after its last pane is kept, and never
  emitted.  Only warned of, because it can be intended: "one pane, when ten elements have come".
* Late panes, or times that a transform sets back, for which this grouping allows too little lateness: a `WindowInto`
  after them begins again with an allowed lateness of zero.

**Not warned of**, because nothing is lost by it, or because every user would have to silence it:

* Input that may be late, and an allowed lateness of zero.  That is the most ordinary pipeline there is, in Beam too;
  what is dropped is counted and kept as rows, so the run reports it when it happens (`PipelineResult.late_counts`).
* A trigger that finishes before its window expires, and `AfterWatermark` without ``late``.
  In a window that ends, what comes afterwards is emitted when the window expires, at a moment that is known (ADR 0010).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import attrs

from dataflow.do_fn import CallableDoFn, Shape
from dataflow.errors import DataLossWarning, PipelineError
from dataflow.graph import (
    AssignWindows,
    Group,
    KeyedOperation,
    ParDo,
    PipelineGraph,
    Read,
    StatefulParDo,
    TransformNode,
)
from dataflow.pipeline import PCollection
from dataflow.times import duration_text, in_words
from dataflow.upstream import nearest, nearest_if
from triggers.timestamp_combiner import TimestampCombiner
from triggers.trigger import EarlyFirings
from triggers.windowing_strategy import WindowingStrategy
from windowing.global_windows import GlobalWindows
from windowing.location import user_stacklevel
from windowing.sessions import Sessions
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window_fn import WindowFn

#: The hint where elements have no event time.
TIMES_HINT = (
    "give the elements event times: event_time=... of the read, df.WithTimestamps before the WindowInto, or a "
    "df.TimestampedValue; one window for everything is df.GlobalWindows()"
)


def check_grouping(pcoll: PCollection[Any]) -> None:
    """Check the grouping that is about to be added to a collection.

    Raises:
        PipelineError: it would never emit anything.
    """
    graph = pcoll.pipeline.graph()
    here, strategy = pcoll.pipeline.here(), pcoll.node.strategy
    if not pcoll.is_bounded:
        _check_that_panes_come(graph, pcoll.node.id, strategy, here)
        _check_that_the_watermark_comes(graph, pcoll.node.id, strategy, here)
    _check_that_late_panes_are_taken(graph, pcoll.node.id, strategy, here)


def check_event_times(pcoll: PCollection[Any], window_fn: WindowFn) -> None:
    """Check the windows that a collection is about to get: do its elements have event times?

    Whether user code in between has set them shows only when it runs (`runners.core.user_code.event_times`).

    Args:
        pcoll: the input of the `WindowInto`.
        window_fn: the windows that it assigns.

    Raises:
        PipelineError: they have none, and no transform between their source and here can have set one.
    """
    if not window_fn.needs_event_time:
        return
    here, graph = pcoll.pipeline.here(), pcoll.pipeline.graph()
    for origin in nearest_if(graph, pcoll.node.id, _may_set_times):
        operation = origin.operation
        if isinstance(operation, Read) and not operation.source.has_event_times:
            raise PipelineError(
                f"{here} needs event times, and {origin} has none",
                detail=f"all its elements are at the beginning of time, so they would share one window "
                f"of {window_fn!r} in the year 1",
                hint=TIMES_HINT,
            )


def _may_set_times(node: TransformNode) -> bool:
    operation = node.operation
    if isinstance(operation, ParDo):
        fn = operation.fn
        return not (isinstance(fn, CallableDoFn) and fn.shape is Shape.FILTER)
    return isinstance(operation, Read | KeyedOperation)


def _check_that_panes_come(
    graph: PipelineGraph, pcollection: int, strategy: WindowingStrategy, here: str
) -> None:
    firings = strategy.trigger.early_firings
    if firings is EarlyFirings.REPEATED:
        return
    # Frozen windows are what they were before the grouping that froze them.
    origins = nearest(graph, pcollection, AssignWindows | Read)
    origin = next(filter(_gives_all_of_time, origins), None)
    if origin is None:
        return
    has_window_into = isinstance(origin.operation, AssignWindows)
    detail = f"the trigger is {strategy.trigger!r}; " + (
        f"the windows are those of {origin}"
        if has_window_into
        else f"no WindowInto comes after {origin}"
    )
    what_to_do = (
        "give it windows that end, e.g. df.WindowInto(df.FixedWindows(60)), or a trigger that goes on without that, "
        "e.g. df.Repeatedly(df.AfterProcessingTime(60))"
    )
    if firings is EarlyFirings.NEVER:
        raise PipelineError(
            f"{here} would never emit anything: its input has no end, its window is all of time, "
            "and its trigger waits for the end of that",
            detail=detail,
            hint=what_to_do,
        )
    _warn(
        f"{here} emits nothing any more after its trigger's last pane: "
        "its input has no end, and its window is all of time",
        detail=detail,
        hint=f"{what_to_do}; if only the first panes matter, ignore df.DataLossWarning",
    )


def _check_that_the_watermark_comes(
    graph: PipelineGraph, pcollection: int, strategy: WindowingStrategy, here: str
) -> None:
    firings = strategy.trigger.early_firings
    holder = next(
        (each for each in _upstream(graph, pcollection) if _holds_for_ever(graph, each)), None
    )
    if firings is EarlyFirings.REPEATED or holder is None:
        return
    detail = (
        f"the trigger is {strategy.trigger!r}; {holder} has one window, all of time, may retract its panes, and "
        "gives them event times of records, for which the watermark behind it waits"
    )
    what_to_do = (
        f"give {holder} windows that end, or panes at the end of its window (no timestamp_combiner), or give "
        f"{here} a trigger that goes on without the watermark, e.g. df.Repeatedly(df.AfterProcessingTime(60))"
    )
    if firings is EarlyFirings.NEVER:
        raise PipelineError(
            f"{here} would never emit anything: the watermark never reaches it",
            detail=detail,
            hint=what_to_do,
        )
    _warn(
        f"{here} emits nothing any more after its trigger's last early pane: the watermark never reaches it",
        detail=detail,
        hint=f"{what_to_do}; if only the early panes matter, ignore df.DataLossWarning",
    )


def _holds_for_ever(graph: PipelineGraph, node: TransformNode) -> bool:
    if not isinstance(node.operation, Group):
        return False
    strategy = graph.pcollections[node.inputs[0]].strategy
    return (
        strategy.is_retracting
        and strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        and any(map(_gives_all_of_time, nearest(graph, node.inputs[0], AssignWindows | Read)))
    )


def _check_that_late_panes_are_taken(
    graph: PipelineGraph, pcollection: int, strategy: WindowingStrategy, here: str
) -> None:
    for origin in nearest(graph, pcollection, AssignWindows | Group | Read):
        if not isinstance(origin.operation, AssignWindows):
            continue  # frozen windows are kept as long as those that they come from
        lag = _lag_of(graph, origin.inputs[0])
        taken_us = strategy.allowed_lateness_us + _spare_us(origin.operation.window_fn)
        if lag.behind_us <= taken_us:
            continue
        _warn(
            f"{here} may drop what comes late to it by design",
            detail=f"{origin} allows a lateness of {in_words(strategy.allowed_lateness_us)}, "
            f"less than {in_words(lag.behind_us)}: {', '.join(map(str, lag.causes))}",
            hint=f'pass allowed_lateness="{duration_text(lag.behind_us)}", or more, to that WindowInto',
        )


@attrs.frozen
class _Cause:
    """A transform behind which elements may be late by design: by how many microseconds, and why."""

    node: TransformNode
    behind_us: int
    how: str

    def __str__(self) -> str:
        return f"{self.node} {self.how} {in_words(self.behind_us)}"


@attrs.frozen
class _Lag:
    """How far behind the watermark the elements of a collection may be by design, and which transforms cause that."""

    behind_us: int = 0
    causes: tuple[_Cause, ...] = ()

    def and_more(self, cause: _Cause) -> _Lag:
        if not cause.behind_us:
            return self
        return _Lag(self.behind_us + cause.behind_us, (*self.causes, cause))


def _lag_of(graph: PipelineGraph, pcollection: int) -> _Lag:
    lags: dict[int, _Lag] = {}
    # Nothing before a grouping counts: its panes can come until its window expires, whatever its inputs were.
    since = _upstream(graph, pcollection, until=Group)
    for node in sorted(since, key=lambda node: min(node.outputs.values())):
        inputs = () if isinstance(node.operation, Group) else node.inputs
        lag = max((lags[each] for each in inputs), key=lambda each: each.behind_us, default=_Lag())
        if isinstance(node.operation, KeyedOperation):
            # What a timer causes can come until then, too.
            lateness_us = graph.pcollections[node.inputs[0]].strategy.allowed_lateness_us
            closing = _Lag().and_more(_Cause(node, lateness_us, "allows"))
            lag = max(lag, closing, key=lambda each: each.behind_us)
        if isinstance(node.operation, ParDo | StatefulParDo):
            skew_us = node.operation.allowed_timestamp_skew_us
            lag = lag.and_more(_Cause(node, skew_us, "may set times back by"))
        lags.update(dict.fromkeys(node.outputs.values(), lag))
    return lags[pcollection]


def _gives_all_of_time(node: TransformNode) -> bool:
    operation = node.operation
    return not isinstance(operation, AssignWindows) or isinstance(
        operation.window_fn, GlobalWindows
    )


def _spare_us(window_fn: WindowFn) -> int:
    """How long after the last instant of an element, at least, its window ends."""
    if isinstance(window_fn, GlobalWindows):
        return MAX_TIMESTAMP_US
    if isinstance(window_fn, Sessions) and window_fn.gap_us is not None:
        return window_fn.gap_us - 1
    return 0


def _upstream(graph: PipelineGraph, pcollection: int, until: Any = ()) -> Iterator[TransformNode]:
    """All transforms that a collection is made by; none before one whose operation is of the kinds ``until``."""
    ahead, seen = [graph.producers[pcollection]], set[str]()
    while ahead:
        node = ahead.pop()
        if node.label not in seen:
            seen.add(node.label)
            yield node
            if not isinstance(node.operation, until):
                ahead.extend(graph.producers[each] for each in node.inputs)


def _warn(fact: str, *, detail: str, hint: str) -> None:
    warnings.warn(DataLossWarning(fact, detail=detail, hint=hint), stacklevel=user_stacklevel())
