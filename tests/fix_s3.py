"""S3 services on this machine: of moto, which is in memory, and of SeaweedFS, which keeps what it has over kills."""

import itertools
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.stream_servers import S3_KEYS, LakeTestServer, S3TestServer, running
from tests.waiting import until

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of the service, a process of its own: not every client lets other threads run while it waits."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until(lambda: _answers(port), lambda: f"moto ended with {server.poll()}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Makes buckets that nobody else has, and returns their names; addresses mean this service."""
    name_s3(s3_endpoint, monkeypatch)

    def make() -> str:
        import boto3  # noqa: PLC0415 - it takes a second

        bucket = f"bucket-{next(_NAMES)}"
        boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1").create_bucket(
            Bucket=bucket
        )
        return bucket

    return make


@pytest.fixture
def kept_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3TestServer]:
    """A service that can be killed, with a bucket of its own; addresses mean it."""
    with running(S3TestServer) as server:
        name_s3(server.url, monkeypatch)
        yield server


@pytest.fixture(scope="session")
def _rest_catalogue() -> Iterator[LakeTestServer]:
    with running(LakeTestServer) as server:
        yield server


@pytest.fixture
def rest_catalogue(
    _rest_catalogue: LakeTestServer, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """A catalogue of Iceberg tables by REST, and their bucket: what pyiceberg needs to know of it."""
    name_s3(_rest_catalogue.url, monkeypatch)
    return _rest_catalogue.catalog


@pytest.fixture
def kept_lake(monkeypatch: pytest.MonkeyPatch) -> Iterator[LakeTestServer]:
    """A catalogue and the bucket of its tables, which can be killed together; addresses mean it."""
    with running(LakeTestServer) as server:
        name_s3(server.url, monkeypatch)
        yield server


@pytest.fixture
def glue_catalogue(s3: Callable[[], str], s3_endpoint: str) -> dict[str, str]:
    """A catalogue of Iceberg tables by Glue, of moto, and their bucket."""
    return {
        "type": "glue",
        "glue.endpoint": s3_endpoint,
        "glue.region": "us-east-1",
        "warehouse": f"s3://{s3()}/lake",
        "s3.endpoint": s3_endpoint,
        "s3.region": "us-east-1",
    }


def name_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have addresses mean a service."""
    others = {"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in {"AWS_ENDPOINT_URL": endpoint, **S3_KEYS, **others}.items():
        monkeypatch.setenv(name, value)
