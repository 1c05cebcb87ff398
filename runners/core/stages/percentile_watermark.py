"""Percentile watermarks: how far most of a stream has come, for consumers that prefer low latency to completeness.

The watermark waits for the slowest record that may still come.  A 99 % watermark is the event time behind which,
judging by the recent past, only one record in a hundred is still to come: of the records that are pending now, in
whatever split, 99 % are ahead of it.  It is never behind the watermark, and never goes back.

Each split of a source has a `SplitProgress`: the median event time of its newest records, and the distances from it
that records had when they came.  The next record of the split is expected at such a distance too, so its event time
has a distribution; the distributions of all splits, weighted by their share of the records, give the quantile.  A split
that lags behind holds the percentile watermark back only if its share of the records is larger than the percentile
leaves out, and a single clock that is far ahead does not move the median.

MillWheel, section 7.2 (a 99 % low watermark); Dataflow Model, section 2.3.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median_low

import attrs

from dataflow.graph import Group, PipelineGraph, TransformNode
from runners.core.stages.plan import ExecutionPlan
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: The number of newest records whose median is the position of a split.
_RECENT = 32
#: The most records of one batch that are sampled: in runs of `_RECENT`, spread evenly.
_SAMPLE_MAX = 16 * _RECENT
#: When so many records have been counted, all counts are halved, so that the recent past weighs more.
_COUNTED_MAX = 20_000
#: A count that has been halved until it is below this is deleted.
_COUNT_MIN = 0.25


@attrs.frozen
class SplitProgress:
    """The progress of one split of a source.

    Attributes:
        center_us: the median event time of its newest records, in microseconds.
        records: how many it has had.
        offsets: the distances of records from the center when they came, in microseconds, each with its weight.
    """

    center_us: int
    records: int
    offsets: tuple[tuple[int, float], ...]


class ProgressSketch:
    """Observes the event times of one split, in the order of arrival, at a cost that is small for large batches."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._offsets: Counter[int] = Counter()
        self._counted = self._records = 0

    def add(self, timestamps_us: Sequence[int]) -> None:
        """Add the event times of a batch, in microseconds."""
        self._records += len(timestamps_us)
        ends = range(len(timestamps_us), 0, -_RECENT)
        step = -(-len(timestamps_us) // _SAMPLE_MAX) or 1
        # Counted from the end, so that the newest records are always among them, and are a whole run.
        for end in list(ends[::step])[::-1]:
            self._take(timestamps_us[max(end - _RECENT, 0) : end])
        if self._counted > _COUNTED_MAX:
            self._fade()

    def progress(self) -> SplitProgress | None:
        """The progress of the split; None before the first record."""
        if not self._recent:
            return None
        return SplitProgress(
            median_low(self._recent), self._records, tuple(sorted(self._offsets.items()))
        )

    def _take(self, run: Sequence[int]) -> None:
        self._recent.extend(run)
        center_us = median_low(self._recent)
        self._offsets.update(_rounded_down(each - center_us) for each in run)
        self._counted += len(run)

    def _fade(self) -> None:
        self._counted //= 2
        halves = {offset: count / 2 for offset, count in self._offsets.items()}
        self._offsets = Counter(
            {offset: count for offset, count in halves.items() if count >= _COUNT_MIN}
        )


def percentile_watermark_us(
    percentile: float,
    *,
    watermark_us: int,
    splits: Collection[SplitProgress | None],
    senders_us: Iterable[int],
) -> int:
    """The percentile watermark of a consumer, in microseconds.

    Args:
        percentile: above 0, below 100.
        watermark_us: the consumer's watermark, in microseconds.
        splits: of all sources that send to it, those that are neither idle nor finished; None: nothing is known of a
            split.
        senders_us: how far each grouping that sends to it has emitted, in microseconds.

    Returns:
        Never earlier than ``watermark_us``; and equal to it if too few records are known for such a percentile.
    """
    known_us = _quantile_us(percentile, splits) if splits else MAX_TIMESTAMP_US
    return max(watermark_us, min([known_us, *senders_us]))


def percentile_of(graph: PipelineGraph, node: TransformNode) -> float | None:
    """The percentile that the triggers of a grouping follow; None where they follow the watermark itself.

    Also None for an operation without triggers.

    Args:
        graph: of the pipeline.
        node: the grouping or stateful DoFn.
    """
    if not isinstance(node.operation, Group):
        return None
    strategy = graph.pcollections[node.inputs[0]].strategy
    return strategy.watermark_percentile if strategy.follows_percentile else None


def percentiles_of(plan: ExecutionPlan) -> Mapping[str, float]:
    """The percentiles that are followed, by the name of the stage whose triggers follow them."""
    found = {name: percentile_of(plan.graph, stage.root) for name, stage in plan.stages.items()}
    return {name: percentile for name, percentile in found.items() if percentile is not None}


def _quantile_us(percentile: float, splits: Collection[SplitProgress | None]) -> int:
    left_out = 1 - percentile / 100
    known = [split for split in splits if split is not None]
    records = sum(split.records for split in known)
    if len(known) < len(splits) or records * left_out < 1:
        return MIN_TIMESTAMP_US
    expected: list[tuple[int, float]] = []
    for split in known:
        weight = split.records / records / sum(count for _, count in split.offsets)
        expected += [(split.center_us + each, count * weight) for each, count in split.offsets]
    expected.sort()
    behind = 0.0
    for at_us, share in expected:
        behind += share
        if behind > left_out:
            return min(max(at_us, MIN_TIMESTAMP_US), MAX_TIMESTAMP_US)
    return expected[-1][0]


def _rounded_down(offset_us: int) -> int:
    """The offset with three binary digits, rounded towards the past: few different values, and none too far ahead."""
    shift = max(abs(offset_us).bit_length() - 3, 0)
    return offset_us >> shift << shift
