"""SkewedClock: the wall clock of one process, which may be wrong, over the virtual time that all share."""

from runners.testing.manual_clock import ManualClock


class SkewedClock:
    """See `runners.core.clock`; monotonic time is true, as it is on a real machine."""

    def __init__(self, true: ManualClock) -> None:
        self._true = true
        self._ahead_us = 0

    def jump(self, us: int) -> None:
        """Go forward, or back, at once."""
        self._ahead_us += us

    def correct(self) -> None:
        """Tell the true time again."""
        self._ahead_us = 0

    def now_us(self) -> int:
        """Microseconds since 1970, as this process believes."""
        return self._true.now_us() + self._ahead_us

    def monotonic_ms(self) -> int:
        """Milliseconds since the start."""
        return self._true.monotonic_ms()
