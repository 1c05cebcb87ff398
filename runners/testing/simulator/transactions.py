"""Transactions: the open ones of the store, with the fences that they have locked, as in Postgres.

A worker that takes a range over, or looks up the outcome of a commit, waits until the range is free; a session that
keeps it locked beyond the time-out is ended, and its transaction never happened.
"""

from collections.abc import Callable, Collection, Iterable

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.testing.manual_clock import ManualClock
from runners.testing.simulator.trace import Trace

#: How long a statement waits for a lock.
LOCK_TIMEOUT_MS = 5_000
_WAIT_MS = 50


@attrs.frozen(eq=False)
class Transaction:
    """A transaction that has done everything but end, which it does at a moment of its own.

    Attributes:
        is_cut: the client is gone before it has sent everything, so the transaction ends without effect.
    """

    who: str
    production: Production
    due_ms: int
    is_cut: bool = False

    @property
    def locked(self) -> frozenset[RangeId]:
        """The ranges whose fences it has locked."""
        return frozenset(fence.range_id for fence in self.production.fences)


class Transactions:
    """The open transactions of a store.

    Args:
        clock: the virtual time.
        trace: of the run.
    """

    def __init__(self, clock: ManualClock, trace: Trace) -> None:
        self._clock, self._trace = clock, trace
        self._open: list[Transaction] = []

    def begin(
        self, who: str, production: Production, duration_ms: int, *, is_cut: bool = False
    ) -> None:
        """Open a transaction of a process, which locks its fences, and ends after a while.

        Args:
            who: the process.
            production: what it commits; its fences are locked until the transaction ends.
            duration_ms: from now on, in virtual time.
            is_cut: whether it ends without effect, because the client is gone before it has sent everything.
        """
        due_ms = self._clock.monotonic_ms() + duration_ms
        what = "is cut, and rolled back after" if is_cut else "takes"
        self._trace.note(who, f"has a commit that {what} {duration_ms} ms")
        self._open.append(Transaction(who, production, due_ms, is_cut))

    @property
    def are_open(self) -> bool:
        """Whether any is."""
        return bool(self._open)

    def end_all(self) -> None:
        """End all without effect: the server is another one."""
        self._open.clear()

    def ending(self, *, is_over: bool) -> Iterable[Transaction]:
        """Take out the transactions whose time has come, or all; and return those that take effect."""
        now_ms = self._clock.monotonic_ms()
        ending = [each for each in self._open if is_over or each.due_ms <= now_ms]
        self._open = [each for each in self._open if each not in ending]
        return [each for each in ending if not each.is_cut]

    def wait_for(self, ranges: Collection[RangeId], land: Callable[[], None]) -> None:
        """Let time pass until none of these ranges is locked, and end a transaction that locks one for too long.

        Args:
            ranges: the ranges.
            land: carries out what is due.
        """
        until_ms = self._clock.monotonic_ms() + LOCK_TIMEOUT_MS
        while holders := [each for each in self._open if each.locked.intersection(ranges)]:
            if self._clock.monotonic_ms() >= until_ms:
                for each in holders:
                    self._trace.note(each.who, "has its session ended, inside a commit")
                    self._open.remove(each)
                return
            self._clock.advance(_WAIT_MS)
            land()
