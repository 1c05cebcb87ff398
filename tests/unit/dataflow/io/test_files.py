"""ReadFromCsv, ReadFromJsonLines and ReadFromText: what they read, and their errors when they cannot."""

from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.io.csv_files import CsvSource
from dataflow.io.json_values import JsonLinesSource
from dataflow.source import SplitStatus
from runners.direct import DirectRunner
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def read(transform: Any) -> list[Any]:
    """What a read gives, in order."""
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner(bundle_records=2))
    pipeline | transform | df.Map(seen.append)
    # The method of a list is pickled for its error alone; the direct runner calls this very one.
    pipeline.run()
    return seen


def test_csv_rows_are_mappings(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "name,n\nada,1\n\nbob,2\n")

    assert [{"name": "ada", "n": "1"}, {"name": "bob", "n": "2"}] == read(df.ReadFromCsv(path))


def test_patterns_read_files_in_order(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", "x\n2\n")
    write(tmp_path / "a.csv", "x\n1\n")

    assert [{"x": "1"}, {"x": "2"}] == sorted(
        read(df.ReadFromCsv(tmp_path / "*.csv")), key=lambda row: str(row["x"])
    )
    assert [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")] == [
        split.path for split in CsvSource(pattern=str(tmp_path / "*.csv")).splits(1)
    ]


def test_a_name_that_looks_like_a_pattern(tmp_path: Path) -> None:
    path = write(tmp_path / "rows[1].csv", "x\n1\n")

    assert [{"x": "1"}] == read(df.ReadFromCsv(path))


def test_json_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 1}\n\n[2]\n"x"')

    assert [{"a": 1}, [2], "x"] == read(df.ReadFromJsonLines(path))


def test_lines_of_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "to be\r\n\nor not\rto be")

    assert ["to be", "", "or not", "to be"] == read(df.ReadFromText(path))
    with pytest.raises(df.InputError, match=r"(?s)is not UTF-8 text, in line 2.*bytes 2 to 4"):
        read(df.ReadFromText(write(tmp_path / "b.txt", b"a\n\xff\n")))


def test_an_empty_json_file_has_no_values(tmp_path: Path) -> None:
    assert [] == read(df.ReadFromJsonLines(write(tmp_path / "a.jsonl", "")))


@pytest.mark.parametrize(
    ("content", "fact", "detail"),
    [
        ("", "has no CSV header", "the file is empty"),
        ("\n1,2\n", "has no CSV header", "first line is empty or binary"),
        (b"\xef\xbb\xbf\n", "has no CSV header", "first line is empty or binary"),
        (b"PK\x00\x01,\n", "has no CSV header", "first line is empty or binary"),
        ("a,b,a\n", "names a column twice", "['a', 'b', 'a']"),
        (b"a,\xff\n", "is not UTF-8 text", "0xff"),
        ('a,"b\n1,2\n', "has a header that is not well-formed CSV", "unexpected end of data"),
    ],
)
def test_csv_that_is_refused_when_the_pipeline_is_built(
    tmp_path: Path, content: str | bytes, fact: str, detail: str
) -> None:
    path = write(tmp_path / "bad.csv", content)
    with pytest.raises(df.InputError) as caught:
        df.Pipeline(DirectRunner()) | df.ReadFromCsv(path)

    assert caught.value.fact.startswith(
        "transform 'ReadFromCsv' (tests/unit/dataflow/io/test_files"
    )
    assert caught.value.fact.endswith(f"): {path} {fact}")
    assert detail in caught.value.detail


@pytest.mark.parametrize(
    ("content", "fact", "detail"),
    [
        ("a,b\n1,2\n3\n", "has a row with 1 field, its header has 2", "row: ['3']"),
        ("a,b\n1,2,3\n", "has a row with 3 fields, its header has 2", "row: ['1', '2', '3']"),
        ('a\n"x"y\n', "is not well-formed CSV", "line 2, bytes 2 to 7: "),
        ('a\n"x\n', "is not well-formed CSV", "unexpected end of data"),
        (b"a\n\xff\n", "is not UTF-8 text", "line 2, bytes 2 to 4: "),
        ('a\r1\r\n"2\r\n\n3"\n4,5\r', "has a row with 2 fields", "line 6, bytes 13 to 17: "),
    ],
)
def test_csv_that_is_refused_when_it_is_read(
    tmp_path: Path, content: str | bytes, fact: str, detail: str
) -> None:
    path = write(tmp_path / "bad.csv", content)
    with pytest.raises(df.InputError) as caught:
        read(df.ReadFromCsv(path))

    assert f"{path} {fact}" in caught.value.fact
    assert "'ReadFromCsv/Read(CsvSource)' (" in caught.value.fact
    assert detail in caught.value.detail
    assert "tries_per_record" in caught.value.hint


def test_json_that_is_refused(tmp_path: Path) -> None:
    """One that has nothing else when the pipeline is built, the others when they are read."""
    with pytest.raises(df.InputError, match="line that is not JSON"):
        df.Pipeline(DirectRunner()) | df.ReadFromJsonLines(write(tmp_path / "a", "{"))
    with pytest.raises(df.InputError, match=r"line that is not JSON, in line 2\n.*'nope"):
        read(df.ReadFromJsonLines(write(tmp_path / "b", "1\nnope\n")))


@pytest.mark.parametrize(
    "transform", [df.ReadFromCsv, df.ReadFromJsonLines, df.ReadFromText, df.ReadFromParquet]
)
def test_missing_files_are_refused(tmp_path: Path, transform: Any) -> None:
    with pytest.raises(df.InputError, match="there is no file") as caught:
        df.Pipeline(DirectRunner()) | transform(tmp_path / "none-*.csv")

    assert "where the pipeline runs" in caught.value.hint


@pytest.mark.parametrize(
    "transform", [df.ReadFromCsv, df.ReadFromJsonLines, df.ReadFromText, df.ReadFromParquet]
)
def test_a_folder_without_files_is_refused(tmp_path: Path, transform: Any) -> None:
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part").touch()
    with pytest.raises(df.InputError, match="there is no file"):
        df.Pipeline(DirectRunner()) | transform(tmp_path)


@pytest.mark.parametrize("source_class", [CsvSource, JsonLinesSource])
def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path, source_class: Any) -> None:
    """Not an endless read of nothing."""
    path = write(tmp_path / "a", "1\n2\n3\n")
    source = source_class(pattern=path)
    (split,) = source.splits(1)
    write(tmp_path / "a", "1\n2\n")
    reader = source.open(split, None, fence=0)
    with pytest.raises(df.InputError, match="became shorter"):
        reader.read(10)
    reader.close()


def test_event_times_and_the_watermark(tmp_path: Path) -> None:
    """The watermark stays behind the newest event time by the disorder; the end is the end."""
    path = write(tmp_path / "a.jsonl", "10\n30\n20\n40\n")
    source = JsonLinesSource(pattern=path, event_time=float, max_disorder_us=15_000_000)
    reader = source.open(source.splits(1)[0], None, fence=0)
    first, second, third = (reader.read(count) for count in (2, 1, 5))
    reader.close()

    assert [10_000_000, 30_000_000] == list(first.timestamps_us)
    assert 15_000_000 == first.watermark_us == second.watermark_us
    assert MAX_TIMESTAMP_US == third.watermark_us
    assert SplitStatus.FINISHED is third.status


def test_without_disorder_the_watermark_waits(tmp_path: Path) -> None:
    source = JsonLinesSource(pattern=write(tmp_path / "a", "10\n30\n"), event_time=float)
    reader = source.open(source.splits(1)[0], None, fence=0)

    assert MIN_TIMESTAMP_US == reader.read(1).watermark_us
    reader.close()


@pytest.mark.parametrize("broken", [lambda row: row["when"], lambda row: None])
def test_a_record_without_an_event_time(tmp_path: Path, broken: Any) -> None:
    path = write(tmp_path / "a.csv", "x\n1\n")
    with pytest.raises(df.InputError, match="has a record without an event time") as caught:
        read(df.ReadFromCsv(path, event_time=broken))

    assert "record: {'x': '1'}" in caught.value.detail


def test_max_disorder_needs_event_time(tmp_path: Path) -> None:
    with pytest.raises(df.PipelineError, match="max_disorder without event_time"):
        df.ReadFromCsv("x.csv", max_disorder=5)
    with pytest.raises(df.PipelineError, match="negative max_disorder"):
        df.ReadFromCsv("x.csv", event_time=float, max_disorder=-5)
