"""WindowInto: where, when and how the next grouping happens.  Dataflow Model, sections 2.2 and 2.3."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from dataflow.errors import PipelineError
from dataflow.graph import MAIN, AssignWindows
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.serialization import dumps_code
from dataflow.strategy_checks import check_event_times
from dataflow.type_vars import T
from triggers.accumulation import AccumulationMode
from triggers.checks import check_trigger
from triggers.default_trigger import DefaultTrigger
from triggers.firing_behavior import FiringBehavior
from triggers.timestamp_combiner import TimestampCombiner
from triggers.trigger import Trigger
from triggers.windowing_strategy import WindowingStrategy
from windowing.errors import WindowError
from windowing.timestamps import DurationLike, to_duration_us
from windowing.window_fn import WindowFn


class WindowInto(PTransform[Any, Any]):
    """Assign windows, and define how they will be grouped.

    Args:
        window_fn: where in event time.
        trigger: when panes are emitted.
        accumulation_mode: how the panes of a window relate; must be given where there can be several, that is, with a
            ``trigger``, ``allowed_lateness`` or ``watermark_percentile``.  Where it need not be given, panes are
            retracted if the input may be, else discarded.
        allowed_lateness: how long after the watermark has passed a window late records still change it; what comes
            later is dropped and kept as a late record.
        timestamp_combiner: which event time a pane has.
        on_time_behavior: whether a trigger that fires at the end of a window does so although nothing has come since it
            last fired.  Such a pane repeats the one before, or in discarding mode is the combination of nothing; it is
            left out where there is no such thing, as with ``max``.
        closing_behavior: the same for the moment when the window expires, after the allowed lateness.
        watermark_percentile: above 0, at most 100; the watermark that triggers follow.  With 99 a window has its end,
            and its on-time pane, when going by the recent past one record in a hundred is still to come; what comes
            afterwards makes late panes, and nothing is dropped that would not be dropped with 100, for windows expire
            by the watermark itself.  Behind a grouping it is never ahead of that grouping's input watermark; in batch
            all of the input is there, so it makes no difference.  MillWheel, section 7.2.

    Raises:
        PipelineError: several panes are possible and ``accumulation_mode`` is missing; an argument is of another kind.
        WindowError: ``allowed_lateness`` is negative, or ``trigger`` is no trigger.
        TimeError: ``allowed_lateness`` is not a duration.
    """

    def __init__(
        self,
        window_fn: WindowFn,
        *,
        trigger: Trigger | None = None,
        accumulation_mode: AccumulationMode | None = None,
        allowed_lateness: DurationLike = 0,
        timestamp_combiner: TimestampCombiner = TimestampCombiner.END_OF_WINDOW,
        on_time_behavior: FiringBehavior = FiringBehavior.FIRE_ALWAYS,
        closing_behavior: FiringBehavior = FiringBehavior.FIRE_IF_NON_EMPTY,
        watermark_percentile: float = 100,
    ) -> None:
        if not isinstance(window_fn, WindowFn):
            raise PipelineError(
                f"WindowInto needs a window function, not {window_fn!r}",
                hint="e.g. df.FixedWindows(60); classes must be called",
            )
        if trigger is not None:
            check_trigger("WindowInto (trigger)", trigger)
        _check_member(
            "accumulation_mode", accumulation_mode or AccumulationMode.DISCARDING, AccumulationMode
        )
        _check_member("timestamp_combiner", timestamp_combiner, TimestampCombiner)
        _check_member("on_time_behavior", on_time_behavior, FiringBehavior)
        _check_member("closing_behavior", closing_behavior, FiringBehavior)
        lateness_us = to_duration_us(allowed_lateness)
        if lateness_us < 0:
            raise WindowError(
                f"allowed lateness cannot be negative: {allowed_lateness!r}",
                hint="give a timedelta, text or a number of seconds, zero or more",
            )
        _check_percentile(watermark_percentile)
        are_several = lateness_us or trigger is not None or watermark_percentile < 100
        if are_several and accumulation_mode is None:
            raise PipelineError(
                "WindowInto can emit several panes per window, but has no accumulation mode for them",
                detail=f"allowed_lateness={allowed_lateness!r}, trigger={trigger!r}, "
                f"watermark_percentile={watermark_percentile!r}, accumulation_mode is missing",
                hint="pass accumulation_mode=df.AccumulationMode.DISCARDING, ACCUMULATING or "
                "ACCUMULATING_AND_RETRACTING",
            )
        self._is_mode_given = accumulation_mode is not None
        self._strategy = WindowingStrategy(
            window_fn=window_fn,
            trigger=trigger or DefaultTrigger(),
            accumulation_mode=accumulation_mode or AccumulationMode.DISCARDING,
            allowed_lateness_us=lateness_us,
            timestamp_combiner=timestamp_combiner,
            on_time_behavior=on_time_behavior,
            closing_behavior=closing_behavior,
            watermark_percentile=watermark_percentile,
        )

    def default_label(self) -> str:
        """``WindowInto(FixedWindows)``."""
        return f"WindowInto({type(self._strategy.window_fn).__name__})"

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Add the primitive."""
        # Pickled here for its error alone: a function inside that cannot travel should fail on the line that wrote it.
        dumps_code((self._strategy.window_fn, self._strategy.trigger), pcoll.pipeline.here())
        check_event_times(pcoll, self._strategy.window_fn)
        strategy = self._strategy
        if pcoll.node.retracted_by and not self._is_mode_given:
            mode = AccumulationMode.ACCUMULATING_AND_RETRACTING
            strategy = attrs.evolve(strategy, accumulation_mode=mode)
        return pcoll.pipeline.add_operation(
            AssignWindows(strategy.window_fn),
            [pcoll],
            strategy,
            retracted_by=pcoll.node.retracted_by,
        )[MAIN]


def _check_percentile(percentile: object) -> None:
    # Written so that NaN does not pass either.
    if not isinstance(percentile, int | float) or not 0 < percentile <= 100:
        raise PipelineError(
            f"WindowInto (watermark_percentile) cannot be {percentile!r}",
            detail="it is the percentage of records that a window waits for",
            hint="give a number above 0 and at most 100, e.g. 99",
        )


def _check_member(name: str, value: object, kind: type[Enum]) -> None:
    if not isinstance(value, kind):
        raise PipelineError(
            f"WindowInto ({name}) cannot be {value!r}",
            detail=f"its type is {type(value).__name__}",
            hint=f"give one of {', '.join(f'df.{kind.__name__}.{each.name}' for each in kind)}",
        )
