"""WindowingStrategy: the where, when and how of one PCollection, in one value.  Dataflow Model, sections 2.2 to 2.4."""

import attrs

from triggers.accumulation import AccumulationMode
from triggers.default_trigger import DefaultTrigger
from triggers.firing_behavior import FiringBehavior
from triggers.timestamp_combiner import TimestampCombiner
from triggers.trigger import Trigger
from windowing.global_windows import GlobalWindows
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window
from windowing.window_fn import FrozenWindows, MergingWindowFn, WindowFn


@attrs.frozen(kw_only=True)
class WindowingStrategy:
    """How the next grouping of a PCollection treats its records.

    Attributes:
        allowed_lateness_us: how far the watermark may be past the end of a window before the window's state is deleted.
        on_time_behavior, closing_behavior: whether there is a pane at the end of a window, and at its expiry, if
            nothing has come since the last one.
        watermark_percentile: the watermark that triggers and panes follow: 100 is the watermark itself, 99 that of 99 %
            of the records.  Windows always expire by the watermark itself.
    """

    window_fn: WindowFn = attrs.field(factory=GlobalWindows)
    trigger: Trigger = attrs.field(factory=DefaultTrigger)
    accumulation_mode: AccumulationMode = AccumulationMode.DISCARDING
    allowed_lateness_us: int = 0
    timestamp_combiner: TimestampCombiner = TimestampCombiner.END_OF_WINDOW
    on_time_behavior: FiringBehavior = FiringBehavior.FIRE_ALWAYS
    closing_behavior: FiringBehavior = FiringBehavior.FIRE_IF_NON_EMPTY
    watermark_percentile: float = 100

    @property
    def is_merging(self) -> bool:
        """Whether windows of a key can merge."""
        return isinstance(self.window_fn, MergingWindowFn)

    @property
    def follows_percentile(self) -> bool:
        """Whether triggers follow another watermark than the one by which windows expire."""
        return self.watermark_percentile < 100

    @property
    def is_retracting(self) -> bool:
        """Whether panes retract earlier panes."""
        return self.accumulation_mode is AccumulationMode.ACCUMULATING_AND_RETRACTING

    def expiry_us(self, window: Window) -> int:
        """The watermark at which the window's state is deleted, in microseconds."""
        return min(window.end_us + self.allowed_lateness_us, MAX_TIMESTAMP_US)

    def frozen(self) -> "WindowingStrategy":
        """The strategy after a grouping: the same, with windows that do not change."""
        return attrs.evolve(self, window_fn=FrozenWindows())
