"""Offered: a source of ours as a Python data source of Spark, in batch and as a stream.

In batch its splits are partitions.  As a stream its positions are offsets, with how many records were read by then: so
Spark can have the records between two offsets again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import attrs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from dataflow.errors import InputError
from dataflow.serialization import dumps, loads
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus, open_split

#: Records of one read, and of one micro-batch of a split.
_READ_RECORDS = 10_000
_SPLITS = 8


class _Batch(DataSourceReader):
    def __init__(self, source: Source, names: Sequence[str], splits: int) -> None:
        self._source, self._names, self._splits = source, names, splits

    def partitions(self) -> Sequence[InputPartition]:
        self._source.check()
        return [InputPartition(split) for split in self._source.splits(self._splits)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return rows_of_split(self._source, partition.value, self._names)


class _Stream(SimpleDataSourceStreamReader):
    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._offsets.initial()

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        rows, end = self._offsets.read(start)
        return iter(rows), end

    def readBetweenOffsets(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[tuple[Any, ...]]:
        return iter(self._offsets.between(start, end))

    def commit(self, end: dict[str, Any]) -> None:
        self._offsets.committed(end)


class Offered(DataSource):
    """The base class of data sources that read a source of ours."""

    source: Source
    declared: StructType | str
    format_name: str

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return cls.format_name

    def schema(self) -> StructType | str:
        """The schema that it was declared with."""
        return self.declared

    def reader(self, schema: StructType) -> DataSourceReader:
        """For reading in batch.

        Args:
            schema: of the rows.

        Raises:
            InputError: the source has no end.
        """
        if not self.source.is_bounded:
            raise InputError(
                f"{type(self.source).__name__} has no end", hint="read it with spark.readStream"
            )
        return _Batch(self.source, schema.names, self._desired)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802 - Spark's name
        """For reading as a stream.

        Args:
            schema: of the rows.
        """
        return _Stream(Offsets(self.source, schema.names, self._desired))

    @property
    def _desired(self) -> int:
        return int(self.options.get("splits", _SPLITS))


def rows_of_split(source: Source, split: Any, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """All rows of a split that has an end.

    Args:
        source: of the split.
        split: one of its.
        names: of the columns.
    """
    with closing(open_split(source.repeatable(), split, None)) as reader:
        while True:
            batch = reader.read(_READ_RECORDS)
            yield from _rows(batch, names)
            if batch.status is SplitStatus.FINISHED:
                return


class Offsets:
    """The splits of a source as one stream of Spark, whose offsets have the position of each.

    Args:
        source: the source.
        names: of the columns.
        splits: how many are wanted.
    """

    def __init__(self, source: Source, names: Sequence[str], splits: int) -> None:
        self._source, self._names, self._desired = source, names, splits
        self._readers: dict[int, tuple[SourceReader, Any]] = {}

    def initial(self) -> dict[str, Any]:
        """Before all records."""
        self._source.check()
        return _offset([_Place(split) for split in self._source.splits(self._desired)])

    def read(self, start: dict[str, Any]) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
        """What is there behind an offset, and the offset behind it.

        Args:
            start: the offset.
        """
        rows: list[tuple[Any, ...]] = []
        places: list[_Place] = []
        for number, place in enumerate(_places(start)):
            found, position = self._read(number, place, _READ_RECORDS)
            rows += found
            places.append(
                attrs.evolve(place, position=position, records=place.records + len(found))
            )
        return rows, _offset(places)

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Any, ...]]:
        """What was read between two offsets.

        Args:
            start: of them.
            end: of them.

        Raises:
            InputError: it is not there any more.
        """
        rows: list[tuple[Any, ...]] = []
        pairs = zip(_places(start), _places(end), strict=True)
        for number, (place, last) in enumerate(pairs):
            behind = place
            while behind.records < last.records:
                wanted = last.records - behind.records
                found, position = self._read(number, behind, wanted)
                if not found:
                    raise InputError(
                        f"{type(self._source).__name__} has not the records again that Spark wants",
                        detail=f"{wanted} are missing of {last.records - place.records}",
                        hint="does the input keep records until they are committed?",
                    )
                rows += found
                behind = attrs.evolve(
                    behind, position=position, records=behind.records + len(found)
                )
        return rows

    def committed(self, end: dict[str, Any]) -> None:
        """Notify the source of what is durable in Spark's checkpoint.

        Args:
            end: the offset.
        """
        if self._source.acknowledges:
            for number, place in enumerate(_places(end)):
                if number in self._readers and place.position is not None:
                    self._readers[number][0].committed(place.position)

    def _read(self, number: int, place: _Place, most: int) -> tuple[list[tuple[Any, ...]], Any]:
        """Rows behind a place, and the position behind them; the reader that has come there goes on."""
        reader, position = self._readers.pop(number, (None, None))
        if reader is None or position != place.position:
            if reader is not None:
                reader.close()
            reader = open_split(self._source, place.split, place.position)
        batch = reader.read(most)
        self._readers[number] = reader, batch.position
        return list(_rows(batch, self._names)), batch.position


@attrs.frozen
class _Place:
    split: Any
    position: Any = None
    records: int = 0


def _offset(places: Sequence[_Place]) -> dict[str, Any]:
    blob = dumps([attrs.astuple(each, recurse=False) for each in places])
    return {"positions": base64.b64encode(blob).decode()}


def _places(offset: dict[str, Any]) -> list[_Place]:
    return [_Place(*each) for each in loads(base64.b64decode(offset["positions"]))]


def _rows(batch: SourceBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for aside in batch.set_aside:
        raise aside.error
    for value in batch.values:
        is_mapping = isinstance(value, Mapping)
        yield tuple(value[name] for name in names) if is_mapping else tuple(value)
