"""The messages between the master and the workers of a job.  Plain values; `encode` makes bytes of them."""

import zlib
from collections.abc import Mapping
from typing import Any

import attrs

from runners.core.stages.percentile_watermark import SplitProgress
from runners.errors import StoredFormatError
from runners.millwheel.control.shapes import MergeKeys, RangeShape, Routing, SplitKeys
from runners.millwheel.model.accounts import RangeHolds, WorkerAccount
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.signals import SignalNews
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.wire.plain_fields import layout_of
from runners.stored.framing import current_format, frame, number_of, opened


@attrs.frozen(kw_only=True)
class Register:
    """Worker to master: here I am, for this slot; the worker that had it before is gone."""

    slot: int
    worker: str
    address: str


@attrs.frozen(kw_only=True)
class Assign:
    """Master to worker: take these ranges over, beside those that you have.

    Attributes:
        inputs_us, percentiles_us, signals, sent_ms: what to start from, as in `Watermarks`.
        suspects: input of them that has ended a process.
        commits: how far all ranges of their computations are committed, as far as it was reported to the master.
        cause: why, for people.
    """

    ranges: tuple[RangeId, ...]
    inputs_us: Mapping[str, int]
    percentiles_us: Mapping[str, int]
    signals: SignalNews
    routing: Routing
    sent_ms: int
    suspects: tuple[StepInput, ...]
    commits: Mapping[RangeId, CommitMark] = attrs.field(factory=dict)
    cause: Cause = UNKNOWN


@attrs.frozen(kw_only=True)
class Ready:
    """Worker to master: I have taken these ranges over, and can be sent what is for them.

    Attributes:
        shapes: their keys and handovers in the store, where they are key ranges.
    """

    slot: int
    worker: str
    ranges: tuple[RangeId, ...]
    shapes: Mapping[RangeId, RangeShape]


@attrs.frozen(kw_only=True)
class Revoke:
    """Master to worker: release these ranges, others will own them."""

    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class EndSplits:
    """Master to worker: end these splits where they have been read to, their input does not have them any more."""

    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class RangesReleased:
    """Worker to master: I do not own these ranges (any more), and shall send no more reports on them."""

    slot: int
    worker: str
    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class EndHandover:
    """Master to worker: end the handover of these ranges, because nothing is on its way by the former bounds."""

    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class HandoverEnded:
    """Worker to master: the end of the handover is committed; those ranges that cover no keys are deleted."""

    slot: int
    worker: str
    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class Routes:
    """Master to workers: which worker owns which range now; ranges not mentioned are on their way to an owner."""

    addresses: Mapping[RangeId, str]
    routing: Routing


@attrs.frozen(kw_only=True)
class Watermarks:
    """Master to workers, also as a sign of life: input watermark per computation, and signals.

    Attributes:
        percentiles_us: percentile watermark per computation whose triggers follow one.
        slowest_source_us: output watermark of the source split that is furthest behind, idle ones left out.
        is_draining: sources are to end where they are.
        is_pausing: sources are to read no further for now.
        sent_ms: when the master sends this, by its own clock; the worker sends it back as `Report.as_of_ms`.
        sole_owner_ranges: how many ranges the job has, where one worker has all of them and is to compute the input
            watermarks itself (ADR 0111); 0: there is none.
    """

    inputs_us: Mapping[str, int]
    percentiles_us: Mapping[str, int]
    signals: SignalNews
    slowest_source_us: int
    is_draining: bool
    is_pausing: bool
    sent_ms: int
    sole_owner_ranges: int = 0


@attrs.frozen(kw_only=True)
class Report:
    """Worker to master, also as a sign of life: how far its ranges are, and what it has done.

    Attributes:
        watermarks_us: output watermark per owned range.
        idle: source splits that were polled and had nothing.
        signals: number of the last signal that each owned range has passed on.
        percentiles_us: percentile watermark up to which each range has fired, where there is one.
        progress: where each source split is, where a grouping follows a percentile.
        polls: the last poll of each source split that was asked at all; a report that differs only in these is no news.
        routings: up to which routing each range has nothing on its way that follows an older one.
        commits: how far each range is committed, by this worker or before.
        inputs_us: the input watermarks that are ahead of those that the master has sent: those that the worker computes
            itself, and those by which former owners of its ranges have fired windows.
        is_quiet: nothing is unacknowledged, and no acknowledgement waits to be committed.
        is_paused: it is quiet, and sources are not read.
        holds: what each owned range's output watermark is the least of; a report that differs only in this is no news.
        account: what the worker reports of itself, about once a second; a report that differs only in this is no news.
        as_of_ms: `sent_ms` of the last message that the worker had received before it polled them: by the master's
            clock nothing in this report is older, however long the report was on its way.  A report that differs only
            in this is no news.
    """

    slot: int
    worker: str
    watermarks_us: Mapping[RangeId, int]
    idle: frozenset[RangeId]
    signals: Mapping[RangeId, int]
    percentiles_us: Mapping[RangeId, int]
    progress: Mapping[RangeId, SplitProgress]
    polls: Mapping[RangeId, SplitPoll] = attrs.field(eq=False)
    routings: Mapping[RangeId, int]
    commits: Mapping[RangeId, CommitMark]
    is_quiet: bool
    is_paused: bool
    counts: Counts
    as_of_ms: int = attrs.field(eq=False)
    inputs_us: Mapping[str, int] = attrs.field(factory=dict)
    holds: Mapping[RangeId, RangeHolds] = attrs.field(factory=dict, eq=False)
    account: WorkerAccount | None = attrs.field(default=None, eq=False)


@attrs.frozen(kw_only=True)
class Failed:
    """Worker to master: user code or input is wrong, so trying again cannot help.

    Attributes:
        error: as bytes (`runners.stored.errors`).
    """

    worker: str
    error: bytes


@attrs.frozen(kw_only=True)
class Died:
    """From the process that watches a worker to the master: the worker has ended, or its work has failed, and why.

    Attributes:
        at: the input that it was working on; none where it was not in user code.
        is_silent: the process has ended without an error, so the code itself ended it.
    """

    slot: int
    at: tuple[StepInput, ...]
    reason: str
    is_silent: bool


@attrs.frozen(kw_only=True)
class Heartbeat:
    """From the process that watches a worker to the master: what the worker is in the middle of; no sign of its life.

    All instants are by the clock of its host, in microseconds since 1970.

    Attributes:
        at: the input of the step that user code works on; none where it is not in user code.
        since_us: when that began; None: it is not in user code.
        transform: the label of the transform whose code runs; empty: of none.
        transform_since_us: when it was first seen to run, for this step.
        record: which element of its bundle the code is at, from 0; None: not known.
        records: how many there are; None: not known.
        is_trial: whether the code runs in a process of its own first.
        committing_us: since when the worker waits for a commit; None: it does not.
        interpreter_us: when its Python last ran another thread than that of the code.
    """

    slot: int
    worker: str
    sent_us: int
    at: tuple[StepInput, ...] = ()
    since_us: int | None = None
    transform: str = ""
    transform_since_us: int | None = None
    record: int | None = None
    records: int | None = None
    is_trial: bool = False
    committing_us: int | None = None
    interpreter_us: int | None = None


@attrs.frozen(kw_only=True)
class Waiting:
    """Worker to master: it cannot go on for now, and why.

    Attributes:
        place: what waits; None: the whole worker.
        is_over: it goes on.
    """

    slot: int
    worker: str
    reason: str
    place: str | None = None
    is_over: bool = False


@attrs.frozen
class Stop:
    """Master to worker: the job is over."""


@attrs.frozen
class Deliver:
    """Worker to worker: one production.

    Attributes:
        is_oldest: everything before it on its channel has been acknowledged, so it may be taken in whatever number the
            receiver expects; the numbers of productions that are not durable have gaps where their sender has changed.
        origin: the sender's commit as of which it is durable; None: it is not durable yet.
        trace: the context of the span of its delivery (`runners.millwheel.worker.tracing`); None: it is not traced.
    """

    channel: Channel
    sequence: int
    payload: bytes
    is_oldest: bool = False
    origin: CommitMark | None = None
    trace: bytes | None = None

    def follows(self, sequence: int) -> bool:
        """Whether it is the next delivery after the one with this number."""
        return self.sequence == sequence + 1 or (self.is_oldest and self.sequence > sequence)


@attrs.frozen
class Acknowledge:
    """Worker to worker: everything on this channel up to this sequence is committed.

    Attributes:
        receipt: by which commit.
    """

    channel: Channel
    sequence: int
    receipt: Receipt


#: The kinds of messages, by their names in the bytes, but for `Deliver` and `Acknowledge`.
_MESSAGES: dict[str, type] = {
    "register": Register,
    "assign": Assign,
    "ready": Ready,
    "revoke": Revoke,
    "end splits": EndSplits,
    "released": RangesReleased,
    "end handover": EndHandover,
    "handover ended": HandoverEnded,
    "routes": Routes,
    "watermarks": Watermarks,
    "report": Report,
    "failed": Failed,
    "died": Died,
    "heartbeat": Heartbeat,
    "waiting": Waiting,
    "stop": Stop,
    "split range": SplitKeys,
    "merge ranges": MergeKeys,
}
KINDS = {kind: name for name, kind in _MESSAGES.items()}
DELIVER, DELIVER_TRACED, ACKNOWLEDGE = "deliver", "deliver traced", "acknowledge"
_LAYOUTS = {name: layout_of(kind) for name, kind in _MESSAGES.items()}
_WRITERS = {kind: (name, _LAYOUTS[name].write) for kind, name in KINDS.items()}
#: Changes with the fields of messages, whose layout is not stored and so has no number.
_PROTOCOL = zlib.crc32(repr([(name, each.shape) for name, each in _LAYOUTS.items()]).encode())


def encode(message: Any) -> bytes:
    """A message as bytes; the number of the format is in front, so that another version is refused."""
    kind = type(message)
    if kind is Deliver:
        channel = _channel_fields(message.channel)
        where = *channel, message.sequence, message.is_oldest, message.origin
        if message.trace is not None:
            return frame(DELIVER_TRACED, *where, message.trace, message.payload)
        return frame(DELIVER, *where, message.payload)
    if kind is Acknowledge:
        return frame(
            ACKNOWLEDGE, *_channel_fields(message.channel), message.sequence, *message.receipt
        )
    name, write = _WRITERS[kind]
    return frame(name, _PROTOCOL, write(message))


def decode(blob: bytes) -> Any:
    """The inverse of `encode`.  Only messages are made of the bytes; nothing in them is unpickled.

    Raises:
        StoredFormatError: the sender is of a version of this package with another format, or it is no message.
    """
    number = number_of(blob)
    if number != current_format().number:
        raise _other_version(f"it sends format {number}, this one {current_format().number}")
    kind, fields = opened(blob)
    try:
        return _message(kind, fields)
    except (KeyError, TypeError, ValueError) as error:
        raise StoredFormatError(
            f"a message between processes of a job cannot be read: {kind!r}",
            detail=str(error),
            hint="this is a bug in dataflow-model: report it",
        ) from error


def _message(kind: str, fields: list[Any]) -> Any:
    if kind == DELIVER:
        *channel, sequence, is_oldest, origin, payload = fields
        mark = None if origin is None else CommitMark(*origin)
        return Deliver(_channel_of(channel), sequence, payload, is_oldest, mark)
    if kind == DELIVER_TRACED:
        *channel, sequence, is_oldest, origin, trace, payload = fields
        mark = None if origin is None else CommitMark(*origin)
        return Deliver(_channel_of(channel), sequence, payload, is_oldest, mark, trace)
    if kind == ACKNOWLEDGE:
        *channel, sequence, commit, is_remembered = fields
        return Acknowledge(
            _channel_of(channel), sequence, Receipt(CommitMark(*commit), is_remembered)
        )
    if len(fields) != len(("protocol", "message")) or fields[0] != _PROTOCOL:
        raise _other_version(f"its messages ({kind}) have other fields than those of this one")
    return _LAYOUTS[kind].value_of(fields[1])


def _other_version(detail: str) -> StoredFormatError:
    return StoredFormatError(
        "a process of this job is of another version of dataflow-model than its driver",
        detail=f"{detail}; the two cannot be part of one run",
        hint="install the same version on every machine of the cluster, then run the job again: it goes on",
    )


def _channel_fields(channel: Channel) -> tuple[str, int, str, int]:
    sender, receiver = channel
    return sender.computation, sender.index, receiver.computation, receiver.index


def _channel_of(fields: list[Any]) -> Channel:
    sender, sender_index, receiver, receiver_index = fields
    return Channel(RangeId(sender, sender_index), RangeId(receiver, receiver_index))
