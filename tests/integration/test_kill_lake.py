"""Kill whatever writes tables of lakes with -9: what signs leave over, and rows by key, are as they should be."""

import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
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
from tests.integration.test_kill_sinks import expected, kill_server
from tests.killing import kill_one_after_the_other, seeded
from tests.lake_job import ICEBERG_TABLE, catalog
from tests.lake_reads_job import ICEBERG_SALES, ICEBERG_TOTALS, SALES, TOTALS
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.stream_servers import S3TestServer
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


def iceberg(dsn: str, place: str, name: str = ICEBERG_TABLE) -> pa.Table:
    loaded = load_catalog("dataflow", **catalog(dsn, place))
    with closing(loaded), suppress(NoSuchTableError):
        return loaded.load_table(name).scan().to_arrow()
    return pa.table({})


def place_of(tmp_path: Path, server: S3TestServer | None) -> str:
    return str(tmp_path / "lake") if server is None else f"s3://{server.bucket}"


@pytest.fixture(params=[False, True], ids=["folder", "object store"])
def server(request: pytest.FixtureRequest) -> S3TestServer | None:
    """The object store of the tables; None: they are in a folder, which has no server."""
    return request.getfixturevalue("kept_s3") if request.param else None


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_lake_tables_survive_any_kill(
    server: S3TestServer | None, store_dsn: str, tmp_path: Path
) -> None:
    """Whoever dies and is started again: each row is there once, in each table."""
    path, log = write_events(tmp_path / "events.csv"), tmp_path / "job.log"
    place = place_of(tmp_path, server)
    right = Counter((user, start, total) for (user, start), total in expected(path).items())

    with temporary_home() as home:
        dsn = embedded_postgres(home)
        words = [sys.executable, "-m", "tests.lake_job", str(path), store_dsn, dsn, place]
        strikes = {"catalogue": lambda: kill_server(home)}
        if server is not None:
            strikes["object store"] = server.crash

        def written() -> list[int]:
            return [each.num_rows for each in (delta(f"{place}/changes"), iceberg(dsn, place))]

        kills = ("driver", "worker", "everything", *strikes, *strikes)
        kill_one_after_the_other(words, log, kills, seeded(), written, strikes)
        with in_a_group(words, log) as family:
            assert family.wait(600) == 0, log.read_text()
        assert net(delta(f"{place}/changes")) == right
        assert net(delta(f"{place}/totals")) == right
        assert net(iceberg(dsn, place)) == right


class Followed(ABC):
    """A table of sales that is followed, and the table of totals that is made of it, as those who change and read them.

    Args:
        place: of both.
        crash: kills the server of the place, if there is one, and starts it again.
    """

    catalogue = ""

    def __init__(self, place: str, crash: Callable[[], None]) -> None:
        self.place, self.crash = place, crash

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
    """Rows are added; the catalogue dies, too."""

    def __init__(self, place: str, crash: Callable[[], None], home: Path) -> None:
        super().__init__(place, crash)
        self._home, self.catalogue = home, embedded_postgres(home)
        with closing(load_catalog("dataflow", **catalog(self.catalogue, place))) as loaded:
            loaded.create_namespace("shop")
            loaded.create_table(ICEBERG_SALES, sales_of(0).schema)

    def append(self, number: int) -> None:
        with closing(load_catalog("dataflow", **catalog(self.catalogue, self.place))) as loaded:
            loaded.load_table(ICEBERG_SALES).append(sales_of(number))

    def take_away(self, run: int) -> None:
        kill_server(self._home)

    def tables(self) -> tuple[pa.Table, pa.Table]:
        found = [
            iceberg(self.catalogue, self.place, name) for name in (ICEBERG_SALES, ICEBERG_TOTALS)
        ]
        return found[0], found[1]


@pytest.fixture(params=["delta", "iceberg"])
def followed(
    request: pytest.FixtureRequest, server: S3TestServer | None, tmp_path: Path
) -> Iterator[Followed]:
    place = place_of(tmp_path, server)
    crash: Callable[[], None] = (lambda: None) if server is None else server.crash
    if request.param == "delta":
        yield FollowedDelta(place, crash)
        return
    with temporary_home() as home:
        yield FollowedIceberg(place, crash, home)


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_table_that_changes_is_followed_over_kills(
    followed: Followed, server: S3TestServer | None, store_dsn: str, tmp_path: Path
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
            kill(workers_of(family)[:1])
            followed.take_away(run)
            until(followed.are_right, log.read_text)
            followed.append(20 + run)
            followed.crash()
            kill([*descendants(family), family])
        # So that what is right next is of the next run: a driver that begins while the place is away ends.
        followed.append(30 + run)
    with in_a_group(words, log):
        until(followed.are_right, log.read_text)
        if server is not None:
            check_outage_is_named(server, store_dsn, log)
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

        before = len(reported(TroubleKind.RESUMED))
        server.kill()
        until(lambda: asked().cause is CauseKind.INPUT_AWAY, lambda: f"{asked()}")
        assert re.search(
            r"the table \S+ cannot be read, for .*; the last try: \w", asked().sentence
        )
        until(lambda: reported(TroubleKind.WAIT), log.read_text)
        (found,) = reported(TroubleKind.WAIT)
        assert re.match(r"the table \S+ cannot be read\n\w", found.trouble.reason)
        server.start()
        until(lambda: asked().cause is not CauseKind.INPUT_AWAY, lambda: f"{asked()}")
        until(lambda: len(reported(TroubleKind.RESUMED)) > before, log.read_text)
