"""Kill whatever writes tables of lakes with -9: what signs leave over, and rows by key, are as they should be."""

import json
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from dataflow.lake.delta_table import DeltaPlace
from runners.embedded.postgres import embedded_postgres
from runners.embedded.temporary import temporary_home
from runners.millwheel.model.troubles import StoredTrouble, TroubleKind
from runners.millwheel.store.postgres import PostgresStore
from runners.observability.why.explain import Question, explain
from runners.observability.why.explanation import CauseKind, WhyExplanation
from runners.observability.why.from_store import evidence_from_store
from runners.system_clock import SystemClock
from tests.iceberg_deletes import delete_positions
from tests.integration.test_kill_sinks import expected, kill_server
from tests.killing import kill_one_after_the_other, seeded
from tests.lake_job import ICEBERG_BY_KEY, ICEBERG_TABLE, catalog
from tests.lake_reads_job import ICEBERG_SALES, ICEBERG_TOTALS, SALES, TOTALS
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.stream_servers import LakeTestServer, S3TestServer
from tests.streaming_jobs import write_events
from tests.waiting import until

JOB = "lake-reads"


def net(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows that signs leave over."""
    found = Counter[tuple[Any, ...]]()
    for row in table.to_pylist():
        sign = row.pop("sign", 1)
        found[tuple(_plain(value) for value in row.values())] += sign
    return +found if min(found.values(), default=0) >= 0 else found


def _plain(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def options(uri: str) -> dict[str, str] | None:
    return DeltaPlace(uri=uri).storage_options


def table_of(uri: str) -> DeltaTable:
    return DeltaTable(uri, storage_options=options(uri))


def delta(uri: str) -> pa.Table:
    with suppress(TableNotFoundError):
        return table_of(uri).to_pyarrow_table()
    return pa.table({})


def iceberg(catalogue: str, place: str, name: str = ICEBERG_TABLE) -> pa.Table:
    loaded = load_catalog("dataflow", **catalog(catalogue, place))
    with closing(loaded), suppress(NoSuchTableError):
        return loaded.load_table(name).scan().to_arrow()
    return pa.table({})


def place_of(tmp_path: Path, server: S3TestServer | None) -> str:
    """Where tables are that no catalogue has a place for."""
    has_place = server is not None and not isinstance(server, LakeTestServer)
    return f"s3://{server.bucket}" if has_place and server else str(tmp_path / "lake")


def server_of(request: pytest.FixtureRequest, name: str) -> S3TestServer | None:
    """The object store of the tables, perhaps with a catalogue; None: they are in a folder, which has no server."""
    found: S3TestServer | None = request.getfixturevalue(name) if name else None
    return found


@contextmanager
def catalogue_of(server: S3TestServer | None) -> Iterator[tuple[str, Callable[[], None]]]:
    """A catalogue by REST where the server has one, or else in a Postgres; and what kills it, and starts it again."""
    if isinstance(server, LakeTestServer):
        yield json.dumps(server.catalog), server.crash
        return
    with temporary_home() as home:
        yield embedded_postgres(home), lambda: kill_server(home)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "server_name",
    ["", "kept_s3", "kept_lake"],
)
def test_lake_tables_survive_any_kill(
    request: pytest.FixtureRequest, server_name: str, store_dsn: str, tmp_path: Path
) -> None:
    """Whoever dies and is started again: each row is there once, in each table."""
    path, log = write_events(tmp_path / "events.csv"), tmp_path / "job.log"
    server = server_of(request, server_name)
    place = place_of(tmp_path, server)
    right = Counter((user, start, total) for (user, start), total in expected(path).items())

    with catalogue_of(server) as (catalogue, strike):
        words = [sys.executable, "-m", "tests.lake_job", str(path), store_dsn, catalogue, place]
        strikes = {"catalogue": strike}
        if server is not None:
            strikes["object store"] = server.crash

        def written() -> list[int]:
            return [
                each.num_rows for each in (delta(f"{place}/changes"), iceberg(catalogue, place))
            ]

        kills = ("driver", "worker", "everything", *strikes, *strikes)
        kill_one_after_the_other(words, log, kills, seeded(), written, strikes)
        with in_a_group(words, log) as family:
            assert family.wait(600) == 0, log.read_text()
        assert net(delta(f"{place}/changes")) == right
        assert net(delta(f"{place}/totals")) == right
        assert net(iceberg(catalogue, place)) == right
        assert net(iceberg(catalogue, place, ICEBERG_BY_KEY)) == right


class Followed(ABC):
    """A table of sales that is followed, and the table of totals that is made of it, as those who change and read them.

    Args:
        place: of both.
        server: of the place, or of the catalogue; None: there is none.
    """

    catalogue = ""

    def __init__(self, place: str, server: S3TestServer | None) -> None:
        self.place, self.server = place, server

    def crash(self) -> None:
        """Kill the server, if there is one, and start it again."""
        if self.server is not None:
            self.server.crash()

    @abstractmethod
    def append(self, number: int) -> None:
        """Add sales."""

    @abstractmethod
    def take_away(self, run: int) -> None:
        """Replace and delete sales, where that can be followed."""

    @abstractmethod
    def tables(self) -> tuple[pa.Table, pa.Table]:
        """The sales and the totals as they are now."""

    def are_right(self) -> bool:
        """Whether the totals are those of the sales."""
        sales, totals = self.tables()
        right = Counter[str]()
        for row in sales.to_pylist():
            right[row["shop"]] += row["amount"]
        return net(totals) == Counter(right.items())


def sales_of(number: int) -> pa.Table:
    rows = [{"shop": f"shop {each % 7}", "amount": each + number} for each in range(100)]
    return pa.Table.from_pylist(rows)


class FollowedDelta(Followed):
    """Rows are added, replaced and deleted."""

    @property
    def _sales(self) -> str:
        return f"{self.place}/{SALES}"

    def append(self, number: int) -> None:
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(
            self._sales,
            sales_of(number),
            mode="append",
            configuration=feed,
            storage_options=options(self._sales),
        )

    def take_away(self, run: int) -> None:
        table = table_of(self._sales)
        table.update({"amount": "amount * 2"}, predicate=f"amount > {60 + run}")
        self.crash()
        table_of(self._sales).delete(f"shop = 'shop {run}'")

    def tables(self) -> tuple[pa.Table, pa.Table]:
        return delta(self._sales), delta(f"{self.place}/{TOTALS}")


class FollowedIceberg(Followed):
    """Rows are added, replaced and deleted, in whole files and by position; the catalogue dies, too."""

    def __init__(
        self, place: str, server: S3TestServer | None, catalogue: str, strike: Callable[[], None]
    ) -> None:
        super().__init__(place, server)
        self.catalogue, self._strike = catalogue, strike
        with closing(load_catalog("dataflow", **catalog(self.catalogue, place))) as loaded:
            loaded.create_namespace("shop")
            loaded.create_table(ICEBERG_SALES, sales_of(0).schema)

    @contextmanager
    def _sales(self) -> Iterator[Any]:
        with closing(load_catalog("dataflow", **catalog(self.catalogue, self.place))) as loaded:
            yield loaded.load_table(ICEBERG_SALES)

    def append(self, number: int) -> None:
        with self._sales() as sales:
            sales.append(sales_of(number))

    def take_away(self, run: int) -> None:
        with self._sales() as sales:
            doubled = [
                {**row, "amount": 2 * row["amount"]}
                for row in sales.scan(f"amount > {60 + run}").to_arrow().to_pylist()
            ]
            schema = sales_of(0).schema
            rows = pa.Table.from_pylist(doubled, schema=schema)
            sales.overwrite(rows, f"amount > {60 + run}")
        self._strike()
        with self._sales() as sales:
            sales.delete(f"shop = 'shop {run}'")
            (first, *_) = sorted(task.file.file_path for task in sales.scan().plan_files())
            delete_positions(sales, [(first, 0)])

    def tables(self) -> tuple[pa.Table, pa.Table]:
        found = [
            iceberg(self.catalogue, self.place, name) for name in (ICEBERG_SALES, ICEBERG_TOTALS)
        ]
        return found[0], found[1]


@pytest.fixture(
    params=["delta-", "delta-kept_s3", "iceberg-", "iceberg-kept_s3", "iceberg-kept_lake"]
)
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Followed]:
    kind, _, name = request.param.partition("-")
    server = server_of(request, name)
    place = place_of(tmp_path, server)
    if kind == "delta":
        yield FollowedDelta(place, server)
        return
    with catalogue_of(server) as found:
        yield FollowedIceberg(place, server, *found)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_table_that_changes_is_followed_over_kills(
    followed: Followed, store_dsn: str, tmp_path: Path
) -> None:
    """The table changes while the stream, and the servers of both tables, die and are run again.

    While the place of the table is away, the job says what it waits for.
    """
    log = tmp_path / "job.log"
    words = [
        sys.executable,
        "-m",
        "tests.lake_reads_job",
        store_dsn,
        followed.place,
        followed.catalogue,
    ]
    followed.append(0)
    for run in range(2):
        with in_a_group(words, log) as family:
            until(followed.are_right, log.read_text)
            followed.append(10 + run)
            followed.crash()
            kill(workers_of(family, log.read_text)[:1])
            followed.take_away(run)
            until(followed.are_right, log.read_text)
            followed.append(20 + run)
            followed.crash()
            kill([*descendants(family), family])
        # So that what is right next is of the next run: a driver that begins while the place is away ends.
        followed.append(30 + run)
    with in_a_group(words, log):
        until(followed.are_right, log.read_text)
        if followed.server is not None:
            check_outage_is_named(followed.server, store_dsn, log)
            followed.append(40)
            until(followed.are_right, log.read_text)


def check_outage_is_named(server: S3TestServer, store_dsn: str, log: Path) -> None:
    """The object store is away for as long as it takes until it is named: where, since when, and the last error."""
    with closing(PostgresStore(store_dsn)) as store:

        def asked() -> WhyExplanation:
            return explain(evidence_from_store(store, JOB, SystemClock()), Question())

        def reported(kind: TroubleKind) -> list[StoredTrouble]:
            return [
                each
                for each in store.read_troubles(JOB)
                if each.trouble.kind is kind and each.trouble.place.startswith("read")
            ]

        # Earlier outages were as long as it took, and may have been reported, too.
        def times(kind: TroubleKind) -> int:
            return sum(each.trouble.count for each in reported(kind))

        waited, resumed = times(TroubleKind.WAIT), times(TroubleKind.RESUMED)
        server.kill()
        until(lambda: asked().cause is CauseKind.INPUT_AWAY, lambda: f"{asked()}")
        assert re.search(
            r"the table \S+ cannot be read, for .*; the last try: \w", asked().sentence
        )
        until(lambda: times(TroubleKind.WAIT) > waited, log.read_text)
        for found in reported(TroubleKind.WAIT):
            assert re.match(r"the table \S+ cannot be read\n\w", found.trouble.reason)
        server.start()
        until(lambda: asked().cause is not CauseKind.INPUT_AWAY, lambda: f"{asked()}")
        until(lambda: times(TroubleKind.RESUMED) > resumed, log.read_text)
