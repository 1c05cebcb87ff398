"""WindowInto: where, when and how the next grouping happens.  Dataflow Model, sections 2.2 and 2.3."""

from __future__ import annotations

from typing import Any

from dataflow.errors import PipelineError
from dataflow.graph import MAIN, AssignWindows
from dataflow.pcollection import PCollection
from dataflow.ptransform import PTransform
from dataflow.serialization import dumps_code
from triggers.accumulation import AccumulationMode
from triggers.default_trigger import DefaultTrigger
from triggers.trigger import Trigger
from triggers.windowing_strategy import WindowingStrategy
from windowing.errors import WindowError
from windowing.timestamps import DurationLike, to_duration_us
from windowing.window_fn import WindowFn


class WindowInto(PTransform[PCollection[Any], PCollection[Any]]):
    """Assign windows, and say how they will be grouped.

    Args:
        window_fn: where in event time.
        trigger: when panes are emitted.
        accumulation_mode: how the panes of a window relate; must be given where there can be several,
            that is, with a ``trigger`` or ``allowed_lateness``.
        allowed_lateness: how long after the watermark has passed a window late records still
            change it; what comes later is
            dropped and kept as a late record.

    Raises:
        PipelineError: several panes are possible and ``accumulation_mode`` is missing.
        WindowError: ``allowed_lateness`` is negative.
        TimeError: ``allowed_lateness`` is not a duration.
    """

    def __init__(
        self,
        window_fn: WindowFn,
        *,
        trigger: Trigger | None = None,
        accumulation_mode: AccumulationMode | None = None,
        allowed_lateness: DurationLike = 0,
    ) -> None:
        if not isinstance(window_fn, WindowFn):
            raise PipelineError(
                f"WindowInto needs a window function, not {window_fn!r}",
                hint="e.g. df.FixedWindows(60); classes must be called",
            )
        lateness_us = to_duration_us(allowed_lateness)
        if lateness_us < 0:
            raise WindowError(f"allowed lateness cannot be negative: {allowed_lateness!r}")
        if (lateness_us or trigger is not None) and accumulation_mode is None:
            raise PipelineError(
                "WindowInto can emit several panes per window, but does not say how they relate",
                detail=f"allowed_lateness={allowed_lateness!r}, trigger={trigger!r}, "
                "accumulation_mode is missing",
                hint="pass accumulation_mode=df.AccumulationMode.DISCARDING, ACCUMULATING or "
                "ACCUMULATING_AND_RETRACTING",
            )
        self._strategy = WindowingStrategy(
            window_fn=window_fn,
            trigger=trigger or DefaultTrigger(),
            accumulation_mode=accumulation_mode or AccumulationMode.DISCARDING,
            allowed_lateness_us=lateness_us,
        )

    def default_label(self) -> str:
        """``WindowInto(FixedWindows)``."""
        return f"WindowInto({type(self._strategy.window_fn).__name__})"

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Add the primitive."""
        # Pickled here for its error alone: a function inside that cannot travel should fail on the line that wrote it.
        dumps_code(self._strategy.window_fn, pcoll.pipeline.here())
        return pcoll.pipeline.add_operation(
            AssignWindows(self._strategy.window_fn),
            [pcoll],
            self._strategy,
            retracted_by=pcoll.node.retracted_by,
        )[MAIN]
