"""Files are read once: splits cover each record exactly, and any position resumes with the rest."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataflow.errors import InputError
from dataflow.io import files
from dataflow.io.csv_files import CsvSource
from dataflow.io.files import FileSource, FileSplit
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.source import SplitStatus
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Everything that matters to CSV, and characters of one to four bytes.
TEXT = st.text(st.sampled_from('ab,"\n\r é€😀'), max_size=6)
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
same_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even tiny files, and scan them in tiny steps."""
    monkeypatch.setattr(files, "SPLIT_BYTES_MIN", 1)
    monkeypatch.setattr(files, "_SCAN_BYTES", 3)


def csv_text(rows: Sequence[Sequence[str]], line_end: str, *, ends: bool) -> str:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b", 'the "third"\none'), *rows])
    text = buffer.getvalue()
    return text if ends else text.removesuffix(line_end)


def read_all(
    source: FileSource, split: FileSplit, records_max: int
) -> Iterator[tuple[list[Any], int]]:
    """Batches of a split with the position after each."""
    reader = source.open(split, None)
    status = SplitStatus.ACTIVE
    while status is not SplitStatus.FINISHED:
        batch = reader.read(records_max)
        status = batch.status

        assert len(batch.values) == len(batch.timestamps_us) <= records_max
        assert batch.watermark_us == (
            MAX_TIMESTAMP_US if status is SplitStatus.FINISHED else MIN_TIMESTAMP_US
        )
        yield list(batch.values), batch.position
    reader.close()
    reader.close()


def check_every_record_once(
    source: FileSource, expected: list[Any], pieces: int, most: int
) -> None:
    """Whatever the pieces and batches; and from each position the rest, exactly."""
    source.check()
    splits = source.splits(pieces)
    per_split = [list(read_all(source, split, most)) for split in splits]

    assert expected == [value for batches in per_split for values, _ in batches for value in values]
    for split, batches in zip(splits, per_split, strict=True):
        for index, (_, position) in enumerate(batches):
            rest = [value for values, _ in batches[index + 1 :] for value in values]
            reader = source.open(split, position)
            resumed = list(reader.read(1_000).values)
            reader.close()

            assert rest == resumed


@same_file
@given(
    rows=ROWS,
    line_end=st.sampled_from(["\n", "\r\n"]),
    ends=st.booleans(),
    bom=st.booleans(),
    pieces=st.integers(1, 9),
    most=st.integers(1, 5),
)
def test_csv(
    tmp_path: Path, rows: Any, line_end: str, ends: bool, bom: bool, pieces: int, most: int
) -> None:
    """Quoted commas, quotes and line breaks, CRLF, a byte order mark, no line end at the end."""
    path = tmp_path / "rows.csv"
    text = csv_text(rows, line_end, ends=ends)
    path.write_bytes(text.encode("utf-8-sig" if bom else "utf-8"))
    expected = [dict(zip(("a", "b", 'the "third"\none'), row, strict=True)) for row in rows]

    check_every_record_once(CsvSource(pattern=str(path)), expected, pieces, most)


@same_file
@given(
    values=st.lists(JSON, max_size=12),
    line_end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    ends=st.booleans(),
    bom=st.booleans(),
    pieces=st.integers(1, 9),
    most=st.integers(1, 5),
)
def test_json_lines(
    tmp_path: Path, values: Any, line_end: str, ends: bool, bom: bool, pieces: int, most: int
) -> None:
    """Empty lines too."""
    path = tmp_path / "values.jsonl"
    text = line_end.join(map(json.dumps, values)) + (line_end if ends else "")
    path.write_bytes(text.encode("utf-8-sig" if bom else "utf-8"))

    check_every_record_once(JsonLinesSource(pattern=str(path)), values, pieces, most)


#: What `json` says of them, or that they are none: numbers of any size, parts of text, and what is nearly JSON.
LINES = st.one_of(
    st.recursive(
        JSON | st.floats() | st.integers(-(1 << 70), 1 << 70) | st.text(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
        max_leaves=4,
    ).map(json.dumps),
    st.text(st.sampled_from('0123456789.eE+-nulltrfas[]{}:," \\udDcC8\t'), max_size=12),
    st.sampled_from(
        ["NaN", "-Infinity", '"\\ud800"', '{"a":1,"a":2}', "1e400", "01", "[" * 5_000, "-0", "1 2"]
    ),
)


@given(lines=st.lists(LINES, min_size=1, max_size=4))
def test_a_json_value_is_what_the_standard_library_says(lines: list[str]) -> None:
    """Whatever parses many lines at a time; to the type of each number, the bits of floats and the order of members."""
    source, expected = JsonLinesSource(pattern="values"), None
    with suppress(json.JSONDecodeError, RecursionError):
        expected = repr([json.loads(line) for line in lines if line.strip()])
    read = None
    with suppress(InputError):
        read = repr(source.records("values", [f"{line}\n".encode() for line in lines], 0))

    assert expected == read


@same_file
@given(lines=st.lists(st.integers(1, 30), min_size=1, max_size=20), pieces=st.integers(1, 30))
def test_splits_tile_the_file(tmp_path: Path, lines: list[int], pieces: int) -> None:
    """From the first record to the end of the file, without gap or overlap, each on a record."""
    path = tmp_path / "numbers.jsonl"
    path.write_text("".join("1" * digits + "\n" for digits in lines))
    splits = JsonLinesSource(pattern=str(path)).splits(pieces)
    starts = {sum(lines[:count]) + count for count in range(len(lines) + 1)}

    assert 0 == splits[0].start_bytes
    assert path.stat().st_size == splits[-1].end_bytes
    assert all(a.end_bytes == b.start_bytes for a, b in pairwise(splits))
    assert {split.start_bytes for split in splits} <= starts
    assert len(splits) <= pieces
