"""Streaming data sources of Spark as an input: each row once, and committed when it is durable."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

import dataflow as df
from dataflow.errors import InputError, PipelineError
from dataflow.io.memory import MemorySource
from dataflow.source import Source, SplitStatus
from dataflow.spark import data_source_streams as streams
from dataflow.spark.data_source_streams import Position, _StreamReader
from dataflow.testing.source_contract import SourceContract
from tests.effort import by_profile
from tests.killing import kill_one_after_the_other, seeded
from tests.processes import descendants, in_a_group, kill
from tests.spark_numbers import GrowingNumbers, committed, grow
from tests.waiting import until

pytestmark = pytest.mark.slow

COUNT = 24


class Number(NamedTuple):
    number: int


def stream_of(folder: Path, kind: str = "partitioned", **options: Any) -> Source:
    given = {"folder": str(folder), "kind": kind}
    read = df.ReadFromSparkDataSource(GrowingNumbers, given, rows=Number, stream=True, **options)
    return read._source


class StreamContract(SourceContract):
    examples = by_profile(10, nightly=100)
    splits_max = 1
    kind = "partitioned"

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.made = 0

    def make_source(self) -> Source:
        self.made += 1
        folder = self.folder / f"{self.made}"
        folder.mkdir()
        grow(folder, COUNT)
        return stream_of(folder, self.kind, event_time=lambda row: row.number, max_disorder=10)

    def expected(self) -> list[Number]:
        return [Number(number) for number in range(COUNT)]

    def check_all_ways(self) -> None:
        self.test_it_goes_on_behind_any_record()
        self.test_it_can_be_read_by_any_schedule()


class TestPartitionedStreamContract(StreamContract): ...


class TestOldStreamContract(StreamContract):
    kind = "old"
    late_us = 20_000_000  # all odd ones are behind all even ones


class TestSimpleStreamContract(StreamContract):
    kind = "simple"


class TestOfferedStreamContract(StreamContract):
    """A source of ours, as Spark has it, as a source of ours."""

    late_us = COUNT * 1_000_000

    def make_source(self) -> Source:
        rows = [(f"n{number}", number) for number in range(COUNT)]
        offered = df.spark_data_source(MemorySource(rows), GrowingNumbers({}).schema())
        return df.ReadFromSparkDataSource(offered, {}, rows=Number, stream=True)._source


class _ForgetsRows(_StreamReader):
    def _partition(self) -> Any:
        self._row = 0
        return super()._partition()


class _CommitsWhatIsBeingRead(_StreamReader):
    def committed(self, position: Position | None) -> None:
        super().committed(position and (position[1] or position[0], *position[1:]))


class _ForgetsPartitions(_StreamReader):
    def __init__(self, source: Any, split: str, position: Position | None) -> None:
        super().__init__(source, split, position)
        if self._end is not None:
            self._left = self._left[1:] or self._left


class _SkipsToTheEnd(_StreamReader):
    def __init__(self, source: Any, split: str, position: Position | None) -> None:
        super().__init__(source, split, position)
        self._start, self._end, self._left, self._row = self._end or self._start, None, (), 0


@pytest.mark.parametrize(
    "broken", [_ForgetsRows, _CommitsWhatIsBeingRead, _ForgetsPartitions, _SkipsToTheEnd]
)
def test_a_reader_that_is_broken_is_noticed(
    broken: type[_StreamReader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_StreamReader", broken)
    contract = StreamContract()
    contract.folder, contract.made = tmp_path, 0
    with pytest.raises((AssertionError, InputError)):
        contract.check_all_ways()


def read_all(reader: df.SourceReader, most: int = 3) -> list[int]:
    found: list[int] = []
    while (batch := reader.read(most)).status is not SplitStatus.IDLE:
        found += [row.number for row in batch.values]
    return found


@pytest.mark.parametrize("kind", ["partitioned", "old", "simple"])
def test_what_is_new_is_read_and_what_is_durable_is_committed(tmp_path: Path, kind: str) -> None:
    source = stream_of(tmp_path, kind)
    (split,) = source.splits(4)
    reader = source.open(split, None, fence=1)
    assert read_all(reader) == []
    grow(tmp_path, 10)
    assert sorted(read_all(reader)) == list(range(10))
    position = reader.read(1).position
    grow(tmp_path, 20)
    inside = reader.read(1).position
    reader.committed(inside)
    assert committed(tmp_path) == 10  # not what is being read
    reader.close()
    again = source.open(split, inside, fence=2)
    assert len(read_all(again)) == 9
    # Whoever does not go on where it was committed has lost what is gone, and says so.
    again.committed(again.read(1).position)
    assert committed(tmp_path) == 20
    with pytest.raises(InputError, match="has not the rows of a partition again"):
        source.open(split, inside, fence=3).read(1)
    source.open(split, position, fence=3).committed(None)


class _Stuck(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {}

    def read(self, start: Any) -> Any:
        return iter([("a", 1)]), start


class _Failing(_Stuck):
    def read(self, start: Any) -> Any:
        raise OSError("nobody answers")


class _Short(_Stuck):
    def read(self, start: Any) -> Any:
        return (iter([("alone",), ("two", 2)]), {"n": 1}) if not start else (iter(()), start)


def test_what_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stream_of(tmp_path, "simple")

    def read_by(reader: type[_Stuck]) -> df.SourceBatch:
        monkeypatch.setattr(GrowingNumbers, "simpleStreamReader", lambda *_: reader())
        (split,) = source.splits(1)
        return source.open(split, None, fence=1).read(9)

    with pytest.raises(InputError, match="its offset does not move on"):
        read_by(_Stuck)
    with pytest.raises(InputError, match=r"(?s)cannot be read on.*OSError: nobody answers"):
        read_by(_Failing)
    batch = read_by(_Short)
    assert batch.values == [Number(2)]
    assert "not of its schema" in str(batch.set_aside[0].error)

    class Batch(DataSource):
        def schema(self) -> StructType:
            return GrowingNumbers({}).schema()

    with pytest.raises(InputError, match="does not say where its stream begins"):
        df.ReadFromSparkDataSource(Batch, stream=True)._source.splits(1)
    with pytest.raises(PipelineError, match="max_disorder=3, and is no stream"):
        df.ReadFromSparkDataSource(Batch, max_disorder=3)


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["partitioned", "simple"])
def test_a_stream_of_spark_survives_any_kill(store_dsn: str, tmp_path: Path, kind: str) -> None:
    """Each number is written once, though what is committed is gone."""
    folder, output, log = tmp_path / "numbers", tmp_path / "out", tmp_path / "job.log"
    folder.mkdir()
    words = [
        sys.executable, "-m", "tests.spark_numbers_job", str(folder), kind, store_dsn, str(output)
    ]  # fmt: skip
    end = 0

    def written() -> Counter[int]:
        files = [each for each in output.glob("*.txt") if not each.name.startswith(".")]
        return Counter(int(line) for each in files for line in each.read_text().splitlines())

    def progress() -> list[int]:
        nonlocal end
        end += 5
        grow(folder, end)
        found = written()
        assert max(found.values(), default=1) == 1
        return [found.total(), committed(folder)]

    kill_one_after_the_other(words, log, ["driver", "worker", "everything"], seeded(), progress)
    with in_a_group(words, log) as family:
        until(lambda: written() == Counter(range(end)), log.read_text)
        until(lambda: committed(folder) == end, log.read_text)
        kill([*descendants(family), family])
