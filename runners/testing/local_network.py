"""LocalNetwork: transports of one process, for running master and workers in one thread.

Messages arrive in order at once; an endpoint that is cut off loses what it is sent, as a killed process would.
"""

from collections import deque


class LocalNetwork:
    """Connects `LocalTransport` endpoints by name."""

    def __init__(self) -> None:
        self._inboxes: dict[str, deque[bytes]] = {}

    def endpoint(self, address: str) -> "LocalTransport":
        """A new endpoint."""
        self._inboxes[address] = deque()
        return LocalTransport(self, address)

    def cut(self, address: str) -> None:
        """Remove an endpoint and everything on its way to it."""
        self._inboxes.pop(address, None)

    def put(self, address: str, message: bytes) -> None:
        """Hand a message to an endpoint, if it is there.

        Args:
            address: of the endpoint; what is sent to one that is cut off, or never was, is lost.
            message: as the transport carries it.
        """
        inbox = self._inboxes.get(address)
        if inbox is not None:
            inbox.append(message)

    def take(self, address: str) -> list[bytes]:
        """Everything waiting at an endpoint."""
        inbox = self._inboxes.get(address, deque())
        messages = list(inbox)
        inbox.clear()
        return messages


class LocalTransport:
    """One endpoint of a `LocalNetwork`; see `runners.millwheel.wire.transport` for the contract.

    Args:
        network: that of all endpoints.
        address: its name there.
    """

    def __init__(self, network: LocalNetwork, address: str) -> None:
        self._network, self._address = network, address

    @property
    def address(self) -> str:
        """Its name."""
        return self._address

    def send(self, address: str, message: bytes) -> None:
        """Put a message into the other endpoint's inbox."""
        self._network.put(address, message)

    def receive(self, timeout_ms: int) -> list[bytes]:
        """Everything waiting; never waits."""
        return self._network.take(self._address)

    def forget(self, address: str) -> None:
        """Do nothing: nothing is queued here."""

    def close(self) -> None:
        """Leave the network."""
        self._network.cut(self._address)
