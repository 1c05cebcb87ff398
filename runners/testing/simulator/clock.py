"""SkewedClock: the clocks of one process, which may be wrong, over the virtual time that all share."""

import attrs

from runners.testing.manual_clock import ManualClock


@attrs.frozen
class Drift:
    """How the clocks of a process differ from those of others.

    Attributes:
        origin_ms: how far its monotonic clock is ahead of theirs at first.
        rate: how fast both of its clocks run.
    """

    origin_ms: int = 0
    rate: float = 1.0


class SkewedClock:
    """The clocks of one process; see `runners.core.ground.clock`.

    Args:
        true: the time that all share.
        drift: how it differs.
    """

    def __init__(self, true: ManualClock, drift: Drift) -> None:
        self._true, self._drift, self._born_ms = true, drift, true.monotonic_ms()
        self._ahead_us = 0

    def jump(self, us: int) -> None:
        """Go forward, or back, at once; the monotonic clock never does."""
        self._ahead_us += us

    def correct(self) -> None:
        """Show the true time again."""
        self._ahead_us -= self.now_us() - self._true.now_us()

    def now_us(self) -> int:
        """Microseconds since 1970, as this process believes."""
        elapsed_ms = self._true.monotonic_ms() - self._born_ms
        drifted_us = int(1_000 * elapsed_ms * (self._drift.rate - 1))
        return self._true.now_us() + drifted_us + self._ahead_us

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment, as this process counts them."""
        elapsed_ms = self._true.monotonic_ms() - self._born_ms
        return self._born_ms + self._drift.origin_ms + int(elapsed_ms * self._drift.rate)
