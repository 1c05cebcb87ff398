"""An S3 service on this machine, of moto."""

import itertools
from collections.abc import Callable, Iterator

import pytest

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of the service."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - it takes a second

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


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
