"""ReadingPace: how many records a worker may read of each source split now; none where a receiver would be overrun.

Why a worker neither reads nor works although there is something to do is described here, too, for people.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from math import ceil

from runners.core.ground.clock import Clock
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.token_bucket import TokenBucket
from runners.millwheel.worker.worker_options import WorkerOptions

#: A source range stops reading, and a computation working, while this much of what it sent is not acknowledged.
UNACKNOWLEDGED_BYTES_MAX = 4 << 20
#: All source ranges of a worker together stop at this much: a thousand splits would have as many times the above on its
#: way to one receiver.
SOURCES_UNACKNOWLEDGED_BYTES_MAX = 64 << 20
#: A wait without any progress is reported after so long; a slow receiver lets its senders go on sooner, now and then.
HELD_UP_REPORTED_AFTER_MS = 10_000


class Hindrance(Enum):
    """Why a split is not read; `why_not_read` has the rest of each sentence."""

    RECEIVERS = "what it has sent is not acknowledged"
    RECEIVERS_OF_ALL = "what all splits of its worker have sent is not acknowledged"
    SKEW = "it is further ahead of the slowest split than skew_limit"


def is_overrun(open_bytes: int) -> bool:
    """Whether a sender must wait, because so many bytes of what it has sent are not acknowledged."""
    return open_bytes > UNACKNOWLEDGED_BYTES_MAX


class ReadingPace:
    """How many records one worker may read now.

    Args:
        options: how fast a split may be read, and how far it may be ahead of the others.
        clock: to measure the speed.
    """

    def __init__(self, options: WorkerOptions, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._buckets: dict[RangeId, TokenBucket] = {}
        #: By source, the range that was read last.
        self._last_read: dict[str, RangeId] = {}

    def begin(self, range_id: RangeId) -> None:
        """Start counting for a range that was taken over."""
        self._buckets[range_id] = TokenBucket(self._clock, self._options.records_per_second)

    def end(self, range_id: RangeId) -> None:
        """Stop counting for a range that was released."""
        del self._buckets[range_id]

    def in_turn(self, sources: Sequence[OwnedRange]) -> Sequence[OwnedRange]:
        """Ranges of a source, beginning behind the one that was read last: each has its turn when not all may read."""
        for index, owned in enumerate(sources):
            if owned.range_id == self._last_read.get(owned.range_id.computation):
                return [*sources[index + 1 :], *sources[: index + 1]]
        return sources

    def hindrance(
        self, owned: OwnedRange, *, open_bytes: int, slowest_source_us: int
    ) -> Hindrance | None:
        """Why nothing of a split may be read now; None: it may.

        Args:
            owned: the split.
            open_bytes: what all source ranges of the worker have sent that is not acknowledged.
            slowest_source_us: how far the split is that is furthest behind.
        """
        limit_us = self._options.skew_limit_us
        if is_overrun(owned.outbox.open_bytes):
            return Hindrance.RECEIVERS
        if open_bytes > SOURCES_UNACKNOWLEDGED_BYTES_MAX:
            return Hindrance.RECEIVERS_OF_ALL
        if limit_us is not None and owned.watermark_us > slowest_source_us + limit_us:
            return Hindrance.SKEW
        return None

    def records_allowed(self, owned: OwnedRange, *, is_columnar: bool) -> int:
        """How many records may be read now of a split that nothing hinders.

        Args:
            owned: the split.
            is_columnar: whether its records come as columns, of which many are little work.
        """
        steps = self._options.steps
        most = steps.column_records if is_columnar else steps.records
        return self._buckets[owned.range_id].available(most)

    def spend(self, range_id: RangeId, records: int) -> None:
        """Note how many records have been read.

        Args:
            range_id: the split that was read, whose turn is over.
            records: how many it had; may be more than was allowed.
        """
        self._buckets[range_id].spend(records)
        self._last_read[range_id.computation] = range_id


def why_not_read(hindrance: Hindrance, owned: OwnedRange, sources: Iterable[OwnedRange]) -> str:
    """The reason, for people, why a split is not read.

    Args:
        hindrance: why this worker does not read it.
        owned: the split.
        sources: all splits of its worker.
    """
    if hindrance is Hindrance.SKEW:
        return f"{hindrance.value} allows"
    is_of_all = hindrance is Hindrance.RECEIVERS_OF_ALL
    return unacknowledged(sources if is_of_all else [owned], hindrance)


def unacknowledged(
    senders: Iterable[OwnedRange], hindrance: Hindrance = Hindrance.RECEIVERS
) -> str:
    """The receiver with the most unacknowledged bytes, for people.

    Args:
        senders: the ranges that wait; at least one has sent something that is not acknowledged.
        hindrance: which wait it is, for the text.
    """
    found: dict[RangeId, int] = {}
    for owned in senders:
        for receiver, size in owned.outbox.open_bytes_by_receiver().items():
            found[receiver] = found.get(receiver, 0) + size
    most = max(found, key=found.__getitem__)
    mine, all_of_it = (ceil(size / 1_000) for size in (found[most], sum(found.values())))
    return (
        f"{hindrance.value}, most of it by {most}\n"
        f"{mine:,} kB of {all_of_it:,} kB are for {most}: its worker is slow, waits itself, or is not there"
    )
