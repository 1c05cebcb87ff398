"""Python data sources of Spark read by us, and sources of ours read by Spark."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

import dataflow as df
from dataflow.errors import InputError, PipelineError
from dataflow.io.memory import MemorySource
from dataflow.source import Source
from dataflow.spark import data_sources
from dataflow.spark.data_sources import _PartitionReader
from dataflow.spark.offered import Offsets
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError
from runners.spark.session import spark_context
from tests.effort import by_profile
from tests.waiting import until

SCHEMA = StructType([StructField("name", StringType()), StructField("number", LongType())])


class Row(NamedTuple):
    number: int
    name: str


class Numbers(DataSource):
    """Rows of three partitions, of which one has Arrow."""

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return NumbersReader(int(self.options["count"]))


class NumbersReader(DataSourceReader):
    def __init__(self, count: int) -> None:
        self.count, self.prefix = count, ""

    def partitions(self) -> Sequence[InputPartition]:
        self.prefix = "n"  # what is noted here is there where it is read
        return [InputPartition(number) for number in range(3)]

    def read(self, partition: InputPartition) -> Any:
        rows = [
            (f"{self.prefix}{number}", number) for number in range(partition.value, self.count, 3)
        ]
        if partition.value == 1:
            names, numbers = zip(*rows, strict=True)
            return iter([pa.RecordBatch.from_pydict({"name": names, "number": numbers})])
        return iter(rows)


class TestDataSourceContract(SourceContract):
    examples = by_profile(10, nightly=100)
    splits_max = 3

    def make_source(self) -> Source:
        return df.ReadFromSparkDataSource(Numbers, {"count": "10"})._source

    def expected(self) -> list[Any]:
        return [{"name": f"n{number}", "number": number} for number in range(10)]


class _GoesOnOneTooFar(_PartitionReader):
    def __init__(self, source: Any, split: bytes, position: int) -> None:
        super().__init__(source, split, position)
        next(self._rows if position else iter(()), None)


def test_the_contract_rejects_a_reader_that_goes_on_one_too_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_sources, "_PartitionReader", _GoesOnOneTooFar)
    with pytest.raises(BrokenRuleError):
        TestDataSourceContract().test_it_goes_on_behind_any_record()


def test_rows_are_typed_and_have_event_times() -> None:
    p = df.Pipeline()
    numbers = p | df.ReadFromSparkDataSource(
        Numbers({"count": "10"}), rows=Row, event_time=lambda row: row.number
    )
    found = df.collect(
        numbers
        | df.WindowInto(df.FixedWindows(5))
        | df.Map(lambda row: row.number)
        | df.CombineGlobally(sum).without_defaults()
    )
    assert sorted(found) == [10, 35]


class _Short(NumbersReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield ("alone",)


def test_what_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(NamedTuple):
        colour: str

    with pytest.raises(PipelineError, match="no column 'colour'"):
        df.ReadFromSparkDataSource(Numbers, {"count": "1"}, rows=Other)
    with pytest.raises(PipelineError, match="cannot read"):
        df.ReadFromSparkDataSource(NumbersReader)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="does not say its partitions"):
        df.collect(df.Pipeline() | df.ReadFromSparkDataSource(Numbers))
    monkeypatch.setattr(Numbers, "reader", lambda self, _: _Short(3))
    with pytest.raises(InputError, match="not of its schema"):
        df.collect(df.Pipeline() | df.ReadFromSparkDataSource(Numbers, {"count": "1"}))


def test_offsets_read_again_what_was_between_them() -> None:
    source = MemorySource([(f"n{number}", number) for number in range(25)])
    offsets = Offsets(source, SCHEMA.names, 3)
    start = offsets.initial()
    rows, end = offsets.read(start)
    assert sorted(number for _, number in rows) == list(range(25))
    for reader in (offsets, Offsets(source, SCHEMA.names, 3)):
        assert reader.between(start, end) == rows
        assert reader.between(end, end) == []
    assert offsets.read(end) == ([], end)


class Shop(df.Source[dict[str, Any]]):
    """Lines of a file that grows."""

    is_bounded = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def splits(self, desired: int) -> list[str]:
        return ["shop"]

    def open(self, split: str, position: int | None, *, fence: int) -> df.SourceReader:
        return ShopReader(self.path, position or 0)


class ShopReader(df.SourceReader):
    def __init__(self, path: Path, position: int) -> None:
        self.path, self.position = path, position

    def read(self, max_records: int) -> df.SourceBatch:
        lines = self.path.read_text().splitlines()[self.position :][:max_records]
        self.position += len(lines)
        return df.SourceBatch(
            values=[{"number": int(line), "name": "shop"} for line in lines],
            timestamps_us=[0] * len(lines),
            position=self.position,
            watermark_us=0,
            status=df.SplitStatus.ACTIVE if lines else df.SplitStatus.IDLE,
        )


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_a_source_of_ours(spark_master: str, tmp_path: Path) -> None:
    session = SparkSession(spark_context("job", master=spark_master))
    rows = [(f"n{number}", number) for number in range(100)]
    session.dataSource.register(df.spark_data_source(MemorySource(rows), SCHEMA, name="ours"))
    frame = session.read.format("ours").option("splits", 3).load()
    assert sorted(map(tuple, frame.collect()), key=lambda row: row[1]) == rows
    assert frame.rdd.getNumPartitions() == 3
    path = tmp_path / "shop"
    path.write_text("".join(f"{number}\n" for number in range(10)))
    session.dataSource.register(df.spark_data_source(Shop(path), SCHEMA, name="shop"))
    found: list[int] = []

    def start() -> Any:
        stream = session.readStream.format("shop").load().writeStream
        return stream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c")).start()

    def keep(batch: DataFrame, _: int) -> None:
        found.extend(row.number for row in batch.collect())

    until_all(start, found, 10)
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in range(10, 15))
    until_all(start, found, 15)
    assert found == list(range(15))
    with pytest.raises(Exception, match="has no end"):
        session.read.format("shop").load().collect()


def until_all(start: Callable[[], Any], found: list[int], number: int) -> None:
    """Run a query until there are so many, and end it."""
    query = start()
    until(lambda: len(found) >= number or query.exception(), lambda: str(query.exception()))
    query.processAllAvailable()
    query.stop()
    query.awaitTermination()
