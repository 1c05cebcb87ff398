"""The tests are tested: Parquet and packed files that are read wrongly on purpose must fail the laws of sources."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as df
from dataflow.io import parquet_files
from dataflow.io.arrow_columns import Columns
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.packing import Unpacked
from dataflow.io.parquet_files import ParquetSource, _ParquetReader
from dataflow.testing.source_laws import BrokenRuleError, ReadStep, check_splits

Patch = pytest.MonkeyPatch
ROWS = 23


class Number(NamedTuple):
    """A typed row, every fifth of which is malformed in the file."""

    n: int


def goes_on_at_the_start_of_the_row_group(patch: Patch) -> None:
    begin = _ParquetReader._begin_group
    patch.setattr(_ParquetReader, "_begin_group", lambda self, _: begin(self, 0))


def goes_on_at_the_next_row_group(patch: Patch) -> None:
    begin = _ParquetReader._begin_group

    def skip(self: _ParquetReader, skipped: int) -> None:
        if skipped:
            self._group, self._row = self._group + 1, 0
        begin(self, 0)

    patch.setattr(_ParquetReader, "_begin_group", skip)


def a_row_group_is_in_two_splits(patch: Patch) -> None:
    split_file = ParquetSource.split_file

    def overlapping(self: ParquetSource, path: str, parts: int) -> Any:
        found = split_file(self, path, parts)
        return [attrs.evolve(each, first_group=max(0, each.first_group - 1)) for each in found]

    patch.setattr(ParquetSource, "split_file", overlapping)


def what_is_decoded_and_left_over_is_dropped(patch: Patch) -> None:
    take = _ParquetReader.take

    def dropping(self: _ParquetReader, max_records: int) -> Any:
        group, taken = self._group, take(self, max_records)
        if self._group == group and self._rows is not None and self._rows.num_rows:
            self._row += self._rows.num_rows
            self._rows = None
            if self._row >= self._rows_of_group():
                self._group, self._row = self._group + 1, 0
                self._begin_group(0)
        return taken

    patch.setattr(_ParquetReader, "take", dropping)


def a_missing_value_is_handed_over(patch: Patch) -> None:
    patch.setattr(Columns, "_refuse_nulls", lambda *_: None)


def a_batch_with_a_malformed_row_is_passed_over(patch: Patch) -> None:
    patch.setattr(_ParquetReader, "_read_one_by_one", lambda self, *_: self.batch((), ()))


def a_packed_file_goes_on_at_its_start(patch: Patch) -> None:
    patch.setattr(Unpacked, "seek", lambda *_: None)


def a_packed_file_ends_with_its_first_member(patch: Patch) -> None:
    def first_member(self: Any, size: int) -> bytes:
        if self._stream is None:
            self._stream = pa.BufferReader(_first_member(self._file.read()))
        return bytes(self._stream.read(size))

    patch.setattr(Unpacked, "read", first_member)


def _first_member(packed: bytes) -> bytes:
    second = packed.index(b"\x1f\x8b", 2)
    return gzip.decompress(packed[:second])


def check_parquet(folder: Path) -> None:
    values = [None if n % 5 == 4 else n for n in range(ROWS)]
    pq.write_table(pa.table({"n": values}), folder / "a.parquet", row_group_size=7)
    read: Any = df.ReadFromParquet(folder / "a.parquet", rows=Number)
    expected = [Number(n) for n in values if n is not None]
    check(lambda: read._source, expected)


def check_packed(folder: Path) -> None:
    lines = [b"%d\n" % n for n in range(ROWS)]
    members = [gzip.compress(b"".join(each)) for each in (lines[:9], lines[9:])]
    (folder / "a.gz").write_bytes(b"".join(members))
    check(lambda: JsonLinesSource(pattern=str(folder / "a.gz")), range(ROWS))


def check(make_source: Callable[[], Any], expected: Any) -> None:
    """Read in parts, by one reader and by many."""
    for reopens in (False, True):
        for size in (1, 2, 5):
            steps = [ReadStep(size, reopens=reopens)] * 50
            check_splits(make_source, expected, 3, steps)


@pytest.fixture
def _small_batches(monkeypatch: Patch) -> None:
    monkeypatch.setattr(parquet_files, "_DECODED_ROWS_MAX", 4)


@pytest.mark.slow
@pytest.mark.usefixtures("_small_batches")
@pytest.mark.parametrize(
    ("mutate", "law"),
    [
        (goes_on_at_the_start_of_the_row_group, check_parquet),
        (goes_on_at_the_next_row_group, check_parquet),
        (a_row_group_is_in_two_splits, check_parquet),
        (what_is_decoded_and_left_over_is_dropped, check_parquet),
        (a_missing_value_is_handed_over, check_parquet),
        (a_batch_with_a_malformed_row_is_passed_over, check_parquet),
        (a_packed_file_goes_on_at_its_start, check_packed),
        (a_packed_file_ends_with_its_first_member, check_packed),
    ],
    ids=lambda each: each.__name__,
)
def test_files_that_are_read_wrongly_are_noticed(
    mutate: Callable[[Patch], None],
    law: Callable[[Path], None],
    monkeypatch: Patch,
    tmp_path: Path,
) -> None:
    law(tmp_path)
    mutate(monkeypatch)

    with pytest.raises(BrokenRuleError):
        law(tmp_path)
