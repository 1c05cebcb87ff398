"""Tls: what has a receiver's certificate.  Imports cheroot, so it is imported when there is one."""

import ssl
from typing import Any

from cheroot.errors import FatalSSLAlert
from cheroot.ssl.builtin import BuiltinSSLAdapter

from dataflow.errors import InputError


class _Socket(ssl.SSLSocket):
    """Shakes hands when it is read first."""

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        try:
            return super().recv_into(*args, **kwargs)
        except ssl.SSLError as error:
            # The server ends such a connection without a word, as if hands had been shaken when it came.
            raise FatalSSLAlert(*error.args) from error


class Tls(BuiltinSSLAdapter):
    """Has hands shaken by the thread that answers a connection, not by the one that all connections come through.

    The server would wait ten seconds for each client that connects and says nothing, and hear nobody else.

    Args:
        certificate: a file.
        private_key: of the certificate; a file.

    Raises:
        InputError: there is no TLS with them.
    """

    def __init__(self, certificate: str, private_key: str | None) -> None:
        try:
            super().__init__(certificate, private_key)
        except (OSError, ValueError) as error:
            raise InputError(
                "requests cannot be received with TLS",
                detail=f"certificate {certificate}, private key {private_key}: {error}",
                hint="give a certificate (with the chain behind it, if there is one) and its own key, both as PEM "
                "files that this user may read, on the machine where the workers are",
            ) from error
        self.context.sslsocket_class = _Socket

    def wrap(self, sock: Any) -> tuple[Any, dict[str, Any]]:
        """The socket of a connection, and what is known of it for its requests.

        Args:
            sock: as it was accepted.

        Raises:
            FatalSSLAlert: the connection is gone.
        """
        try:
            wrapped = self.context.wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False
            )
        except OSError as error:
            raise FatalSSLAlert(*error.args) from error
        return wrapped, {"wsgi.url_scheme": "https", "HTTPS": "on"}
