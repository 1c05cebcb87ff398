"""Accounts: where the time of a worker goes, what holds its ranges back, and which keys are frequent; for people.

No result depends on it.
"""

from bisect import bisect_left
from collections.abc import Mapping

import attrs

from runners.millwheel.model.hot_keys import FrequentKey
from runners.millwheel.model.ids import RangeId

#: Upper bounds of the latencies of commits, in microseconds; what is above the last is counted too.
COMMIT_BOUNDS_US = (
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000
)  # fmt: skip

#: Overdue timers are counted up to about so many.
OVERDUE_MAX = 1_000


class Latencies:
    """How long things of one kind took: the commits of a worker, with what it did meanwhile, or the moves of a job.

    Attributes:
        counts: by `COMMIT_BOUNDS_US`, and of those above all.
        sum_us: of all.
        last_us: when the last one was done, in microseconds since 1970; None: there was none.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(COMMIT_BOUNDS_US) + 1)
        self.sum_us = 0
        self.last_us: int | None = None

    def note(self, began_us: int, ended_us: int) -> None:
        """Count one.

        Args:
            began_us: when it began, in microseconds since 1970; of a commit, when it was sent.
            ended_us: when it was over; of a commit, when its outcome was known.
        """
        # The time of day can be set back.
        took_us = max(0, ended_us - began_us)
        self.counts[bisect_left(COMMIT_BOUNDS_US, took_us)] += 1
        self.sum_us += took_us
        self.last_us = ended_us


@attrs.frozen(kw_only=True)
class RangeHolds:
    """What the output watermark of a range is the least of, in microseconds.

    Attributes:
        processed_us: the input watermark up to which it has fired; of a split, up to which it has read.
        unacknowledged_us: of its productions that are not acknowledged.
        window_us: the earliest pane that a window is still to emit.
    """

    processed_us: int
    unacknowledged_us: int | None
    window_us: int | None


@attrs.frozen(kw_only=True)
class OverdueTimers:
    """Timers of one computation that are due, and have not fired yet.

    Attributes:
        count: how many; `OVERDUE_MAX` or a few more: at least so many.
        processing_us: when the first timer of processing time was due, in microseconds since 1970; None: none is due.
    """

    count: int
    processing_us: int | None


@attrs.frozen(kw_only=True)
class WorkerAccount:
    """What a worker reports of itself about once a second; times are since it has begun.

    Attributes:
        busy_ms: at work, without waiting for commits.
        blocked_ms: waiting for commits.
        idle_ms: waiting for something to do.
        stages_us: in steps of each computation.
        commit_counts: of `Latencies`.
        commit_sum_us: as above.
        committed_us: as above.
        frequent: of each key range: the keys that are frequent in what it has taken in.
        overdue: of each computation that has some.
    """

    busy_ms: int
    blocked_ms: int
    idle_ms: int
    stages_us: Mapping[str, int]
    commit_counts: tuple[int, ...]
    commit_sum_us: int
    committed_us: int | None
    frequent: Mapping[RangeId, tuple[FrequentKey, ...]]
    overdue: Mapping[str, OverdueTimers] = attrs.field(factory=dict)
