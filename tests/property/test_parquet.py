"""Parquet files are read once: every row exactly, from any position, with the values that Arrow reads."""

import struct
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import IntColumn, Rows
from dataflow.io import parquet_files
from dataflow.io.parquet_files import ParquetSource
from dataflow.source import SourceBatch, SplitStatus
from runners.direct import DirectRunner
from tests.property.test_file_sources import check_every_record_once
from windowing.timestamps import MAX_TIMESTAMP_US

same_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - bounds are naive

#: Without a zone, as what is in such a column.
MICROSECOND = datetime(1970, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001 - that is the point


class Sale(NamedTuple):
    """Every type of field that travels as a column."""

    shop: str
    amount: int
    price: float | None
    paid: bool
    at: datetime


class Order(NamedTuple):
    """Types of fields that do not."""

    total: Decimal
    day: date | None
    items: list[int]
    raw: bytes
    address: dict[str, str] | None
    anything: Any


SALES = st.builds(
    Sale,
    st.text(max_size=4),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.floats(allow_nan=False),
    st.booleans(),
    INSTANTS,
)
ORDERS = st.builds(
    Order,
    st.decimals(-999, 999, places=2),
    st.none() | st.dates(),
    st.lists(st.integers(-9, 9), max_size=3),
    st.binary(max_size=3),
    st.none() | st.fixed_dictionaries({"street": st.text(max_size=3)}),
    st.none() | st.text(max_size=3),
)
SALE_SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "Europe/Berlin")),
        ("more", pa.int8()),
        ("shop", pa.string()),
        ("amount", pa.int64()),
        ("price", pa.float64()),
        ("paid", pa.bool_()),
    ]
)
ORDER_SCHEMA = pa.schema(
    [
        ("total", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("items", pa.list_(pa.int64())),
        ("raw", pa.binary()),
        ("address", pa.struct([("street", pa.string())])),
        ("anything", pa.string()),
    ]
)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode even tiny row groups in several batches."""
    monkeypatch.setattr(parquet_files, "_DECODED_ROWS_MAX", 3)


def write(path: Path, rows: Sequence[Any], schema: pa.Schema, group_rows: Sequence[int]) -> None:
    """A file whose row groups have so many rows, the last one the rest; some may be empty."""
    table = pa.Table.from_pylist([{"more": 1, **row._asdict()} for row in rows], schema)
    start = 0
    with pq.ParquetWriter(path, schema) as writer:
        for size in group_rows:
            writer.write_table(table.slice(start, size))
            start += size
        writer.write_table(table.slice(start))


@same_file
@given(
    rows=st.lists(SALES, max_size=20) | st.lists(ORDERS, max_size=12),
    group_rows=st.lists(st.integers(0, 7), max_size=5),
    parts=st.integers(1, 9),
    most=st.integers(1, 5),
    typed=st.booleans(),
)
def test_every_row_once(
    tmp_path: Path,
    rows: list[Any],
    group_rows: list[int],
    parts: int,
    most: int,
    typed: bool,
) -> None:
    """Typed rows, in columns or not, and mappings; however the file is divided, and from any position."""
    path = tmp_path / "rows.parquet"
    kind: Any = Order if rows and isinstance(rows[0], Order) else Sale
    schema = ORDER_SCHEMA if kind is Order else SALE_SCHEMA
    write(path, rows, schema, group_rows)
    if typed:
        read: Any = df.ReadFromParquet(path, rows=kind)
        expected: list[Any] = rows
    else:
        read = df.ReadFromParquet(path, columns=kind._fields)
        expected = [row._asdict() for row in rows]

    check_every_record_once(read._source, expected, parts, most)


class Name(NamedTuple):
    """Text, which may be missing."""

    name: str | None
    number: int


@same_file
@given(
    names=st.lists(st.sampled_from(["", "ab", "ü", "a longer one", None, b"\xff"]), max_size=60),
    group_rows=st.lists(st.integers(0, 20), max_size=3),
    most=st.integers(1, 9),
    dictionary_bytes=st.sampled_from([1, 12, 1 << 20]),
    length_bytes=st.sampled_from([0, 4, 1 << 20]),
)
def test_text_is_that_of_the_file_however_it_is_stored_and_decoded(
    tmp_path: Path,
    names: list[str | bytes | None],
    group_rows: list[int],
    most: int,
    dictionary_bytes: int,
    length_bytes: int,
) -> None:
    """In dictionaries, those that became too large, and not; read as indices or not.  What is no text is set aside."""
    path = tmp_path / "names.parquet"
    raw = pa.array(
        [name.encode() if isinstance(name, str) else name for name in names], pa.binary()
    )
    text = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)
    table = pa.table({"name": text, "number": pa.array(range(len(names)), pa.int64())})
    options: Any = {"dictionary_pagesize_limit": dictionary_bytes, "write_batch_size": 2}
    start = 0
    with pq.ParquetWriter(path, table.schema, data_page_size=1, **options) as writer:
        for size in [*group_rows, len(names)]:
            writer.write_table(table.slice(start, size))
            start += size
    read: Any = df.ReadFromParquet(path, rows=Name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_files, "_LENGTH_BYTES", length_bytes)
        parts = batches(read._source, most)

    numbered = [(name, number) for number, name in enumerate(names)]
    assert [each for part in parts for each in part.values] == [
        each for each in numbered if not isinstance(each[0], bytes)
    ]
    assert sum(len(part.set_aside) for part in parts) == names.count(b"\xff")


@same_file
@given(group_rows=st.lists(st.integers(0, 9), max_size=9), parts=st.integers(1, 12))
def test_splits_tile_the_row_groups(tmp_path: Path, group_rows: list[int], parts: int) -> None:
    """Without gap or overlap, and as many as are wanted where there are enough row groups of one size."""
    path = tmp_path / "rows.parquet"
    row = Sale("a", 1, None, True, datetime(2026, 1, 1, tzinfo=UTC))
    write(path, [row] * sum(group_rows), SALE_SCHEMA, group_rows)
    groups = pq.ParquetFile(path).metadata.num_row_groups
    splits = ParquetSource(pattern=str(path)).splits(parts)

    assert 0 == splits[0].first_group
    assert groups == splits[-1].end_group
    assert all(a.end_group == b.first_group for a, b in pairwise(splits))
    assert len(splits) <= parts


def test_equal_row_groups_are_dealt_out_evenly(tmp_path: Path) -> None:
    row = Sale("a", 1, None, True, datetime(2026, 1, 1, tzinfo=UTC))
    write(tmp_path / "a.parquet", [row] * 24, SALE_SCHEMA, [2] * 11)
    splits = ParquetSource(pattern=str(tmp_path / "a.parquet")).splits(4)

    assert [(0, 3), (3, 6), (6, 9), (9, 12)] == [(s.first_group, s.end_group) for s in splits]


def batches(source: Any, most: int) -> list[SourceBatch]:
    """All batches of a file with one split."""
    (split,) = source.splits(1)
    found: list[SourceBatch] = []
    with closing(source.open(split, None, fence=0)) as reader:
        while not found or found[-1].status is not SplitStatus.FINISHED:
            found.append(reader.read(most))
            assert found[-1].records <= most
    return found


@same_file
@given(
    times=st.lists(INSTANTS, min_size=1, max_size=9),
    most=st.integers(1, 4),
    kind=st.sampled_from(["us", "ms", "s", "naive", "text", "number"]),
)
def test_event_times_are_those_of_the_column(
    tmp_path: Path, times: list[datetime], most: int, kind: str
) -> None:
    """Which is no part of the elements; the watermark follows at the distance of the disorder."""
    unit = kind if kind in {"ms", "s"} else "us"
    step = {"us": 1, "ms": 1_000, "s": 1_000_000}[unit]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    wanted = [(at - epoch) // timedelta(microseconds=1) // step * step for at in times]
    numbers = pa.array([each // step for each in wanted], pa.int64())
    column: Any = numbers.cast(pa.timestamp(unit, None if kind == "naive" else "UTC"))
    options: dict[str, Any] = {"time_zone": "UTC"} if kind == "naive" else {}
    if kind == "number":
        column, options = numbers, {"event_time_unit": "us"}
    if kind == "text":
        column = pa.array([(epoch + timedelta(microseconds=each)).isoformat() for each in wanted])
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": pa.array(range(len(times))), "at": column}), path)

    class N(NamedTuple):
        n: int

    read: Any = df.ReadFromParquet(
        path, rows=N, event_time="at", max_disorder=2, max_ahead=None, **options
    )
    parts = batches(read._source, most)

    assert wanted == [at_us for part in parts for at_us in part.timestamps_us]
    seen = 0
    for part in parts[:-1]:
        seen += len(part.values)
        assert part.watermark_us == max(wanted[:seen]) - 2_000_000
    assert parts[-1].watermark_us == MAX_TIMESTAMP_US


VALUES = st.sampled_from([1, None, 1 << 63])


@same_file
@given(
    values=st.lists(st.tuples(VALUES, VALUES), max_size=9),
    group_rows=st.lists(st.integers(0, 4), max_size=3),
    most=st.integers(1, 4),
)
def test_a_row_that_cannot_be_handed_over_is_set_aside_and_the_others_are_not(
    tmp_path: Path, values: list[tuple[int | None, int | None]], group_rows: list[int], most: int
) -> None:
    """A missing value or event time, or a number too large; with the number of the row."""
    path = tmp_path / "rows.parquet"
    table = pa.table(
        {
            "n": pa.array([n for n, _ in values], pa.uint64()),
            "at": pa.array([at for _, at in values], pa.uint64()),
        }
    )
    start = 0
    with pq.ParquetWriter(path, table.schema) as writer:
        for size in [*group_rows, len(values)]:
            writer.write_table(table.slice(start, size))
            start += size

    class N(NamedTuple):
        n: int

    read: Any = df.ReadFromParquet(path, rows=N, event_time="at")
    parts = batches(read._source, most)
    aside = [each for part in parts for each in part.set_aside]
    good = [row == (1, 1) for row in values]

    assert [(1,)] * sum(good) == [row for part in parts for row in part.values]
    assert [{"n": n, "at": at} for (n, at), ok in zip(values, good, strict=True) if not ok] == [
        each.element for each in aside
    ]
    numbers = [number for number, ok in enumerate(good, 1) if not ok]
    assert [f"in row {number}" for number in numbers] == [
        each.error.fact.rpartition(", ")[2] for each in aside
    ]


def test_typed_rows_are_columns_of_the_file(tmp_path: Path) -> None:
    """No row is made; event times are a column too."""
    row = Sale("a", 1, None, True, datetime(2026, 1, 1, tzinfo=UTC))
    write(tmp_path / "a.parquet", [row] * 5, SALE_SCHEMA, [])
    read: Any = df.ReadFromParquet(tmp_path / "a.parquet", rows=Sale, event_time="at")
    batch = batches(read._source, 9)[0]

    assert isinstance(batch.values, Rows)
    assert isinstance(batch.timestamps_us, IntColumn)
    assert batch.values._made is None


def table_file(path: Path, **columns: pa.Array) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


class Pair(NamedTuple):
    """Two fields."""

    n: int
    at: datetime


NAIVE = pa.array([0], pa.timestamp("us"))
ZONED = pa.array([0], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"n": [1]}, {"rows": Pair}, r"a\.parquet has no column 'at'\n.*its columns: n"),
        ({"n": ["x"], "at": ZONED}, {"rows": Pair}, r"a\.parquet has a column 'n' that is no int"),
        ({"n": [1.0], "at": ZONED}, {"rows": Pair}, r"'n' that is no int\n.*is double"),
        ({"n": [1], "at": NAIVE}, {"rows": Pair}, r"'at' of times without a time zone"),
        ({"n": [1]}, {"event_time": "at"}, r"has no column 'at'"),
        ({"n": [[1]]}, {"event_time": "n"}, r"'n' that cannot be the event time"),
        ({"at": NAIVE}, {"event_time": "at"}, r"'at' of times without a time zone"),
        (
            {"at": ZONED},
            {"event_time": "at", "event_time_unit": "ms"},
            r"event_time_unit was given",
        ),
        ({"n": [1]}, {"columns": ["m"]}, r"has no column 'm'"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_pipeline_is_built(
    tmp_path: Path, columns: Any, options: Any, message: str
) -> None:
    path = table_file(tmp_path / "a.parquet", **columns)
    with pytest.raises(df.InputError, match=rf"(?s)'ReadFromParquet' \(tests/.*{message}"):
        df.Pipeline(DirectRunner()) | df.ReadFromParquet(path, **options)


@pytest.mark.parametrize("content", [b"", b"n\n1\n", b"PAR1" + b"x" * 90 + b"PAR1"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(df.InputError, match=r"a\.parquet is no Parquet file that can be read"):
        df.Pipeline(DirectRunner()) | df.ReadFromParquet(path)


def test_a_file_that_is_cut_or_damaged_or_changed_is_an_error(tmp_path: Path) -> None:
    """Never rows that are missing, or others, without a word."""
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"n": list(range(1000))}), path, compression="gzip", use_dictionary=False
    )
    data = path.read_bytes()
    source = ParquetSource(pattern=str(path))
    (split,) = source.splits(1)
    path.write_bytes(data[:-50])
    with pytest.raises(df.InputError, match="is no Parquet file"):
        source.splits(1)
    with pytest.raises(df.InputError, match="has changed since the job began"):
        source.open(split, None, fence=0)
    (footer,) = struct.unpack("<I", data[-8:-4])
    middle = (len(data) - footer) // 2
    path.write_bytes(data[:middle] + bytes(64) + data[middle + 64 :])
    with (
        closing(source.open(split, None, fence=0)) as reader,
        pytest.raises(df.InputError, match=r"(?s)a\.parquet cannot be read on.*row group 0"),
    ):
        reader.read(1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": Pair, "columns": ["n"]}, "columns and rows"),
        ({"rows": dict}, "needs a row type"),
        ({"columns": []}, "cannot read the columns"),
        ({"columns": "n"}, "cannot read the columns"),
        ({"event_time_unit": "s"}, "event_time_unit='s'"),
        ({"event_time": "n", "event_time_unit": "ns"}, "event_time_unit='ns'"),
        ({"time_zone": "Mars/Olympus"}, "time_zone='Mars/Olympus'"),
    ],
)
def test_arguments_that_do_not_suit_each_other(options: Any, message: str) -> None:
    with pytest.raises(df.PipelineError, match=message):
        df.ReadFromParquet("a.parquet", **options)


def test_a_field_of_no_column_is_refused() -> None:
    class Odd(NamedTuple):
        n: complex

    with pytest.raises(df.PipelineError, match=r"(?s)cannot take the field 'n' of Odd.*complex"):
        df.ReadFromParquet("a.parquet", rows=Odd)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1_999], pa.timestamp("ns", "UTC")), datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (pa.array([1_999], pa.timestamp("ns")), MICROSECOND),
        (pa.array([[1_999]], pa.list_(pa.timestamp("ns"))), [MICROSECOND]),
        (pa.array([5], pa.uint8()), 5),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pa.array([{"a": None}]), {"a": None}),
    ],
)
def test_values_of_mappings(tmp_path: Path, array: pa.Array, expected: Any) -> None:
    """Digits below the microsecond are dropped; times without a zone stay such."""
    path = table_file(tmp_path / "a.parquet", x=array)
    read: Any = df.ReadFromParquet(path)

    assert [{"x": expected}] == list(batches(read._source, 5)[0].values)


def test_a_column_with_a_dot_in_its_name(tmp_path: Path) -> None:
    path = table_file(tmp_path / "a.parquet", **{"a.b": [1], "a": [{"b": 2}]})
    read: Any = df.ReadFromParquet(path, columns=["a.b"])

    assert [{"a.b": 1}] == list(batches(read._source, 5)[0].values)


def test_event_times_by_a_function_of_the_row(tmp_path: Path) -> None:
    path = table_file(tmp_path / "a.parquet", n=[3, 5])
    read: Any = df.ReadFromParquet(path, event_time=lambda row: row["n"])

    assert [3_000_000, 5_000_000] == list(batches(read._source, 5)[0].timestamps_us)
