"""TimerQueue: due timers in time order, at most once, with set, reset and clear behaving as written.

A heap with lazy deletion: resetting a timer leaves the old entry behind, which is passed over when it comes up.
"""

from heapq import heappop, heappush

from runners.core.group_also_by_window import TimerId


class TimerQueue:
    """The event-time timers of the cells that one owner holds."""

    def __init__(self) -> None:
        self._fire_us: dict[TimerId, int] = {}
        # The running number keeps timers of one instant in the order they were set, and keys out of comparisons.
        self._heap: list[tuple[int, int, TimerId]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._fire_us)

    def set(self, timer: TimerId, fire_us: int | None) -> None:
        """Set, move, or (None) clear a timer."""
        if fire_us is None:
            self._fire_us.pop(timer, None)
            return
        self._fire_us[timer] = fire_us
        self._number += 1
        heappush(self._heap, (fire_us, self._number, timer))

    def next_us(self) -> int | None:
        """When the first timer is due, or None."""
        while self._heap and self._fire_us.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, watermark_us: int, timers_max: int | None = None) -> list[TimerId]:
        """Remove and return the timers at or before the watermark, earliest first, at most ``timers_max``."""
        due: list[TimerId] = []
        while timers_max is None or len(due) < timers_max:
            next_us = self.next_us()
            if next_us is None or next_us > watermark_us:
                break
            timer = heappop(self._heap)[2]
            del self._fire_us[timer]
            due.append(timer)
        return due
