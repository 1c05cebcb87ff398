"""BatchTimer: when a lane is looked at, and when what waits in it is sent though it does not fill a batch."""

from dataflow.sink import Batching
from runners.core.ground.clock import Clock

#: What waits in a large batch is measured so often, and not each time that a relay looks.
_LOOKS = 20


class BatchTimer:
    """Times one lane.  A change waits for the delay, and at most a twentieth of it longer.

    Args:
        batching: of its sink.
        clock: tells how long rows have waited.
    """

    def __init__(self, batching: Batching, clock: Clock) -> None:
        self._delay_ms, self._clock = batching.max_delay_ms, clock
        self._has_looked = False
        self._since_ms: int | None = None
        self._look_ms = 0
        self._is_measured = True

    def note_first_look(self, *, is_waiting: bool) -> None:
        """Note what the relay saw when it looked for the first time; later calls change nothing.

        What waits by then may have waited for long, when nobody was here: it is due, so that a relay that is begun
        anew more often than the delay is long sends nevertheless.
        """
        if not self._has_looked and is_waiting:
            self._since_ms = self._clock.monotonic_ms() - self._delay_ms
            self._is_measured = False
        self._has_looked = True

    def is_to_look(self) -> bool:
        """Whether a batch may be full, or due, since the last look."""
        return self.is_due() or self._clock.monotonic_ms() >= self._look_ms

    def is_due(self) -> bool:
        """Whether what waits is sent though it does not fill a batch."""
        if not self._delay_ms:
            return True
        if self._since_ms is None:
            return False
        return self._clock.monotonic_ms() - self._since_ms >= self._delay_ms

    def waited_ms(self) -> int | None:
        """How long the first change that waits has been seen to wait; None: it was there before anybody looked."""
        if not self._is_measured:
            return None
        return 0 if self._since_ms is None else self._clock.monotonic_ms() - self._since_ms

    def note_partial(self) -> None:
        """Note that something waits."""
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        self._look_ms = now_ms + self._delay_ms // _LOOKS

    def restart(self) -> None:
        """Note that nothing is known to wait: a batch was sent, or there was none."""
        self._since_ms, self._look_ms, self._is_measured = None, 0, True
