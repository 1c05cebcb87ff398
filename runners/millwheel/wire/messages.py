"""What the master and the workers of a job tell each other.  Plain values; pickled by `encode`."""

from collections.abc import Mapping
from typing import Any

import attrs

from dataflow.serialization import dumps, loads
from runners.core.stages.percentile_watermark import SplitProgress
from runners.millwheel.control.shapes import RangeShape, Routing
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.signals import SignalNews


@attrs.frozen(kw_only=True)
class Register:
    """Worker to master: here I am, for this slot; whoever held it before is gone."""

    slot: int
    worker: str
    address: str


@attrs.frozen(kw_only=True)
class Assign:
    """Master to worker: take these ranges over, beside those that you have.

    ``inputs_us`` and the others are what to start from, as in `Watermarks`.
    """

    ranges: tuple[RangeId, ...]
    inputs_us: Mapping[str, int]
    percentiles_us: Mapping[str, int]
    signals: SignalNews
    routing: Routing
    sent_ms: int
    #: Ranges whose next step has ended a process, and how many bundles of each were committed by then.
    suspects: Mapping[RangeId, int]
    #: How far the master has heard that they are committed.
    commits: Mapping[RangeId, CommitMark] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Ready:
    """Worker to master: I have taken these ranges over, and can be sent what is for them.

    ``shapes``: what the store says of them, where they are key ranges.
    """

    slot: int
    worker: str
    ranges: tuple[RangeId, ...]
    shapes: Mapping[RangeId, RangeShape]


@attrs.frozen(kw_only=True)
class Revoke:
    """Master to worker: let go of these ranges, others will have them."""

    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class Released:
    """Worker to master: I do not own these ranges, or not any more, and have said all that I shall say of them."""

    slot: int
    worker: str
    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class EndHandover:
    """Master to worker: nothing is on its way any more for which these ranges must stay with their neighbours."""

    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class HandoverEnded:
    """Worker to master: that is committed; those of them that cover nothing are not there any more."""

    slot: int
    worker: str
    ranges: tuple[RangeId, ...]


@attrs.frozen(kw_only=True)
class Routes:
    """Master to workers: who owns what now; ranges not mentioned are on their way to an owner."""

    addresses: Mapping[RangeId, str]
    routing: Routing


@attrs.frozen(kw_only=True)
class Watermarks:
    """Master to workers, also as a sign of life: input watermark per computation, and signals.

    ``percentiles_us``: percentile watermark per computation whose triggers follow one.
    ``slowest_source_us``: output watermark of the source split that is furthest behind, idle ones left out.
    ``is_draining``: sources are to end where they are; ``is_pausing``: to read no further for now.
    ``sent_ms``: when the master says so, by its own clock; `Report.as_of_ms` says it back.
    """

    inputs_us: Mapping[str, int]
    percentiles_us: Mapping[str, int]
    signals: SignalNews
    slowest_source_us: int
    is_draining: bool
    is_pausing: bool
    sent_ms: int


@attrs.frozen(kw_only=True)
class Report:
    """Worker to master, also as a sign of life: how far its ranges are, and what it has done.

    ``watermarks_us``: output watermark per owned range.  ``idle``: source splits that were polled and had nothing.
    ``as_of_ms``: `sent_ms` of what the worker had heard before it polled them: by the master's clock nothing that is
    said here is older, however long the report was on its way.

    ``signals``: number of the last signal that each owned range has passed on.
    ``percentiles_us``: percentile watermark that each range has acted on, where there is one.
    ``progress``: where each source split is, where somebody follows a percentile.
    ``routings``: up to which routing each range has nothing on its way that follows an older one.
    ``commits``: how far each range is committed, by this worker or before.
    ``is_quiet``: nothing is unacknowledged, and no acknowledgement waits to be committed; ``is_paused``: and sources
    are not read.
    """

    slot: int
    worker: str
    watermarks_us: Mapping[RangeId, int]
    idle: frozenset[RangeId]
    signals: Mapping[RangeId, int]
    percentiles_us: Mapping[RangeId, int]
    progress: Mapping[RangeId, SplitProgress]
    routings: Mapping[RangeId, int]
    commits: Mapping[RangeId, CommitMark]
    is_quiet: bool
    is_paused: bool
    counts: Counts
    #: That it has been heard again is no news by itself.
    as_of_ms: int = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class Failed:
    """Worker to master: user code or input is wrong, so trying again cannot help.

    ``traceback``: where it was raised, as text.
    """

    worker: str
    error: bytes
    traceback: str = ""


@attrs.frozen(kw_only=True)
class Died:
    """From beside a worker to the master: its process has ended, or its work has failed, and why.

    ``at``: the ranges whose records it was at work on, and how many bundles of each were committed by then; none where
    it was not in user code.  ``is_silent``: the process has ended without a word, so it is the code that ended it.
    """

    slot: int
    at: Mapping[RangeId, int]
    reason: str
    is_silent: bool


@attrs.frozen(kw_only=True)
class Waiting:
    """Worker to master: it cannot go on for now, and why.

    ``place``: what of it waits; none: all of it.  ``is_over``: it goes on.
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

    ``is_oldest``: everything before it on its channel has been acknowledged, so it may be taken in whatever the
    receiver remembers; the numbers of productions that are not durable have gaps where their sender has changed.
    ``origin``: the sender's commit as of which it is durable; None: it is not, yet.
    """

    channel: Channel
    sequence: int
    payload: bytes
    is_oldest: bool = False
    origin: CommitMark | None = None

    def follows(self, sequence: int) -> bool:
        """Whether it is the next one after the one with this number."""
        return self.sequence == sequence + 1 or (self.is_oldest and self.sequence > sequence)


@attrs.frozen
class Acknowledge:
    """Worker to worker: everything on this channel up to this sequence is committed; ``receipt``: by which commit."""

    channel: Channel
    sequence: int
    receipt: Receipt


def encode(message: Any) -> bytes:
    """A message as bytes."""
    return dumps(message)


def decode(blob: bytes) -> Any:
    """The inverse of `encode`; only for bytes that the transport has authenticated."""
    return loads(blob)
