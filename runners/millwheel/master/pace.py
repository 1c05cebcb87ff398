"""Pace: when workers are sent news; the more workers there are, the less often, so that one driver is fast enough.

A message costs the driver the same whatever is in it, and news goes to every worker.  Only watermarks and signals wait:
records pass from worker to worker.
"""

from runners.core.ground.clock import Clock

#: Workers get a message from the master at least this often; silence means that it is gone.
SIGN_OF_LIFE_MS = 200
#: About how many messages with news all workers together are sent in a millisecond: a fifth of a core.
SENDS_PER_MS = 10


class Pace:
    """When one master sends news.

    Args:
        workers: how many.
        clock: for the time between two messages.

    Attributes:
        has_news: whether there is news that workers have not been sent.
    """

    def __init__(self, workers: int, clock: Clock) -> None:
        self._clock = clock
        self._interval_ms = min(workers // SENDS_PER_MS, SIGN_OF_LIFE_MS)
        self._sent_ms = clock.monotonic_ms()
        self.has_news = False

    def patience_ms(self, most_ms: int) -> int:
        """How long a round may wait for messages, at most so long."""
        if not self.has_news:
            return most_ms
        return max(0, min(most_ms, self._sent_ms + self._interval_ms - self._clock.monotonic_ms()))

    def is_time(self) -> bool:
        """Whether it is time to send news to all workers; if so, the caller does that now."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._sent_ms < (self._interval_ms if self.has_news else SIGN_OF_LIFE_MS):
            return False
        self._sent_ms, self.has_news = now_ms, False
        return True
