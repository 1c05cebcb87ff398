"""ZeroMQ over TCP, encrypted and authenticated by CURVE with one key pair per job.

Every endpoint has the same key pair, and only that public key is let in: a process that cannot prove that it has the
job's secret key gets no byte through (payloads are pickles).  The pair travels inside the task closure and is never
logged.
"""

import socket
import threading

import attrs
import zmq
from zmq.auth.thread import ThreadAuthenticator

#: Credits bound what is in flight (`runners.millwheel.worker.worker`), so ZeroMQ itself need not drop or block.
_UNLIMITED = 0
#: How long the last message of a process may take to leave it.
_LAST_LINGER_MS = 3_000
#: How many messages of a `ZmqSender` wait for a slow receiver, and how long the first one waits for a connection.
_WAITING_MAX, _CONNECT_WAIT_MS = 10_000, 3_000


@attrs.frozen
class JobKeys:
    """The key pair of one run of a job, Z85-encoded."""

    public: bytes
    secret: bytes = attrs.field(repr=False)

    @classmethod
    def generate(cls) -> "JobKeys":
        """A fresh pair."""
        return cls(*zmq.curve_keypair())


class ZmqTransport:
    """An endpoint that binds one socket to receive and opens one per peer to send.

    Args:
        keys: the job's.
        host: the interface to bind, which is also the address that others send to.
    """

    def __init__(self, keys: JobKeys, host: str = "127.0.0.1") -> None:
        self._keys = keys
        self._context = zmq.Context()
        # Unsent messages of a dead peer must not keep a Spark task from ending.
        self._context.linger = 0
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(
            domain="*", credentials_provider=_OnlyThisKey(keys.public)
        )
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.rcvhwm = _UNLIMITED
        self._inbox.curve_server = True
        self._inbox.curve_publickey, self._inbox.curve_secretkey = keys.public, keys.secret
        port = self._inbox.bind_to_random_port(f"tcp://{host}")
        self._address = f"tcp://{host}:{port}"
        self._peers: dict[str, zmq.Socket[bytes]] = {}

    @property
    def address(self) -> str:
        """``tcp://host:port``."""
        return self._address

    def send(self, address: str, message: bytes) -> None:
        """Queue a message; ZeroMQ sends it from a thread of its own."""
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = self._connect(address)
        peer.send(message)

    def receive(self, timeout_ms: int) -> list[bytes]:
        """Everything that has arrived."""
        messages: list[bytes] = []
        if not self._inbox.poll(timeout_ms):
            return messages
        while True:
            try:
                messages.append(self._inbox.recv(zmq.NOBLOCK))
            except zmq.Again:
                return messages

    def forget(self, address: str) -> None:
        """Close the socket to a peer."""
        peer = self._peers.pop(address, None)
        if peer is not None:
            peer.close(linger=0)

    def close(self) -> None:
        """Close every socket and stop the authenticator."""
        if self._context.closed:
            return
        for peer in self._peers.values():
            peer.close(linger=0)
        self._inbox.close(linger=0)
        self._authenticator.stop()
        self._context.term()

    def _connect(self, address: str) -> "zmq.Socket[bytes]":
        return _connected(self._context, self._keys, address)


class ZmqSender:
    """Sends to one endpoint without binding one, for what may be lost; used by any thread, in the process that made it.

    Args:
        keys: by which the endpoint knows its peers.
        address: of the endpoint.
    """

    def __init__(self, keys: JobKeys, address: str) -> None:
        self._context, self._lock = zmq.Context(), threading.Lock()
        self._context.linger = _LAST_LINGER_MS
        self._peer = self._context.socket(zmq.PUSH)
        self._peer.sndhwm = _WAITING_MAX
        # What is queued before there is a connection would wait for an endpoint that may not be there.
        self._peer.immediate = True
        self._peer.curve_serverkey = keys.public
        self._peer.curve_publickey, self._peer.curve_secretkey = keys.public, keys.secret
        self._peer.connect(address)
        self._wait_ms = _CONNECT_WAIT_MS

    def send(self, message: bytes) -> bool:
        """Queue a message; returns whether there was a connection with room for it.  Waits for the first connection."""
        with self._lock:
            wait_ms, self._wait_ms = self._wait_ms, 0
            if not self._peer.poll(wait_ms, zmq.POLLOUT):
                return False
            self._peer.send(message, zmq.NOBLOCK)
            return True

    def close(self) -> None:
        """Close the connection, and wait for a short time until all is sent."""
        with self._lock:
            self._peer.close(linger=_LAST_LINGER_MS)
            self._context.term()


def send_last(keys: JobKeys, address: str, message: bytes) -> None:
    """Send one message without binding an endpoint, and wait for a short time until it is gone.

    Args:
        keys: of the job, by which its endpoints know each other.
        address: of the other endpoint.
        message: encoded.
    """
    context = zmq.Context()
    peer = _connected(context, keys, address)
    peer.send(message)
    peer.close(linger=_LAST_LINGER_MS)
    context.term()


def _connected(
    context: "zmq.Context[zmq.Socket[bytes]]", keys: JobKeys, address: str
) -> "zmq.Socket[bytes]":
    peer = context.socket(zmq.PUSH)
    peer.sndhwm = _UNLIMITED
    peer.curve_serverkey = keys.public
    peer.curve_publickey, peer.curve_secretkey = keys.public, keys.secret
    peer.connect(address)
    return peer


class _OnlyThisKey:
    """Lets one public key in; ZeroMQ has checked by then that its owner has the secret one."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._public


def own_host(peer: str) -> str:
    """The address of the interface by which this machine reaches ``peer`` (a host): what to bind on a cluster."""
    if peer in ("127.0.0.1", "localhost"):
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))  # chooses a route; a datagram socket sends nothing on connect
        host: str = probe.getsockname()[0]
        return host
