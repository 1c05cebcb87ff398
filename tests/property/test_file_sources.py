"""Files are read once: splits cover each record exactly, and any position resumes with the rest."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataflow.errors import InputError
from dataflow.io import csv_files, file_reader, text_files, whole_lines
from dataflow.io.csv_files import CsvSource
from dataflow.io.csv_quotes import QuoteScan
from dataflow.io.files import FileSource
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.text_lines import TextLinesSource
from dataflow.set_aside import SetAside
from dataflow.source import SplitStatus
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
    monkeypatch.setattr(text_files, "SPLIT_BYTES_MIN", 1)
    for module in (text_files, csv_files, file_reader):
        monkeypatch.setattr(module, "PIECE_BYTES", 3)
    monkeypatch.setattr(whole_lines, "READ_BYTES", 2)


#: Also mixed in one file.
LINE_ENDS = st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=3)


def csv_text(rows: Sequence[Sequence[str]], line_ends: Sequence[str], *, ends: bool) -> str:
    text = ""
    for row, line_end in zip(
        [("a", "b", 'the "third"\none'), *rows], cycle(line_ends), strict=False
    ):
        buffer = io.StringIO(newline="")
        csv.writer(buffer, lineterminator="", quoting=csv.QUOTE_ALL).writerow(row)
        text += buffer.getvalue() + line_end
    return text if ends else text.rstrip("\r\n")


#: How a file is packed: by its name, and where its bytes are cut in two members.
PACKINGS = st.none() | st.tuples(st.sampled_from([".gz", ".zst"]), st.floats(0, 1))


def packed(path: Path, packing: tuple[str, float] | None) -> str:
    """The path of a file, or of a packed copy of it, whose members are packed one by one."""
    if packing is None:
        return str(path)
    end, share = packing
    data, codec = path.read_bytes(), {".gz": "gzip", ".zst": "zstd"}[end]
    cut = round(len(data) * share)
    copy = path.with_name(path.name + end)
    members = [pa.compress(each, codec, asbytes=True) for each in (data[:cut], data[cut:])]
    copy.write_bytes(b"".join(members))
    return str(copy)


def read_all(
    source: FileSource, split: Any, records_max: int, position: Any = None
) -> Iterator[tuple[list[Any], Any]]:
    """Batches of a split with the position after each."""
    reader = source.open(split, position, fence=0)
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
            remaining = read_all(source, split, 1_000, position)
            resumed = [value for values, _ in remaining for value in values]

            assert rest == resumed


@same_file
@given(
    rows=ROWS,
    line_ends=LINE_ENDS,
    ends=st.booleans(),
    bom=st.booleans(),
    pieces=st.integers(1, 9),
    most=st.integers(1, 5),
    packing=PACKINGS,
)
def test_csv(
    tmp_path: Path,
    rows: Any,
    line_ends: list[str],
    ends: bool,
    bom: bool,
    pieces: int,
    most: int,
    packing: Any,
) -> None:
    """Packed or not, quoted commas, quotes and line breaks, any line end, a byte order mark, no line end at the end."""
    path = tmp_path / "rows.csv"
    text = csv_text(rows, line_ends, ends=ends)
    path.write_bytes(text.encode("utf-8-sig" if bom else "utf-8"))
    expected = [dict(zip(("a", "b", 'the "third"\none'), row, strict=True)) for row in rows]

    check_every_record_once(CsvSource(pattern=packed(path, packing)), expected, pieces, most)


#: Any text at all, malformed for the most part.
CSV_TEXT = st.lists(
    st.sampled_from(["a", "1", ",", ",", '"', '"', "\n", "\r\n", "\r\n", "\r", "é"]), max_size=40
).map("".join)


@pytest.mark.slow
@settings(same_file, max_examples=200)
@given(text=CSV_TEXT, pieces=st.integers(1, 9), most=st.integers(1, 5))
def test_rows_are_those_of_the_standard_library_and_no_byte_is_passed_over_in_silence(
    tmp_path: Path, text: str, pieces: int, most: int
) -> None:
    """However the file is divided: a row, an empty line, or a record set aside with its bytes."""
    check_any_text(tmp_path / "any.csv", text, pieces, most)


def check_any_text(path: Path, text: str, pieces: int, most: int) -> None:
    """The rows of a CSV file of two columns, and what is set aside, are right."""
    header = "x,y\r"
    text = text.removeprefix("\n")  # or it would be the header's
    path.write_bytes((header + text).encode())
    source = CsvSource(pattern=str(path))
    values, aside = [], list[SetAside]()
    for split in source.splits(pieces):
        with closing(source.open(split, None, fence=0)) as reader:
            status = SplitStatus.ACTIVE
            while status is not SplitStatus.FINISHED:
                batch = reader.read(most)
                status = batch.status
                assert batch.records <= most
                values += [(row["x"], row["y"]) for row in batch.values]
                aside += batch.set_aside

    places = [each.origin for each in aside if each.origin is not None]
    assert len(places) == len(aside)
    for each in places:
        before = (header + text).encode()[: each.start_bytes].decode()
        assert each.line == 1 + len(io.StringIO(before, newline=None).read().split("\n")) - 1
        assert each.raw == path.read_bytes()[each.start_bytes : each.end_bytes]
    rest, at = b"", 0
    for each in places:
        rest += path.read_bytes()[at : each.start_bytes]
        at = each.end_bytes
    rest += path.read_bytes()[at:]
    # Without what was set aside the file is well-formed, and has these rows.
    rows = csv.reader(io.StringIO(rest.decode(), newline=""), strict=True)
    assert [tuple(row) for row in rows if row][1:] == values
    with suppress(csv.Error):
        everything = csv.reader(io.StringIO(header + text, newline=""), strict=True)
        good = [tuple(row) for row in everything if len(row) == 2]
        assert good[1:] == values


@pytest.mark.slow
@settings(max_examples=300)
@given(text=st.text(st.sampled_from('a,"\n\r'), max_size=30), cuts=st.sets(st.integers(0, 30)))
def test_quotes_are_followed_in_pieces_of_any_size(text: str, cuts: set[int]) -> None:
    """Whether a record goes on behind each line end is what the standard library finds without ``strict``."""
    data, scan, whole = text.encode(), QuoteScan(), QuoteScan()
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in pairwise(bounds):
        scan.pass_over(data[start:end])
    whole.pass_over(data)
    marked = [*csv.reader(io.StringIO(text + "\nmark", newline=""))]

    assert scan.is_in_quotes == whole.is_in_quotes == (marked[-1] != ["mark"])


@same_file
@given(
    values=st.lists(JSON, max_size=12),
    line_ends=st.lists(
        st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\r"]), min_size=1, max_size=3
    ),
    ends=st.booleans(),
    bom=st.booleans(),
    pieces=st.integers(1, 9),
    most=st.integers(1, 5),
    packing=PACKINGS,
)
def test_json_lines(
    tmp_path: Path,
    values: Any,
    line_ends: list[str],
    ends: bool,
    bom: bool,
    pieces: int,
    most: int,
    packing: Any,
) -> None:
    """Packed or not, empty lines too, and any line end."""
    path = tmp_path / "values.jsonl"
    lines = zip(map(json.dumps, values), cycle(line_ends), strict=False)
    text = "".join(map("".join, lines))
    text = text if ends else text.rstrip("\r\n")
    path.write_bytes(text.encode("utf-8-sig" if bom else "utf-8"))

    check_every_record_once(JsonLinesSource(pattern=packed(path, packing)), values, pieces, most)


@same_file
@given(
    text=st.text(st.sampled_from("ab\n\r é€😀\x85\u2028"), max_size=30),
    bom=st.booleans(),
    pieces=st.integers(1, 9),
    most=st.integers(1, 5),
    packing=PACKINGS,
)
def test_text(tmp_path: Path, text: str, bom: bool, pieces: int, most: int, packing: Any) -> None:
    """Packed or not: the lines of Python's text files, empty ones too."""
    path = tmp_path / "lines.txt"
    path.write_bytes(text.encode("utf-8-sig" if bom else "utf-8"))
    expected = [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]

    check_every_record_once(TextLinesSource(pattern=packed(path, packing)), expected, pieces, most)


#: What `json` makes of them, or that they are none: numbers of any size, parts of text, and what is nearly JSON.
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
def test_a_json_value_is_that_of_the_standard_library(lines: list[str]) -> None:
    """Whatever parses many lines at a time; to the type of each number, the bits of floats and the order of members."""
    source, expected = JsonLinesSource(pattern="values"), None
    with suppress(json.JSONDecodeError, RecursionError):
        expected = repr([json.loads(line) for line in lines if line.strip()])
    read = None
    with suppress(InputError):
        read = repr(source.records("values", [f"{line}\n".encode() for line in lines]))

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
