"""The clock port: processing time comes from here and from nowhere else."""

from typing import Protocol


class Clock(Protocol):
    """Processing time."""

    def now_us(self) -> int:
        """Microseconds since 1970, for people and for processing-time triggers."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, for timeouts and leases."""
