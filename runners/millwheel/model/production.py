"""Production: everything that one step of a worker commits, as one value.

One production is one transaction (ADR 0004): state, timers, delivered sequence numbers, outgoing productions, source
position, watermark and signals of that moment, late rows, and the rows of the user's tables.  Either all of it
happened or none of it did.  MillWheel, sections 6.1 and 6.2.

Nothing here knows SQL, Spark or the network.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs

from dataflow.table import TableWrite
from runners.core.ground import dead_letters
from runners.core.ground.cells import LateArrival
from runners.core.ground.lineage import LineageEntry
from runners.core.panes.late import late_text
from runners.millwheel.model.events import UNKNOWN
from runners.millwheel.model.ids import Channel, CommitMark, Fence, RangeId, Receipt
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.signals import SignalMark
from runners.stored.letters import dead_payload, late_payload


class CellWrite(NamedTuple):
    """Blind write of one state cell.

    Attributes:
        cell_key: encoded key, and window where the cell is per window; opaque to the store, but for the mark of a page.
        value: None deletes the cell.
    """

    computation: str
    key_hash: int
    cell_key: bytes
    value: bytes | None


class TimerWrite(NamedTuple):
    """Set (``fire_us`` given) or delete (None) the timer of one cell and tag.

    Attributes:
        tag: what the timer is about (the window, encoded); opaque to the store.
        domain: ``event`` or ``processing``.
    """

    computation: str
    key_hash: int
    cell_key: bytes
    tag: bytes
    domain: str
    fire_us: int | None


class JournalEntry(NamedTuple):
    """A change of the state of a range by one step: durable, and not in its cells and timers yet.

    Once those are up to date the entry is deleted (`Production.compacted`).

    Attributes:
        cells: how many cells are in it, to count state; a cell in several entries counts in each.
        payload: opaque to the store.
    """

    range_id: RangeId
    cells: int
    payload: bytes


class Checkpoint(NamedTuple):
    """One outgoing production, durable before it is sent (a *strong production*, MillWheel 6.1).

    Attributes:
        min_timestamp_us: smallest event time inside: the hold on its sender's output watermark until it is
            acknowledged.
    """

    channel: Channel
    sequence: int
    min_timestamp_us: int
    payload: bytes


@attrs.frozen(kw_only=True)
class LateRecord:
    """A record that came after its window's state was gone: dropped from the result, kept as a row.

    Attributes:
        payload: the record as it would have entered the grouping, so that it can be replayed.
        contents: the record as text, shortened, for people.
    """

    transform: str
    key: str
    window_start_us: int
    window_end_us: int
    watermark_us: int
    payload: bytes
    count: int = 1
    contents: str = ""

    @classmethod
    def of(cls, transform: str, arrival: LateArrival) -> "LateRecord":
        """The form of a late arrival that a store keeps.

        Args:
            transform: the label of the grouping that dropped it.
            arrival: what came too late.
        """
        return cls(
            transform=transform,
            key=repr(arrival.key),
            window_start_us=arrival.window.start_us,
            window_end_us=arrival.window.end_us,
            watermark_us=arrival.watermark_us,
            payload=late_payload(arrival),
            count=arrival.count,
            contents=late_text(arrival),
        )


@attrs.frozen(kw_only=True)
class StoredDeadLetter:
    """A record that user code cannot take: in no result, kept as a row (`runners.core.user_code.poison`).

    Attributes:
        payload: the record as it came into the stage, so that it can be replayed.
        contents: the same as text, shortened, for people.
    """

    stage: str
    error: str
    traceback: str
    tries: int
    timestamp_us: int
    payload: bytes
    contents: str = ""

    @classmethod
    def of(cls, letter: dead_letters.DeadLetter) -> "StoredDeadLetter":
        """The form of a dead letter that a store keeps."""
        return cls(
            stage=letter.stage,
            error=letter.error,
            traceback=letter.traceback,
            tries=letter.tries,
            timestamp_us=letter.timestamp_us,
            payload=dead_payload(letter),
            contents=dead_letters.dead_text(letter),
        )


class Counted(NamedTuple):
    """What user code has counted in one commit (`dataflow.metrics`).

    Attributes:
        payload: opaque to the store.
        range_id: the range of a batch or backfill that has counted it, and that a later attempt may count anew; None:
            of a stream, in which nothing that is committed is done again.
        is_anew: it has in it all that earlier commits of the range have counted, and replaces that.
    """

    payload: bytes
    range_id: RangeId | None = None
    is_anew: bool = False


@attrs.frozen(kw_only=True)
class Reshape:
    """New bounds for key ranges of one computation: a split, or a merge (`runners.millwheel.control.shapes`).

    Alone in its production, which fences all ranges that lose or gain keys; a new range has no fence yet.

    Attributes:
        keys: what the ranges cover from here on; None: nothing any more.
        handover_with: the range that keeps its place.  The others belong to its owner until the handover has ended,
            because what was sent before is still addressed by the former bounds.
        reason: why, for people.
    """

    keys: Mapping[RangeId, KeyRange | None]
    handover_with: RangeId
    reason: str = UNKNOWN.reason

    @property
    def others(self) -> list[RangeId]:
        """The range that is new, or that is to be retired."""
        return [range_id for range_id in self.keys if range_id != self.handover_with]


@attrs.frozen(kw_only=True)
class Production:
    """All changes of one commit.

    Invariant: every range whose cells, timers, journal, channels, position, watermarks or signal mark appear has a
    fence in ``fences``.

    Attributes:
        journal: changes of state, in their order; the next owner of the range applies them to its cells and timers.
        compacted: cells and timers are up to date with the journal up to this bundle, per range; those entries may be
            deleted.
        delivered: highest sequence delivered so far, per channel whose receiver is fenced here.
        origins: of these, the sender's commit as of which the delivery is durable; none where it was sent before that
            commit.
        acknowledged: per channel whose sender is fenced here: productions up to and including this sequence may be
            deleted; those of this production need not be kept at all, but their numbers are taken.
        receipts: the receipts that came with these acknowledgements.
        positions: where to go on reading, per source range; opaque to the store.
        record_ids: digest and event time in microseconds of each record that counts here for the first time, per source
            range.
        record_id_horizons_us: ids with an earlier event time are forgotten, those of this production too, per source
            range.
        watermarks_us: input watermark up to which the range has fired (for a source: up to which it has read), per
            range.
        percentiles_us: percentile watermark up to which the range has fired, per range whose triggers follow one.
        firing_us: input watermark by which the range has fired some of what is due, where that was not all.
        signal_marks: how far the range has come with the job's signals, per range.
        finished: ranges with nothing left to do, ever (a source split at its end, a batch partition that is done).
        ended_handovers: ranges whose handover has ended.
        lineage: where what it contains comes from, if that is recorded.
        metrics: what user code has counted; None: nothing.
        cut: how far all ranges of the job have come with it, if partials have gone from one of them to another without
            a number of a channel (ADR 0112); kept with each range that is fenced here, in place of the one before.
    """

    job: str
    fences: Sequence[Fence]
    cells: Sequence[CellWrite] = ()
    timers: Sequence[TimerWrite] = ()
    journal: Sequence[JournalEntry] = ()
    compacted: Mapping[RangeId, int] = attrs.field(factory=dict)
    delivered: Mapping[Channel, int] = attrs.field(factory=dict)
    origins: Mapping[Channel, CommitMark] = attrs.field(factory=dict)
    checkpoints: Sequence[Checkpoint] = ()
    acknowledged: Mapping[Channel, int] = attrs.field(factory=dict)
    receipts: Mapping[Channel, Receipt] = attrs.field(factory=dict)
    positions: Mapping[RangeId, bytes] = attrs.field(factory=dict)
    record_ids: Mapping[RangeId, Sequence[tuple[bytes, int]]] = attrs.field(factory=dict)
    record_id_horizons_us: Mapping[RangeId, int] = attrs.field(factory=dict)
    watermarks_us: Mapping[RangeId, int] = attrs.field(factory=dict)
    percentiles_us: Mapping[RangeId, int] = attrs.field(factory=dict)
    firing_us: Mapping[RangeId, int] = attrs.field(factory=dict)
    signal_marks: Mapping[RangeId, SignalMark] = attrs.field(factory=dict)
    finished: frozenset[RangeId] = frozenset()
    reshape: Reshape | None = None
    ended_handovers: frozenset[RangeId] = frozenset()
    late: Sequence[LateRecord] = ()
    dead: Sequence[StoredDeadLetter] = ()
    tables: Sequence[TableWrite] = ()
    lineage: Sequence[LineageEntry] = ()
    metrics: Counted | None = None
    cut: Mapping[RangeId, CommitMark] = attrs.field(factory=dict)

    def named_ranges(self) -> set[RangeId]:
        """Every range that it names, except a new one; the ends of its channels need no fence."""
        channels = {*self.delivered, *self.acknowledged}
        channels.update(checkpoint.channel for checkpoint in self.checkpoints)
        named = {fence.range_id for fence in self.fences}
        if self.metrics is not None and self.metrics.range_id is not None:
            named.add(self.metrics.range_id)
        for channel in channels:
            named.update(channel)
        return named
