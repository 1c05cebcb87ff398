"""Machines of their own, for tests: addresses of loopback, or network namespaces where this user may make them.

A namespace has its own interfaces, addresses and loopback, so nothing that is bound to a wrong address can be reached
from another one.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import attrs


@attrs.frozen
class Host:
    """Where a process runs: ``address``, and ``prefix``, what stands before each of its commands."""

    address: str
    prefix: Sequence[str] = ()


@attrs.frozen
class Network:
    """``here`` is this machine; ``hosts`` are two others, which are ``separate`` where they are namespaces."""

    here: Host
    hosts: Sequence[Host]
    is_separate: bool


LOOPBACK = Network(Host("127.0.0.1"), [Host("127.0.0.2"), Host("127.0.0.3")], is_separate=False)


@contextmanager
def network(*, is_separate: bool) -> Iterator[Network]:
    """Two hosts beside this one; ``is_separate``: in namespaces, if that is possible here."""
    with ExitStack() as made:
        bridge = f"dfb{os.getpid()}"
        if not is_separate or not _can_make(bridge):
            yield LOOPBACK
            return
        made.callback(_ip, "link", "del", bridge)
        yield _namespaces(bridge, made)


def _namespaces(bridge: str, made: ExitStack) -> Network:
    number = os.getpid()
    subnet = f"10.213.{number % 256}"
    _ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    hosts = []
    for index in (2, 3):
        space, end = f"dataflow-{number}-{index}", f"df{number}v{index}"
        _ip("netns", "add", space)
        made.callback(_ip, "netns", "del", space)
        _ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", end, "master", bridge, "up")
        _ip("-n", space, "addr", "add", f"{subnet}.{index}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")
        hosts.append(Host(f"{subnet}.{index}", ("ip", "netns", "exec", space)))
    return Network(Host(f"{subnet}.1"), hosts, is_separate=True)


def _can_make(bridge: str) -> bool:
    try:
        _ip("link", "add", bridge, "type", "bridge")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
