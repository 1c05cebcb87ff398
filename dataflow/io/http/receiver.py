"""Receiver: a server of HTTP that keeps what it is sent in a spool, and answers when it is on the disk."""

from __future__ import annotations

import hmac
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.io.http.spool import Spool, SpoolFullError

if TYPE_CHECKING:
    from dataflow.io.http.tls import Tls

_LOG = logging.getLogger(__name__)
#: Requests that are answered at the same time, and connections that wait for their turn.
_THREADS, _QUEUE = 32, 512
_HEADERS_MAX_BYTES = 64 << 10
_STOP_S = 1
_RETRY_AFTER_S = 5
#: What the server's error says where a body in chunks is too long; it has no class of its own.
_TOO_LARGE = "Request Entity Too Large"
_KEY_MAX = 1_024

Respond = Callable[[str, list[tuple[str, str]]], Any]


@attrs.frozen(kw_only=True)
class Address:
    """Where a receiver is, and who may send to it.

    Attributes:
        host: or the address of an interface.
        port: of it.
        path: of requests.
        token: that requests have in ``Authorization: Bearer``; None: anybody may send.
        certificate: for TLS; a file, as is its key; None: without TLS.
        private_key: of the certificate.
        key_header: the header with the key of a request.
        max_request_bytes: how large a body may be.
    """

    host: str
    port: int
    path: str
    token: str | None = attrs.field(repr=False, default=None)
    certificate: str | None = None
    private_key: str | None = None
    key_header: str = "Idempotency-Key"
    max_request_bytes: int = 1 << 20


class Receiver:
    """A server in threads of its own.

    Args:
        address: where.
        spool: that keeps the requests.
        decode: raises `ValueError` where a body is malformed.

    Raises:
        InputError: there is no TLS with this certificate.
        OSError: another process has the port.
    """

    def __init__(self, address: Address, spool: Spool, decode: Callable[[bytes], Any]) -> None:
        from cheroot.wsgi import Server  # noqa: PLC0415 - an extra

        tls = tls_of(address)
        # Where the port is taken, the server would leave a socket behind each time that it is asked for.
        with socket.create_server((address.host, address.port), family=_family(address.host)):
            pass
        self._address, self._spool, self._decode = address, spool, decode
        self._server = Server(
            (address.host, address.port),
            self._answer,
            numthreads=_THREADS,
            request_queue_size=_QUEUE,
            shutdown_timeout=_STOP_S,
            server_name="dataflow",
        )
        self._server.max_request_body_size = address.max_request_bytes
        self._server.max_request_header_size = _HEADERS_MAX_BYTES
        self._server.ssl_adapter = tls
        self._server.keep_alive_conn_limit = _QUEUE
        self._server.error_log = _logged  # type: ignore[method-assign, assignment]
        self._is_up = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="dataflow-http", daemon=True)
        self._thread.start()
        self._is_up.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Answer what is on its way, and stop.  Idempotent."""
        self._server.stop()
        self._thread.join()

    def _run(self) -> None:
        # Here, as its threads are daemons only where they are made by one; else a process could not end.
        try:
            self._server.prepare()
        except OSError as error:
            self._error = error
            return
        finally:
            self._is_up.set()
        self._server.serve()

    def _answer(self, request: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        status, headers, found = self._handled(request)
        body = json.dumps(found).encode()
        respond(
            status,
            [
                ("Content-Type", "application/json"),
                ("Content-Length", f"{len(body)}"),
                *headers,
            ],
        )
        return [body]

    def _handled(
        self, request: dict[str, Any]
    ) -> tuple[str, list[tuple[str, str]], dict[str, Any]]:
        """The status of an answer, headers of it, and what it says."""
        # Also where it is refused: what is left of it would be taken for the next request.
        body = _body(request)
        if body is None:
            return "413 Content Too Large", [], {"error": "the body is too large"}
        refusal = self._refused(request)
        if refusal is not None:
            return *refusal, {"error": refusal[0][4:]}
        if len(body) != int(request.get("CONTENT_LENGTH") or len(body)):
            return "400 Bad Request", [], {"error": "the body is not complete"}
        try:
            self._decode(body)
        except (ValueError, RecursionError) as error:
            return "400 Bad Request", [], {"error": f"the body is malformed: {error}"[:500]}
        name = "HTTP_" + self._address.key_header.upper().replace("-", "_")
        key: str | None = request.get(name)
        if key is not None and not 0 < len(key) <= _KEY_MAX:
            return "400 Bad Request", [], {"error": f"{self._address.key_header} is too long"}
        try:
            answer = self._spool.add(body, key)
        except SpoolFullError as error:
            _LOG.warning("a request is sent back, as it cannot be kept: %s", error)
            later = [("Retry-After", f"{_RETRY_AFTER_S}")]
            return "503 Service Unavailable", later, {"error": "it cannot be kept now"}
        if not answer.is_same:
            complaint = f"another request had this {self._address.key_header}"
            return "422 Unprocessable Content", [], {"error": complaint}
        return "200 OK", [], {"number": answer.number, "is_new": answer.is_new}

    def _refused(self, request: dict[str, Any]) -> tuple[str, list[tuple[str, str]]] | None:
        """The status of an answer that needs no look at the body, and headers."""
        token = self._address.token
        if token is not None:
            given = str(request.get("HTTP_AUTHORIZATION", "")).encode("latin-1", "replace")
            # Its duration says nothing about how much of it is right.
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                return "401 Unauthorized", [("WWW-Authenticate", "Bearer")]
        if request.get("PATH_INFO") != self._address.path:
            return "404 Not Found", []
        if request.get("REQUEST_METHOD") != "POST":
            return "405 Method Not Allowed", [("Allow", "POST")]
        return None


def tls_of(address: Address) -> Tls | None:
    """What has the certificate of a server; None: it has none.

    Args:
        address: of the server.

    Raises:
        InputError: there is no TLS with the certificate and the key.
    """
    if address.certificate is None:
        return None
    from dataflow.io.http.tls import Tls  # noqa: PLC0415 - an extra

    return Tls(address.certificate, address.private_key)


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _body(request: dict[str, Any]) -> bytes | None:
    """The body of a request; None: it is longer than it may be, which is seen here where it comes in chunks."""
    try:
        body: bytes = request["wsgi.input"].read()
    except OSError as error:
        if _TOO_LARGE not in str(error):
            raise
        return None
    return body


def _logged(message: str = "", level: int = logging.INFO, *, traceback: bool = False) -> None:
    _LOG.log(level, "%s", message, exc_info=traceback)
