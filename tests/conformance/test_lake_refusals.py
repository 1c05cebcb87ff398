"""Tables that are followed where the place refuses, does not have them, or is away: each is known by the answer."""

import itertools
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from psycopg.conninfo import make_conninfo
from pyiceberg.catalog import load_catalog
from sqlalchemy import make_url

import dataflow as df
from dataflow.io.storage import GCS_ENDPOINT_VARIABLE
from dataflow.lake import iceberg_io, iceberg_rest
from dataflow.lake.delta_source import DeltaSource
from dataflow.lake.delta_table import DeltaPlace
from dataflow.lake.iceberg_table import _with_timeouts
from dataflow.lake.refusals import is_refusal
from dataflow.postgres_links import NOTICED
from dataflow.source import Outage, Source, SourceReader
from tests.lake_job import catalog as catalog_of

pytestmark = pytest.mark.slow

_NAMES = itertools.count()
ROWS = pa.table({"shop": ["a", "b"], "amount": [1, 2]})
TABLE = "shop.sales"


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others may enter, which those of pytest are not."""
    made = Path(tempfile.mkdtemp(prefix="dataflow-lake-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """A folder that may not be entered."""
    folder.chmod(0o000 if os.geteuid() != 0 else 0o700)
    try:
        with as_somebody_else():
            yield
    finally:
        folder.chmod(0o755)


class _Forbidding(BaseHTTPRequestHandler):
    """Answers as Google's object store does who may not read."""

    def do_GET(self) -> None:
        what = (
            "somebody does not have storage.objects.get access to the Google Cloud Storage object."
        )
        error = {"code": 403, "message": what, "errors": [{"message": what, "reason": "forbidden"}]}
        body = json.dumps({"error": error}).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - named by http.server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def forbidding() -> Iterator[str]:
    """The address of a service that refuses."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Forbidding) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def nobody() -> str:
    """An address where nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def delta(uri: str) -> Source:
    return df.ReadFromDelta(uri, changes=True, poll=0).source


def made_delta(uri: str) -> Source:
    write_deltalake(uri, ROWS, storage_options=DeltaPlace(uri=uri).storage_options)
    return delta(uri)


def iceberg(catalog: Mapping[str, str]) -> Source:
    return df.ReadFromIceberg(TABLE, catalog=catalog, changes=True, poll=0).source


def made_iceberg(catalog: Mapping[str, str]) -> Source:
    with closing(load_catalog("dataflow", **catalog)) as loaded:
        loaded.create_namespace("shop")
        loaded.create_table(TABLE, ROWS.schema).append(ROWS)
    return iceberg(catalog)


def in_folder(
    folder: Path, warehouse: str, store: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """A catalogue of SQLite."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/{next(_NAMES)}.db",
        "warehouse": warehouse,
        **store,
    }


def gcs_store(endpoint: str) -> dict[str, str]:
    token = {"gcs.oauth2.token": "none", "gcs.oauth2.token-expires-at": "4102444800000"}
    return {"gcs.service.host": endpoint, **token}


def outage_of(reader: SourceReader) -> Outage:
    batch = reader.read(10)
    assert batch.outage is not None
    assert not batch.records
    return batch.outage


#: Of a job that began when the table had its first version, or none yet.
FROM_THE_START = (0, 1, 0, None)


def opened(source: Source) -> SourceReader:
    return source.open(FROM_THE_START, None, fence=0)


def read_once(source: Source) -> Sequence[Any]:
    with closing(opened(source)) as reader:
        return reader.read(10).values


def check_refused(source: Source) -> str:
    """Two answers are outages, and the third ends the reading; returns the first."""
    with closing(opened(source)) as reader:
        outages = [outage_of(reader) for _ in range(2)]
        assert {each.what for each in outages} == {f"the table {source.input_name}"}
        with pytest.raises(df.InputError):
            reader.read(10)
    return outages[0].error


def check_away(source: Source) -> None:
    """Each try is an outage, and none ends the reading."""
    with closing(opened(source)) as reader:
        for _ in range(4):
            assert "Error" in outage_of(reader).error


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_folder_that_may_not_be_entered(kind: str, folder: Path) -> None:
    place = folder / "lake"
    is_delta = kind == "delta"
    source = (
        made_delta(f"{place}") if is_delta else made_iceberg(in_folder(folder, f"file://{place}"))
    )
    # What is needed is imported before somebody else runs this.
    assert len(read_once(source)) == 2
    reader = opened(source)
    with closed(place):
        assert "denied" in check_refused(source)
        assert "denied" in outage_of(reader).error
        outage_of(reader)
    found = list[Any]()
    while len(found) < 2:
        found += reader.read(10).values
    reader.close()
    assert [each["amount"] for each in found] == [1, 2]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_is_gone(kind: str, tmp_path: Path) -> None:
    """Of a catalogue, and of a folder."""
    catalog = in_folder(tmp_path, f"file://{tmp_path}/lake")
    if kind == "delta":
        source, words = made_delta(f"{tmp_path}/lake"), "there is no Delta table"
        shutil.rmtree(tmp_path / "lake")
    else:
        source, words = made_iceberg(catalog), "there is no Iceberg table"
        with closing(load_catalog("dataflow", **catalog)) as loaded:
            loaded.drop_table(TABLE)
    assert words in check_refused(source)


def test_a_bucket_of_gcs_that_is_not_there_or_has_no_table(gcs: Callable[[], str]) -> None:
    source = made_delta(f"gs://{gcs()}/table")
    assert isinstance(source, DeltaSource)
    empty, none = f"gs://{gcs()}/table", "gs://no-such-bucket/table"
    assert "there is no Delta table" in check_refused(attrs.evolve(source, pattern=empty))
    assert "404 Not Found" in check_refused(attrs.evolve(source, pattern=none))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_gcs_that_refuses_or_is_away(
    kind: str,
    gcs: Callable[[], str],
    forbidding: str,
    nobody: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each of some looks at a table that is away takes as long.
    monkeypatch.setattr(iceberg_io, "_RETRIED", timedelta(seconds=1))
    address = f"gs://{gcs()}/lake"
    catalog = in_folder(tmp_path, address, gcs_store(os.environ[GCS_ENDPOINT_VARIABLE]))
    source = made_delta(address) if kind == "delta" else made_iceberg(catalog)
    assert len(read_once(source)) == 2
    for endpoint, check in ((nobody, check_away), (forbidding, check_refused)):
        monkeypatch.setenv(GCS_ENDPOINT_VARIABLE, endpoint)
        check(source if kind == "delta" else iceberg({**catalog, **gcs_store(endpoint)}))


@pytest.mark.postgres
def test_a_catalogue_that_refuses_or_is_away(store_dsn: str, folder: Path, nobody: str) -> None:
    """A login, a database that is not there, and rights."""
    catalog = catalog_of(store_dsn, f"{folder}/lake")
    source = made_iceberg(catalog)
    assert len(read_once(source)) == 2
    no_database = catalog_of(make_conninfo(store_dsn, dbname="nowhere"), f"{folder}/lake")
    assert "FATAL" in check_refused(iceberg(no_database))
    port = nobody.rpartition(":")[2]
    away = catalog_of(make_conninfo(store_dsn, host="127.0.0.1", port=port), f"{folder}/lake")
    check_away(iceberg(away))


def test_a_catalogue_by_rest_that_refuses_is_away_or_silent(
    forbidding: str, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that says nothing is given up, and asked again."""
    check_away(iceberg({"uri": nobody}))
    assert "Forbidden" in check_refused(iceberg({"type": "rest", "uri": forbidding}))
    monkeypatch.setattr(iceberg_rest, "TIMEOUTS_S", (5, 0.05))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = iceberg({"uri": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        with closing(opened(source)) as reader:
            for _ in range(4):
                assert "timed out" in outage_of(reader).error


def test_a_silent_database_of_a_catalogue_is_noticed() -> None:
    """By the settings of the store, unless the address has its own; secrets stay what they are."""
    uri = "postgresql+psycopg://lake:p%40ss@db.example/catalog?connect_timeout=60"
    timed = make_url(_with_timeouts({"uri": uri})["uri"])
    assert timed.password == "p@ss"
    assert dict(timed.query) == {**{k: f"{v}" for k, v in NOTICED.items()}, "connect_timeout": "60"}
    assert _with_timeouts({"uri": "sqlite:///here"}) == {"uri": "sqlite:///here"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("connection refused", False),
        ("Generic S3 error: 503 Service Unavailable", False),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  password authentication failed for user", True),
        ("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)", False),
        ("google::cloud::Status(NOT_FOUND: no such object)", True),
        ("AWS Error ACCESS_DENIED during HeadObject operation", True),
    ],
)
def test_words(text: str, wanted: bool) -> None:
    assert is_refusal(OSError(text)) is wanted
