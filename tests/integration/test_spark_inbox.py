"""Micro-batches of Spark as an input: each once, whoever is killed, and however often it is repeated."""

import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as df
from dataflow.errors import InputError
from dataflow.source import Source, SplitStatus
from dataflow.spark import inbox as inboxes
from dataflow.testing.source_contract import SourceContract
from tests.effort import by_profile
from tests.processes import descendants, in_a_group, kill
from tests.waiting import until

pytestmark = pytest.mark.slow


class Row(NamedTuple):
    number: int
    at: datetime


def at(number: int) -> datetime:
    return datetime.fromtimestamp(1_000_000 + number, UTC)


@attrs.define
class StandIn:
    """A frame and its session, as far as an inbox asks for them; it writes files as Spark does."""

    numbers: list[int]
    query: str = "query"
    files: int = 2
    fails: bool = False

    @property
    def sparkSession(self) -> Any:  # noqa: N802 - Spark's name
        return self

    sparkContext = conf = write = sparkSession  # noqa: N815 - likewise

    def getLocalProperty(self, _: str) -> str:  # noqa: N802 - Spark's name
        return self.query

    def get(self, _: str) -> str:
        return "INT96"

    def set(self, _: str, value: str) -> None:
        pass

    def parquet(self, uri: str) -> None:
        folder = Path(urlparse(uri).path)
        folder.mkdir()
        for file in range(self.files):
            numbers = self.numbers[file :: self.files]
            times = pa.array(map(at, numbers), pa.timestamp("us", "UTC"))
            table = pa.table({"number": pa.array(numbers, pa.int64()), "at": times})
            pq.write_table(table, folder / f"part-{file}.parquet", row_group_size=2)
            if self.fails:
                raise OSError("the disk is full")
        (folder / "_SUCCESS").touch()


def put(folder: Path, number: int, *numbers: int, **options: Any) -> None:
    frame: Any = StandIn(list(numbers), **options)
    df.SparkInbox(folder)(frame, number)


def reader_of(folder: Path, position: Any = None) -> df.SourceReader:
    source = df.ReadFromSparkInbox(folder, rows=Row, event_time="at")._source
    return source.open(str(folder), position, fence=1)


def read_all(reader: df.SourceReader) -> list[int]:
    found: list[int] = []
    while (batch := reader.read(3)).status is not SplitStatus.IDLE:
        found += [row.number for row in batch.values]
    return found


class TestInboxContract(SourceContract):
    """Batches of several files and row groups, of which one is empty and one has no file."""

    examples = by_profile(10, nightly=100)
    splits_max = 1

    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        put(tmp_path / "full", 4, *range(5))
        put(tmp_path / "full", 5)
        put(tmp_path / "full", 6, files=0)
        put(tmp_path / "full", 7, *range(5, 9))

    def make_source(self) -> Source:
        shutil.rmtree(self.folder / "inbox", ignore_errors=True)
        shutil.copytree(self.folder / "full", self.folder / "inbox")
        return df.ReadFromSparkInbox(
            self.folder / "inbox", rows=Row, event_time="at", max_disorder=10
        )._source

    def expected(self) -> list[Row]:
        return [Row(number, at(number)) for number in range(9)]


def test_a_micro_batch_that_is_repeated_is_there_once(tmp_path: Path) -> None:
    reader = reader_of(tmp_path)
    assert read_all(reader) == []
    with pytest.raises(OSError, match="disk is full"):
        put(tmp_path, 0, 1, 2, fails=True)
    assert read_all(reader) == []
    put(tmp_path, 0, 1, 2)
    put(tmp_path, 0, 1, 2)
    assert sorted(read_all(reader)) == [1, 2]
    position = reader.read(1).position
    reader.committed(position)
    assert not list(tmp_path.glob("batch-*"))
    # It was read and deleted, and Spark does not know that it was done.
    put(tmp_path, 0, 1, 2)
    put(tmp_path, 1, 3)
    assert read_all(reader_of(tmp_path, position)) == [3]
    assert read_all(reader_of(tmp_path)) == [3]
    with pytest.raises(InputError, match="another query"):
        put(tmp_path, 2, 4, query="another")
    shutil.rmtree(tmp_path / "batch-000000000001")
    put(tmp_path, 2, 4)
    with pytest.raises(InputError, match="micro-batch 1 of Spark is gone"):
        read_all(reader_of(tmp_path, position))
    assert not list(tmp_path.glob("_partial*"))


def test_an_inbox_that_forgets_what_was_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inboxes, "read_up_to", lambda _: -1)
    with pytest.raises(AssertionError):
        test_a_micro_batch_that_is_repeated_is_there_once(tmp_path)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_row_is_read_once_though_spark_and_we_are_killed(tmp_path: Path) -> None:
    files, inbox, log = tmp_path / "files", tmp_path / "inbox", tmp_path / "log"
    files.mkdir()
    added = 0

    def add() -> None:
        nonlocal added
        lines = [
            json.dumps({"number": number, "at": at(number).isoformat()})
            for number in range(added, added + 5)
        ]
        partial = files / f".{added}"
        partial.write_text("\n".join(lines))
        partial.rename(files / f"{added:06d}.json")
        added += 5

    found: list[int] = []
    position: Any = None
    for _ in range(12):
        add()
    places = map(str, (files, inbox, tmp_path / "state"))
    command = [sys.executable, "-m", "tests.spark_inbox_job", *places]
    for wanted in (15, 30, None):
        with in_a_group(command, log) as family:
            reader = reader_of(inbox, position)

            def has_come(reader: df.SourceReader = reader, wanted: int | None = wanted) -> bool:
                nonlocal position
                batch = reader.read(2)
                found.extend(row.number for row in batch.values)
                position = batch.position
                if position is not None:
                    reader.committed(position)
                return len(found) >= (added if wanted is None else wanted)

            until(has_come, log.read_text)
            kill([*descendants(family), family])
            add()
            reader.close()
    found += read_all(reader_of(inbox, position))
    assert len(found) == len(set(found))
    assert sorted(found) == list(range(len(found)))
    assert len(found) >= added - 5
