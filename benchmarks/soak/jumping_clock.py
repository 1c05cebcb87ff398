"""A clock on the wall that jumps where a file says so, in place of that of the machine, which is everybody's."""

import time
from pathlib import Path

from runners.system_clock import SystemClock

_LOOK_INTERVAL_S = 0.2


class Offset:
    """The offset in a file, in microseconds, looked up five times a second; zero where there is none.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._looked_s, self._now_us = path, 0.0, 0

    def now_us(self) -> int:
        """The offset at this moment, in microseconds."""
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_INTERVAL_S:
            self._looked_s = now_s
            self._now_us = int(self._path.read_text("ascii") or 0) if self._path.exists() else 0
        return self._now_us


def install(path: str) -> None:
    """Have all clocks of the runners in this process jump.

    Args:
        path: of the file.
    """
    offset = Offset(Path(path))

    def now_us(_: SystemClock) -> int:
        return time.time_ns() // 1_000 + offset.now_us()

    SystemClock.now_us = now_us  # type: ignore[assignment, method-assign]
