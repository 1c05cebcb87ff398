"""The wire between workers: authenticated, ordered, and silent towards strangers."""

import pytest
import zmq

from runners.millwheel.wire.zmq_transport import JobKeys, ZmqTransport
from tests.waiting import until


def received(transport: ZmqTransport, count: int) -> list[bytes]:
    """At least ``count`` messages."""
    messages: list[bytes] = []

    def are_there() -> bool:
        messages.extend(transport.receive(50))
        return len(messages) >= count

    until(are_there)
    return messages


def test_messages_arrive_in_order() -> None:
    """What one endpoint sends another comes in the order it was sent."""
    keys = JobKeys.generate()
    left, right = ZmqTransport(keys), ZmqTransport(keys)
    try:
        sent = [str(number).encode() * 100 for number in range(1_000)]
        for message in sent:
            left.send(right.address, message)

        assert sent == received(right, len(sent))
    finally:
        left.close()
        right.close()


@pytest.mark.slow
@pytest.mark.parametrize("stranger", ["no key", "another key", "only the public key"])
def test_a_stranger_gets_no_byte_through(stranger: str) -> None:
    """Payloads are pickles, so whoever does not hold the job's secret key must not reach them."""
    keys = JobKeys.generate()
    ours, friend = ZmqTransport(keys), ZmqTransport(keys)
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.linger = 0
    if stranger == "another key":
        socket.curve_serverkey = keys.public
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    if stranger == "only the public key":
        # Claims the right public key without the secret that belongs to it.
        socket.curve_serverkey = keys.public
        socket.curve_publickey, socket.curve_secretkey = keys.public, zmq.curve_keypair()[1]
    try:
        socket.connect(ours.address)
        socket.send(b"evil")

        # As long as a friend takes who begins later, and longer.
        friend.send(ours.address, b"good")
        assert [b"good"] == received(ours, 1)
        assert [] == ours.receive(700)
    finally:
        friend.close()
        socket.close()
        context.term()
        ours.close()


def test_a_secret_key_is_not_shown() -> None:
    """Neither in logs nor in errors."""
    keys = JobKeys.generate()

    assert keys.secret.decode() not in repr(keys)
