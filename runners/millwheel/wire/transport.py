"""The transport port: bytes between the master and the workers of one job.

Contract: `Transport.send` never waits; what one endpoint sends another arrives in order while both live, or not at all.
Nothing arrives from a process without the job's key, because what arrives is unpickled.
Loss is allowed: deliveries are acknowledged and sent again (`runners.millwheel.worker.outbox`).
"""

from typing import Protocol


class Transport(Protocol):
    """One endpoint of the network of a job."""

    @property
    def address(self) -> str:
        """The address that other endpoints send to."""

    def send(self, address: str, message: bytes) -> None:
        """Hand a message over; dropped if the other end is gone.

        Args:
            address: of the other endpoint, as its `address`.
            message: encoded.
        """

    def receive(self, timeout_ms: int) -> list[bytes]:
        """Everything that has arrived; waits up to ``timeout_ms`` for the first."""

    def forget(self, address: str) -> None:
        """Drop what is still queued for an endpoint that has been replaced."""

    def close(self) -> None:
        """Stop; unsent messages are dropped.  Idempotent."""
