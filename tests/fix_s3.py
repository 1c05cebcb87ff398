"""An S3 service on this machine, of moto."""

import itertools
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

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
    for name, value in {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)

    def make() -> str:
        import boto3  # noqa: PLC0415 - it takes a second

        bucket = f"bucket-{next(_NAMES)}"
        boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1").create_bucket(
            Bucket=bucket
        )
        return bucket

    return make
