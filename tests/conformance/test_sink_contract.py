"""The shipped sinks keep the contract of a sink, and the contract rejects sinks that are wrong."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import psycopg
import pytest

from dataflow.errors import SinkError, SinkFencedError
from dataflow.io.postgres import PostgresTable
from dataflow.sink import Lane, SinkChange
from dataflow.table import TableSpec
from dataflow.testing.model_sink import ModelSink, ModelWriter, commit
from dataflow.testing.sink_contract import SinkContract, SinkUnderTest
from runners.sinks.postgres import PostgresWriter

_NAMES = itertools.count()


class ModelUnderTest(SinkContract):
    """The model keeps the contract: it is the specification."""

    writer: type[ModelWriter] = ModelWriter

    def make(self) -> SinkUnderTest:
        sink = ModelSink()

        def read() -> Sequence[Any]:
            left = list[Any]()
            for change in sink.changes:
                if change.sign > 0:
                    left.append(change.value)
                else:
                    left.remove(change.value)
            return left

        return SinkUnderTest(
            sink=sink,
            values=list(range(10)),
            read=read,
            open_writer=lambda lane: self.writer(sink, lane),
        )


class TestModelSink(ModelUnderTest):
    """The model sink."""


class _NeverFences(ModelWriter):
    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        commit(self.state, number, changes)


class _FencesAgain(ModelWriter):
    def fence(self, token: int) -> int:
        self.state.token = self.token = token
        return self.state.number


class _ForgetsTheNumber(ModelWriter):
    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        super().write(number, changes)
        self.state.number -= number == 2


class _SharesLanes(ModelWriter):
    def __init__(self, sink: ModelSink, lane: Lane) -> None:
        super().__init__(sink, Lane(writer="all", number=0, title="all"))


class _DropsRetractions(ModelWriter):
    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        super().write(number, [each for each in changes if each.sign > 0])


class _WritesHalf(ModelWriter):
    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        if self.token != self.state.token:
            self.state.changes.append(changes[0])
            raise SinkFencedError("too late")
        super().write(number, changes)


@pytest.mark.parametrize(
    "writer",
    [
        _NeverFences,
        _FencesAgain,
        _ForgetsTheNumber,
        _SharesLanes,
        _DropsRetractions,
        _WritesHalf,
    ],
)
def test_the_contract_rejects_a_sink_that_is_wrong(writer: type[ModelWriter]) -> None:
    class Broken(ModelUnderTest):
        rounds = 1

    Broken.writer = writer
    with pytest.raises((AssertionError, SinkError)):
        Broken().check_all()


class PostgresUnderTest(SinkContract):
    """Tables of another Postgres."""

    dsn: str
    key: Sequence[str] = ("team", "at")
    changelog: str | None = None
    is_retracted = True

    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> None:
        self.dsn = postgres_dsn

    def make(self) -> SinkUnderTest:
        name = f"sinks_under_test.t{next(_NAMES)}"
        spec = TableSpec(
            name=name, columns={"team": str, "at": datetime, "score": int}, key=tuple(self.key)
        )
        sink = PostgresTable(
            spec, dsn=self.dsn, changelog=self.changelog, is_retracted=self.is_retracted
        )
        run = f"{name} "
        with psycopg.connect(self.dsn) as opened:
            opened.execute("CREATE SCHEMA IF NOT EXISTS sinks_under_test")
            sign = "" if self.changelog is None else f", {self.changelog} bigint"
            key = f", PRIMARY KEY ({', '.join(self.key)})" if self.key else ""
            opened.execute(
                f"CREATE TABLE {name} (team text, at timestamptz, score bigint CHECK (score < 1000) {sign}{key})"
            )

        def read() -> Sequence[Any]:
            with psycopg.connect(self.dsn, options="-c TimeZone=UTC") as opened:
                rows = opened.execute(f"SELECT * FROM {name}").fetchall()
            if self.changelog is None:
                return rows
            left = list[Any]()
            for *row, sign in sorted(rows, key=lambda row: -row[-1]):
                if sign > 0:
                    left.append(tuple(row))
                else:
                    left.remove(tuple(row))
            return left

        return SinkUnderTest(
            sink=sink,
            values=[(f"team {n}", datetime(2026, 1, n, tzinfo=UTC), n * 10) for n in range(1, 11)],
            read=read,
            open_writer=lambda lane: sink.open(
                Lane(writer=run + lane.writer, number=lane.number, title=lane.title)
            ),
            refused=("team", datetime(2026, 1, 1, tzinfo=UTC), 1_000),
        )


@pytest.mark.postgres
class TestPostgresRowsThatAreRetracted(PostgresUnderTest):
    """Rows are deleted again."""


@pytest.mark.postgres
class TestPostgresChangelog(PostgresUnderTest):
    """Rows with signs."""

    key = ()
    changelog = "sign"


@pytest.mark.postgres
class TestPostgresRowsThatReplaceEachOther(PostgresUnderTest):
    """Rows of a key replace each other."""

    is_retracted = False

    def test_what_is_retracted_is_gone(self) -> None:
        """Input that retracts has another form of this sink."""


class _KeepsNoToken(PostgresWriter):
    """Whoever was shut out writes on."""

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        assert self._connection is not None
        query = "SELECT token FROM dataflow_progress WHERE writer = %s"
        row = self._connection.execute(query, [self._lane.writer]).fetchone()
        assert row is not None
        self._token = row[0]
        super().write(number, changes)


class _NumbersFirst(PostgresWriter):
    """The number is there though the rows are not."""

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        assert self._connection is not None
        super().write(number, [])
        query = "UPDATE dataflow_progress SET number = number - 1 WHERE writer = %s"
        self._connection.execute(query, [self._lane.writer])
        try:
            super().write(number, changes)
        except SinkError:
            query = "UPDATE dataflow_progress SET number = number + 1 WHERE writer = %s"
            self._connection.execute(query, [self._lane.writer])
            raise


class _FencesWithAnyToken(PostgresWriter):
    """A token that is not higher than all before is taken."""

    def fence(self, token: int) -> int:
        try:
            return super().fence(token)
        except SinkFencedError:
            self.close()
            return super().fence(token + 1_000)


@pytest.mark.postgres
@pytest.mark.parametrize("kind", [_KeepsNoToken, _NumbersFirst, _FencesWithAnyToken])
def test_the_contract_rejects_writers_of_postgres_that_are_wrong(
    kind: type[PostgresWriter], postgres_dsn: str
) -> None:
    class Broken(PostgresUnderTest):
        dsn = postgres_dsn

        def make(self) -> SinkUnderTest:
            made = super().make()
            assert isinstance(made.sink, PostgresTable)
            run, sink = made.sink.stored.name, made.sink
            return attrs.evolve(
                made,
                open_writer=lambda lane: kind(
                    sink, Lane(writer=f"{run} {lane.writer}", number=lane.number, title=lane.title)
                ),
            )

    with pytest.raises((AssertionError, SinkError)):
        Broken().check_all()
