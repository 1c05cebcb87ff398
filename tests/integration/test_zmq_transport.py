"""The wire between workers: authenticated, ordered, and silent towards strangers."""

import time

import pytest
import zmq

from runners.millwheel.wire.zmq_transport import JobKeys, ZmqTransport


def received(transport: ZmqTransport, count: int, timeout_s: float = 5.0) -> list[bytes]:
    """At least ``count`` messages, or what came in time."""
    messages: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count and time.monotonic() < deadline:
        messages += transport.receive(50)
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


@pytest.mark.parametrize("stranger", ["no key", "another key", "only the public key"])
def test_a_stranger_gets_no_byte_through(stranger: str) -> None:
    """Payloads are pickles, so whoever does not hold the job's secret key must not reach them."""
    keys = JobKeys.generate()
    ours = ZmqTransport(keys)
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

        assert [] == received(ours, 1, timeout_s=0.7)
    finally:
        socket.close()
        context.term()
        ours.close()


def test_a_secret_key_is_not_shown() -> None:
    """Neither in logs nor in errors."""
    keys = JobKeys.generate()

    assert keys.secret.decode() not in repr(keys)
