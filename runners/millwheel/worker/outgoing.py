"""Outgoing: a worker's way out, on which what it sends waits while the commit that it relies on is under way."""

from runners.millwheel.wire.transport import Transport


class Outgoing:
    """Sends for one worker, in order; a `Transport` that keeps back what it is given, now and then.

    Args:
        transport: of the worker.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._keeps_back = False
        self._waiting: list[tuple[str, bytes]] = []

    @property
    def address(self) -> str:
        """The address that other endpoints send to."""
        return self._transport.address

    def send(self, address: str, message: bytes) -> None:
        """Hand a message over; it waits while messages are kept back.

        Args:
            address: of the other endpoint.
            message: encoded.
        """
        if self._keeps_back:
            self._waiting.append((address, message))
        else:
            self._transport.send(address, message)

    def send_at_once(self, address: str, message: bytes) -> None:
        """Hand a message over that relies on no commit.

        Args:
            address: of the other endpoint.
            message: encoded.
        """
        self._transport.send(address, message)

    def keep_back(self) -> None:
        """Keep back what is sent from now on."""
        self._keeps_back = True

    def release(self) -> None:
        """Send what was kept back, and keep nothing back any more."""
        self._keeps_back = False
        waiting, self._waiting = self._waiting, []
        for address, message in waiting:
            self._transport.send(address, message)

    def drop(self) -> None:
        """Forget what was kept back, and keep nothing back any more: the commit that it relies on did not happen."""
        self._keeps_back = False
        self._waiting.clear()

    def receive(self, timeout_ms: int) -> list[bytes]:
        """Everything that has arrived; waits up to ``timeout_ms`` for the first."""
        return self._transport.receive(timeout_ms)

    def forget(self, address: str) -> None:
        """Drop what is still queued for an endpoint that has been replaced."""
        self._waiting = [each for each in self._waiting if each[0] != address]
        self._transport.forget(address)

    def close(self) -> None:
        """Stop; unsent messages are dropped.  Idempotent."""
        self._waiting.clear()
        self._transport.close()
