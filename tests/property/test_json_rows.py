"""Lines become the same rows whichever parser takes them, a position resumes with the rest, and a bad line is named."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import Rows
from dataflow.io import json_rows, text_files, whole_lines
from dataflow.io.json_rows import JsonRowsSource
from dataflow.io.text_files import FileSplit
from dataflow.rows import row_fields
from dataflow.source import SourceBatch, SplitStatus
from windowing.timestamps import MAX_TIMESTAMP_US

INT64 = st.integers(-(2**63), 2**63 - 1)


class Sample(NamedTuple):
    at: int
    size: float
    name: str | None
    ok: bool


#: Texts with everything that JSON escapes, and characters of one to four bytes.
TEXT = st.text(st.sampled_from('ab"\\\n\r\t {}é€😀\u2028'), max_size=5)
ROWS = st.builds(
    Sample,
    st.integers(-(10**9), 10**9) | INT64 | st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT | st.none(),
    st.booleans(),
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": ")])
#: What may stand before and after an object, or between lines.
BLANKS = st.sampled_from(["", "", "", " ", "\r"])
GAPS = st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n", "\n \r\n"])
EXTRAS = st.dictionaries(st.sampled_from(["x", "y"]), st.lists(INT64, max_size=2), max_size=1)
same_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even tiny files into splits and blocks."""
    monkeypatch.setattr(text_files, "SPLIT_BYTES_MIN", 1)
    monkeypatch.setattr(whole_lines, "READ_BYTES", 2)
    monkeypatch.setattr(json_rows, "_BLOCK_BYTES_MIN", 1)


def source(path: Path, **options: Any) -> JsonRowsSource:
    fields = row_fields(Sample, "here")
    return JsonRowsSource(pattern=str(path), row_type=Sample, fields=fields, **options)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, list[Sample]]:
    rows = draw(st.lists(ROWS, max_size=6))
    text = ""
    for number, row in enumerate(rows):
        members: dict[str, Any] = {**row._asdict(), **draw(EXTRAS)}
        if row.name is None and draw(st.booleans()):
            del members["name"]
        names = draw(st.permutations(list(members)))
        line = json.dumps(
            {name: members[name] for name in names},
            separators=draw(SEPARATORS),
            ensure_ascii=draw(st.booleans()),
        )
        is_last = number == len(rows) - 1
        end = draw(GAPS | st.just("")) if is_last else draw(GAPS)
        text += draw(BLANKS) + line + draw(BLANKS) + end
    return text, rows


def batches(
    reads: JsonRowsSource, split: FileSplit, position: int | None, records_max: int
) -> Iterator[SourceBatch]:
    status = SplitStatus.ACTIVE
    with closing(reads.open(split, position, fence=0)) as reader:
        while status is not SplitStatus.FINISHED:
            batch = reader.read(records_max)
            for each in batch.set_aside:
                raise each.error
            status = batch.status
            assert len(batch.values) == len(batch.timestamps_us) <= records_max
            yield batch


@same_file
@given(file=texts(), pieces=st.integers(1, 3), records_max=st.integers(1, 4))
def test_every_line_is_read_once_from_any_position(
    tmp_path: Path, file: tuple[str, list[Sample]], pieces: int, records_max: int
) -> None:
    text, rows = file
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text.encode())
    reads = source(path)

    found: list[Sample] = []
    for split in reads.splits(pieces):
        parts = list(batches(reads, split, None, records_max))
        values = [value for part in parts for value in part.values]
        found += values
        for number, part in enumerate(parts):
            rest = batches(reads, split, part.position, records_max + 1)
            behind = [value for later in parts[number + 1 :] for value in later.values]
            assert [value for later in rest for value in later.values] == behind

    assert list(map(repr, found)) == list(map(repr, rows))
    assert all(type(row) is Sample for row in found)


@same_file
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@given(rows=st.lists(ROWS.filter(lambda row: abs(row.at) < 2**63), min_size=1))
def test_plain_lines_become_columns(tmp_path: Path, line_end: str, rows: list[Sample]) -> None:
    """Or the law above would hold because every line is parsed alone."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes("".join(json.dumps(row._asdict()) + line_end for row in rows).encode())
    reads = source(path)

    (split,) = reads.splits(1)
    parts = list(batches(reads, split, None, 100))

    assert all(isinstance(part.values, Rows) for part in parts)


BAD_LINES = [
    ('{"at": 1, "size": 2.0, "ok": true', "is not JSON"),
    ('{"at": 1, "size": 2.0, "ok": true} {}', "is not JSON"),
    ("[1]", "is no Sample"),
    ("7", "is no Sample"),
    ('{"size": 2.0, "ok": true}', "is no Sample"),
    ('{"at": null, "size": 2.0, "ok": true}', "is no Sample"),
    ('{"at": 1.5, "size": 2.0, "ok": true}', "is no Sample"),
    ('{"at": "1", "size": 2.0, "ok": true}', "is no Sample"),
    ('{"at": 1, "size": "2", "ok": true}', "is no Sample"),
    ('{"at": 1, "size": 2.0, "ok": 1}', "is no Sample"),
    ('{"at": true, "size": 2.0, "ok": true}', "is no Sample"),
    ('{"at": 1, "size": 2.0, "ok": true, "name": 3}', "is no Sample"),
]


@pytest.mark.parametrize(("line", "what"), BAD_LINES)
@pytest.mark.parametrize("before", [0, 1, 30])
def test_a_bad_line_is_named(tmp_path: Path, line: str, what: str, before: int) -> None:
    good = json.dumps(Sample(1, 2.0, "n", ok=True)._asdict())
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*[good] * before, line, good]))

    reads = source(path)
    with pytest.raises(df.InputError, match=r"rows\.jsonl has a line that") as raised:
        list(batches(reads, reads.splits(1)[0], None, 1000))
    assert what in str(raised.value)
    assert repr(line)[1:-1] in str(raised.value)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"at": 1, "size": 2.0, "ok": true, "x": "\xff"}\n')

    reads = source(path)
    with pytest.raises(df.InputError, match="not UTF-8"):
        list(batches(reads, reads.splits(1)[0], None, 1000))


@same_file
@given(
    times=st.lists(st.integers(-(10**12), 10**12), min_size=1),
    records_max=st.integers(1, 4),
    unit=st.sampled_from([("s", 10**6), ("ms", 10**3), ("us", 1)]),
)
def test_event_times_are_those_of_the_field(
    tmp_path: Path, times: list[int], records_max: int, unit: tuple[str, int]
) -> None:
    path = tmp_path / "rows.jsonl"
    times = [at // unit[1] for at in times]
    rows = [Sample(at, 0.5, None, ok=True)._asdict() for at in times]
    path.write_text("\n".join(map(json.dumps, rows)))
    read = df.ReadFromJsonLines(
        path, rows=Sample, event_time="at", event_time_unit=unit[0], max_disorder=2
    )

    reads: Any = read._source
    parts = list(batches(reads, reads.splits(1)[0], None, records_max))

    wanted = [at * unit[1] for at in times]
    assert [at_us for part in parts for at_us in part.timestamps_us] == wanted
    seen = 0
    for part in parts[:-1]:
        seen += len(part.values)
        assert part.watermark_us == max(wanted[:seen]) - 2_000_000
    assert parts[-1].watermark_us == MAX_TIMESTAMP_US


def test_a_float_can_be_the_event_time_and_too_large_a_number_is_refused(tmp_path: Path) -> None:
    class At(NamedTuple):
        at: float

    path = tmp_path / "rows.jsonl"
    path.write_text('{"at": 1.5}\n{"at": 1e40}\n')
    reads: Any = df.ReadFromJsonLines(path, rows=At, event_time="at", event_time_unit="ms")._source
    with closing(reads.open(reads.splits(1)[0], None, fence=0)) as reader:
        assert list(reader.read(1).timestamps_us) == [1500]
        (large,) = reader.read(1).set_aside
    assert "without an event time" in str(large.error)


def test_text_can_be_the_event_time(tmp_path: Path) -> None:
    """It is read in columns and row by row; text without a zone is set aside with its line."""

    class At(NamedTuple):
        at: str

    path = tmp_path / "rows.jsonl"
    texts = [
        "1970-01-01T00:00:01.5Z",
        "1970-01-01T02:00:02+02:00",
        "1970-01-01 01:00:03 Europe/Paris",
    ]
    path.write_text("".join(f'{{"at": "{text}"}}\n' for text in [*texts, "1970-01-01T00:00:04"]))
    reads: Any = df.ReadFromJsonLines(path, rows=At, event_time="at")._source
    for batch_records in (1, 3):
        times_us: list[int] = []
        aside: list[df.SetAside] = []
        with closing(reads.open(reads.splits(1)[0], None, fence=0)) as reader:
            for _ in range(8):
                batch = reader.read(batch_records)
                times_us += batch.timestamps_us
                aside += batch.set_aside
        assert times_us == [1_500_000, 2_000_000, 3_000_000]
        assert ["'1970-01-01T00:00:04' has no time zone" in str(each.error) for each in aside] == [
            True
        ]


def test_the_unit_is_of_numbers(tmp_path: Path) -> None:
    class At(NamedTuple):
        at: str

    with pytest.raises(df.PipelineError, match="which is text"):
        df.ReadFromJsonLines(tmp_path, rows=At, event_time="at", event_time_unit="s")


class NoRow:
    at: int


class Listed(NamedTuple):
    at: list[int]


class Optional(NamedTuple):
    at: int | None


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"event_time": "at"}, "with rows"),
        ({"event_time_unit": "ms"}, "with rows"),
        ({"rows": NoRow}, "needs a row type"),
        ({"rows": Listed}, "cannot take the field 'at'"),
        ({"rows": Optional, "event_time": "at"}, "cannot take event times"),
        ({"rows": Sample, "event_time": "when"}, "cannot take event times"),
        ({"rows": Sample, "event_time": "name"}, "cannot take event times"),
        ({"rows": Sample, "event_time": "at", "event_time_unit": "h"}, "event_time_unit='h'"),
        ({"rows": Sample, "event_time_unit": "ms"}, "event_time_unit='ms'"),
    ],
)
def test_what_cannot_be_read_is_refused_when_built(options: dict[str, Any], what: str) -> None:
    with pytest.raises(df.PipelineError) as raised:
        df.ReadFromJsonLines("rows.jsonl", **options)
    assert what in str(raised.value)
