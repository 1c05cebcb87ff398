"""How large an input is, as a source estimates it before anything is read."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import dataflow as df
from dataflow.io import files
from dataflow.io.arrival import ArrivalTimeSource
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.memory import MemorySource
from dataflow.io.parquet_files import ParquetSource

LINE = b'{"a": 1}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_bytes(LINE * (number + 1))
    return tmp_path


def lines(folder: Path, pattern: str, system: Any = None, **more: Any) -> JsonLinesSource:
    """A source of what matches a pattern below a folder."""
    if system is None:
        return JsonLinesSource(pattern=f"{folder}/{pattern}", **more)
    below = fs.SubTreeFileSystem(str(folder), system)
    return JsonLinesSource(pattern=pattern, filesystem=below, **more)


@pytest.mark.parametrize("system", [None, fs.LocalFileSystem()], ids=["here", "arrow"])
@pytest.mark.parametrize(("pattern", "count"), [("*.jsonl", 6), ("1.jsonl", 2)])
def test_files_have_the_sum_of_their_bytes(
    folder: Path, pattern: str, count: int, system: Any
) -> None:
    assert count * len(LINE) == lines(folder, pattern, system).estimate_size()


def test_packed_files_are_more_than_their_bytes(folder: Path) -> None:
    packed = gzip.compress(LINE)
    (folder / "3.jsonl.gz").write_bytes(packed)
    pq.write_table(pa.table({"a": [1]}), folder / "rows.parquet")
    size = (folder / "rows.parquet").stat().st_size

    found = lines(folder, "[2-3].jsonl*").estimate_size()

    assert 3 * len(LINE) + files.UNPACKED_TIMES * len(packed) == found
    assert len(packed) == lines(folder, "3.jsonl.gz", compression="none").estimate_size()
    table = ParquetSource(pattern=str(folder / "rows.parquet"))
    assert files.UNPACKED_TIMES * size == table.estimate_size()


def test_very_many_files_are_not_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SIZES_MAX", 2)

    assert lines(folder, "*.jsonl").estimate_size() is None
    assert lines(folder, "[0-1].jsonl").estimate_size() == 3 * len(LINE)


@pytest.mark.parametrize("system", [None, fs.LocalFileSystem()], ids=["here", "arrow"])
def test_a_file_that_has_gone_is_for_the_check_to_report(
    folder: Path, system: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lines(folder, "*.jsonl", system)
    paths = source.paths()
    (folder / "1.jsonl").unlink()
    monkeypatch.setattr(JsonLinesSource, "paths", lambda _: paths)

    assert source.estimate_size() is None


def test_no_file_is_an_error(folder: Path) -> None:
    with pytest.raises(df.InputError, match=r"there is no file"):
        lines(folder, "*.csv").estimate_size()


def test_a_wrapped_source_is_as_large(folder: Path) -> None:
    source = lines(folder, "*.jsonl")

    assert ArrivalTimeSource(source).estimate_size() == source.estimate_size()


def test_of_values_in_memory_nobody_knows_what_they_stand_for() -> None:
    assert MemorySource(["s3://a/very/large/file"]).estimate_size() is None
