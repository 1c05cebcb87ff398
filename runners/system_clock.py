"""The only place of the runners that reads the machine's clock; sources have `dataflow.io.arrival`."""

import time


class SystemClock:
    """Real time."""

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1_000

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""
        return time.monotonic_ns() // 1_000_000
