"""VirtualNetwork: transports of one thread, with links that are slow, break, and are cut.

As ZeroMQ over TCP: on one link (one sender, one receiver) messages arrive in order or, when the connection breaks, not
at all; links have nothing to do with each other.  Any message can arrive twice; a delivery or an acknowledgement then
in any order, because workers send these again.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TypeVar

from runners.millwheel.control.shapes import MergeKeys, SplitKeys
from runners.millwheel.wire.messages import (
    ACKNOWLEDGE,
    DELIVER,
    Acknowledge,
    Assign,
    Deliver,
    EndHandover,
    EndSplits,
    HandoverEnded,
    RangesReleased,
    Ready,
    Revoke,
    Routes,
    decode,
)
from runners.testing.manual_clock import ManualClock
from runners.testing.simulator.dice import Dice
from runners.testing.simulator.fault import Fault
from runners.testing.simulator.trace import Trace

#: How long after a message its copy comes, where the order is kept.
_IN_TURN_MS_MAX = 1_000
_LOOKED_AT = (DELIVER.encode(), ACKNOWLEDGE.encode())
_K = TypeVar("_K")
_Ms = TypeVar("_Ms", int, float)
#: Sender and receiver.
Link = tuple[str, str]


class VirtualNetwork:
    """Connects `VirtualTransport` endpoints by name; the network of one driver and its workers.

    Args:
        clock: the virtual time.
        dice: decide what fails.
        look: called with every delivery and every acknowledgement that is sent.
        trace: of the run; its story has what masters and workers send about the ranges.
    """

    def __init__(
        self,
        clock: ManualClock,
        dice: Dice,
        look: Callable[[Deliver | Acknowledge], None],
        trace: Trace,
    ) -> None:
        self._clock, self._dice, self._look, self._trace = clock, dice, look, trace
        self._inboxes: dict[str, list[tuple[int, int, Link, bytes]]] = {}
        self._free_ms: dict[Link, int] = {}
        self._cut_until_ms: dict[str, int] = {}
        #: Until when messages from a process, to a process, or on a link are lost.
        self._mute_until_ms: dict[tuple[str, bool], float] = {}
        self._half_open_until_ms: dict[Link, int] = {}
        self._number = 0

    def look_away(self) -> None:
        """Call ``look`` no more from here on."""
        self._look = _pass_over

    def endpoint(self, address: str, sync: Callable[[], None]) -> "VirtualTransport":
        """Make a new endpoint.

        Args:
            address: of a process; one that has it already is replaced, with everything on its way to it.
            sync: called before each of the endpoint's messages leaves.
        """
        self._inboxes[address] = []
        return VirtualTransport(self, address, sync)

    def cut(self, address: str) -> None:
        """Remove an endpoint and everything on its way to it; what it has sent still arrives."""
        self._inboxes.pop(address, None)

    def drop(self, link: Link) -> None:
        """Lose what is on its way on a link."""
        inbox = self._inboxes.get(link[1], [])
        inbox[:] = sorted(each for each in inbox if each[2] != link)

    def isolate(self, address: str, duration_ms: int) -> None:
        """Let nothing in or out for a while; it arrives afterwards.

        Args:
            address: of the process.
            duration_ms: from now on, in virtual time.
        """
        _extend(self._cut_until_ms, address, self._clock.monotonic_ms() + duration_ms)

    def mute(self, address: str, duration_ms: float, *, is_deaf: bool) -> None:
        """Lose what a process sends for a while, or what it is sent; the other way works.

        Args:
            address: of the process.
            duration_ms: from now on, in virtual time.
            is_deaf: whether what it is sent is lost, and not what it sends.
        """
        _extend(self._mute_until_ms, (address, is_deaf), self._clock.monotonic_ms() + duration_ms)

    def put(self, link: Link, message: bytes) -> None:
        """Send a message, which may be late, lost with its connection, or there twice.

        Args:
            link: sender and receiver; a message for a process that is gone is lost.
            message: as the transport carries it.
        """
        sender, receiver = link
        # The kind of a message is in its bytes: the others need not be decoded.
        if any(kind in message for kind in _LOOKED_AT):
            sent = decode(message)
            if isinstance(sent, Deliver | Acknowledge):
                self._look(sent)
        self._trace.detail(sender, lambda: _lines_of(receiver, message))
        inbox = self._inboxes.get(receiver)
        if inbox is None:
            return
        if self._dice.strikes(Fault.LOSS):
            self._trace.note(sender, f"loses its connection to {receiver}")
            self.drop(link)
            return
        now_ms = self._clock.monotonic_ms()
        if self._swallows(link, now_ms):
            return
        start_ms = max(
            now_ms, self._cut_until_ms.get(sender, 0), self._cut_until_ms.get(receiver, 0)
        )
        due_ms = max(start_ms + self._dice.latency_ms(), self._free_ms.get(link, 0))
        self._free_ms[link] = due_ms
        self._push(inbox, due_ms, link, message)
        if self._dice.strikes(Fault.DUPLICATE):
            again_ms = due_ms + self._dice.duration_ms()
            if not isinstance(decode(message), Deliver | Acknowledge):
                # On its link it is in turn, and what comes after it waits.
                again_ms = self._free_ms[link] = min(again_ms, due_ms + _IN_TURN_MS_MAX)
            self._push(inbox, again_ms, link, message)

    def half_open(self, link: Link, duration_ms: int) -> None:
        """Lose what is sent on a link for a while.

        Args:
            link: sender and receiver; the sender is not notified.
            duration_ms: from now on, in virtual time.
        """
        _extend(self._half_open_until_ms, link, self._clock.monotonic_ms() + duration_ms)

    def _swallows(self, link: Link, now_ms: int) -> bool:
        """Whether messages on a link are lost, unnoticed."""
        sender, receiver = link
        until_ms = (
            self._half_open_until_ms.get(link, 0),
            self._mute_until_ms.get((sender, False), 0),
            self._mute_until_ms.get((receiver, True), 0),
        )
        return now_ms < max(until_ms)

    @property
    def is_broken(self) -> bool:
        """Whether a process that is there cannot be reached, or cannot reach all others."""
        now_ms = self._clock.monotonic_ms()
        ends = {
            *(name for name, until_ms in self._cut_until_ms.items() if until_ms > now_ms),
            *(name for (name, _), until_ms in self._mute_until_ms.items() if until_ms > now_ms),
        }
        is_half_open = any(until_ms > now_ms for until_ms in self._half_open_until_ms.values())
        return is_half_open or not ends.isdisjoint(self._inboxes)

    def take(self, address: str) -> list[bytes]:
        """Everything that has arrived."""
        inbox, now_ms = self._inboxes.get(address, []), self._clock.monotonic_ms()
        arrived = []
        while inbox and inbox[0][0] <= now_ms:
            arrived.append(heappop(inbox)[3])
        return arrived

    def _push(
        self, inbox: list[tuple[int, int, Link, bytes]], due_ms: int, link: Link, message: bytes
    ) -> None:
        self._number += 1
        heappush(inbox, (due_ms, self._number, link, message))


def _extend(until_ms: dict[_K, _Ms], place: _K, then_ms: _Ms) -> None:
    """Let a fault last until then, and not less long than another one that is under way in the same place."""
    until_ms[place] = max(then_ms, until_ms.get(place, then_ms))


def _pass_over(message: Deliver | Acknowledge) -> None:
    pass


def _lines_of(receiver: str, message: bytes) -> Iterable[tuple[str, frozenset[str]]]:
    """The contents of a message, if it is about which process has which ranges."""
    content = decode(message)
    if isinstance(content, Routes):
        ranges = " ".join(f"{range_id}:{where}" for range_id, where in content.addresses.items())
    elif isinstance(
        content, Assign | Ready | Revoke | EndSplits | RangesReleased | EndHandover | HandoverEnded
    ):
        ranges = " ".join(map(str, content.ranges))
    elif isinstance(content, SplitKeys | MergeKeys):
        ranges = (
            f"{content.range_id} {content.born if isinstance(content, SplitKeys) else content.gone}"
        )
    else:
        return
    yield f"  sends {receiver} {type(content).__name__} {ranges}", frozenset()


class VirtualTransport:
    """One endpoint of a `VirtualNetwork`; see `runners.millwheel.wire.transport` for the contract.

    Args:
        network: that of the driver and its workers.
        address: its name there.
        sync: called before each message leaves; the process can die there.
    """

    def __init__(self, network: VirtualNetwork, address: str, sync: Callable[[], None]) -> None:
        self._network, self._address, self._sync = network, address, sync

    @property
    def address(self) -> str:
        """Its name."""
        return self._address

    def send(self, address: str, message: bytes) -> None:
        """Send a message on the link to the other."""
        self._sync()
        self._network.put((self._address, address), message)

    def receive(self, timeout_ms: int) -> list[bytes]:
        """Everything that has arrived; never waits."""
        return self._network.take(self._address)

    def forget(self, address: str) -> None:
        """Lose what is on its way to the other."""
        self._network.drop((self._address, address))

    def close(self) -> None:
        """Leave the network."""
        self._network.cut(self._address)
