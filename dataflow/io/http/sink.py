"""AtLeastOnceHttp: elements as POST requests, each with a key by which the receiver knows it again.

HTTP has nowhere to keep a number, so a request whose answer was lost is sent again: with the same body and the same
``Idempotency-Key``, which is made of the lane, the number of the batch, where in it the request begins, and a digest of
the body.

The header is that of the IETF's draft "The Idempotency-Key HTTP Header Field", with its meanings of 409 (the first
request is still being processed) and 422.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import PipelineError, SinkRefusedError
from dataflow.io.extras import require
from dataflow.sink import Lane, Sink, SinkChange, SinkWriter
from dataflow.table import ColumnType
from windowing.errors import error_text

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

#: Answers after which the same request may be taken later; and all from 500 on.
_LATER = frozenset({408, 409, 425, 429})
#: Answers that refuse what is in the request, and not whoever sends it, or where it goes.
_CONTENT = frozenset({400, 413, 415, 422})
_SERVER_ERROR = 500
#: How often a request is sent before the relay leaves the lane alone for a while, and how long is waited in between.
_TRIES, _PAUSE_S, _PAUSE_MAX_S = 6, 0.1, 5
_ANSWER_SHOWN_BYTES = 1_000
_CONTENT_TYPES = {
    "json": "application/json",
    "text": "text/plain; charset=utf-8",
    "bytes": "application/octet-stream",
}


@attrs.frozen(kw_only=True)
class AtLeastOnceHttp(Sink[Any]):
    """Sends elements by POST; see `WriteToHttp` for the arguments.

    Attributes:
        taken: in this process, by the writer of a lane: the number of the batch that was on its way last, and how many
            of its changes were taken; so that they are not sent again when a later one has failed.
    """

    url: str
    format: str = "json"
    batch: int = 1
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    changelog: str | None = None
    dead_letters: str | None = None
    timeout_s: float = 10.0
    ca_file: str | None = None
    lanes: int = 1
    taken: dict[str, tuple[int, int]] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    @property
    def columns(self) -> dict[str, ColumnType]:
        """The columns of the outbox: the key of the lane, and the element as bytes."""
        return {"lane_key": str, "body": bytes}

    @property
    def takes_retractions(self) -> bool:
        """Whether elements have a sign."""
        return self.changelog is not None

    def lane_key(self, element: Any) -> str:
        """The key that the user's function gives; without one, the element itself."""
        key: str = element[0]
        return key

    def open(self, lane: Lane) -> HttpWriter:
        """A writer of a lane."""
        return HttpWriter(self, lane)


class HttpWriter(SinkWriter):
    """Sends the batches of a lane, one request after the other.

    Args:
        sink: where to.
        lane: the lane.
    """

    def __init__(self, sink: AtLeastOnceHttp, lane: Lane) -> None:
        self._sink, self._lane = sink, lane
        self._name = hashlib.sha256(lane.writer.encode()).hexdigest()[:32]
        self._pool: PoolManager | None = None

    def fence(self, token: int) -> int:
        """Shut out nobody, as HTTP cannot; the number is what the relay knows."""
        self._pool = _pool(self._sink)
        return self._lane.delivered

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Send a batch in requests of as many elements as wanted; each is taken, or is a dead letter."""
        size, taken = self._sink.batch, self._sink.taken
        begun, known = taken.get(self._lane.writer, (0, 0))
        for first in range(known if begun == number else 0, len(changes), size):
            part = changes[first : first + size]
            body = self._body(part)
            # If requests are of another size now, or a restored store has other rows under a number that was used, it
            # is another request, and no receiver may drop it.
            digest = hashlib.sha256(body).hexdigest()[:16]
            self._send(f"{self._name}-{number}-{first}-{digest}", body)
            taken[self._lane.writer] = (number, first + size)

    def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.clear()

    def _body(self, changes: Sequence[SinkChange]) -> bytes:
        bodies = [self._signed(change) for change in changes]
        return bodies[0] if self._sink.batch == 1 else b"[" + b",".join(bodies) + b"]"

    def _signed(self, change: SinkChange) -> bytes:
        body: bytes = change.value[1]
        if self._sink.changelog is None:
            return body
        # It is a JSON object, as the encoder has seen to.
        members = body.rstrip()[:-1]
        comma = b"" if members == b"{" else b","
        return members + comma + f"{json.dumps(self._sink.changelog)}:{change.sign}}}".encode()

    def _send(self, key: str, body: bytes) -> None:
        assert self._pool is not None
        headers = {
            "Content-Type": _CONTENT_TYPES[self._sink.format],
            **self._sink.headers,
            "Idempotency-Key": key,
        }
        answer = self._pool.request(
            "POST", self._sink.url, body=body, headers=headers, redirect=False
        )
        status = answer.status
        if 200 <= status < 300:
            return
        if status in _LATER or status >= _SERVER_ERROR:
            raise ConnectionError(f"{self._sink.url} answers {status}: {_shown(answer)}")
        if status in _CONTENT and self._sink.dead_letters is not None:
            self._keep(Path(self._sink.dead_letters), key, body, answer)
            return
        raise SinkRefusedError(
            f"{self._sink.url} does not take what {self._lane.title} sends",
            detail=f"it answers {status}: {_shown(answer)}; to {body[:200]!r}",
            hint="what waits stays in the outbox: correct the receiver, the url or the headers, and run the job again"
            + (
                "; or keep refused requests as files: dead_letters='a folder'"
                if status in _CONTENT
                else ""
            ),
        )

    def _keep(self, folder: Path, key: str, body: bytes, answer: BaseHTTPResponse) -> None:
        """Keep a refused request as a file that has its key for a name, so that it is there once."""
        letter = {
            "url": self._sink.url,
            "status": answer.status,
            "answer": _shown(answer),
            "idempotency_key": key,
        }
        try:
            letter["body"] = body.decode()
        except UnicodeDecodeError:
            letter["body_base64"] = base64.b64encode(body).decode()
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{key}"
        with partial.open("w") as file:
            json.dump(letter, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / f"{key}.json")
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _pool(sink: AtLeastOnceHttp) -> PoolManager:
    import urllib3  # noqa: PLC0415 - takes long, and only such jobs need it

    retries = urllib3.Retry(
        total=_TRIES - 1,
        status_forcelist=[*_LATER, *range(_SERVER_ERROR, 600)],
        allowed_methods=None,
        backoff_factor=_PAUSE_S,
        backoff_max=_PAUSE_MAX_S,
        backoff_jitter=_PAUSE_S,
        retry_after_max=_PAUSE_MAX_S,
        raise_on_status=False,
    )
    return urllib3.PoolManager(
        timeout=urllib3.Timeout(sink.timeout_s), retries=retries, ca_certs=sink.ca_file
    )


def _shown(answer: BaseHTTPResponse) -> str:
    return answer.data[:_ANSWER_SHOWN_BYTES].decode("utf-8", "replace")


def check_url(name: str, url: object) -> None:
    """Check that there is a client, and that an address is one of HTTP.

    Args:
        name: of the transform that needs it.
        url: what the user gave.

    Raises:
        PipelineError: there is none, or it is none.
    """
    require("urllib3", "http", name)
    from urllib3.util import parse_url  # noqa: PLC0415 - only such jobs need it

    try:
        parsed = parse_url(url) if isinstance(url, str) else None
    except ValueError as error:
        raise PipelineError(
            f"{name} cannot send to {url!r}", detail=error_text(error), hint="correct the address"
        ) from error
    if parsed is None or parsed.scheme not in {"http", "https"} or not parsed.host:
        raise PipelineError(
            f"{name} cannot send to {url!r}", hint="give an address like 'https://host/path'"
        )
