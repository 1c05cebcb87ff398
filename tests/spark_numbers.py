"""A Python data source of Spark that streams numbers which a folder has, and gives up those that were committed."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

#: Numbers of a micro-batch, of which the even ones are one partition and the odd ones another.
MOST = 7


def grow(folder: Path, end: int) -> None:
    """Let the folder have the numbers below one."""
    _write(folder / "end", end)


def committed(folder: Path) -> int:
    """Up to which number everything was committed, and is gone."""
    return _read(folder / "committed")


class GrowingNumbers(DataSource):
    """Options: ``folder``; ``kind``: partitioned, old or simple."""

    def schema(self) -> StructType:
        return StructType([StructField("name", StringType()), StructField("number", LongType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        kind = self.options["kind"]
        if kind == "simple":
            return super().streamReader(schema)
        return (_Old if kind == "old" else _Partitioned)(Path(self.options["folder"]))

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802 - Spark's name
        return _Simple(Path(self.options["folder"]))


class _Numbers:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"number": 0}

    def behind(self, start: dict[str, int], most: int) -> dict[str, int]:
        end = max(start["number"], _read(self.folder / "end"))
        return {"number": min(end, start["number"] + most)}

    def rows(self, start: int, end: int, step: int = 1) -> Iterator[tuple[str, int]]:
        gone = committed(self.folder)
        return ((f"n{each}", each) for each in range(start, end, step) if each >= gone)

    def commit(self, end: dict[str, int]) -> None:
        _write(self.folder / "committed", max(end["number"], committed(self.folder)))


class _Partitioned(_Numbers, DataSourceStreamReader):
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(MOST)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        assert isinstance(limit, ReadMaxRows)
        return self.behind(start, limit.max_rows)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        bounds = start["number"], end["number"]
        return [InputPartition((first, bounds[1])) for first in range(*bounds)[:2]]

    def read(self, partition: InputPartition) -> Any:
        start, end = partition.value
        rows = list(self.rows(start, end, 2))
        if start % 2 and rows:
            names, numbers = zip(*rows, strict=True)
            return iter([pa.RecordBatch.from_pydict({"name": names, "number": numbers})])
        return iter(rows)


class _Old(_Partitioned):
    """A reader as they were before 4.2: asked without knowing from where."""

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override] # noqa: N802 - Spark's name
        return {"number": _read(self.folder / "end")}


class _Simple(_Numbers, SimpleDataSourceStreamReader):
    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[str, int]], dict[str, int]]:
        end = self.behind(start, MOST)
        return self.rows(start["number"], end["number"]), end

    def readBetweenOffsets(  # noqa: N802 - Spark's name
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[str, int]]:
        return self.rows(start["number"], end["number"])


def _read(path: Path) -> int:
    found: int = json.loads(path.read_text()) if path.exists() else 0
    return found


def _write(path: Path, number: int) -> None:
    partial = path.with_name(f".{path.name}")
    partial.write_text(json.dumps(number))
    partial.replace(path)
