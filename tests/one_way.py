"""A network between a client and a server that loses everything that goes in one direction, and nothing in the other.

The server is reached by an address in a network namespace of its own.  Frames are lost because they are sent to a
hardware address that nobody has: neither side knows, and what is lost is sent again by TCP, as on a real network.
"""

import itertools
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from tests.waiting import until

_numbers = itertools.count()
_NOBODY = "02:00:00:00:00:01"
DIRECTIONS = ("requests", "answers")


@attrs.define
class Link:
    """The network; ``address``: of the servers on its other side."""

    address: str
    ours: str
    device: str
    space: str
    made: ExitStack
    folder: Path

    def to(self, port: int, upstream: str) -> None:
        """Have a port of the other side lead to a server: ``tcp:HOST:PORT``, or ``unix:PATH``."""
        middle = upstream
        if upstream.startswith("tcp:"):
            middle = f"unix:{self.folder / str(port)}"
            self._relay([], middle, upstream)
            until((self.folder / str(port)).exists)
        self._relay(["ip", "netns", "exec", self.space], f"tcp:{self.address}:{port}", middle)
        until(lambda: self._answers(port))

    def _answers(self, port: int) -> bool:
        with suppress(OSError), socket.create_connection((self.address, port), 5):
            return True
        return False

    def lose(self, direction: str) -> None:
        """Lose requests, or answers, from now on."""
        to_nobody = ("lladdr", _NOBODY, "nud", "permanent")
        if direction == "requests":
            _ip("neigh", "replace", self.address, "dev", self.device, *to_nobody)
        else:
            _ip("-n", self.space, "neigh", "replace", self.ours, "dev", "eth0", *to_nobody)

    def heal(self) -> None:
        """Lose nothing any more."""
        with suppress(subprocess.CalledProcessError):
            _ip("neigh", "del", self.address, "dev", self.device)
        with suppress(subprocess.CalledProcessError):
            _ip("-n", self.space, "neigh", "del", self.ours, "dev", "eth0")

    def _relay(self, prefix: list[str], listen: str, upstream: str) -> None:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.tcp_relay", listen, upstream],
            cwd=Path(__file__).parents[1],
        )
        self.made.callback(process.wait)
        self.made.callback(process.kill)


@contextmanager
def one_way_network() -> Iterator[Link]:
    """Such a network; a skip where this user can make none."""
    number = next(_numbers)
    name = f"{os.getpid()}x{number}"
    subnet = f"10.214.{(os.getpid() * 8 + number) % 256}"
    device, space = f"dw{name}", f"dataflow-way-{name}"
    with ExitStack() as made:
        folder = Path(made.enter_context(tempfile.TemporaryDirectory(prefix="dataflow-way-")))
        try:
            _ip("netns", "add", space)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespace can be made here: {error}")
        made.callback(_ip, "netns", "del", space)
        _ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("addr", "add", f"{subnet}.1/24", "dev", device)
        _ip("link", "set", device, "up")
        _ip("-n", space, "addr", "add", f"{subnet}.2/24", "dev", "eth0")
        for each in ("lo", "eth0"):
            _ip("-n", space, "link", "set", each, "up")
        yield Link(f"{subnet}.2", f"{subnet}.1", device, space, made, folder)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
