"""When the queries of Nexmark answer, and what becomes of answers that late events change."""

import attrs

import dataflow as df


@attrs.frozen
class Answers:
    """How groupings of a query fire.

    Attributes:
        mode: how the panes of a window relate, where there are several; None: each window fires once, when the
            watermark has passed it, and later events are dropped.  Queries whose groupings follow each other take
            ``ACCUMULATING_AND_RETRACTING``, the others ``ACCUMULATING`` as well.
        allowed_lateness: how long late events change answers.
    """

    mode: df.AccumulationMode | None = None
    allowed_lateness: str = "0 seconds"

    def windows(self, window_fn: df.WindowFn) -> df.WindowInto:
        """Windows that answer when they are over, and, where there is a mode, again when a late event comes."""
        if self.mode is None:
            return df.WindowInto(window_fn)
        lateness = self.allowed_lateness
        return df.WindowInto(window_fn, accumulation_mode=self.mode, allowed_lateness=lateness)

    def all_time(self) -> df.WindowInto:
        """All of time as one window: answers at the end of the input, or, where there is a mode, with every change."""
        if self.mode is None:
            return df.WindowInto(df.GlobalWindows())
        return df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=self.mode)


#: Each answer once.
FINAL = Answers()
#: Answers that follow late events, and retract what these have made wrong.
CORRECTED = Answers(df.AccumulationMode.ACCUMULATING_AND_RETRACTING, "1 day")
