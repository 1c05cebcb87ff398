"""Events at a rate, made inside the worker that reads them.

Record i exists from ``start + i / rate`` on, and it carries that instant as its creation, however late it is read (no
coordinated omission).  A record depends on i alone, so a reader that starts over hands over the same records.
"""

import time
from collections.abc import Sequence
from functools import lru_cache
from random import Random

import attrs

import dataflow as df
from benchmarks.workloads import SEED, users
from windowing.timestamps import MAX_TIMESTAMP_US, US_PER_SECOND

Created = tuple[int, int]


@attrs.frozen(kw_only=True)
class RateSource(df.Source):
    """Pairs of a user and the microsecond of creation, for a number of records.

    One split, whose position is the number of the next record.  The watermark is right before the next one, or now if
    that is earlier: exact, because records are in order.
    ``keys``: so many users, each as busy as the others; 0: the users of the other cases, who are not equally busy.
    ``distinct``: the users of so many records come again and again, for loads that go on for long; 0: they do not.
    """

    start_us: int
    per_second: int
    records: int
    keys: int = 0
    distinct: int = 0

    def splits(self, desired: int) -> Sequence[int]:
        """One."""
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        """From a record on."""
        return _RateReader(self, position or 0)

    def created_us(self, index: int) -> int:
        """When a record exists."""
        return self.start_us + index * US_PER_SECOND // self.per_second


class _RateReader(df.SourceReader):
    def __init__(self, source: RateSource, first: int) -> None:
        self._source, self._next = source, first
        self._users = visitors(source.distinct or source.records, source.keys)

    def read(self, max_records: int) -> df.SourceBatch:
        source, first = self._source, self._next
        now_us = time.time_ns() // 1_000
        due = (now_us - source.start_us) * source.per_second // US_PER_SECOND + 1
        self._next = max(first, min(due, source.records, first + max_records))
        created_us = [source.created_us(index) for index in range(first, self._next)]
        is_finished = self._next == source.records
        watermark_us = min(source.created_us(self._next) - 1, now_us)
        return df.SourceBatch(
            values=list(zip(self._users_from(first), created_us, strict=True)),
            timestamps_us=created_us,
            position=self._next,
            watermark_us=MAX_TIMESTAMP_US if is_finished else watermark_us,
            status=df.SplitStatus.FINISHED if is_finished else df.SplitStatus.ACTIVE,
        )

    def _users_from(self, first: int) -> Sequence[int]:
        """The users of the records from here to the next one."""
        start, count = first % len(self._users), self._next - first
        found = self._users[start : start + count]
        # A read has fewer records than there are distinct ones, so it goes round once at most.
        return found if len(found) == count else [*found, *self._users[: count - len(found)]]


@lru_cache(maxsize=1)
def visitors(records: int, keys: int = 0) -> Sequence[int]:
    """The user of each record; made before the first record is due, so that making them is not measured."""
    chance = Random(SEED)
    if keys:
        return [int(chance.random() * keys) for _ in range(records)]
    return list(users(records, chance))
