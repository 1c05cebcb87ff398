"""ManualClock: time that moves when a test moves it."""


class ManualClock:
    """A clock for tests; see `runners.core.ground.clock`."""

    def __init__(self) -> None:
        self._ms = 0

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._ms += ms

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return self._ms * 1_000

    def monotonic_ms(self) -> int:
        """Milliseconds since the start."""
        return self._ms
