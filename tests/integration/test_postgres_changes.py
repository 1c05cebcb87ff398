"""Changes of a table of a real server: the contract of sources, acknowledgements, and what ends the reading."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import dataflow as df
from dataflow.errors import InputError, PipelineError
from dataflow.io.postgres_reads import changes, connection_retries
from dataflow.io.postgres_reads.changes import ChangesReader, ChangesSource
from dataflow.io.postgres_reads.positions import SlotPosition
from dataflow.io.postgres_reads.row_form import RowForm
from dataflow.io.postgres_reads.slot import lsn_of
from dataflow.source import Source, SourceBatch, SourceReader
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError
from tests.changing_postgres import ChangingPostgres, changing_postgres, drop_slot
from tests.effort import by_profile
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

SLOT = "a_slot"


@pytest.fixture(scope="module")
def server() -> Iterator[ChangingPostgres]:
    with changing_postgres() as started:
        yield started


@pytest.fixture
def dsn(server: ChangingPostgres) -> Iterator[str]:
    with server.database() as made:
        yield made


def run(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Statements in one transaction; the rows of the last one."""
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def make_table(dsn: str) -> None:
    run(
        dsn,
        "CREATE TABLE t (name text PRIMARY KEY, at timestamptz, amount numeric)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES ('tea', now(), 2.50), ('Cake', now(), 3), ('milk', now(), NULL)",
    )


def source_of(dsn: str, *, slot: str = SLOT, publication: str = SLOT) -> ChangesSource:
    return ChangesSource(
        table="t",
        dsn=dsn,
        slot=slot,
        publication=publication,
        form=RowForm(event_time="at"),
        max_disorder_us=3_600_000_000,
    )


class Following:
    """A reader, and what it has handed over."""

    def __init__(self, source: ChangesSource, position: Any = None) -> None:
        self.reader: SourceReader = source.open("changes", position, fence=1)
        self.rows: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self.batch: SourceBatch | None = None
        self.is_committing = True

    def read(self, max_records: int = 1_000) -> SourceBatch:
        self.batch = self.reader.read(max_records)
        for value, sign in zip(self.batch.values, self.batch.signs or (), strict=True):
            row = repr(sorted(value.items()))
            self.rows[row] += sign
            self._names[row] = value["name"]
        if self.is_committing:
            self.reader.committed(self.batch.position)
        return self.batch

    def until_names(self, *names: str) -> None:
        """Read until these are the rows."""

        def are_there() -> bool:
            self.read()
            return sorted(self.names()) == sorted(names)

        until(are_there, lambda: f"{self.rows}")

    def names(self) -> list[str]:
        return [self._names[row] for row, count in self.rows.items() for _ in range(count)]


@pytest.fixture
def following(dsn: str) -> Iterator[Callable[..., Following]]:
    """Opens readers of the table, which are closed afterwards."""
    make_table(dsn)
    opened: list[Following] = []

    def follow(position: Any = None, **more: str) -> Following:
        opened.append(Following(source_of(dsn, **more), position))
        return opened[-1]

    yield follow
    for each in opened:
        each.reader.close()


def confirmed(dsn: str) -> int:
    query = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
    ((lsn,),) = run(dsn, query)
    return lsn_of(lsn)


# The contract.

_copies = itertools.count()


class _FromHere(Source):
    """The changes that come after a position, by a copy of the slot there: what is read is the same each time."""

    emits_retractions = True
    acknowledges = True
    is_bounded = False

    def __init__(self, source: ChangesSource, position: Any) -> None:
        self._source, self._position = source, position

    def splits(self, desired: int) -> list[str]:
        return list(self._source.splits(desired))

    def open(self, split: str, position: Any, *, fence: int) -> SourceReader:
        return self._source.open(
            split, self._position if position is None else position, fence=fence
        )


class _Contract(SourceContract):
    examples = by_profile(3, nightly=200)
    splits_max = 1

    @pytest.fixture(autouse=True)
    def _in_database(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        make_table(dsn)
        self.dsn = dsn
        self.slots: list[str] = []

    def copied_slot(self) -> str:
        """A copy of the slot; those before are dropped, but for the one that may still be read."""
        name = f"copy_{next(_copies)}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for each in self.slots[:-1]:
                drop_slot(connection, each)
            connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [SLOT, name])
        self.slots = [*self.slots[-1:], name]
        return name


class TestCopy(_Contract):
    """A table that nobody changes."""

    def make_source(self) -> Source:
        return source_of(self.dsn)

    def expected(self) -> Iterable[Any]:
        return rows_of(self.dsn)


class TestChanges(_Contract):
    """What happens to a table that was empty when it was copied."""

    @pytest.fixture(autouse=True)
    def _with_changes(self, _in_database: None) -> None:
        self.change()

    def change(self) -> None:
        run(self.dsn, "DELETE FROM t")
        copying = Following(source_of(self.dsn))
        self.position = copying.read().position
        copying.reader.close()
        insert = "INSERT INTO t VALUES ('tea', now(), 2.50), ('Cake', now(), 3), ('milk', now(), 1)"
        run(self.dsn, insert)
        run(
            self.dsn,
            "UPDATE t SET amount = 8 WHERE name <> 'tea'",
            "DELETE FROM t WHERE name = 'tea'",
            "UPDATE t SET name = 'oil' WHERE name = 'milk'",
        )
        run(self.dsn, "UPDATE t SET amount = 9, at = at - interval '1 minute'")

    def make_source(self) -> Source:
        return _FromHere(source_of(self.dsn, slot=self.copied_slot()), self.position)

    def expected(self) -> Iterable[Any]:
        return rows_of(self.dsn)


class _CopiesAnew(ChangesReader):
    """Whoever goes on within the copy begins it again."""

    def __init__(self, source: ChangesSource, position: Any) -> None:
        is_copied = position is not None and SlotPosition.of(position).is_copied
        super().__init__(source, position if is_copied else None)


class _SkipsAChange(ChangesReader):
    """Whoever goes on within a transaction misses the next change."""

    def __init__(self, source: ChangesSource, position: Any) -> None:
        super().__init__(source, position)
        if self._position is not None and self._position.is_copied and self._position.index:
            self._position = attrs.evolve(self._position, index=self._position.index + 1)


@pytest.mark.parametrize("kind", [_CopiesAnew, _SkipsAChange])
def test_the_contract_rejects_a_reader_that_is_wrong(
    kind: type[ChangesReader], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "ChangesReader", kind)
    make_table(dsn)
    contract = TestCopy() if kind is _CopiesAnew else TestChanges()
    contract.dsn, contract.slots = dsn, []
    if isinstance(contract, TestChanges):
        contract.change()
    with pytest.raises(BrokenRuleError):
        contract.test_it_goes_on_behind_any_record()


def rows_of(dsn: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn) as connection:
        return (
            connection.cursor(row_factory=psycopg.rows.dict_row)
            .execute("SELECT * FROM t")
            .fetchall()
        )


def test_rows_in_the_end_are_those_of_the_table(
    dsn: str, following: Callable[..., Following]
) -> None:
    reader = following()
    reader.read(2)
    run(dsn, "INSERT INTO t VALUES ('Zebra', now(), 1)", "UPDATE t SET amount = 9")
    run(dsn, "DELETE FROM t WHERE name = 'tea'")
    reader.until_names("Cake", "Zebra", "milk")
    assert +reader.rows == Counter(repr(sorted(row.items())) for row in rows_of(dsn))


# Acknowledgements.


def test_the_slot_moves_only_when_a_position_is_committed(
    dsn: str, following: Callable[..., Following]
) -> None:
    reader = following()
    reader.is_committing = False
    reader.until_names("tea", "Cake", "milk")
    at_first = confirmed(dsn)
    run(dsn, "INSERT INTO t VALUES ('salt', now(), 1)")
    reader.until_names("tea", "Cake", "milk", "salt")
    assert reader.batch is not None
    behind = reader.batch.position
    run(dsn, "INSERT INTO t VALUES ('oil', now(), 1)")
    reader.until_names("tea", "Cake", "milk", "salt", "oil")
    # More heartbeats than one, each of which tells the server what is committed.
    first_us = reader.batch.watermark_us
    until(lambda: reader.read().watermark_us > first_us + 2_500_000)
    assert confirmed(dsn) == at_first
    reader.reader.committed(behind)
    until(lambda: reader.read() and confirmed(dsn) > at_first)
    assert confirmed(dsn) <= lsn_of_position(behind)
    reader.reader.close()

    again = following(behind)
    again.rows.update(reader.rows)
    until(lambda: again.read().values)
    assert [row for row, count in again.rows.items() if count == 2] == [
        row for row in again.rows if "'oil'" in row
    ]


def lsn_of_position(position: Any) -> int:
    return int(SlotPosition.of(position).lsn)


def test_an_idle_table_pins_no_log(dsn: str, following: Callable[..., Following]) -> None:
    reader = following()
    reader.until_names("tea", "Cake", "milk")
    run(dsn, "CREATE TABLE other AS SELECT generate_series(1, 10000)")
    ((written,),) = run(dsn, "SELECT pg_current_wal_flush_lsn()::text")
    until(lambda: reader.read() and confirmed(dsn) >= lsn_of(written))
    assert sorted(reader.names()) == ["Cake", "milk", "tea"]


def test_the_watermark_of_an_idle_table_goes_on(following: Callable[..., Following]) -> None:
    reader = following()
    reader.until_names("tea", "Cake", "milk")
    until(lambda: reader.read().watermark_us > 0)
    first_us = reader.read().watermark_us
    until(lambda: reader.read().watermark_us > first_us)


# Deaths.


def test_whoever_is_given_a_position_takes_the_slot_over(
    following: Callable[..., Following],
) -> None:
    former = following()
    former.until_names("tea", "Cake", "milk")
    until(lambda: former.read().watermark_us > 0)
    position = former.read().position
    owner = following(position)
    # The slot is in use, which nobody waits for in a read.
    assert owner.read().position == position
    until(lambda: owner.read().watermark_us > 0)
    assert former.read().values == []
    assert owner.read().values == []


def test_a_server_that_crashes_is_read_on(
    server: ChangingPostgres, dsn: str, following: Callable[..., Following]
) -> None:
    reader = following()
    reader.until_names("tea", "Cake", "milk")
    server.crash()
    run(dsn, "INSERT INTO t VALUES ('salt', now(), 1)")
    reader.until_names("tea", "Cake", "milk", "salt")


def test_a_large_transaction_is_read_in_steps(
    dsn: str, following: Callable[..., Following]
) -> None:
    reader = following()
    reader.until_names("tea", "Cake", "milk")
    run(dsn, "INSERT INTO t SELECT 'n' || n, now(), n FROM generate_series(1, 5000) n")
    sizes = []
    while sum(reader.rows.values()) < 5_003:
        sizes.append(len(reader.read(100).values))
        if len(sizes) % 20 == 0:
            assert reader.batch is not None
            position = reader.batch.position
            reader.reader.close()
            reader.reader = following(position).reader
    assert max(sizes) == 100
    assert set(reader.rows.values()) == {1}


# Values.


def test_a_large_value_that_is_not_changed_is_kept(dsn: str) -> None:
    run(
        dsn,
        "CREATE TABLE t (name text PRIMARY KEY, at timestamptz, amount text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "ALTER TABLE t ALTER amount SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES ('tea', now(), repeat('x', 100000))",
    )
    reader = Following(source_of(dsn))
    reader.until_names("tea")
    run(dsn, "UPDATE t SET name = 'cake'")
    reader.until_names("cake")
    reader.reader.close()
    assert +reader.rows == Counter(repr(sorted(row.items())) for row in rows_of(dsn))


# What ends the reading.


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        action()
    return str(caught.value)


def read_until_refused(reader: Following) -> str:
    def action() -> None:
        until(lambda: reader.read() and False)

    return refusal(action)


def test_a_server_without_logical_log_is_refused(store_dsn: str) -> None:
    make_table(store_dsn)
    words = refusal(source_of(store_dsn).check)
    assert "ALTER SYSTEM SET wal_level = 'logical'" in words


def test_a_login_that_is_refused_ends_the_reading_at_once_or_after_a_while(
    dsn: str, following: Callable[..., Following], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once where it never was accepted; a password that is changed, and changed here too, is no end."""
    role = f"reader_{next(_copies)}"
    run(dsn, f"CREATE ROLE {role} LOGIN SUPERUSER")
    as_role = make_conninfo(dsn, user=role)
    reader = Following(source_of(as_role))
    lock_out = f"ALTER ROLE {role} NOLOGIN"
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
    try:
        reader.until_names("tea", "Cake", "milk")
        run(dsn, lock_out)
        run(dsn, end)
        patient: Any = reader.reader
        until(lambda: reader.read().values == [] and patient._retries._refused_since_s is not None)
        run(dsn, f"ALTER ROLE {role} LOGIN", "INSERT INTO t VALUES ('salt', now(), 1)")
        reader.until_names("tea", "Cake", "milk", "salt")

        run(dsn, lock_out)
        assert "refuses the login" in refusal(source_of(as_role).check)
        assert "refuses the login" in refusal(Following(source_of(as_role)).read)
        monkeypatch.setattr(connection_retries, "REFUSED_MAX_S", 0.2)
        run(dsn, end)
        assert "refuses the login" in read_until_refused(reader)
    finally:
        reader.reader.close()
        run(dsn, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "ALTER TABLE t REPLICA IDENTITY DEFAULT",
            'ALTER TABLE "public"."t" REPLICA IDENTITY FULL',
        ),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", "has no primary key"),
        ("ALTER TABLE t RENAME TO u", "there is no table 't'"),
        ("ALTER TABLE t DROP COLUMN at", "has no column 'at'"),
        ("CREATE PUBLICATION a_slot", "does not have the table public.t"),
        (
            "CREATE PUBLICATION a_slot FOR TABLE t WITH (publish = 'insert')",
            "leaves changes out",
        ),
        ("CREATE PUBLICATION a_slot FOR TABLE t WHERE (amount > 1)", "leaves rows of public.t out"),
    ],
)
def test_a_table_that_cannot_be_followed_is_refused(dsn: str, statement: str, words: str) -> None:
    make_table(dsn)
    source_of(dsn).check()
    run(dsn, statement)
    assert words in refusal(source_of(dsn).check)
    assert words in refusal(lambda: source_of(dsn).open("changes", None, fence=1).read(1))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("TRUNCATE t", "was truncated"),
        ("ALTER TABLE t ALTER amount TYPE float8", "has changed its type"),
        ("ALTER TABLE t DROP COLUMN amount", "lost the column 'amount'"),
        ("ALTER TABLE t REPLICA IDENTITY DEFAULT", "not log the old rows"),
        ("DROP PUBLICATION a_slot", "the publication 'a_slot' is gone"),
        ("ALTER TABLE t RENAME TO u", "there is no table 't'"),
    ],
)
def test_what_cannot_be_followed_ends_the_reading(
    dsn: str, following: Callable[..., Following], statement: str, words: str
) -> None:
    reader = following()
    reader.until_names("tea", "Cake", "milk")
    run(dsn, statement)
    if "ALTER amount" in statement or "DROP COLUMN" in statement:
        run(dsn, "DELETE FROM t")
    assert words in read_until_refused(reader)


def test_an_added_column_is_left_out(dsn: str, following: Callable[..., Following]) -> None:
    reader = following()
    reader.until_names("tea", "Cake", "milk")
    run(dsn, "ALTER TABLE t ADD COLUMN more int DEFAULT 3")
    run(dsn, "DELETE FROM t WHERE name = 'tea'", "INSERT INTO t VALUES ('salt', now(), 1, 2)")
    reader.until_names("Cake", "milk", "salt")
    assert not any("more" in row for row in reader.rows)


def test_a_slot_that_is_gone_or_made_anew_is_refused(
    dsn: str, following: Callable[..., Following]
) -> None:
    reader = following()
    reader.until_names("tea", "Cake", "milk")
    assert reader.batch is not None
    position = reader.batch.position
    reader.reader.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        drop_slot(connection, SLOT)
    assert "the replication slot 'a_slot' is gone" in refusal(lambda: following(position).read())
    run(dsn, "INSERT INTO t VALUES ('salt', now(), 1)")
    run(dsn, f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    assert "is ahead of what was read" in refusal(lambda: following(position).read())


def test_a_slot_whose_log_is_removed_is_refused(
    server: ChangingPostgres, dsn: str, following: Callable[..., Following]
) -> None:
    reader = following()
    reader.until_names("tea", "Cake", "milk")
    assert reader.batch is not None
    position = reader.batch.position
    reader.reader.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            for _ in range(3):
                connection.execute("SELECT pg_logical_emit_message(false, 'x', 'x')")
                connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
            assert "has lost changes" in refusal(lambda: following(position).read())
        finally:
            connection.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            connection.execute("SELECT pg_reload_conf()")


# The transform.


def test_arguments_that_do_not_suit_are_refused(dsn: str) -> None:
    with pytest.raises(PipelineError, match="was given slot=None"):
        df.ReadFromPostgres("t", dsn=dsn, changes=True)
    with pytest.raises(PipelineError, match="not of a query"):
        df.ReadFromPostgres("SELECT 1", dsn=dsn, changes=True, slot="s")
    with pytest.raises(PipelineError, match="without changes=True"):
        df.ReadFromPostgres("t", dsn=dsn, slot="s")
    with pytest.raises(PipelineError, match="cannot be read in batch"):
        source_of(dsn).repeatable()
    assert "cannot be reached" in refusal(source_of("host=/nowhere").check)
    assert "secret" not in repr(source_of("host=/nowhere password=secret"))
