"""The clock port: the only source of processing time."""

from typing import Protocol


class Clock(Protocol):
    """A source of processing time."""

    def now_us(self) -> int:
        """Microseconds since 1970, for display and for processing-time triggers."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, for timeouts and leases."""
