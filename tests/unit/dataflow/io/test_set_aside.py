"""Records that a reader cannot hand over: dead letters with their place, or an error that says where they are."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dataflow as df
from dataflow.computations import CsvInjector, CsvWatcher, JsonLinesInjector, JsonLinesWatcher
from runners.direct import DirectRunner


class At(NamedTuple):
    at: int


def seen_and_dead(transform: Any, *, bundle_records: int = 2) -> tuple[list[Any], list[Any]]:
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner(bundle_records=bundle_records, tries_per_record=1))
    pipeline | "read" >> transform | df.Map(seen.append)
    return seen, list(pipeline.run().dead_letters())


def time_of(record: Any) -> Any:
    return None if record["at"] == "never" else float(record["at"])


REASONS = [
    "could not convert string to float",
    "without an event time",
    "has a row with 1 field",
    "is not well-formed CSV",
]
CSV = 'at,text\n1,a\nnever,b\r\n2\nsoon,"c\nd"\r3,"e""f"\n4,"g" h\n'
JSON = '{"at": 1}\n{"at": "never"}\r\nnope\r\r{"at": [5]}\n{"at": 3}\n{"at": "x\xff"}\n'


@pytest.mark.parametrize("bundle_records", [1, 2, 100])
def test_a_malformed_row_of_csv_is_a_dead_letter(tmp_path: Path, bundle_records: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(CSV.encode())
    seen, dead = seen_and_dead(
        df.ReadFromCsv(path, event_time=time_of), bundle_records=bundle_records
    )

    assert [("1", "a"), ("3", 'e"f')] == [(row["at"], row["text"]) for row in seen]
    assert [
        (3, b"never,b\r\n", "without an event time"),
        (4, b"2\n", "has a row with 1 field"),
        (5, b'soon,"c\nd"\r', "could not convert string to float"),
        (8, b'4,"g" h\n', "is not well-formed CSV"),
    ] == [
        (
            each["origin"]["line"],
            each["origin"]["raw"],
            next(part for part in REASONS if part in each["error"]),
        )
        for each in dead
    ]
    for each in dead:
        origin = each["origin"]
        assert str(path) == origin["path"]
        assert path.read_bytes()[origin["start_bytes"] : origin["end_bytes"]] == origin["raw"]
        assert each["element"] is None
        assert f"line {origin['line']}, bytes {origin['start_bytes']} to " in each["error"]
        assert "'read/Read(CsvSource)'" in each["error"]
        assert each["stage"] == "read/Read(CsvSource)"
        assert 1 == each["tries"]


@pytest.mark.parametrize("rows", [None, At])
def test_a_malformed_line_of_json_is_a_dead_letter(tmp_path: Path, rows: type | None) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(JSON.encode("latin-1"))
    if rows is None:
        read = df.ReadFromJsonLines(path, event_time=time_of)
    else:
        read = df.ReadFromJsonLines(path, rows=rows, event_time="at")
    seen, dead = seen_and_dead(read)

    assert 2 == len(seen)
    lines = [(each["origin"]["line"], each["origin"]["start_bytes"]) for each in dead]
    assert [(2, 10), (3, 27), (5, 33), (7, 55)] == lines
    assert b"".join(each["origin"]["raw"] for each in dead).replace(b"\r", b"").split(b"\n") == [
        b'{"at": "never"}',
        b'nope{"at": [5]}',
        b'{"at": "x\xff"}',
        b"",
    ]


@pytest.mark.parametrize(
    ("content", "event_time", "reason"),
    [
        ("at\n1\n2,3\n", lambda row: float(row["at"]), "row: ['2', '3']"),
        ("at\n1\nx\n", lambda row: float(row["at"]), "could not convert string to float: 'x'"),
        ("at\n1\nx\n", lambda row: None if row["at"] == "x" else 1, "event_time gave None"),
    ],
)
def test_without_dead_letters_the_error_has_the_place_and_what_to_do(
    tmp_path: Path, content: str, event_time: Callable[[Any], Any], reason: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.ReadFromCsv(path, event_time=event_time)
    with pytest.raises(df.InputError) as caught:
        pipeline.run()

    message = str(caught.value)
    assert str(path) in message
    assert "line 3, bytes 5 to " in message
    assert reason in message
    assert "test_set_aside.py:" in message
    assert "df.Pipeline(..., tries_per_record=1)" in caught.value.hint


@pytest.mark.slow
def test_a_quote_that_is_never_closed_takes_no_memory_and_names_its_beginning(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.csv"
    rest = b"1,2\n" * 500_000
    path.write_bytes(b'x,y\n0,0\n1,"\n' + rest)
    seen, dead = seen_and_dead(df.ReadFromCsv(path), bundle_records=1000)
    (letter,) = dead

    assert [{"x": "0", "y": "0"}] == seen
    assert (3, 8) == (letter["origin"]["line"], letter["origin"]["start_bytes"])
    assert path.stat().st_size == letter["origin"]["end_bytes"]
    assert 1 << 16 == len(letter["origin"]["raw"])
    assert f"field larger than field limit ({csv.field_size_limit()})" in letter["error"]


@pytest.mark.parametrize("kind", [CsvWatcher, CsvInjector])
def test_a_file_without_a_header_is_one_dead_letter_and_the_others_are_read(
    tmp_path: Path, kind: Any
) -> None:
    for name, content in [("a", "at\n1\nx\n"), ("b", "\n1\n"), ("c", "at\n2\n")]:
        (tmp_path / f"{name}.csv").write_text(content)
    (tmp_path / "end").touch()
    options: dict[str, Any] = (
        {"max_disorder": 60, "until": "end"} if kind is CsvWatcher else {"expected": {"b.csv": 0}}
    )
    source = kind(tmp_path / "*.csv", event_time=lambda row: float(row["at"]), **options)
    source.check = lambda: None  # the files were not there yet
    seen, dead = seen_and_dead(df.Read(source))

    assert ["1", "2"] == sorted(row["at"] for row in seen)
    places = sorted((Path(each["origin"]["path"]).name, each["origin"]["line"]) for each in dead)
    assert [("a.csv", 3), ("b.csv", 1)] == places
    assert any("has no CSV header" in each["error"] for each in dead)


@pytest.mark.parametrize("kind", [None, JsonLinesWatcher, JsonLinesInjector])
def test_a_first_line_that_is_malformed_is_no_reason_to_leave_out_the_file(
    tmp_path: Path, kind: Any
) -> None:
    (tmp_path / "end").touch()
    (tmp_path / "a.jsonl").write_text('{\n{"at": 7}\n')
    pattern = tmp_path / "*.jsonl"
    if kind is None:
        read: Any = df.ReadFromJsonLines(pattern, event_time=time_of)
    elif kind is JsonLinesWatcher:
        read = df.Read(kind(pattern, event_time=time_of, max_disorder=60, until="end"))
    else:
        read = df.Read(kind(pattern, event_time=time_of))
    seen, dead = seen_and_dead(read)

    assert [{"at": 7}] == seen
    assert [1] == [each["origin"]["line"] for each in dead]
