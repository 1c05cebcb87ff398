"""Events for the cases of scale, made in the worker that reads them; what a record is depends on its number alone."""

from collections.abc import Sequence
from pathlib import Path

import attrs

import dataflow as df
from benchmarks.peers.ours_load import Created, RateSource, visitors
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Instead of an instant of creation: the record is there to make its key's state.
PREPARES = 0
#: A prime that divides no number of keys that anybody asks for: its multiples are all keys, in another order.
_STRIDE = 7_368_787


@attrs.frozen(kw_only=True)
class PreparedRate(df.Source):
    """First a record for each key, as fast as can be; then those of a `RateSource` whose start is in a file.

    The file is written when all keys have state; until then there is nothing to read.
    One split, whose position is the number of the next record.
    """

    start_file: str
    keys: int
    per_second: int
    records: int

    def splits(self, desired: int) -> Sequence[int]:
        """One."""
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        """From a record on."""
        return _PreparedReader(self, position or 0)

    def started(self) -> RateSource | None:
        """The second part, when its start is known."""
        start_us = read_start_us(Path(self.start_file))
        if start_us is None:
            return None
        return RateSource(
            start_us=start_us, per_second=self.per_second, records=self.records, keys=self.keys
        )


class _PreparedReader(df.SourceReader):
    def __init__(self, source: PreparedRate, first: int) -> None:
        self._source, self._next = source, first
        self._started: df.SourceReader | None = None
        visitors(source.records, source.keys)

    def read(self, max_records: int) -> df.SourceBatch:
        source, first = self._source, self._next
        if first < source.keys:
            self._next = min(first + max_records, source.keys)
            made: list[Created] = [(key, PREPARES) for key in range(first, self._next)]
            return self._nothing_later(made)
        if self._started is None:
            rate = source.started()
            if rate is None:
                return self._nothing_later([])
            self._started = rate.open(0, first - source.keys, fence=0)
        batch = self._started.read(max_records)
        self._next = source.keys + batch.position
        return attrs.evolve(batch, position=self._next)

    def _nothing_later(self, made: Sequence[Created]) -> df.SourceBatch:
        return df.SourceBatch(
            values=made,
            timestamps_us=[0] * len(made),
            position=self._next,
            watermark_us=MIN_TIMESTAMP_US,
        )


def write_start_us(path: Path, start_us: int) -> None:
    """Write when the first record at the rate exists; once."""
    new = path.with_suffix(".new")
    new.write_text(str(start_us), "utf-8")
    new.rename(path)


def read_start_us(path: Path) -> int | None:
    """The time that was written; None: none yet."""
    try:
        return int(path.read_text("utf-8"))
    except FileNotFoundError:
        return None


@attrs.frozen(kw_only=True)
class Rounds(df.Source):
    """Pairs of a key and some bytes: all keys once, then all again in another order, and so on, as fast as can be.

    Distributed over the splits in turn, so that all are in the same round; the position is how many a split has read.
    """

    keys: int
    rounds: int
    value_bytes: int
    parts: int

    def splits(self, desired: int) -> Sequence[int]:
        """The numbers of the parts."""
        return range(self.parts)

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        """From a record of the part on."""
        return _RoundsReader(self, split, position or 0)

    def key(self, number: int) -> int:
        """The key of a record."""
        round_, index = divmod(number, self.keys)
        return (index * _STRIDE + round_ * (self.keys // 3)) % self.keys


class _RoundsReader(df.SourceReader):
    def __init__(self, source: Rounds, part: int, first: int) -> None:
        self._source, self._next = source, first
        self._numbers = range(part, source.keys * source.rounds, source.parts)
        self._value = "v" * source.value_bytes

    def read(self, max_records: int) -> df.SourceBatch:
        numbers = self._numbers[self._next : self._next + max_records]
        self._next += len(numbers)
        is_finished = self._next == len(self._numbers)
        return df.SourceBatch(
            values=[(self._source.key(number), self._value) for number in numbers],
            timestamps_us=[0] * len(numbers),
            position=self._next,
            watermark_us=MAX_TIMESTAMP_US if is_finished else MIN_TIMESTAMP_US,
            status=df.SplitStatus.FINISHED if is_finished else df.SplitStatus.ACTIVE,
        )
