"""Rows of a real server in key chunks: the contract of sources, keys of all kinds, and a table that changes."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import InputError, PipelineError
from dataflow.io.postgres_reads import key_chunks, table_rows
from dataflow.io.postgres_reads.key_chunks import KeyChunksSource
from dataflow.io.postgres_reads.keys import KeyOrder
from dataflow.io.postgres_reads.row_form import RowForm
from dataflow.io.postgres_reads.table_rows import RowsSource
from dataflow.source import Source, SourceReader, SplitStatus
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError, ReadStep
from runners.direct import DirectRunner
from tests.effort import by_profile

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

ROWS = 400


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def source_of(dsn: str, table: str, *key: str, form: RowForm | None = None) -> KeyChunksSource:
    is_query = table.startswith("SELECT")
    rows = RowsSource(table=table, is_query=is_query, dsn=dsn, form=form or RowForm())
    return KeyChunksSource(rows=rows, key=key)


class _Contract(SourceContract):
    """Half of the keys are of one tenant; numbers have gaps."""

    examples = by_profile(3, nightly=200)
    make: Sequence[str] = ()
    table = "orders"
    key: tuple[str, ...] = ("tenant", "n")

    @pytest.fixture(autouse=True)
    def _in_database(self, store_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table_rows, "PART_PAGES_MIN", 1)
        run(
            store_dsn,
            "CREATE TABLE orders (tenant text, n int8, name text, at timestamptz, PRIMARY KEY "
            "(tenant, n))",
            "INSERT INTO orders SELECT CASE WHEN n % 2 = 0 THEN 'B' ELSE chr(97 + n / 16) END, n * n, "
            f"repeat('x', 300) || n, to_timestamp(n) FROM generate_series(1, {ROWS}) n",
            "ANALYZE orders",
            *self.make,
        )
        self.dsn = store_dsn

    def make_source(self) -> Source:
        return source_of(self.dsn, self.table, *self.key)

    def expected(self) -> Iterable[Any]:
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute("SELECT tenant, n, name, at FROM orders").fetchall()
        return [
            {"tenant": tenant, "n": n, "name": name, "at": at.astimezone(UTC)}
            for tenant, n, name, at in rows
        ]


class TestPrimaryKey(_Contract):
    key = ()

    def test_parts_have_about_as_many_rows(self) -> None:
        source = self.make_source()
        splits = source.splits(4)
        sizes = [len(read_to_the_end(source.open(each, None, fence=0))) for each in splits]
        assert len(sizes) == 4
        assert sum(sizes) == ROWS
        assert max(sizes) < ROWS / 2


class TestColumns(_Contract):
    make = (
        "ALTER TABLE orders DROP CONSTRAINT orders_pkey",
        "CREATE UNIQUE INDEX ON orders (tenant, n)",
    )


class TestView(_Contract):
    """Parts are of integers."""

    make = ("CREATE VIEW shown AS SELECT * FROM orders",)
    table, key = "shown", ("n",)

    def test_it_is_divided(self) -> None:
        assert len(self.make_source().splits(4)) == 4


class TestQuery(_Contract):
    table, key = "SELECT * FROM orders", ("tenant", "n")


class TestPartitioned(_Contract):
    make = (
        "ALTER TABLE orders RENAME TO former",
        "CREATE TABLE orders (LIKE former, PRIMARY KEY (tenant, n)) PARTITION BY LIST (tenant)",
        "CREATE TABLE of_b PARTITION OF orders FOR VALUES IN ('B')",
        "CREATE TABLE of_others PARTITION OF orders DEFAULT",
        "INSERT INTO orders SELECT * FROM former",
        "ANALYZE orders",
    )
    key = ()

    def test_it_is_divided(self) -> None:
        assert len(self.make_source().splits(4)) == 4


class TestNoRows(_Contract):
    make = ("DELETE FROM orders", "VACUUM ANALYZE orders")
    key = ()


def read_to_the_end(reader: SourceReader, size: int = 50) -> list[Any]:
    found: list[Any] = []
    is_finished = False
    while not is_finished:
        batch = reader.read(size)
        assert len(batch.values) <= size
        found += batch.values
        is_finished = batch.status is SplitStatus.FINISHED
    reader.close()
    return found


class _FromTheLastKey(KeyOrder):
    def compared(self, how: str, values: Sequence[str]) -> str:
        return super().compared(how.replace(">", ">="), values)


class _ByTheFirstColumn(KeyOrder):
    def compared(self, how: str, values: Sequence[str]) -> str:
        return super().compared(how, values[:1])


@pytest.mark.parametrize("broken", [_FromTheLastKey, _ByTheFirstColumn])
def test_the_contract_rejects_a_wrong_comparison(
    store_dsn: str, broken: type[KeyOrder], monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = TestPrimaryKey()
    contract._in_database.__wrapped__(contract, store_dsn, monkeypatch)  # type: ignore[attr-defined]
    monkeypatch.setattr(key_chunks, "KeyOrder", broken)
    with pytest.raises((BrokenRuleError, InputError)):
        contract._check(4, [ReadStep(1, reopens=True)] * 50)


#: Types of keys, and values as SQL; the order of some is the server's own.
KEYS: dict[str, st.SearchStrategy[str]] = {
    "int4": st.integers(-(1 << 31), (1 << 31) - 1).map(str),
    "float8": st.floats().map(str),
    "numeric": st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    "text": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5),
    "char(4)": st.text("ab \\'é", max_size=4),
    "bytea": st.binary(max_size=4).map(lambda each: "\\x" + each.hex()),
    "date": st.dates().map(str) | st.sampled_from(["infinity", "-infinity"]),
    "timestamptz": st.datetimes(timezones=st.just(UTC)).map(str),
    "uuid": st.uuids().map(str),
    "bool": st.booleans().map(str),
    "int4range": st.tuples(st.integers(0, 9), st.integers(10, 20)).map("[{0[0]},{0[1]})".format),
    "interval": st.integers(-90, 90).map("{} days".format),
    "size": st.sampled_from(["small", "medium", "large"]),
}


@given(
    kinds=st.lists(st.sampled_from([*KEYS]), min_size=1, max_size=3),
    data=st.data(),
    desired=st.integers(1, 4),
    size=st.integers(1, 4),
)
@settings(
    max_examples=by_profile(15, nightly=3_000),
    deadline=None,
    suppress_health_check=[*HealthCheck],
)
def test_keys_of_any_types_are_all_read_once(
    store_dsn: str, kinds: list[str], data: st.DataObject, desired: int, size: int
) -> None:
    """Each chunk by another reader, whatever the key is made of; rows are compared by a number of their own."""
    rows = data.draw(st.lists(st.tuples(*(KEYS[kind] for kind in kinds)), max_size=12))
    names = [f"k{number}" for number in range(len(kinds))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    with (
        pytest.MonkeyPatch.context() as patched,
        psycopg.connect(store_dsn, autocommit=True) as connection,
    ):
        patched.setattr(table_rows, "PART_PAGES_MIN", 0.01)
        run(
            store_dsn,
            "DROP TABLE IF EXISTS keyed",
            "DROP TYPE IF EXISTS size",
            "CREATE TYPE size AS ENUM ('small', 'medium', 'large')",
            f"CREATE TABLE keyed ({columns}, number serial, PRIMARY KEY ({', '.join(names)}))",
        )
        for row in rows:
            casts = ", ".join(f"%s::{kind}" for kind in kinds)
            insert = f"INSERT INTO keyed VALUES ({casts}) ON CONFLICT DO NOTHING"
            connection.execute(insert.encode(), row)
        run(store_dsn, "ANALYZE keyed")
        expected = connection.execute(b"SELECT number FROM keyed").fetchall()
        form = RowForm(row_type=dict, fields=("number",))
        source = source_of(store_dsn, "keyed", form=form)
        source.check()
        found: list[int] = []
        for split in source.splits(desired):
            position, is_finished = None, False
            while not is_finished:
                reader = source.open(split, position, fence=0)
                batch = reader.read(size)
                reader.close()
                found += [each["number"] for each in batch.values]
                # A key that Python has no value for is no element, and the reading goes on behind it.
                found += [int(str(each.element["number"])) for each in batch.set_aside]
                position, is_finished = batch.position, batch.status is SplitStatus.FINISHED
    assert Counter(found) == Counter(number for (number,) in expected)


class _Changes:
    """What others do to a table of keys and versions, and which rows they leave alone."""

    def __init__(self, dsn: str, chance: random.Random) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.connection.execute("CREATE TABLE moving (n int8 PRIMARY KEY, version int8)")
        self.connection.execute("INSERT INTO moving SELECT n, 0 FROM generate_series(0, 198, 2) n")
        self._chance = chance
        #: Keys that were there from the beginning, and all (key, version) that ever were.
        self.staying = set(range(0, 200, 2))
        self.ever = {(n, 0) for n in self.staying}
        self._version = 0

    def one(self) -> None:
        self._version += 1
        n, what = self._chance.randrange(200), self._chance.choice(["put", "update", "delete"])
        if what == "put":
            insert = "INSERT INTO moving VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING n"
            done = self.connection.execute(insert, [n, self._version]).fetchall()
        elif what == "update":
            update = "UPDATE moving SET version = %s WHERE n = %s RETURNING n"
            done = self.connection.execute(update, [self._version, n]).fetchall()
        else:
            self.connection.execute("DELETE FROM moving WHERE n = %s", [n])
            self.staying.discard(n)
            return
        self.ever |= {(n, self._version) for _ in done}


@given(seed=st.integers(0, 1 << 32), sizes=st.lists(st.integers(1, 40), min_size=1))
@settings(
    max_examples=by_profile(8, nightly=1_000),
    deadline=None,
    suppress_health_check=[*HealthCheck],
)
def test_rows_that_keep_their_keys_are_read_once_while_others_change(
    store_dsn: str, seed: int, sizes: list[int]
) -> None:
    run(store_dsn, "DROP TABLE IF EXISTS moving")
    changes = _Changes(store_dsn, random.Random(seed))
    source = source_of(store_dsn, "moving")
    (split,) = source.splits(1)
    reader, found, number = source.open(split, None, fence=0), [], 0
    is_finished = False
    while not is_finished:
        for _ in range(5):
            changes.one()
        batch = reader.read(sizes[number % len(sizes)])
        found += [(row["n"], row["version"]) for row in batch.values]
        number, is_finished = number + 1, batch.status is SplitStatus.FINISHED
    changes.connection.close()
    assert [n for n, _ in found] == sorted({n for n, _ in found})
    assert changes.staying <= {n for n, _ in found}
    assert set(found) <= changes.ever


@pytest.mark.parametrize(("moved", "times"), [((90, 5), 0), ((5, 90), 2)])
def test_a_row_whose_key_moves_past_the_reader_is_missed_or_read_twice(
    store_dsn: str, moved: tuple[int, int], times: int
) -> None:
    """An update of a key is a row that goes and one that comes; docs/connectors/postgres.md says so."""
    run(
        store_dsn,
        "CREATE TABLE moving (n int8 PRIMARY KEY, name text)",
        "INSERT INTO moving SELECT n, 'other' FROM generate_series(10, 80, 10) n",
        f"INSERT INTO moving VALUES ({moved[0]}, 'moved')",
    )
    source = source_of(store_dsn, "moving")
    reader = source.open(source.splits(1)[0], None, fence=0)
    first = reader.read(4).values
    run(store_dsn, f"UPDATE moving SET n = {moved[1]} WHERE n = {moved[0]}")
    names = [row["name"] for row in [*first, *read_to_the_end(reader)]]
    assert Counter(names) == Counter(other=8, moved=times)


def test_no_snapshot_is_kept_between_two_chunks(store_dsn: str) -> None:
    """So vacuum waits for nobody, while a job reads for hours."""
    run(store_dsn, "CREATE TABLE t AS SELECT n FROM generate_series(1, 100) n")
    run(store_dsn, "ALTER TABLE t ADD PRIMARY KEY (n)")
    source = source_of(store_dsn, "t")
    reader = source.open(source.splits(1)[0], None, fence=0)
    assert len(reader.read(10).values) == 10
    ours = "SELECT state, backend_xmin FROM pg_stat_activity WHERE application_name = 'dataflow'"
    with psycopg.connect(store_dsn) as connection:
        found = connection.execute(ours + " AND datname = current_database()").fetchall()
    assert found == [("idle", None)]
    assert len(read_to_the_end(reader)) == 90


def test_a_session_that_is_ended_is_opened_again(
    store_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(store_dsn, "CREATE TABLE t (n int8 PRIMARY KEY)")
    run(store_dsn, "INSERT INTO t SELECT generate_series(1, 100)")
    source = source_of(store_dsn, "t")
    reader = source.open(source.splits(1)[0], None, fence=0)
    found = [*reader.read(10).values]
    run(
        store_dsn,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dataflow' "
        "AND pid <> pg_backend_pid() AND datname = current_database()",
    )
    found += read_to_the_end(reader)
    assert [row["n"] for row in found] == list(range(1, 101))
    assert "t cannot be read" in caplog.text


def read(read_from: df.ReadFromPostgres[Any]) -> list[Any]:
    found: list[Any] = []
    with df.Pipeline(DirectRunner()) as p:
        p | read_from | df.Map(found.append)
    return found


REFUSED: list[tuple[str, Any, str]] = [
    ("nothing", True, "there is no table"),
    ("no_key", True, "has no primary key"),
    ("shown", True, "has no primary key"),
    ("SELECT * FROM no_key", True, "has no primary key"),
    ("no_key", "n", "has no unique index with exactly the columns n"),
    ("t", ["b", "a"], "has no unique index with exactly the columns b, a"),
    ("t", ["a"], "has no unique index with exactly the columns a"),
    ("t", ["c"], "cannot be read by its column 'c'"),
    ("shown", ["n"], "a row has NULL in a column of it"),
    ("SELECT n / 2 AS n FROM no_key WHERE n > 0", ["n"], "a row has the same key as another"),
]


@pytest.mark.parametrize(("table", "key", "words"), REFUSED)
def test_what_does_not_identify_rows_is_refused(
    store_dsn: str, table: str, key: Any, words: str
) -> None:
    run(
        store_dsn,
        "CREATE TABLE no_key AS SELECT n FROM generate_series(1, 9) n UNION ALL SELECT NULL",
        "CREATE VIEW shown AS SELECT * FROM no_key",
        "CREATE TABLE t (a int, b int, PRIMARY KEY (a, b))",
    )
    with pytest.raises(InputError, match=words):
        read(df.ReadFromPostgres(table, dsn=store_dsn, key_chunks=key))


def test_arguments_that_do_not_suit_are_refused(store_dsn: str) -> None:
    with pytest.raises(PipelineError, match="key_chunks"):
        df.ReadFromPostgres("t", dsn=store_dsn, key_chunks=[])
    with pytest.raises(PipelineError, match="key_chunks"):
        df.ReadFromPostgres("t", dsn=store_dsn, key_chunks=["a", "a"])
    with pytest.raises(PipelineError, match="leave it out"):
        df.ReadFromPostgres("t", dsn=store_dsn, key_chunks=True, changes=True, slot="s")
