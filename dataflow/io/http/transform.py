"""ReceiveHttp: a receiver of POST requests, such as webhooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataflow.errors import PipelineError
from dataflow.io.create import Read
from dataflow.io.extras import require
from dataflow.io.http.receiver import Address
from dataflow.io.http.source import HttpSource
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.io.message_streams.arguments import disorder_us, is_until_now
from dataflow.io.message_streams.reader import MessageForm
from dataflow.io.message_streams.values import decoder_of
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline


class ReceiveHttp(OneOutput["Pipeline", Any]):
    """The bodies of POST requests, each of those that were answered with 200 exactly once.  The input has no end.

    The worker that has the input listens on the port, and answers a request when it is in a spool on the disk; it stays
    there until what was made of it is durable.  A request that comes again with the same key is answered as the first
    was, and counts once.  While no worker has the port, as during a restart, nobody answers, and clients have to try
    again.

    Args:
        folder: of the spool: on a disk of the machine on which the workers are, and of this input alone.
        host: the address to listen on; by default of this machine only.
        port: to listen on.
        path: of requests; all others are answered with 404.
        format: of bodies: ``json``, ``text`` or ``bytes``.  A malformed one is answered with 400, and never an element.
        token: what requests must have in the header ``Authorization: Bearer``; else they are answered with 401.  None:
            anybody may send.
        certificate: for TLS; a file (PEM), with the certificates between it and a known authority behind it, if there
            are any.  A new one is used when the worker starts anew.  None: without TLS.
        private_key: of the certificate; a file (PEM) without a password.
        key_header: the header by which a request is known that a client sends again.  Without it each is another one.
        keep_keys: for how long keys are known.
        max_request_bytes: a larger body is answered with 413.
        max_spool_bytes: where the spool is larger, requests are answered with 503 and ``Retry-After``.
        event_time: from an element to its event time.  None: when the request was received; the watermark then follows
            the clock where nothing is left.
        max_disorder: how far requests may be behind the newest one, in event time.
        max_ahead: as for `Read`, with ``event_time``.
        until: ``"now"``: nothing is received, and the input ends with what the spool has when the run begins.

    Raises:
        InputError: the folder cannot have a spool, or there is no TLS with the certificate and its key: when the
            pipeline is built.  When it runs: it has another one than
            the job has read, or requests are gone.
        PipelineError: an argument does not suit, or the package cheroot is not installed.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        path: str = "/",
        format: str = "json",  # noqa: A002 - what it is called elsewhere
        token: str | None = None,
        certificate: str | Path | None = None,
        private_key: str | Path | None = None,
        key_header: str = "Idempotency-Key",
        keep_keys: DurationLike = "7 days",
        max_request_bytes: int = 1 << 20,
        max_spool_bytes: int = 1 << 30,
        event_time: Callable[[Any], TimestampLike] | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        until: str | None = None,
    ) -> None:
        name = type(self).__name__
        require("cheroot", "http", name)
        if (certificate is None) != (private_key is None):
            raise PipelineError(
                f"{name} needs a certificate and its private key for TLS",
                hint="give both, or none of them",
            )
        if token == "" or not path.startswith("/"):
            raise PipelineError(
                f"{name} was given an empty token, or the path {path!r}",
                hint="a token has at least one character, and a path begins with a slash",
            )
        if max_request_bytes < 1:
            raise PipelineError(
                f"{name} was given max_request_bytes={max_request_bytes}", hint="give at least 1"
            )
        self._max_ahead = max_ahead
        self._source = HttpSource(
            folder=str(Path(folder).absolute()),
            address=None
            if is_until_now(name, until)
            else Address(
                host=host,
                port=port,
                path=path,
                token=token,
                certificate=None if certificate is None else str(certificate),
                private_key=None if private_key is None else str(private_key),
                key_header=key_header,
                max_request_bytes=max_request_bytes,
            ),
            form=MessageForm(
                name=f"spool {folder}",
                decode=decoder_of(name, format),
                event_time=event_time,
                max_disorder_us=disorder_us(name, max_disorder),
            ),
            max_spool_bytes=max_spool_bytes,
            keep_keys_us=to_duration_us(keep_keys),
        )

    def default_label(self) -> str:
        """``ReceiveHttp(path)``."""
        address = self._source.address
        return f"ReceiveHttp({self._source.folder if address is None else address.path})"

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Check the spool, and read it."""
        self._source.check()
        return pcoll | Read(self._source, max_ahead=self._max_ahead)
