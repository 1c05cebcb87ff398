"""TypedSource: the pairs of another source as typed rows, most batches as columns."""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import attrs
import numpy as np
import pyarrow as pa

from dataflow.columns import IntColumn, Rows
from dataflow.source import Source, SourceBatch, SourceReader

_BITS_MAX = 62


class Scored(NamedTuple):
    """A number of a key."""

    key: int
    number: int


@attrs.frozen
class TypedSource(Source):
    """A source of the records of another one, as typed rows.

    Attributes:
        rows_every: so many batches are columns, then one is not.
        factor: of the numbers; what does not fit into 64 bits is in no column.
    """

    inner: Source
    rows_every: int
    factor: int

    @classmethod
    def of(cls, inner: Source, random: Random) -> "TypedSource":
        """Make a source with settings that are drawn by chance.

        Args:
            inner: has the records, pairs of key and number.
            random: draws the settings.
        """
        return cls(inner, random.choice([2, 5, 1_000]), random.choice([1, 1, 1 << 58]))

    @property
    def has_arrival_order(self) -> bool:
        """Whether the other source has an order of arrival."""
        return self.inner.has_arrival_order

    @property
    def emits_retractions(self) -> bool:
        """Whether the other source retracts records."""
        return self.inner.emits_retractions

    def splits(self, desired: int) -> Sequence[Any]:
        """The splits of the other source."""
        return self.inner.splits(desired)

    def open(self, split: Any, position: Any | None, *, fence: int) -> SourceReader:
        """A reader."""
        return _TypedReader(self, self.inner.open(split, position, fence=fence))


class _TypedReader(SourceReader):
    def __init__(self, source: TypedSource, inner: SourceReader) -> None:
        self._source, self._inner = source, inner

    def read(self, max_records: int) -> SourceBatch:
        batch, source = self._inner.read(max_records), self._source
        rows = [Scored(key, number * source.factor) for key, number in batch.values]
        is_small = all(row.number.bit_length() <= _BITS_MAX for row in rows)
        if not rows or not is_small or batch.position % source.rows_every == 0:
            return attrs.evolve(batch, values=rows)
        columns = [pa.array(each, pa.int64()) for each in zip(*rows, strict=True)]
        return attrs.evolve(
            batch,
            values=Rows.of(Scored, Scored._fields, columns),
            timestamps_us=IntColumn(np.array(batch.timestamps_us, np.int64)),
        )

    def close(self) -> None:
        self._inner.close()
