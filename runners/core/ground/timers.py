"""Timers: returns due timers in the order of time, each at most once, and lets timers be set, moved and cleared.

`TimerQueue` keeps the timers of one time domain, `Timers` those of all.
A queue is a heap with lazy deletion: moving a timer leaves the old entry behind, which is skipped when it comes up.
Some outdated entries never come up (those at the end of time), so the heap is rebuilt when there are many more of them
than timers.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

from runners.core.ground.cells import TimerId
from triggers.clocks import Clocks
from windowing.time_domain import TimeDomain

TimerT = TypeVar("TimerT", bound=Hashable)

#: The number of outdated entries, in addition to as many as there are timers, at which the heap is rebuilt.
OUTDATED_MAX = 64

_place = itemgetter(1)


class TimerQueue(Generic[TimerT]):
    """The timers of one time domain, or anything else that has an instant which may move."""

    def __init__(self) -> None:
        # The running number keeps timers of one instant in the order in which they were set, excludes keys from
        # comparisons, and distinguishes the latest setting of a timer from outdated heap entries.
        self._set: dict[TimerT, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, TimerT]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._set)

    def __iter__(self) -> Iterator[TimerT]:
        return iter(self._set)

    def items(self) -> Iterator[tuple[TimerT, int]]:
        """Every timer that is set, and when it is due, in microseconds."""
        return ((timer, fire_us) for timer, (fire_us, _) in self._set.items())

    def in_order(self) -> list[tuple[TimerT, int]]:
        """Every timer that is set, in the order in which they are due."""
        in_order = sorted(self._set.items(), key=_place)
        return [(timer, fire_us) for timer, (fire_us, _) in in_order]

    def set(self, timer: TimerT, fire_us: int | None) -> None:
        """Set, move, or (None) clear a timer.

        Args:
            timer: the timer.
            fire_us: when it is due, in microseconds.
        """
        if fire_us is None:
            self._set.pop(timer, None)
        else:
            self._number += 1
            self._set[timer] = (fire_us, self._number)
            heappush(self._heap, (fire_us, self._number, timer))
        self._tidy()

    def forget(self, is_gone: Callable[[TimerT], bool]) -> None:
        """Clear all timers for which ``is_gone`` is true."""
        for timer in [timer for timer in self._set if is_gone(timer)]:
            del self._set[timer]
        self._tidy()

    def next_us(self) -> int | None:
        """When the first timer is due, in microseconds, or None."""
        heap = self._heap
        while heap and self._set.get(heap[0][2]) != heap[0][:2]:
            heappop(heap)
        return heap[0][0] if heap else None

    def count_due(self, until_us: int, most: int) -> int:
        """How many timers are at or before an instant; looks at few more than these.

        Args:
            until_us: the instant, in microseconds.
            most: where counting ends.
        """
        heap, places, count = self._heap, [0], 0
        while places and count < most:
            place = places.pop()
            if place < len(heap) and heap[place][0] <= until_us:
                # Below an entry that is later than this all are.
                count += self._set.get(heap[place][2]) == heap[place][:2]
                places += (2 * place + 1, 2 * place + 2)
        return count

    def pop_due(self, until_us: int, timers_max: int | None = None) -> list[TimerT]:
        """Remove and return the timers at or before an instant, earliest first.

        Args:
            until_us: the instant, in microseconds.
            timers_max: the most timers to return; None: all.
        """
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
    """The timers of one owner's cells, in all time domains."""

    def __init__(self) -> None:
        self.queues: dict[TimeDomain, TimerQueue[TimerId]] = {
            domain: TimerQueue() for domain in TimeDomain
        }

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    def __iter__(self) -> Iterator[TimerId]:
        return chain.from_iterable(self.queues.values())

    def items(self) -> Iterator[tuple[TimerId, int]]:
        """Every timer that is set, and when it is due, in microseconds."""
        return chain.from_iterable(queue.items() for queue in self.queues.values())

    def in_order(self) -> Iterator[tuple[TimerId, int]]:
        """Every timer that is set, in the order in which they are due in each domain."""
        return chain.from_iterable(queue.in_order() for queue in self.queues.values())

    def set(self, timer: TimerId, fire_us: int | None) -> None:
        """Set, move, or (None) clear a timer.

        Args:
            timer: the timer.
            fire_us: when it is due, in microseconds.
        """
        self.queues[timer[2]].set(timer, fire_us)

    def forget(self, is_gone: Callable[[TimerId], bool]) -> None:
        """Clear all timers for which ``is_gone`` is true."""
        for queue in self.queues.values():
            queue.forget(is_gone)

    def next_event_us(self) -> int | None:
        """When the first event-time timer is due, in microseconds, or None."""
        return self.queues[TimeDomain.EVENT].next_us()

    def next_processing_us(self) -> int | None:
        """When the first processing-time timer is due, in microseconds, or None."""
        return self.queues[TimeDomain.PROCESSING].next_us()

    def count_due(self, clocks: Clocks, most: int) -> int:
        """How many timers are due in any domain.

        Args:
            clocks: the clocks.
            most: where counting ends, in each domain.
        """
        return sum(
            self.queues[domain].count_due(instant_us, most)
            for domain, instant_us in _until_us(clocks).items()
        )

    def pop_due(self, clocks: Clocks, timers_max: int | None = None) -> list[TimerId]:
        """Remove and return the timers that are due in any domain, earliest first within each.

        Args:
            clocks: the clocks.
            timers_max: the most timers to return; None: all.
        """
        due: list[TimerId] = []
        for domain, instant_us in _until_us(clocks).items():
            left = None if timers_max is None else timers_max - len(due)
            due += self.queues[domain].pop_due(instant_us, left)
        return due


def _until_us(clocks: Clocks) -> Mapping[TimeDomain, int]:
    return {
        TimeDomain.EVENT: clocks.watermark_us,
        TimeDomain.PERCENTILE: clocks.percentile_us,
        TimeDomain.PROCESSING: clocks.now_us,
    }
