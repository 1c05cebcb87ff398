"""Time, processors and a network for a cluster in one thread, in which every action takes the time that it is given."""

from collections import defaultdict
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import Any

import attrs

from runners.millwheel.wire import messages
from runners.millwheel.wire.messages import Routes

_BUCKET_US = 100


class VirtualClock:
    """The time of the node that makes a step; see `runners.core.ground.clock`."""

    def __init__(self) -> None:
        self.us = 0.0

    def now_us(self) -> int:
        """Microseconds."""
        return int(self.us)

    def monotonic_ms(self) -> int:
        """Milliseconds."""
        return int(self.us // 1_000)


class Processors:
    """Some cores that all may use.

    Work takes what is free from its arrival on, at most one core at a time, in whatever order it is asked for.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._used_us: dict[int, float] = defaultdict(float)
        self.busy_us = 0.0

    def done_us(self, at_us: float, work_us: float) -> float:
        """Add work that comes at an instant; returns when it is done."""
        self.busy_us += work_us
        while work_us > 0:
            bucket = int(at_us // _BUCKET_US)
            end_us = (bucket + 1.0) * _BUCKET_US
            free_us = self._cores * _BUCKET_US - self._used_us[bucket]
            taken_us = min(work_us, free_us, end_us - at_us)
            self._used_us[bucket] += taken_us
            work_us -= taken_us
            at_us = end_us if work_us > 0 else at_us + taken_us
        return at_us


@attrs.define(eq=False)
class Node:
    """A process that makes steps.

    ``cores``: where; None: on one that nobody else uses.
    ``due_us``: when the next one is.  ``free_us``: when the last one is over; None: there was none, or its successor
    does not wait for a message.
    ``busy_us``: what its steps have taken of its core.
    """

    name: str
    clock: VirtualClock
    cores: Processors | None = None
    due_us: float = 0.0
    free_us: float | None = None
    busy_us: float = 0.0
    inbox: list[tuple[float, int, bytes]] = attrs.field(factory=list)

    def charge(self, us: float) -> None:
        """Add time, in microseconds, to its step."""
        self.busy_us += us
        if self.cores is None:
            self.clock.us += us
        else:
            self.clock.us = self.cores.done_us(self.clock.us, us)

    def wait(self, most_us: float) -> None:
        """End its step; the next one is made when a message is there, or after a while."""
        self.free_us, self.due_us = self.clock.us, self.clock.us + most_us
        if self.inbox:
            self.due_by(self.inbox[0][0])

    def due_by(self, at_us: float) -> bool:
        """Receive a message at an instant; returns whether the next step comes earlier because of it."""
        if self.free_us is None or max(at_us, self.free_us) >= self.due_us:
            return False
        self.due_us = max(at_us, self.free_us)
        return True


class Agenda:
    """The nodes by the time at which they are due."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Node]] = []
        self._numbers = count()

    def put(self, node: Node) -> None:
        """Note that the time at which a node is due has changed."""
        heappush(self._entries, (node.due_us, next(self._numbers), node))

    def take(self) -> Node:
        """Remove and return the node that is due first."""
        while True:
            due_us, _, node = heappop(self._entries)
            if due_us == node.due_us:
                return node


class Network:
    """Connects nodes by name; a message arrives a hop after it was sent."""

    def __init__(self, clock: VirtualClock, agenda: Agenda, hop_us: float) -> None:
        self._clock, self._agenda, self._hop_us = clock, agenda, hop_us
        self._numbers = count()
        self._nodes: dict[str, Node] = {}

    def endpoint(self, node: Node, message_us: float) -> "Endpoint":
        """The endpoint of a node, to which each message that it sends or receives costs so much."""
        self._nodes[node.name] = node
        return Endpoint(node, self, message_us)

    def put(self, address: str, message: bytes) -> None:
        """Send a message."""
        node = self._nodes[address]
        arrives_us = self._clock.us + self._hop_us
        heappush(node.inbox, (arrives_us, next(self._numbers), message))
        if node.due_by(arrives_us):
            self._agenda.put(node)


class Endpoint:
    """See `runners.millwheel.wire.transport` for the contract.

    Of several messages about owners of ranges that arrive together only the newest is handed over: each is complete,
    and a thousand workers that start would receive a million of them.
    """

    def __init__(self, node: Node, network: Network, message_us: float) -> None:
        self._node, self._network, self._message_us = node, network, message_us
        self.address = node.name

    def send(self, address: str, message: bytes) -> None:
        """To another node."""
        self._node.charge(self._message_us)
        self._network.put(address, message)

    def receive(self, timeout_ms: int) -> list[bytes]:
        """Everything that has arrived; never waits."""
        inbox, found = self._node.inbox, []
        while inbox and inbox[0][0] <= self._node.clock.us:
            found.append(heappop(inbox)[2])
        self._node.charge(self._message_us * len(found))
        old = [each for each in found if is_about_owners(each)][:-1]
        return [each for each in found if each not in old] if old else found

    def forget(self, address: str) -> None:
        """Nobody is replaced."""

    def close(self) -> None:
        """Nothing to release."""


def is_about_owners(message: bytes) -> bool:
    """Whether it is a message about the owners of ranges."""
    # Its kind is in its bytes: the others need not be decoded.
    return b"routes" in message and isinstance(decoded(message), Routes)


@lru_cache(maxsize=1_024)
def decoded(blob: bytes) -> Any:
    """Decode a message by `messages.decode`; one that a thousand workers receive is decoded once."""
    return messages.decode(blob)
