"""A load whose rate changes, and its right answers, from nothing but the number of a record."""

import time
from collections.abc import Sequence

import attrs
import numpy as np

import dataflow as df
from windowing.timestamps import MAX_TIMESTAMP_US, US_PER_SECOND

#: One after the other, so many times the rate: busy, a burst, nothing at all, and hardly anything.
PHASES = (1.0, 3.0, 0.0, 0.3)
PHASE_S = 20
#: A prime: multiples of it are all users, in another order.
_STRIDE = 7_919
_VALUES = 100


@attrs.frozen(kw_only=True)
class ChangingRate(df.Source):
    """Pairs of a user and a value; record i exists when the phases before it, and its place in its own, are over.

    One split, whose position is the number of the next record.

    Attributes:
        start_us: when the first phase begins.
        rate: records a second where the phase has the factor 1.
        keys: how many users there are.
        seconds: when the load ends.
    """

    start_us: int
    rate: int
    keys: int
    seconds: int

    def splits(self, desired: int) -> Sequence[int]:
        """One."""
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        """From a record on."""
        return _ChangingReader(self, position or 0)

    @property
    def _of_phases(self) -> list[int]:
        """How many records each phase has."""
        return [int(self.rate * PHASE_S * factor) for factor in PHASES]

    @property
    def records(self) -> int:
        """How many there are."""
        return self.due(self.start_us + self.seconds * US_PER_SECOND)

    def due(self, now_us: int) -> int:
        """How many records there are at an instant, by their numbers the first ones."""
        if now_us < self.start_us:
            return 0
        elapsed_us = min(now_us - self.start_us, self.seconds * US_PER_SECOND)
        phases, rest_us = divmod(elapsed_us, PHASE_S * US_PER_SECOND)
        rounds, phase = divmod(phases, len(PHASES))
        counts = self._of_phases
        whole = rounds * sum(counts) + sum(counts[:phase])
        return whole + counts[phase] * rest_us // (PHASE_S * US_PER_SECOND)

    def created_us(self, numbers: np.ndarray) -> np.ndarray:
        """When records are there, by their numbers."""
        counts = np.array(self._of_phases)
        ends = np.cumsum(counts)
        rounds, rest = np.divmod(numbers, ends[-1])
        phase = np.searchsorted(ends, rest, side="right")
        place = rest - (ends - counts)[phase]
        phase_us = PHASE_S * US_PER_SECOND
        begin_us = (rounds * len(PHASES) + phase) * phase_us
        # The first moment at which `due` counts it.
        in_phase_us: np.ndarray = -(-(place + 1) * phase_us // counts[phase])
        created_us: np.ndarray = self.start_us + begin_us + in_phase_us
        return created_us

    def users(self, numbers: np.ndarray) -> np.ndarray:
        """The users of records, by their numbers."""
        return numbers * _STRIDE % self.keys

    def values(self, numbers: np.ndarray) -> np.ndarray:
        """The values of records, by their numbers."""
        return numbers % _VALUES


class _ChangingReader(df.SourceReader):
    def __init__(self, source: ChangingRate, first: int) -> None:
        self._source, self._next, self._records = source, first, source.records

    def read(self, max_records: int) -> df.SourceBatch:
        source, first, now_us = self._source, self._next, time.time_ns() // 1_000
        self._next = max(first, min(source.due(now_us), first + max_records))
        numbers = np.arange(first, self._next, dtype=np.int64)
        created_us = source.created_us(numbers).tolist()
        is_finished = (
            self._next == self._records
            and now_us >= source.start_us + source.seconds * US_PER_SECOND
        )
        # What is not due yet is created later than now.
        behind_us = now_us if self._next == source.due(now_us) else created_us[-1] - 1
        return df.SourceBatch(
            values=list(
                zip(source.users(numbers).tolist(), source.values(numbers).tolist(), strict=True)
            ),
            timestamps_us=created_us,
            position=self._next,
            watermark_us=MAX_TIMESTAMP_US if is_finished else behind_us,
            status=df.SplitStatus.FINISHED if is_finished else df.SplitStatus.ACTIVE,
        )


def right_totals(source: ChangingRate, window_us: int) -> dict[tuple[int, int], tuple[int, int]]:
    """By user and start of the window: how many records, and the sum of their values."""
    numbers = np.arange(source.records, dtype=np.int64)
    starts = source.created_us(numbers) // window_us * window_us
    keys = np.stack([source.users(numbers), starts], axis=1)
    found, inverse = np.unique(keys, axis=0, return_inverse=True)
    counts = np.bincount(inverse.ravel())
    sums = np.bincount(inverse.ravel(), weights=source.values(numbers)).astype(np.int64)
    return {
        (int(user), int(start)): (int(count), int(total))
        for (user, start), count, total in zip(found, counts, sums, strict=True)
    }


def right_counts(source: ChangingRate, every: int) -> set[tuple[int, int]]:
    """Each user with each multiple of ``every`` up to the number of its records."""
    numbers = np.arange(source.records, dtype=np.int64)
    counts = np.bincount(source.users(numbers), minlength=source.keys)
    return {
        (user, each) for user, count in enumerate(counts) for each in range(every, count + 1, every)
    }
