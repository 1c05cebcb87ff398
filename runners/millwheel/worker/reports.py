"""What a worker tells the master of the ranges that it owns."""

from collections.abc import Mapping

from runners.millwheel.counts import Counts
from runners.millwheel.ids import RangeId
from runners.millwheel.messages import Report
from runners.millwheel.worker.owned_range import OwnedRange


def report_of(
    ranges: Mapping[RangeId, OwnedRange],
    *,
    slot: int,
    worker: str,
    is_idle: bool,
    is_pausing: bool,
    counts: Counts,
) -> Report:
    """How far the ranges are; ``is_idle``: whether everything that they have done is committed."""
    is_quiet = is_idle and all(owned.outbox.is_empty for owned in ranges.values())
    return Report(
        slot=slot,
        worker=worker,
        watermarks_us={range_id: owned.advance_output() for range_id, owned in ranges.items()},
        idle=frozenset(
            range_id
            for range_id, owned in ranges.items()
            if owned.is_idle and owned.outbox.is_empty
        ),
        signals={
            range_id: number
            for range_id, owned in ranges.items()
            if (number := owned.passed_signal())
        },
        percentiles_us={
            range_id: percentile_us
            for range_id, owned in ranges.items()
            if (percentile_us := owned.passed_percentile_us()) is not None
        },
        progress={
            range_id: progress
            for range_id, owned in ranges.items()
            if (progress := owned.passed_progress()) is not None
        },
        routings={range_id: owned.passed_routing() for range_id, owned in ranges.items()},
        is_quiet=is_quiet,
        is_paused=is_quiet and is_pausing,
        counts=counts,
    )
