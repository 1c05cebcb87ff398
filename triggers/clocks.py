"""Clocks: how far event time and processing time have come, as one value with a named field for each."""

import attrs

from windowing.timestamps import MIN_TIMESTAMP_US


@attrs.frozen(kw_only=True)
class Clocks:
    """The clocks of one step, all in microseconds.

    Fields are named, so that one clock cannot be mistaken for another: a backlog would then count as late.

    Attributes:
        watermark_us: the watermark, in event time: what is still to come is not expected to be earlier.
        now_us: the processing time.
        percentile_us: the percentile watermark, which triggers follow in place of the watermark where it is ahead; the
            beginning of time where they follow none.
        is_drained: whether the input ends because its job is drained, so that nothing waits for processing time.
    """

    watermark_us: int
    now_us: int
    percentile_us: int = MIN_TIMESTAMP_US
    is_drained: bool = False
    # None where triggers see these clocks themselves.  Made once for all windows of a step.
    _for_triggers: "Clocks | None" = attrs.field(init=False, default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.percentile_us > self.watermark_us:
            ahead = Clocks(watermark_us=self.percentile_us, now_us=self.now_us)
            object.__setattr__(self, "_for_triggers", ahead)

    @property
    def for_triggers(self) -> "Clocks":
        """The clocks as triggers see them: their watermark is the percentile watermark, where that is ahead."""
        return self if self._for_triggers is None else self._for_triggers
