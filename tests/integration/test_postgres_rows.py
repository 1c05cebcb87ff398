"""Rows of tables and queries of a real server: the contract of sources, values of all types, and what is refused."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, cast
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

import dataflow as df
from dataflow.columns import Rows
from dataflow.errors import InputError, PipelineError
from dataflow.io.postgres_reads import table_rows
from dataflow.io.postgres_reads.row_form import RowForm
from dataflow.io.postgres_reads.table_rows import RowsReader, RowsSource
from dataflow.source import Source, SourceReader, SplitStatus
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError
from runners.direct import DirectRunner
from tests.effort import by_profile

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

ROWS = 400
WHOLE = (0, None, None)


def run(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(statement.encode())


def make_table(dsn: str) -> None:
    """Rows over many blocks, some of them dead."""
    run(dsn, "CREATE TABLE numbers (n int8, name text, at timestamptz)")
    insert = "SELECT n, repeat('x', 300) || n, to_timestamp(n) FROM generate_series(1, {}) n"
    run(dsn, f"INSERT INTO numbers {insert.format(2 * ROWS)}")
    run(dsn, "DELETE FROM numbers WHERE n % 2 = 0")
    run(dsn, "ANALYZE numbers")


def expected_rows() -> list[dict[str, Any]]:
    return [
        {"n": n, "name": "x" * 300 + str(n), "at": datetime.fromtimestamp(n, UTC)}
        for n in range(1, 2 * ROWS, 2)
    ]


class _Contract(SourceContract):
    examples = by_profile(3, nightly=200)
    form = RowForm()
    table = "numbers"

    @pytest.fixture(autouse=True)
    def _in_database(self, store_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table_rows, "PART_PAGES_MIN", 2)
        make_table(store_dsn)
        self.dsn = store_dsn

    def make_source(self) -> Source:
        is_query = self.table != "numbers"
        return RowsSource(table=self.table, is_query=is_query, dsn=self.dsn, form=self.form)

    def expected(self) -> Iterable[Any]:
        return expected_rows()


class TestTable(_Contract):
    form = RowForm(event_time="at")

    def test_it_is_divided(self) -> None:
        assert len(self.make_source().splits(4)) == 4


class Number(NamedTuple):
    n: int
    at: datetime


@pytest.mark.nightly
class TestColumns(_Contract):
    form = RowForm(row_type=Number, fields=Number._fields, event_time="at")

    def test_they_are_columns(self) -> None:
        reader = self.make_source().open(WHOLE, None, fence=1)
        assert reader.reads_columns
        assert isinstance(reader.read(10).values, Rows)
        reader.close()

    def expected(self) -> Iterable[Any]:
        return [Number(row["n"], row["at"]) for row in expected_rows()]


@pytest.mark.nightly
class TestColumnsUntilARowIsNone(_Contract):
    """The second half is read one by one: a field is NULL, which a `NamedTuple` takes."""

    form = RowForm(row_type=Number, fields=Number._fields)

    @pytest.fixture(autouse=True)
    def _with_nulls(self, _in_database: None) -> None:
        run(self.dsn, f"UPDATE numbers SET at = NULL WHERE n > {ROWS}")

    def expected(self) -> Iterable[Any]:
        return [
            Number(row["n"], row["at"] if row["n"] <= ROWS else cast("datetime", None))
            for row in expected_rows()
        ]


def read_to_the_end(reader: SourceReader) -> list[Any]:
    found: list[Any] = []
    is_finished = False
    while not is_finished:
        batch = reader.read(50)
        found += batch.values
        is_finished = batch.status is SplitStatus.FINISHED
    reader.close()
    return found


class TestQuery(_Contract):
    table = "SELECT n, at FROM numbers WHERE n < 100 ORDER BY n"

    def expected(self) -> Iterable[Any]:
        return [{"n": row["n"], "at": row["at"]} for row in expected_rows() if row["n"] < 100]


class _GoesOnOneTooFar(RowsReader):
    def __init__(self, source: RowsSource, split: Any, position: int) -> None:
        super().__init__(source, split, position + (position > 0))


def test_the_contract_rejects_a_reader_that_goes_on_one_too_far(
    numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_rows, "RowsReader", _GoesOnOneTooFar)
    contract = TestTable()
    contract.dsn = numbers
    with pytest.raises(BrokenRuleError):
        contract.test_it_goes_on_behind_any_record()


@dataclass(frozen=True)
class Named:
    name: str
    n: int


def read(read_from: df.ReadFromPostgres[Any]) -> list[Any]:
    found: list[Any] = []
    with df.Pipeline(DirectRunner()) as p:
        p | read_from | df.Map(found.append)
    return found


@pytest.fixture
def numbers(store_dsn: str) -> str:
    make_table(store_dsn)
    return store_dsn


def test_rows_can_be_of_a_class(numbers: str) -> None:
    rows = read(df.ReadFromPostgres("public.numbers", dsn=numbers, rows=Number, event_time="at"))
    assert sorted(rows) == [Number(row["n"], row["at"]) for row in expected_rows()]
    query = "SELECT * FROM numbers ORDER BY n LIMIT 2"
    named = read(df.ReadFromPostgres(query, dsn=numbers, rows=Named))
    assert named == [Named("x" * 300 + n, int(n)) for n in "13"]


@pytest.mark.parametrize("row_type", [None, Number], ids=["rows", "columns"])
def test_parts_are_of_one_moment(
    numbers: str,
    row_type: type | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever happens to the table meanwhile; and when the moment is gone, that is logged."""
    monkeypatch.setattr(table_rows, "PART_PAGES_MIN", 2)
    form = RowForm(row_type=row_type, fields=() if row_type is None else Number._fields)
    source = RowsSource(table="numbers", is_query=False, dsn=numbers, form=form)
    splits = source.splits(4)
    assert len(splits) == 4

    def read_all() -> list[int]:
        rows = [row for each in splits for row in read_to_the_end(source.open(each, None, fence=1))]
        return sorted(row["n"] if row_type is None else row.n for row in rows)

    run(numbers, "UPDATE numbers SET name = 'moved' WHERE n < 100")
    run(numbers, "DELETE FROM numbers WHERE n > 500")
    assert read_all() == [row["n"] for row in expected_rows()]
    source.release()
    source.release()
    assert read_all() == [row["n"] for row in expected_rows() if row["n"] <= 500]
    assert "the driver whose snapshot that was is gone" in caplog.text


def test_event_times_are_those_of_the_rows(numbers: str) -> None:
    def counted(event_time: Any) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        with df.Pipeline(DirectRunner()) as p:
            (
                p
                | df.ReadFromPostgres("numbers", dsn=numbers, event_time=event_time)
                | df.Map(lambda row: (0, 1))
                | df.WindowInto(df.FixedWindows(400))
                | df.CombinePerKey(sum)
                | df.Map(
                    lambda pair, window=df.DoFn.WindowParam: found.append(
                        (int(window.start.timestamp()), pair[1])
                    )
                )
            )
        return sorted(found)

    assert counted("at") == counted(lambda row: row["n"]) == [(0, 200), (400, 200)]


class Kinds(NamedTuple):
    int2: int | None
    int4: int | None
    int8: int
    float8: float | None
    bool: bool | None
    text: str | None
    varchar: str
    bpchar: str | None
    timestamptz: datetime | None


KindsOneByOne = make_dataclass("KindsOneByOne", Kinds._fields)


def any_of(kind: str) -> st.SearchStrategy[Any]:
    texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    values: st.SearchStrategy[Any] = {
        "int2": st.integers(-(1 << 15), (1 << 15) - 1),
        "int4": st.integers(-(1 << 31), (1 << 31) - 1),
        "int8": st.integers(-(1 << 63), (1 << 63) - 1),
        "float8": st.floats(),
        "bool": st.booleans(),
        "timestamptz": st.one_of(
            st.datetimes(timezones=st.just(UTC)).map(str),
            st.sampled_from(["infinity", "-infinity", "0044-03-15 12:00:00+00 BC"]),
        ),
    }.get(kind, texts)
    # Two in a hundred are NULL, in columns that take it and in columns that do not.
    return st.integers(0, 49).flatmap(lambda chance: values if chance else st.none())


@given(st.lists(st.tuples(*map(any_of, Kinds._fields)), max_size=12), st.integers(1, 5))
@settings(
    max_examples=by_profile(10, nightly=2_000),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_columns_are_what_rows_are(
    store_dsn: str, rows: list[tuple[Any, ...]], max_records: int
) -> None:
    """Values, event times and what is set aside, in this order, whatever fails where."""
    run(store_dsn, "DROP TABLE IF EXISTS kinds")
    types = ", ".join(f'"{kind}" {kind}' for kind in Kinds._fields)
    with psycopg.connect(store_dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE kinds (number serial, {types})".encode())
        names = ", ".join(f'"{kind}"' for kind in Kinds._fields)
        marks = ", ".join(f"%s::{kind}" for kind in Kinds._fields)
        cursor.executemany(f"INSERT INTO kinds ({names}) VALUES ({marks})".encode(), rows)

    def source_of(row_type: type) -> RowsSource:
        form = RowForm(row_type=row_type, fields=Kinds._fields, event_time="timestamptz")
        return RowsSource(table="kinds", is_query=False, dsn=store_dsn, form=form)

    def read_by(reader: SourceReader) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        is_finished = False
        while not is_finished:
            batch = reader.read(max_records)
            found += [
                (repr(tuple(getattr(value, name) for name in Kinds._fields)), time_us)
                for value, time_us in zip(batch.values, batch.timestamps_us, strict=True)
            ]
            found += [(str(each.error), None) for each in batch.set_aside]
            is_finished = batch.status is SplitStatus.FINISHED
        reader.close()
        return sorted(found, key=repr)

    by_adbc = source_of(Kinds).open(WHOLE, None, fence=1)
    assert by_adbc.reads_columns
    one_by_one = read_by(RowsReader(source_of(KindsOneByOne), WHOLE, 0))
    assert read_by(by_adbc) == one_by_one
    assert read_by(RowsReader(source_of(Kinds), WHOLE, 0)) == one_by_one


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(1 << 63), (1 << 63) - 1),
    "float8": st.floats(allow_nan=False),
    # Others have a shorter text, and so another value as a float of 64 bits.
    "float4": st.integers(-1_000, 1_000).map(lambda number: number / 4),
    "numeric": st.decimals(allow_nan=False, allow_infinity=False, places=7),
    "text": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    "bool": st.booleans(),
    "bytea": st.binary(),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(
        min_value=datetime(1, 1, 2),  # noqa: DTZ001 - the strategy adds the zone
        timezones=st.just(UTC),
    ),
    "interval": st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)),
    "uuid": st.uuids(),
    "jsonb": st.recursive(
        st.none() | st.booleans() | st.integers() | st.text('ab"\\é{},'),
        lambda each: st.lists(each) | st.dictionaries(st.text("ab"), each),
    ),
}
ARRAYS = [name for name in VALUES if name != "jsonb"]


def test_values_of_all_types_are_read_as_they_were_written(store_dsn: str) -> None:
    names = [*VALUES, *(f"{name}[]" for name in ARRAYS)]
    columns = ", ".join(f'"{name}" {name}' for name in names)
    run(store_dsn, f"CREATE TABLE v ({columns})")
    row = st.fixed_dictionaries(
        {name: st.none() | values for name, values in VALUES.items()}
        | {f"{name}[]": st.lists(st.none() | VALUES[name], max_size=4) for name in ARRAYS}
    )
    source = RowsSource(table="v", is_query=False, dsn=store_dsn, form=RowForm())
    connection = psycopg.connect(store_dsn, autocommit=True)

    @settings(
        max_examples=by_profile(10, nightly=2_000),
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(row=row)
    def check(row: dict[str, Any]) -> None:
        given_values = [Jsonb(row[name]) if name == "jsonb" else row[name] for name in names]
        casts = ", ".join(f"%s::{name}" for name in names)
        connection.execute("TRUNCATE v")
        connection.execute(f"INSERT INTO v VALUES ({casts})".encode(), given_values)
        reader = source.open(source.splits(1)[0], None, fence=0)
        (found,) = reader.read(10).values
        reader.close()
        assert found == row
        assert {name: type(value) for name, value in found.items()} == {
            name: type(value) for name, value in row.items()
        }

    with connection:
        check()


def test_each_value_has_the_type_that_tables_are_written_with(store_dsn: str) -> None:
    query = """SELECT 1 AS i, 1.50 AS d, 'x'::name AS s, '1 year 2 mons -3 days 00:00:01.5'::interval AS t,
        '2020-01-01 12:00+02'::timestamptz AS z, ARRAY[ARRAY[1, NULL], ARRAY[3, 4]] AS nested,
        '[0:1]={1,2}'::int[] AS shifted, '10.0.0.1'::inet AS other, '\\x00ff'::bytea AS b, '{"a": 1.5}'::json AS j,
        '12:00'::time AS c, '0001-01-01'::date AS f, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS u"""
    (row,) = read(df.ReadFromPostgres(query, dsn=store_dsn))
    assert row == {
        "i": 1,
        "d": Decimal("1.50"),
        "s": "x",
        "t": timedelta(days=365 + 60 - 3, seconds=1.5),
        "z": datetime(2020, 1, 1, 10, tzinfo=UTC),
        "nested": [[1, None], [3, 4]],
        "shifted": [1, 2],
        "other": "10.0.0.1",
        "b": b"\0\xff",
        "j": {"a": 1.5},
        "c": time(12),
        "f": date(1, 1, 1),
        "u": UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    }


def test_a_row_without_a_value_in_python_is_set_aside(store_dsn: str) -> None:
    query = "SELECT n, CASE n WHEN 2 THEN 'infinity' ELSE '2020-01-01'::date END AS d FROM generate_series(1, 3) n"
    found: list[int] = []
    with df.Pipeline(DirectRunner(tries_per_record=1)) as p:
        p | df.ReadFromPostgres(query, dsn=store_dsn) | df.Map(lambda row: found.append(row["n"]))
    assert found == [1, 3]
    with pytest.raises(InputError, match="a value that Python has no value for"):
        read(df.ReadFromPostgres(query, dsn=store_dsn))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda dsn: df.ReadFromPostgres("none", dsn=dsn), "there is no table 'none'"),
        (lambda dsn: df.ReadFromPostgres("SELEC 1", dsn=dsn), "there is no table 'SELEC 1'"),
        (lambda dsn: df.ReadFromPostgres("a.b.c.d", dsn=dsn), "is no name of a table"),
        (lambda dsn: df.ReadFromPostgres("SELECT x", dsn=dsn), "refuses the query"),
        (lambda dsn: df.ReadFromPostgres("SELECT 1 a, 2 a", dsn=dsn), "two columns of one name"),
        (lambda dsn: df.ReadFromPostgres("SELECT 1 a", dsn=dsn, rows=Named), "no column 'name'"),
        (lambda dsn: df.ReadFromPostgres("t", dsn="host=/nowhere"), "cannot be reached"),
        (lambda dsn: df.ReadFromPostgres("t", dsn="no = address ="), "is malformed"),
    ],
)
def test_what_cannot_be_read_is_refused(
    store_dsn: str, build: Callable[[str], Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read(build(store_dsn))


def test_rows_of_something_else_are_refused(store_dsn: str) -> None:
    with pytest.raises(PipelineError, match="cannot make rows of"):
        df.ReadFromPostgres("t", dsn=store_dsn, rows=int)
