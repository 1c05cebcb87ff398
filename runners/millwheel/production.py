"""Production: everything that one step of a worker commits, as one value.

One production is one transaction (DESIGN section 6): state, timers, delivered sequence numbers, outgoing productions,
source position, watermark and signals of that moment, late rows, and the rows of the user's tables.  Either all of it
happened or none of it did.  MillWheel, sections 6.1 and 6.2.

Nothing here knows SQL, Spark or the network.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs

from dataflow.io.table import TableWrite
from runners.millwheel.ids import Channel, Fence, RangeId
from runners.millwheel.signals import SignalMark


class CellWrite(NamedTuple):
    """Blind write of one state cell; ``value`` None deletes it."""

    computation: str
    key_hash: int
    #: Encoded key, and window where the cell is per window; opaque to the store.
    cell_key: bytes
    value: bytes | None


class TimerWrite(NamedTuple):
    """Set (``fire_us`` given) or delete (None) the timer of one cell and tag."""

    computation: str
    key_hash: int
    cell_key: bytes
    #: What the timer is about (the window, encoded); opaque to the store.
    tag: bytes
    #: ``event`` or ``processing``.
    domain: str
    fire_us: int | None


class Checkpoint(NamedTuple):
    """One outgoing production, durable before it is sent (a *strong production*, MillWheel 6.1)."""

    channel: Channel
    sequence: int
    #: Smallest event time inside: what it holds its sender's watermark at until acknowledged.
    min_timestamp_us: int
    payload: bytes


@attrs.frozen(kw_only=True)
class LateRecord:
    """A record that came after its window's state was gone: dropped from the result, kept as a row."""

    transform: str
    key: str
    window_start_us: int
    window_end_us: int
    watermark_us: int
    #: Pickled payload as it would have entered the grouping, so that it can be replayed.
    payload: bytes
    count: int = 1


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A record that user code cannot take: in no result, kept as a row (`runners.core.poison`).

    ``payload``: the pickled record as it came into the stage, so that it can be replayed.
    """

    stage: str
    error: str
    traceback: str
    tries: int
    timestamp_us: int
    payload: bytes


@attrs.frozen(kw_only=True)
class Production:
    """What one commit makes true.

    Invariant: every range whose cells, timers, channels, position, watermarks or signal mark appear has a fence in
    ``fences``.
    """

    job: str
    fences: Sequence[Fence]
    cells: Sequence[CellWrite] = ()
    timers: Sequence[TimerWrite] = ()
    #: Highest sequence delivered so far, per channel whose receiver is fenced here.
    delivered: Mapping[Channel, int] = attrs.field(factory=dict)
    checkpoints: Sequence[Checkpoint] = ()
    #: Per channel whose sender is fenced here: productions up to and including this sequence may be deleted.
    acknowledged: Mapping[Channel, int] = attrs.field(factory=dict)
    #: Where to read on, per source range; opaque to the store.
    positions: Mapping[RangeId, bytes] = attrs.field(factory=dict)
    #: Event time up to which the range has acted, per range.
    watermarks_us: Mapping[RangeId, int] = attrs.field(factory=dict)
    #: Percentile watermark that the range has acted on, per range whose triggers follow one.
    percentiles_us: Mapping[RangeId, int] = attrs.field(factory=dict)
    #: How far the range has come with the job's signals, per range.
    signal_marks: Mapping[RangeId, SignalMark] = attrs.field(factory=dict)
    #: Ranges with nothing left to do, ever (a source split at its end, a batch partition that is done).
    finished: frozenset[RangeId] = frozenset()
    late: Sequence[LateRecord] = ()
    dead: Sequence[DeadLetter] = ()
    tables: Sequence[TableWrite] = ()
