"""Timers: due timers in time order, at most once, with set, reset and clear behaving as written.

`TimerQueue` keeps the timers of one time domain, `Timers` those of all.
It is a heap with lazy deletion: resetting a timer leaves the old entry behind, which is passed over when it comes up.
What is outdated may never come up (the end of time does not), so there is never much more of it than there are timers.
"""

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Generic, TypeVar

from runners.core.ground.cells import TimerId
from windowing.time_domain import TimeDomain

TimerT = TypeVar("TimerT", bound=Hashable)

#: How many outdated entries a queue may have before it is made anew, beside as many as there are timers.
OUTDATED_MAX = 64


class TimerQueue(Generic[TimerT]):
    """The timers of one time domain, or anything else that has an instant which may move."""

    def __init__(self) -> None:
        # The running number keeps timers of one instant in the order they were set, keys out of
        # comparisons, and what was set last apart from what the heap remembers.
        self._set: dict[TimerT, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, TimerT]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._set)

    def __iter__(self) -> Iterator[TimerT]:
        return iter(self._set)

    def items(self) -> Iterator[tuple[TimerT, int]]:
        """Every timer that is set, and when it is due."""
        return ((timer, fire_us) for timer, (fire_us, _) in self._set.items())

    def set(self, timer: TimerT, fire_us: int | None) -> None:
        """Set, move, or (None) clear a timer."""
        if fire_us is None:
            self._set.pop(timer, None)
        else:
            self._number += 1
            self._set[timer] = (fire_us, self._number)
            heappush(self._heap, (fire_us, self._number, timer))
        self._tidy()

    def forget(self, is_gone: Callable[[TimerT], bool]) -> None:
        """Clear all timers of a kind."""
        for timer in [timer for timer in self._set if is_gone(timer)]:
            del self._set[timer]
        self._tidy()

    def next_us(self) -> int | None:
        """When the first timer is due, or None."""
        heap = self._heap
        while heap and self._set.get(heap[0][2]) != heap[0][:2]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, until_us: int, timers_max: int | None = None) -> list[TimerT]:
        """Remove and return the timers at or before an instant, earliest first, at most ``timers_max``."""
        due: list[TimerT] = []
        while timers_max is None or len(due) < timers_max:
            next_us = self.next_us()
            if next_us is None or next_us > until_us:
                break
            timer = heappop(self._heap)[2]
            del self._set[timer]
            due.append(timer)
        return due

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._set) + OUTDATED_MAX:
            self._heap = [(*at, timer) for timer, at in self._set.items()]
            heapify(self._heap)


class Timers:
    """The timers of the cells that one owner holds, of all time domains."""

    def __init__(self) -> None:
        self.queues: dict[TimeDomain, TimerQueue[TimerId]] = {
            domain: TimerQueue() for domain in TimeDomain
        }

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    def __iter__(self) -> Iterator[TimerId]:
        return chain.from_iterable(self.queues.values())

    def items(self) -> Iterator[tuple[TimerId, int]]:
        """Every timer that is set, and when it is due."""
        return chain.from_iterable(queue.items() for queue in self.queues.values())

    def set(self, timer: TimerId, fire_us: int | None) -> None:
        """Set, move, or (None) clear a timer."""
        self.queues[timer[2]].set(timer, fire_us)

    def forget(self, is_gone: Callable[[TimerId], bool]) -> None:
        """Clear all timers of a kind."""
        for queue in self.queues.values():
            queue.forget(is_gone)

    def next_event_us(self) -> int | None:
        """When the first event-time timer is due, or None."""
        return self.queues[TimeDomain.EVENT].next_us()

    def next_processing_us(self) -> int | None:
        """When the first processing-time timer is due, or None."""
        return self.queues[TimeDomain.PROCESSING].next_us()

    def pop_due(
        self,
        *,
        watermark_us: int,
        now_us: int,
        percentile_watermark_us: int | None = None,
        timers_max: int | None = None,
    ) -> list[TimerId]:
        """Remove and return what is due in any domain, each earliest first."""
        until_us = {
            TimeDomain.EVENT: watermark_us,
            TimeDomain.PERCENTILE: percentile_watermark_us,
            TimeDomain.PROCESSING: now_us,
        }
        due: list[TimerId] = []
        for domain, instant_us in until_us.items():
            if instant_us is not None:
                left = None if timers_max is None else timers_max - len(due)
                due += self.queues[domain].pop_due(instant_us, left)
        return due
