"""Adapters that lose count of signals."""

import itertools
import time
from collections.abc import Sequence

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.model.signals import NO_SIGNALS, Signal
from runners.millwheel.store.memory.job import StoredJob
from runners.millwheel.store.memory.store import MemoryStore


class NumbersAllJobsTogether(MemoryStore):
    """Leaves gaps in the numbers of each job."""

    def send_signal(self, job: str, name: str) -> int:
        with self._lock:
            super().send_signal(job, name)
            signals = self._job(job).signals
            signals[-1] = Signal(sum(len(each.signals) for each in self._jobs.values()), name)
            return signals[-1].number


class ShowsSignalsLate(MemoryStore):
    """Gives numbers out before they can be seen, in another order, as a sequence without a lock does."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)

    def send_signal(self, job: str, name: str) -> int:
        number = next(self._numbers)
        time.sleep(0.02 * (number % 3))  # a round trip
        with self._lock:
            self._job(job).signals.append(Signal(number, name))
        return number

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        with self._lock:
            return sorted(signal for signal in self._job(job).signals if signal.number > after)


class KeepsWhatItRefuses(MemoryStore):
    """Keeps a signal, and only then looks whether anybody listens to it."""

    def send_signal(self, job: str, name: str) -> int:
        with self._lock:
            signals = self._job(job).signals
            signals.append(Signal(len(signals) + 1, name))
            super().send_signal(job, name)
            return signals.pop().number


class LetsSignalMarksGoBack(MemoryStore):
    """Believes the last mark, not the furthest."""

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        super()._apply_progress(job, production)
        for range_id, mark in production.signal_marks.items():
            job.ranges[range_id] = attrs.evolve(job.ranges[range_id], signal_mark=mark)


class ForgetsWhichCellsHadTheSignal(MemoryStore):
    """Keeps the number of a signal and not how many cells have processed the next one: they receive it twice."""

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        super()._apply_progress(job, production)
        for range_id, row in job.ranges.items():
            job.ranges[range_id] = attrs.evolve(
                row, signal_mark=row.signal_mark._replace(next_hash=0)
            )


class ForgetsSignalMarks(MemoryStore):
    """Who takes a range over acts on everything again."""

    def _move_token(self, job: StoredJob, range_id: RangeId, owner: str | None) -> None:
        super()._move_token(job, range_id, owner)
        job.ranges[range_id] = attrs.evolve(job.ranges[range_id], signal_mark=NO_SIGNALS)
