"""Tables of lakes keep the contract of a sink; who was fenced between look and commit is refused."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import urlencode

import attrs
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

import dataflow as df
from dataflow.errors import SinkFencedError
from dataflow.io.storage import GCS_ENDPOINT_VARIABLE
from dataflow.lake.delta_table import DeltaPlace
from dataflow.lake.delta_writer import DeltaSink, DeltaWriter
from dataflow.lake.iceberg_writer import IcebergSink, IcebergWriter
from dataflow.sink import Lane, SinkChange, SinkWriter
from dataflow.testing.sink_contract import SinkContract, SinkUnderTest, lane_of

pytestmark = pytest.mark.slow

_NAMES = itertools.count()
TYPES = {"team": str, "At": datetime, "score": int, "paid": Decimal, "tags": list[str]}
ROWS = [
    (
        f"team {n}, ü",
        datetime(2026, 1, n, 1, 2, 3, 456789, tzinfo=UTC),
        n,
        n + Decimal("0.5"),
        ["a", None],
    )
    for n in range(1, 11)
]


def sink_of(transform: Any) -> Any:
    return transform._sink


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """What is there when the signs are applied."""
    found = list[tuple[Any, ...]]()
    rows = table.to_pylist()
    for row in sorted(rows, key=lambda each: -each.get("sign", 1)):
        value = (
            row["team"],
            row["At"].astimezone(UTC),
            row["score"],
            row["paid"].normalize(),
            row["tags"],
        )
        if row.get("sign", 1) > 0:
            found.append(value)
        else:
            found.remove(value)
    return found


def delta_rows(uri: str) -> list[tuple[Any, ...]]:
    table = DeltaPlace(uri=uri).found()
    return [] if table is None else rows_of(table.to_pyarrow_table())


def iceberg_rows(catalog: dict[str, str], name: str) -> list[tuple[Any, ...]]:
    with closing(load_catalog("dataflow", **catalog)) as loaded, suppress(NoSuchTableError):
        return rows_of(loaded.load_table(name).scan().to_arrow())
    return []


class DeltaUnderTest(SinkContract):
    """A table with a column for signs."""

    rounds = 2
    uri: Callable[[], str]
    options: ClassVar[dict[str, Any]] = {"changelog": "sign"}
    writer: Callable[[DeltaSink, Lane], SinkWriter] = DeltaWriter

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.uri = lambda: str(tmp_path / str(next(_NAMES)))

    def make(self) -> SinkUnderTest:
        uri = self.uri()
        sink = sink_of(df.WriteToDelta(uri, columns=TYPES, **self.options))
        return SinkUnderTest(
            sink=sink,
            values=ROWS,
            read=lambda: delta_rows(uri),
            open_writer=lambda lane: self.writer(sink, lane),
            refused=(*ROWS[0][:2], 1 << 63, *ROWS[0][3:]),
        )


class IcebergUnderTest(SinkContract):
    """A table with a column for signs, in a catalogue of SQLite, unless a service is named."""

    rounds = 2
    folder: Path
    database: str | None = None
    #: Where files are, and what pyiceberg has to know of it; none: in the folder.
    warehouse: str | None = None
    store: Mapping[str, str] = MappingProxyType({})
    by_service: dict[str, str] | None = None
    options: ClassVar[dict[str, Any]] = {"changelog": "sign"}
    writer: Callable[[IcebergSink, Lane], SinkWriter] = IcebergWriter

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def catalog(self) -> dict[str, str]:
        if self.by_service is not None:
            return self.by_service
        return {
            "type": "sql",
            "uri": self.database or f"sqlite:///{self.folder}/catalog.db",
            "warehouse": self.warehouse or f"file://{self.folder}/lake",
            **self.store,
        }

    def make(self) -> SinkUnderTest:
        catalog, name = self.catalog(), f"shop.sales{os.getpid()}_{next(_NAMES)}"
        sink = sink_of(df.WriteToIceberg(name, catalog=catalog, columns=TYPES, **self.options))
        return SinkUnderTest(
            sink=sink,
            values=ROWS,
            read=lambda: iceberg_rows(catalog, name),
            open_writer=lambda lane: self.writer(sink, lane),
            refused=(*ROWS[0][:2], 1 << 63, *ROWS[0][3:]),
        )


class _ByKey:
    """A table with one row for each key."""

    options: ClassVar[dict[str, Any]] = {"key": ["team"]}

    def make(self: Any) -> SinkUnderTest:
        under_test: SinkUnderTest = super().make()  # type: ignore[misc]
        assert isinstance(under_test.sink, DeltaSink | IcebergSink)
        sink = attrs.evolve(under_test.sink, is_retracted=True)
        return attrs.evolve(under_test, sink=sink, open_writer=lambda lane: self.writer(sink, lane))


class DeltaByKeyUnderTest(_ByKey, DeltaUnderTest):
    pass


class IcebergByKeyUnderTest(_ByKey, IcebergUnderTest):
    pass


class TestDelta(DeltaUnderTest):
    pass


class TestDeltaByKey(DeltaByKeyUnderTest):
    pass


class TestIceberg(IcebergUnderTest):
    pass


class TestIcebergByKey(IcebergByKeyUnderTest):
    pass


@pytest.mark.slow
class TestDeltaInS3(DeltaUnderTest):
    """In an object store, by conditional puts."""

    @pytest.fixture(autouse=True)
    def _folder(self, s3: Callable[[], str]) -> None:
        bucket = s3()
        self.uri = lambda: f"s3://{bucket}/{next(_NAMES)}"


@pytest.mark.nightly
class TestDeltaInGcs(DeltaUnderTest):
    """A table in an object store, by generations."""

    @pytest.fixture(autouse=True)
    def _folder(self, gcs: Callable[[], str]) -> None:
        bucket = gcs()
        self.uri = lambda: f"gs://{bucket}/{next(_NAMES)}"


@pytest.mark.nightly
class TestIcebergInGcs(IcebergUnderTest):
    """With files in an object store."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, gcs: Callable[[], str]) -> None:
        self.folder, self.warehouse = tmp_path, f"gs://{gcs()}/lake"
        token = {"gcs.oauth2.token": "none", "gcs.oauth2.token-expires-at": "4102444800000"}
        self.store = {"gcs.service.host": os.environ[GCS_ENDPOINT_VARIABLE], **token}


@pytest.mark.slow
class TestIcebergInS3(IcebergUnderTest):
    """With files in S3."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, s3: Callable[[], str]) -> None:
        self.folder, self.warehouse = tmp_path, f"s3://{s3()}/lake"
        self.store = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}


@pytest.mark.slow
class TestIcebergByRest(IcebergUnderTest):
    """In a catalogue that is a service, which checks the condition of a commit itself."""

    @pytest.fixture(autouse=True)
    def _folder(self, rest_catalogue: dict[str, str]) -> None:
        self.by_service = rest_catalogue


@pytest.mark.nightly
class TestIcebergByKeyAndRest(_ByKey, TestIcebergByRest):
    """A table by key in a catalogue that is a service."""


@pytest.mark.nightly
class TestIcebergByGlue(IcebergUnderTest):
    """In a catalogue of AWS, where pyiceberg checks the condition, and Glue that its own version is the one read.

    Moto does not: of two commits that pyiceberg has let pass at one moment both count, so writers at a time are not
    tried, but those one of which looks before the other commits (`test_writers_keep_by_services`).
    """

    test_a_fence_waits_or_wins = None  # type: ignore[assignment]

    @pytest.fixture(autouse=True)
    def _folder(self, glue_catalogue: dict[str, str]) -> None:
        self.by_service = glue_catalogue


@pytest.mark.postgres
class TestIcebergInPostgres(IcebergUnderTest):
    """With a catalogue in Postgres, by the driver that is ours."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, store_dsn: str) -> None:
        query = conninfo_to_dict(store_dsn)
        address = f"postgresql+psycopg:///?{urlencode(query)}"
        self.folder, self.database = tmp_path, address


def hooked(kind: type[Any]) -> type[Any]:
    """A writer that calls once, before and after it commits."""

    class Hooked(kind):  # type: ignore[misc]
        def _commit(self, *arguments: Any) -> None:
            self._around(super()._commit, *arguments)

        def _commit_nothing(self, *arguments: Any) -> None:
            self._around(super()._commit_nothing, *arguments)

        def _around(self, commit: Callable[..., None], *arguments: Any) -> None:
            before, self.before = self.before, lambda: None
            before()
            commit(*arguments)
            after, self.after = self.after, lambda: None
            after()

        before = after = staticmethod(lambda: None)

    return Hooked


def changes(rows: Sequence[Any]) -> list[SinkChange]:
    return [SinkChange(row, +1) for row in rows]


def writers(contract: Any) -> tuple[SinkUnderTest, Any, Any]:
    """Two writers of one lane, of which the first has fenced it and written a row."""
    under_test = contract.make()
    kind = hooked(contract.writer)
    former, later = (under_test.sink, kind), (under_test.sink, kind)
    one, other = (kind(sink, lane_of(0)) for sink, kind in (former, later))
    assert one.fence(1) == 0
    one.write(1, changes(ROWS[:1]))
    return under_test, one, other


def law_a_fence_between_look_and_commit_counts(contract: Any) -> None:
    """Whether the new writer has written by then or not."""
    for writes in (False, True):
        under_test, former, later = writers(contract)

        def take(later: Any = later, writes: bool = writes) -> None:
            assert later.fence(2) == 1
            if writes:
                later.write(2, changes(ROWS[3:5]))

        former.before = take
        with pytest.raises(SinkFencedError):
            former.write(2, changes(ROWS[1:3]))
        assert sorted(under_test.read()) == [ROWS[0], *(ROWS[3:5] if writes else [])]


def law_of_two_fences_the_higher_one_counts(contract: Any) -> None:
    """Though the lower one looked before."""
    _, _, later = writers(contract)
    latest = type(later)(later._sink, lane_of(0))
    later.before = lambda: latest.fence(3)
    with pytest.raises(SinkFencedError):
        later.fence(2)
    latest.write(2, changes(ROWS[1:2]))


def law_a_number_is_read_behind_the_fence(contract: Any) -> None:
    """A former writer that writes while the fence is on its way is in it, or refused."""
    under_test, former, later = writers(contract)
    later.before = lambda: former.write(2, changes(ROWS[1:3]))
    number = later.fence(2)
    assert number == 2
    assert sorted(under_test.read()) == ROWS[:3]


def law_others_may_write(contract: Any) -> None:
    """A program that knows nothing of numbers, between look and commit: each row is there once."""
    under_test, writer, _ = writers(contract)
    other = type(writer)(under_test.sink, Lane(writer="other", number=1, title="another"))
    other.fence(1)
    writer.before = lambda: other.write(1, changes(ROWS[5:6]))
    with suppress(CommitFailedError):
        writer.write(2, changes(ROWS[1:3]))
    again = type(writer)(under_test.sink, lane_of(0))
    if again.fence(9) == 1:
        again.write(2, changes(ROWS[1:3]))
    assert sorted(under_test.read()) == [*ROWS[:3], ROWS[5]]


def law_an_answer_that_is_lost_is_known(contract: Any) -> None:
    """Whoever asks next knows that the batch is there."""
    under_test, writer, later = writers(contract)

    def lose() -> None:
        raise ConnectionError

    writer.after = lose
    with pytest.raises(ConnectionError):
        writer.write(2, changes(ROWS[1:3]))
    if later.fence(2) == 1:
        later.write(2, changes(ROWS[1:3]))
    assert sorted(under_test.read()) == ROWS[:3]


LAWS = [
    law_a_fence_between_look_and_commit_counts,
    law_of_two_fences_the_higher_one_counts,
    law_a_number_is_read_behind_the_fence,
    law_others_may_write,
    law_an_answer_that_is_lost_is_known,
]


def contract_of(kind: type[Any], folder: Path, writer: Any = None) -> Any:
    contract = type("Contract", (kind,), {} if writer is None else {"writer": writer})()
    contract.uri = lambda: str(folder / str(next(_NAMES)))
    contract.folder = folder
    return contract


KINDS = [DeltaUnderTest, DeltaByKeyUnderTest, IcebergUnderTest, IcebergByKeyUnderTest]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__[4:])
@pytest.mark.parametrize("kind", KINDS)
def test_writers_keep(kind: type[Any], law: Callable[[Any], None], tmp_path: Path) -> None:
    law(contract_of(kind, tmp_path))


@pytest.mark.nightly
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__[4:])
@pytest.mark.parametrize("kind", [IcebergUnderTest, IcebergByKeyUnderTest])
@pytest.mark.parametrize("service", ["rest_catalogue", "glue_catalogue"])
def test_writers_keep_by_services(
    request: pytest.FixtureRequest,
    service: str,
    kind: type[Any],
    law: Callable[[Any], None],
    tmp_path: Path,
) -> None:
    contract = contract_of(kind, tmp_path)
    contract.by_service = request.getfixturevalue(service)
    law(contract)


class _FenceForgotten(DeltaWriter):
    """A batch has its number, but not the token."""

    def _transactions(self, number: int) -> dict[str, int]:
        return {self._number_id: number}


class _AsksFirst(DeltaWriter):
    """The number is read before the fence."""

    def fence(self, token: int) -> int:
        self._table = self._sink.opened_or_created()
        number = self._known(self._number_id)
        super().fence(token)
        return number


class _NumbersLater(DeltaWriter):
    """The number is a commit of its own."""

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        super().write(number, changes)
        self._commit_nothing({self._number_id: number})

    def _transactions(self, number: int) -> dict[str, int]:
        return {self._token_id: self._token}


class _Retries(IcebergWriter):
    """pyiceberg commits again on top of what others have committed, as it does by default."""

    def _opened(self) -> Any:
        return self._sink.place.opened(self._catalog)


class _FencesByProperty(IcebergWriter):
    """The token is a property, and no snapshot says that it has changed."""

    def _commit(self, table: Any, batch: Any, properties: Any, summary: Any) -> None:
        if batch is not None:
            super()._commit(table, batch, properties, summary)
            return
        with table.transaction() as transaction:
            transaction.set_properties(dict(properties))


class _NumberApart(IcebergWriter):
    """The number is a commit of its own."""

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        super().write(number, changes)
        with self._opened().transaction() as transaction:
            transaction.set_properties({self._number_name: str(number)})

    def _commit(self, table: Any, batch: Any, properties: Any, summary: Any) -> None:
        super()._commit(table, batch, {} if batch is not None else properties, summary)


class _OnlyAppends(IcebergWriter):
    """What had the key before stays."""

    def _stage_by_key(self, transaction: Any, table: Any, batch: Any, summary: Any) -> None:
        transaction.append(batch.rows.slice(0, batch.added), snapshot_properties=dict(summary))


def law_what_is_retracted_is_gone(contract: Any) -> None:
    """Of the contract of a sink."""
    contract.test_what_is_retracted_is_gone()


@pytest.mark.parametrize(
    ("kind", "writer", "law"),
    [
        (DeltaUnderTest, _FenceForgotten, law_a_fence_between_look_and_commit_counts),
        (DeltaUnderTest, _AsksFirst, law_a_number_is_read_behind_the_fence),
        (DeltaUnderTest, _NumbersLater, law_an_answer_that_is_lost_is_known),
        (IcebergUnderTest, _Retries, law_a_fence_between_look_and_commit_counts),
        (IcebergByKeyUnderTest, _Retries, law_a_fence_between_look_and_commit_counts),
        (IcebergUnderTest, _FencesByProperty, law_a_fence_between_look_and_commit_counts),
        (IcebergByKeyUnderTest, _FencesByProperty, law_a_fence_between_look_and_commit_counts),
        (IcebergUnderTest, _NumberApart, law_an_answer_that_is_lost_is_known),
        (IcebergByKeyUnderTest, _OnlyAppends, law_what_is_retracted_is_gone),
    ],
)
def test_broken_writers_are_found(
    kind: type[Any], writer: type[Any], law: Callable[[Any], None], tmp_path: Path
) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law(contract_of(kind, tmp_path, writer))
