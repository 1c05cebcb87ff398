"""HttpSource: the requests in a spool, by their numbers; whoever reads them also receives more.

The spool is a folder of one machine.  Its id is part of the split, so another folder, or the same path on another
machine, is not taken for it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from dataflow.errors import InputError
from dataflow.io.arrival import system_now_us
from dataflow.io.http.receiver import Address, Receiver, tls_of
from dataflow.io.http.spool import Spool, SpooledRequest
from dataflow.io.message_streams.reader import Message, MessageForm, MessageReader, Poll
from dataflow.io.outages import steady_s
from dataflow.source import Backlog, Source

_LOG = logging.getLogger(__name__)
#: What is raised where another process has the port, or the file.
_LOST = (OSError, sqlite3.OperationalError)
#: How often a port is asked for that another process has.
_PORT_PAUSE_S = 0.2


@attrs.frozen(kw_only=True)
class HttpSource(Source):
    """Receives requests; see `ReceiveHttp` for the arguments.

    Attributes:
        address: None: nothing is received, and the input ends with what is in the spool.
    """

    folder: str
    address: Address | None
    form: MessageForm
    max_spool_bytes: int
    keep_keys_us: int
    now_us: Callable[[], int] = system_now_us

    @property
    def is_bounded(self) -> bool:
        """Whether nothing is received."""
        return self.address is None

    @property
    def acknowledges(self) -> bool:
        """True: the spool keeps what is not durable elsewhere."""
        return True

    @property
    def input_name(self) -> str:
        """The folder."""
        return self.folder

    @property
    def has_event_times(self) -> bool:
        """True: when a request was received, at least."""
        return True

    def check(self) -> None:
        """Check that there is a spool, or can be, and that the certificate is one.

        Raises:
            InputError: there is none, or it is none.
        """
        self.spool().close()
        if self.address is not None:
            tls_of(self.address)

    def splits(self, desired: int) -> Sequence[tuple[str, int | None]]:
        """One: the id of the spool, and where it ends."""
        spool = self.spool()
        try:
            return [(spool.id, spool.last() if self.is_bounded else None)]
        finally:
            spool.close()

    def open(
        self, split: tuple[str, int | None], position: int | None, *, fence: int
    ) -> HttpReader:
        """Receive, and read behind a number."""
        return HttpReader(self, split, position)

    def spool(self) -> Spool:
        """Open the spool.

        Raises:
            InputError: it cannot be used.
        """
        try:
            return Spool(
                Path(self.folder),
                self.now_us,
                max_bytes=self.max_spool_bytes,
                keep_keys_us=self.keep_keys_us,
            )
        except (OSError, sqlite3.Error) as error:
            raise InputError(
                f"requests cannot be kept in {self.folder}",
                detail=f"{type(error).__name__}: {error}",
                hint="give a folder of this machine's disk that this user may write to",
            ) from error


class HttpReader(MessageReader):
    """Reads the spool, and runs the receiver as soon as no other process has its port.

    Args:
        source: the source.
        split: the spool's id, and where it ends.
        position: the number of the last request that was read; None: none was.

    Raises:
        InputError: the folder has another spool.
    """

    position: int
    lost = _LOST

    def __init__(
        self, source: HttpSource, split: tuple[str, int | None], position: int | None
    ) -> None:
        super().__init__(source.form, position or 0)
        self._source, (spool_id, self._end) = source, split
        self._receiver: Receiver | None = None
        self._ask_s, self._has_warned = 0.0, False
        self._spool: Spool | None = source.spool()
        if self._spool.id != spool_id:
            self.close()
            raise InputError(
                f"the spool in {source.folder} is not the one that the job has read",
                detail="requests that were answered may be in the other one",
                hint="was it deleted, or is this another machine? the job's workers have to be on the machine that has "
                "it; run the job with fresh=True to begin with this one",
            )

    def poll(self, max_records: int) -> Poll:
        """Read requests.

        Raises:
            InputError: requests are gone that were not read.
        """
        if self._spool is None:
            self._spool = self._source.spool()
        self._receive(self._spool)
        behind = self.position
        most = max_records if self._end is None else min(max_records, self._end - behind)
        last = self._spool.last()  # before it is read, as more may come
        found = self._spool.read(behind, most) if most > 0 else ()
        if last < behind or (most > 0 and last > behind and _begins_later(found, behind)):
            raise _gone(self._source.folder, behind, found, last)
        position = found[-1].number if found else behind
        is_over = self._end is not None and position >= self._end
        now_us = None
        if not found and self._end is None:
            now_us = self._spool.quiet_since_us(behind)
        left: int | None = max(last, position) - position
        if self._end is not None:
            left = self._end - position
        elif not found and now_us is None:
            left = None  # something has come meanwhile
        return Poll(
            messages=[
                Message(f"request {each.number}", each.body, each.body, each.received_us)
                for each in found
            ],
            position=position,
            now_us=now_us,
            backlog=Backlog(records=left),
            is_over=is_over,
        )

    def committed(self, position: int) -> None:
        """Delete what is durable elsewhere."""
        if self._spool is None:
            self._spool = self._source.spool()
        self._spool.forget(position)

    def close(self) -> None:
        """Stop receiving, and close the spool."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()
        spool, self._spool = self._spool, None
        if spool is not None:
            spool.close()

    def _receive(self, spool: Spool) -> None:
        """Start the receiver, if it is not there and nobody else's is: until then that one fills the spool."""
        if self._receiver is not None or self._source.address is None or steady_s() < self._ask_s:
            return
        try:
            self._receiver = Receiver(self._source.address, spool, self._source.form.decode)
        except OSError as error:
            if not self._has_warned:
                _LOG.warning(
                    "requests are not received here as long as %s:%s cannot be had: %s; it is asked for again",
                    self._source.address.host,
                    self._source.address.port,
                    error,
                )
            self._ask_s, self._has_warned = steady_s() + _PORT_PAUSE_S, True


def _begins_later(found: Sequence[SpooledRequest], behind: int) -> bool:
    return not found or found[0].number != behind + 1


def _gone(folder: str, behind: int, found: Sequence[SpooledRequest], last: int) -> InputError:
    what = f"the next one that is there is {found[0].number}" if found else f"the last is {last}"
    return InputError(
        f"the spool in {folder} has not what comes behind request {behind}",
        detail=f"{what}; requests are deleted when what was made of them is durable",
        hint="was a backup of the store, or of the spool, restored? run the job with fresh=True to begin with what is "
        "there",
    )
