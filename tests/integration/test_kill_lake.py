"""Kill whatever writes tables of lakes with -9: what signs leave over, and rows by key, are as they should be."""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from dataflow.lake.delta_table import DeltaPlace
from runners.embedded.postgres import embedded_postgres
from runners.embedded.temporary import temporary_home
from tests.integration.test_kill_sinks import expected, kill_server
from tests.killing import kill_one_after_the_other, seeded
from tests.lake_job import ICEBERG_TABLE, catalog
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.stream_servers import S3TestServer
from tests.streaming_jobs import write_events
from tests.waiting import until

KILLS = ("driver", "worker", "everything", "catalogue")


def net(table: pa.Table) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for row in table.to_pylist():
        found[row["user"], row["start"].astimezone(UTC), row["total"]] += row.get("sign", 1)
    return +found if min(found.values(), default=0) >= 0 else found


def options(uri: str) -> dict[str, str] | None:
    return DeltaPlace(uri=uri).storage_options


def table_of(uri: str) -> DeltaTable:
    return DeltaTable(uri, storage_options=options(uri))


def delta(uri: str) -> pa.Table:
    with suppress(TableNotFoundError):
        return table_of(uri).to_pyarrow_table()
    return pa.table({})


def iceberg(dsn: str, folder: str) -> pa.Table:
    loaded = load_catalog("dataflow", **catalog(dsn, folder))
    with closing(loaded), suppress(NoSuchTableError):
        return loaded.load_table(ICEBERG_TABLE).scan().to_arrow()
    return pa.table({})


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_lake_tables_survive_any_kill(store_dsn: str, tmp_path: Path) -> None:
    """Whoever dies and is started again: each row is there once, in each table."""
    path, log = write_events(tmp_path / "events.csv"), tmp_path / "job.log"
    folder = str(tmp_path / "lake")
    right = Counter((user, start, total) for (user, start), total in expected(path).items())

    with temporary_home() as home:
        dsn = embedded_postgres(home)
        words = [sys.executable, "-m", "tests.lake_job", str(path), store_dsn, dsn, folder]

        def written() -> list[int]:
            return [each.num_rows for each in (delta(f"{folder}/changes"), iceberg(dsn, folder))]

        kill_one_after_the_other(
            words, log, KILLS, seeded(), written, {"catalogue": lambda: kill_server(home)}
        )
        with in_a_group(words, log) as family:
            assert family.wait(600) == 0, log.read_text()
        assert net(delta(f"{folder}/changes")) == right
        assert net(delta(f"{folder}/totals")) == right
        assert net(iceberg(dsn, folder)) == right


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("is_in_store", [False, True], ids=["folder", "object store"])
def test_a_table_that_changes_is_followed_over_kills(
    is_in_store: bool,
    store_dsn: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Rows are added, replaced and deleted while the stream, and the server of both tables, die and are run again."""
    folder, log = str(tmp_path), tmp_path / "job.log"
    crash: Callable[[], None] = Mock()  # a folder has no server
    if is_in_store:
        server: S3TestServer = request.getfixturevalue("kept_s3")
        crash, folder = server.crash, f"s3://{server.bucket}"
    source, target = f"{folder}/sales", f"{folder}/totals"
    words = [sys.executable, "-m", "tests.lake_reads_job", store_dsn, source, target]

    def append(number: int) -> None:
        rows = [{"shop": f"shop {each % 7}", "amount": each + number} for each in range(100)]
        feed = {"delta.enableChangeDataFeed": "true"}
        table = pa.Table.from_pylist(rows)
        write_deltalake(
            source, table, mode="append", configuration=feed, storage_options=options(source)
        )

    def is_followed() -> bool:
        right = Counter[str]()
        for row in delta(source).to_pylist():
            right[row["shop"]] += row["amount"]
        found = delta(target).to_pylist()
        return {each["shop"]: each["total"] for each in found} == dict(right)

    append(0)
    for run in range(2):
        with in_a_group(words, log) as family:
            until(is_followed, log.read_text)
            append(10 + run)
            crash()
            kill(workers_of(family)[:1])
            table_of(source).update({"amount": "amount * 2"}, predicate=f"amount > {60 + run}")
            crash()
            table_of(source).delete(f"shop = 'shop {run}'")
            until(is_followed, log.read_text)
            append(20 + run)
            crash()
            kill([*descendants(family), family])
    with in_a_group(words, log):
        until(is_followed, log.read_text)
