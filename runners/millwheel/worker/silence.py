"""Silence: for how long a worker has received nothing from its master, by its own clock and however busy it is.

A worker that is cut off from its master may be without ranges by now, and nobody can tell it to end.  It would hold its
slot and work on what is fenced, or on nothing.
"""

from runners.core.ground.clock import Clock

#: A master of which nothing has been received for this long is gone, or somebody is between the two.
MASTER_SILENCE_MS = 10_000
#: A worker receives nothing during a step, without a fault: a longer step counts as this long, and setting user code up
#: does too.
_STEP_MS_MAX = 1_000


class Silence:
    """Counts from the last message of the master; not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._looked_ms = clock, clock.monotonic_ms()
        self._silent_ms = 0

    def is_too_long(self, *, is_received: bool) -> bool:
        """Look, once in each step and after receiving: whether it is time to end.

        Args:
            is_received: whether there was a message of the master.
        """
        now_ms = self._clock.monotonic_ms()
        passed_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        self._silent_ms = 0 if is_received else self._silent_ms + min(passed_ms, _STEP_MS_MAX)
        return self._silent_ms > MASTER_SILENCE_MS
