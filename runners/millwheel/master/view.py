"""MasterView: what a master knows at one moment, for people; copies, so that another thread may read them."""

from collections.abc import Collection, Mapping, Sequence

import attrs

from runners.millwheel.master.slots import MasterStatistics, RefusedReports
from runners.millwheel.model.accounts import RangeHolds, WorkerAccount
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.wire.messages import Heartbeat


@attrs.frozen(kw_only=True)
class SlotView:
    """A slot and its worker.

    Attributes:
        worker: its name; None: there is none now.
        reported_us: when its loop has last sent something; None: never.
        holds: what the output watermarks of its ranges are the least of.
        account: what it has last reported of itself.
        heartbeat: the last one, and when it came.
        refused: its reports that were not taken; None: the last one was.
    """

    worker: str | None
    is_ready: bool
    reported_us: int | None
    lease_ttl_ms: int
    holds: Mapping[RangeId, RangeHolds]
    account: WorkerAccount | None
    heartbeat: tuple[Heartbeat, int] | None
    refused: RefusedReports | None


@attrs.frozen(kw_only=True)
class MasterView:
    """What a master knows.  All instants are by its clock, in microseconds since 1970.

    Attributes:
        senders: of each computation, senders before receivers.
        percentiles: what computations follow, of those that follow one.
        inputs_us: input watermarks.
        percentiles_us: percentile watermarks.
        outputs_us: output watermarks of ranges.
        holds_us: by source that is getting splits, the watermark at which they begin.
        growing: the sources that may get splits.
        idle: the splits that hold nothing back.
        slowest_source_us: the least output watermark of all splits that are not idle.
        owners: the slots of ranges.
        confirmed: the ranges that the worker of their slot has.
        leaving: the ranges that are to go to another slot.
        heads: the ranges that others are in a handover with.
        statistics: counts, loads and polls.
        longest_round_ms: of the rounds since the view before.
        key_ranges: what each key range covers.
        moves: counts by `COMMIT_BOUNDS_US`, and the sum of all in microseconds, of how long nobody had a range that
            moved: from when its owner was asked to release it until the next one had it.
    """

    taken_us: int
    senders: Mapping[str, Sequence[str]]
    percentiles: Mapping[str, float]
    inputs_us: Mapping[str, int]
    percentiles_us: Mapping[str, int]
    outputs_us: Mapping[RangeId, int]
    holds_us: Mapping[str, int]
    growing: Collection[str]
    idle: Collection[RangeId]
    slowest_source_us: int
    owners: Mapping[RangeId, int]
    confirmed: Collection[RangeId]
    leaving: Mapping[RangeId, int]
    heads: Mapping[RangeId, RangeId]
    slots: Sequence[SlotView]
    statistics: MasterStatistics
    is_pausing: bool
    is_draining: bool
    is_retracting: bool
    longest_round_ms: int
    key_ranges: Mapping[RangeId, KeyRange]
    moves: tuple[tuple[int, ...], int]
