"""TokenBucket: replay at a given speed."""

from runners.core.ground.clock import Clock

_MS_PER_SECOND = 1_000


class TokenBucket:
    """Allows ``records_per_second`` on average and at most a tenth of a second's worth at once.

    None allows everything.

    Args:
        clock: the monotonic one is read.
        records_per_second: how many are allowed on average; None: no limit.
    """

    def __init__(self, clock: Clock, records_per_second: float | None) -> None:
        self._clock, self._rate = clock, records_per_second
        self._filled_ms = clock.monotonic_ms()
        self._tokens = 0.0

    def available(self, wanted: int) -> int:
        """How many of ``wanted`` records may be read now."""
        if self._rate is None:
            return wanted
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._filled_ms) * self._rate / _MS_PER_SECOND
        self._tokens = min(self._tokens + earned, max(1.0, self._rate / 10))
        self._filled_ms = now_ms
        return min(wanted, int(self._tokens))

    def spend(self, count: int) -> None:
        """Note that ``count`` records were read."""
        self._tokens -= count
