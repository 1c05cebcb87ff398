"""The changes of a table: a copy of its rows first, then what is inserted, replaced and deleted, as signed records.

There is one split, the replication slot.  `SlotPosition` says why nothing is lost or doubled between copy and changes;
`ChangeDecoder` turns messages into records; here are connections, acknowledgements and the watermark.

**What the slot may forget is what is committed, and nothing else:** the server learns of a place in its log only in
`ChangesReader.committed`.  So the slot is never ahead of a stored position, and one that is has lost something
(`check_slot`).  An idle table pins no log: a place that the server reports to have nothing for us is a position as any
other, and is committed with the watermark that moves there.

**The watermark** follows the commit times of transactions; and where there are none, the server's clock: a place in
the log and the time there are noted (`_Marker`), and when the stream is past the place, everything that was committed
by that time has come.  So it never sticks.

A connection that is lost is opened again, at the place that was handed over; meanwhile there is nothing to read.  So it
is while a former reader lets go of the slot.  A login that is refused again and again, or from the beginning, ends the
reading.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import system_now_us
from dataflow.io.outages import steady_s
from dataflow.io.postgres_reads.change_decoder import ChangeDecoder
from dataflow.io.postgres_reads.connection import (
    SLOT_IN_USE,
    CopyStream,
    checked_session,
    connect,
    error_code,
    quoted,
)
from dataflow.io.postgres_reads.connection_retries import ConnectionRetries
from dataflow.io.postgres_reads.copy import TableCopy
from dataflow.io.postgres_reads.keys import KeyOf
from dataflow.io.postgres_reads.positions import SlotPosition
from dataflow.io.postgres_reads.row_form import RowForm
from dataflow.io.postgres_reads.rows import RowShape, SignedRow
from dataflow.io.postgres_reads.slot import (
    check_failover,
    check_publication,
    check_slot,
    end_other_reader,
    keep_on_standbys,
    lsn_of,
    lsn_text,
    prepare,
)
from dataflow.io.postgres_reads.table import TableShape, check_for_changes, table_shape
from dataflow.io.postgres_reads.timelines import checked_timeline
from dataflow.source import Backlog, Source, SourceBatch, SourceReader
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

_KEEPALIVE = struct.Struct("!qqb")
#: Of a message with data: its kind, two places and a time come before it.
_HEAD_BYTES = 25
#: How often the server is asked how far it is, and told what is committed, in seconds.
HEARTBEAT_S = 1.0
#: How long a new reader waits until it knows whether it has caught up, in seconds.
FIRST_WAIT_S = 5.0
#: How long the former reader of the slot is waited for before that is a failure, in seconds.
TAKEOVER_S = 20.0
#: Messages without records that are passed in one read, at most.
_MESSAGES_MAX = 10_000
_WHERE_NOW = (
    "SELECT pg_current_wal_flush_lsn()::text, "
    "(extract(epoch FROM clock_timestamp()) * 1000000)::int8"
)


@attrs.frozen(kw_only=True)
class ChangesSource(Source):
    """Follows a table; see `ReadFromPostgres` for the arguments.

    Attributes:
        dsn: may contain a password, so it is not shown.
        max_disorder_us: how far the watermark stays behind the times of commits.
        failover: whether the slot is kept on standbys.
    """

    table: str
    dsn: str = attrs.field(repr=False)
    slot: str
    publication: str
    form: RowForm
    max_disorder_us: int = 0
    failover: bool = False

    @property
    def element_type(self) -> Any:
        """The row type, or dicts."""
        return self.form.row_type or dict[str, Any]

    @property
    def is_bounded(self) -> bool:
        """False."""
        return False

    @property
    def input_name(self) -> str:
        """The table and the slot."""
        return f"{self.table} by slot {self.slot}"

    @property
    def has_event_times(self) -> bool:
        """Whether it is configured where event times are."""
        return self.form.event_time is not None

    @property
    def emits_retractions(self) -> bool:
        """True."""
        return True

    @property
    def acknowledges(self) -> bool:
        """True: the slot keeps what is not."""
        return True

    def check(self) -> None:
        """Check the server, the table, and the publication and slot if they are there.

        Raises:
            InputError: the changes cannot be followed.
        """
        with checked_session(self.dsn, self.table) as connection:
            shape = table_shape(connection, self.table)
            check_for_changes(connection, shape)
            RowShape(self.form, shape.columns, shape.shown)
            check_publication(connection, self.publication, shape)
            check_slot(connection, self.slot, None)
            if self.failover:
                check_failover(connection)

    def splits(self, desired: int) -> Sequence[str]:
        """One, whatever is desired: a slot has one order."""
        return ["changes"]

    def open(self, split: str, position: tuple[Any, ...] | None, *, fence: int) -> ChangesReader:
        """Follow the table from a position; whoever is given one takes the slot over."""
        return ChangesReader(self, position)

    def repeatable(self) -> Source:
        """There is none.

        Raises:
            PipelineError: always: the copy of a table that changes is another one each time.
        """
        raise PipelineError(
            f"the changes of {self.table} cannot be read in batch",
            detail="a batch reads its input again where a task is repeated, and the table has changed by then",
            hint="run it on the streaming runner; for its rows as they are now, leave changes=True out",
        )


@attrs.frozen
class _Marker:
    """At this time, in microseconds, the log had come to this place: what was committed before lies before it."""

    lsn: int
    time_us: int


class ChangesReader(SourceReader):
    """Reads the copy, then the slot.

    Args:
        source: the source.
        position: plain data of a `SlotPosition`; None: at the beginning.
    """

    def __init__(self, source: ChangesSource, position: tuple[Any, ...] | None) -> None:
        self._source = source
        self._position = None if position is None else SlotPosition.of(position)
        # Whoever is given a position owns the slot; the session of a former owner is in the way.
        self._may_take_over = position is not None
        self._watermark_us, self._ceiling_us = MIN_TIMESTAMP_US, MAX_TIMESTAMP_US
        self._committed_lsn = 0
        self._copy: TableCopy | None = None
        self._rows: RowShape | None = None
        self._key_of: KeyOf | None = None
        self._session: Any = None
        self._stream: CopyStream | None = None
        self._decoder: ChangeDecoder | None = None
        self._marker: _Marker | None = None
        self._newest_lsn: int | None = None
        self._has_caught_up = False
        self._next_heartbeat_s = 0.0
        #: Since when the slot is taken over; None: it is not.
        self._taking_since_s: float | None = None
        # Whoever has a position has been let in before.
        self._retries = ConnectionRetries(
            source.table, slot=source.slot, is_known=position is not None
        )
        self._error: InputError | None = None

    def ignore_after(self, ceiling_us: int) -> bool:
        """Follow no time of the server's clock that is later; rows may be."""
        self._ceiling_us = ceiling_us
        return False

    def read(self, max_records: int) -> SourceBatch:
        """Signed rows, if there are any; nothing while the server is away.

        Raises:
            InputError: the table can no longer be followed; what came before was handed over.
        """
        found: list[SignedRow] = []
        self._raise_kept()
        if self._retries.is_pausing:
            return self._batch(found)
        try:
            if self._position is None or not self._position.is_copied:
                self._read_copy(max_records, found)
            else:
                self._read_changes(max_records, found)
            self._retries.succeeded()
            self._taking_since_s = None
        except InputError as error:
            # What comes before is handed over before.
            if not found:
                raise
            self._error = error
        except Exception as error:  # noqa: BLE001 - it is raised there, unless another try may help
            self._failed(error)
        return self._batch(found)

    def _raise_kept(self) -> None:
        if self._error is not None:
            raise self._error

    def _batch(self, found: list[SignedRow]) -> SourceBatch:
        read = None if self._rows is None else self._rows.read_all(found)
        return SourceBatch(
            values=[] if read is None else read.values,
            timestamps_us=[] if read is None else read.timestamps_us,
            signs=[] if read is None else read.signs,
            position=None if self._position is None else self._position.plain(),
            watermark_us=self._watermark_us,
            set_aside=() if read is None else read.set_aside,
            backlog=self._backlog,
            # What came before the connection was lost is handed over first.
            outage=None if found else self._retries.outage,
        )

    @property
    def _backlog(self) -> Backlog | None:
        """The log between what was read and where the server is: that of all its tables together."""
        if self._position is None or not self._position.is_copied or self._newest_lsn is None:
            return None
        return Backlog(size_bytes=max(0, self._newest_lsn - self._position.lsn))

    def committed(self, position: tuple[Any, ...] | None) -> None:
        """Let the server forget what is before a position."""
        if position is None:
            return
        self._committed_lsn = max(self._committed_lsn, SlotPosition.of(position).lsn)
        if self._stream is not None:
            self._stream.report(self._committed_lsn, now_us=system_now_us(), wants_answer=False)

    def close(self) -> None:
        """End the sessions."""
        for each in (self._copy, self._stream, self._session):
            if each is not None:
                each.close()
        self._copy = self._stream = self._session = self._decoder = self._marker = None
        self._has_caught_up = False

    def _failed(self, error: Exception) -> None:
        """Try again later, where that may help; raise otherwise."""
        self.close()
        if self._is_taking_over(error):
            self._retries.wait(HEARTBEAT_S / 10)
            return
        self._retries.failed(error)

    def _is_taking_over(self, error: Exception) -> bool:
        """Whether the former reader has been ended, and need only let go of the slot."""
        if error_code(error) != SLOT_IN_USE or not self._may_take_over:
            return False
        if self._taking_since_s is None:
            self._taking_since_s = steady_s()
        return steady_s() - self._taking_since_s < TAKEOVER_S

    def _read_copy(self, max_records: int, found: list[SignedRow]) -> None:
        if self._copy is None:
            self._begin_copy()
        assert self._copy is not None
        assert self._key_of is not None
        assert self._position is not None
        taken = self._copy.take(max_records)
        found += [(raw, +1) for raw in taken]
        if taken:
            self._position = self._position.copied_to(self._key_of(taken[-1]))
        if len(taken) < max_records:
            self._position = self._position.copy_ended()
            self.close()

    def _begin_copy(self) -> None:
        source, position = self._source, self._position
        with (
            connect(source.dsn) as session,
            connect(source.dsn, is_replication=True) as replication,
        ):
            shape = table_shape(session, source.table)
            check_for_changes(session, shape, table=None if position is None else position.table)
            if position is None:
                prepare(
                    session,
                    replication,
                    slot=source.slot,
                    publication=source.publication,
                    shape=shape,
                )
                position = SlotPosition(table=shape.oid, columns=shape.columns)
            else:
                check_slot(session, source.slot, position.lsn)
            position = self._on_timeline(replication, position)
            if source.failover:
                keep_on_standbys(session, replication, source.slot)
            columns = position.columns
            self._rows = RowShape(source.form, columns, shape.shown)
            self._key_of = KeyOf(shape, columns)
            self._copy = TableCopy(source.dsn, shape, columns, replication, position.last_key)
            self._position = position.began_copy(self._copy.lsn)

    def _read_changes(self, max_records: int, found: list[SignedRow]) -> None:
        if self._stream is None:
            self._follow()
        assert self._stream is not None
        assert self._decoder is not None
        try:
            self._read_slot(max_records, found, self._stream, self._decoder)
        finally:
            self._position = self._decoder.position

    def _read_slot(
        self, max_records: int, found: list[SignedRow], stream: CopyStream, decoder: ChangeDecoder
    ) -> None:
        give_up_s = steady_s() + FIRST_WAIT_S
        for _ in range(max_records + _MESSAGES_MAX):
            while decoder.pending and len(found) < max_records:
                row, sign = decoder.pending.popleft()
                if row is not None:
                    found.append((row, sign))
            if len(found) >= max_records:
                break
            self._heartbeat(decoder)
            must_wait = not found and not self._has_caught_up and steady_s() < give_up_s
            message = stream.next(HEARTBEAT_S / 10 if must_wait else 0.0)
            if message is not None:
                self._take(message, decoder)
            elif not must_wait:
                break

    def _take(self, message: bytes, decoder: ChangeDecoder) -> None:
        if message[:1] == b"k":
            lsn, _, wants_answer = _KEEPALIVE.unpack_from(message, 1)
            if decoder.is_between_transactions:
                decoder.passed(lsn)
                self._came_to(lsn)
            if wants_answer:
                self._report(wants_answer=False)
        elif message[:1] == b"w":
            commit = decoder.take(message[_HEAD_BYTES:])
            if commit is not None:
                self._advance(commit.commit_us)
                self._came_to(commit.end_lsn)

    def _advance(self, time_us: int) -> None:
        if time_us <= self._ceiling_us:
            self._watermark_us = max(self._watermark_us, time_us - self._source.max_disorder_us)

    def _came_to(self, lsn: int) -> None:
        if self._marker is not None and self._marker.lsn <= lsn:
            self._advance(self._marker.time_us)
            self._marker, self._has_caught_up = None, True

    def _heartbeat(self, decoder: ChangeDecoder) -> None:
        if steady_s() < self._next_heartbeat_s:
            return
        self._next_heartbeat_s = steady_s() + HEARTBEAT_S
        # What a publication has lost meanwhile is never sent, and nobody would know.
        self._checked_shape(decoder.position)
        lsn, time_us = self._session.execute(_WHERE_NOW).fetchone()
        self._newest_lsn = lsn_of(lsn)
        if self._marker is None:
            self._marker = _Marker(self._newest_lsn, time_us)
        self._report(wants_answer=True)

    def _report(self, *, wants_answer: bool) -> None:
        assert self._stream is not None
        self._stream.report(self._committed_lsn, now_us=system_now_us(), wants_answer=wants_answer)

    def _follow(self) -> None:
        """Begin to read from the slot."""
        source, position = self._source, self._position
        assert position is not None
        self._session = connect(source.dsn)
        shape = self._checked_shape(position)
        check_slot(self._session, source.slot, position.lsn)
        self._rows = RowShape(source.form, position.columns, shape.shown)
        self._stream = self._opened_stream(position)
        assert self._position is not None
        position = self._position
        self._decoder = ChangeDecoder(
            position,
            name=shape.shown,
            key_of=KeyOf(shape, position.columns) if position.segments else None,
        )
        self._may_take_over, self._next_heartbeat_s = False, 0.0

    def _checked_shape(self, position: SlotPosition) -> TableShape:
        """The table, which is still the one that is followed, and published."""
        shape = table_shape(self._session, self._source.table)
        check_for_changes(self._session, shape, table=position.table)
        if not check_publication(self._session, self._source.publication, shape):
            raise InputError(
                f"the publication {self._source.publication!r} is gone",
                detail=f"changes of {shape.shown} were read by it",
                hint="those that were made meanwhile are in no publication: begin anew with another slot and a job of "
                "another name",
            )
        return shape

    def _on_timeline(self, replication: Any, position: SlotPosition) -> SlotPosition:
        """A position on the timeline of the server, which has all that was read."""
        timeline = checked_timeline(
            replication, self._source.slot, position.timeline, position.newest_lsn
        )
        return attrs.evolve(position, timeline=timeline)

    def _opened_stream(self, position: SlotPosition) -> CopyStream:
        source = self._source
        # A name in a list of names in a text.
        names = quoted(source.publication).replace("'", "''")
        command = (
            f"START_REPLICATION SLOT {quoted(source.slot)} LOGICAL {lsn_text(position.lsn)} "
            f"(proto_version '1', publication_names '{names}')"
        )

        def check(replication: Any) -> None:
            self._position = self._on_timeline(replication, position)
            if source.failover:
                keep_on_standbys(self._session, replication, source.slot)

        try:
            return CopyStream(source.dsn, command, check)
        except Exception as error:
            if error_code(error) == SLOT_IN_USE and self._may_take_over:
                end_other_reader(self._session, source.slot)
            raise
