"""Another engine changes an Iceberg table, and reads what is written here: DuckDB, which deletes rows by position.

It has the catalogue and the store of SeaweedFS, which are programs of others, too.
"""

import itertools
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import load_catalog

import dataflow as df
from dataflow.lake.iceberg_source import NOTHING
from dataflow.sink import SinkChange, SinkWriter
from dataflow.testing.sink_contract import lane_of
from tests.stream_servers import S3_KEYS

pytestmark = pytest.mark.slow

_NAMES = itertools.count()
COLUMNS: dict[str, Any] = {"shop": str, "amount": int}


@pytest.fixture
def engine(rest_catalogue: dict[str, str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB, with the catalogue as the database "lake"."""
    key, secret = S3_KEYS.values()
    uri, store = rest_catalogue["uri"], rest_catalogue["s3.endpoint"].removeprefix("http://")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in ("avro", "httpfs", "iceberg"):
            folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
            connection.execute(f"LOAD '{folder / f'{name}.duckdb_extension'}'")
        connection.execute(
            f"CREATE SECRET store (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1', "
            f"ENDPOINT '{store}', URL_STYLE 'path', USE_SSL false)"
        )
        connection.execute(
            f"CREATE SECRET catalogue (TYPE iceberg, CLIENT_ID '{key}', CLIENT_SECRET '{secret}', "
            f"OAUTH2_SERVER_URI '{uri}/v1/oauth/tokens')"
        )
        connection.execute(
            f"ATTACH '{rest_catalogue['warehouse']}' AS lake (TYPE iceberg, ENDPOINT '{uri}', "
            "SECRET catalogue, ACCESS_DELEGATION_MODE 'none', READ_ONLY false)"
        )
        yield connection


def writer_of(table: str, catalog: dict[str, str]) -> SinkWriter:
    write = df.WriteToIceberg(table, catalog=catalog, columns=COLUMNS, key="shop")
    return write._sink.open(lane_of(0))


def test_rows_that_it_deletes_and_replaces_are_retracted_and_what_we_write_by_key_it_reads(
    rest_catalogue: dict[str, str], engine: duckdb.DuckDBPyConnection
) -> None:
    table = f"shop.engine{next(_NAMES)}"
    read = df.ReadFromIceberg(table, catalog=rest_catalogue, changes=True, poll=0).source
    with closing(writer_of(table, rest_catalogue)) as writer:
        assert writer.fence(1) == 0
        writer.write(1, [SinkChange((shop, at), +1) for at, shop in enumerate("abcd")])
        engine.execute(f"DELETE FROM lake.{table} WHERE shop = 'b'")
        engine.execute(f"UPDATE lake.{table} SET amount = 30 WHERE shop = 'c'")
        with closing(load_catalog("dataflow", **rest_catalogue)) as catalog:
            tasks = list(catalog.load_table(table).scan().plan_files())
        assert any(task.delete_files for task in tasks), "it has written whole files"
        writer.write(2, [SinkChange(("a", 9), +1)])
    found = engine.execute(f"SELECT shop, amount FROM lake.{table} ORDER BY shop").fetchall()
    assert found == [("a", 9), ("c", 30), ("d", 3)]
    with closing(read.open((NOTHING, 1, 0, None), None, fence=0)) as reader:
        batches = [reader.read(10) for _ in range(10)]
    assert [
        (row["shop"], row["amount"], sign)
        for batch in batches
        for row, sign in zip(batch.values, batch.signs or (), strict=True)
    ] == [
        *[(shop, at, +1) for at, shop in enumerate("abcd")],
        ("b", 1, -1),
        ("c", 2, -1),
        ("c", 30, +1),
        ("a", 0, -1),
        ("a", 9, +1),
    ]
