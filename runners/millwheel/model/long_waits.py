"""LongWaits: waits that last so long that people should know: reported, once a minute, and when they are over.

Short waits are normal: a sender that is faster than its receivers waits all the time, for moments.
"""

from collections.abc import Callable, Hashable
from typing import Protocol

from dataflow.times import in_words
from runners.core.ground.clock import Clock
from windowing.timestamps import US_PER_SECOND

#: A wait that was reported and goes on is reported again after so long, with the reason that it has then.
REPEATED_AFTER_MS = 60_000
#: The reason reported of a wait that is over; how long it was comes after the first line.
OVER = "what it waited for has come"


class Reporting(Protocol):
    """Takes reports of waits."""

    def __call__(self, place: str, reason: str, *, is_over: bool) -> None:
        """Take a report.

        Args:
            place: what waits.
            reason: why.
            is_over: whether the wait has ended.
        """


class LongWaits:
    """Waits of one process that last long; not thread-safe.

    Args:
        clock: for how long each has lasted.
        reported_after_ms: how long one must have lasted to be reported.
        report: takes the reports.
    """

    def __init__(self, clock: Clock, reported_after_ms: int, report: Reporting) -> None:
        self._clock, self._reported_after_ms, self._report = clock, reported_after_ms, report
        self._since_ms: dict[Hashable, int] = {}
        #: When each that was reported was, last.
        self._reported_ms: dict[Hashable, int] = {}

    def waits(self, place: Hashable, why: Callable[[], str]) -> None:
        """Note that a place cannot go on now; ``why`` is called only if the wait is reported.

        Args:
            place: what waits.
            why: gives the reason; called only if the wait is reported.
        """
        now_ms = self._clock.monotonic_ms()
        since_ms = self._since_ms.setdefault(place, now_ms)
        reported_ms = self._reported_ms.get(place)
        if reported_ms is None:
            is_due = now_ms - since_ms >= self._reported_after_ms
        else:
            is_due = now_ms - reported_ms >= REPEATED_AFTER_MS
        if is_due:
            self._reported_ms[place] = now_ms
            self._report(str(place), why(), is_over=False)

    def goes_on(self, place: Hashable) -> None:
        """Note that a place can go on."""
        since_ms = self._since_ms.pop(place, None)
        if since_ms is not None and self._reported_ms.pop(place, None) is not None:
            waited_s = round((self._clock.monotonic_ms() - since_ms) / 1_000)
            self._report(
                str(place), f"{OVER}\nafter {in_words(waited_s * US_PER_SECOND)}", is_over=True
            )

    def forget(self, place: Hashable) -> None:
        """Forget a place: its wait does not matter any more, and its end is not reported."""
        self._since_ms.pop(place, None)
        self._reported_ms.pop(place, None)
