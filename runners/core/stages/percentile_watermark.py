"""Percentile watermarks: how far most of a stream has come, for consumers that would rather be quick than wait for all.

The watermark waits for the slowest record that may still come.  A 99 % watermark is the event time behind which, going
by the recent past, only one record in a hundred is still to come: of those that are pending now, whatever split they
come from, 99 % are ahead of it.  It is never behind the watermark, and never goes back.

Each split of a source keeps a `SplitProgress`: where the middle of its newest records is, and how far from it records
have been when they came.  The next record of the split will be as far from it as those were, so its event time has a
distribution; mixed over the splits, each with its share of the records, this gives the quantile.  A split that hangs
back holds the percentile back only if its records are more than the percentile leaves out, and one clock that is far
ahead moves the middle of nothing.

MillWheel, section 7.2 (a 99 % low watermark); Dataflow Model, section 2.3.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median_low

import attrs

from dataflow.graph import Group, PipelineGraph, TransformNode
from runners.core.stages.plan import ExecutionPlan
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Records whose middle says where a split is.
_RECENT = 32
#: Records of one batch that are looked at, at most: in runs of `_RECENT`, spread evenly.
_SAMPLE_MAX = 16 * _RECENT
#: When so many have been counted, what they say counts for half: the recent past, not all of it.
_COUNTED_MAX = 20_000
#: A count that has been halved until it is below this is forgotten.
_COUNT_MIN = 0.25


@attrs.frozen
class SplitProgress:
    """Where one split of a source is.

    ``center_us``: the middle of its newest records.  ``records``: how many it has had.
    ``offsets``: how far from the center records were when they came, in microseconds, each with its weight.
    """

    center_us: int
    records: int
    offsets: tuple[tuple[int, float], ...]


class ProgressSketch:
    """Watches the event times of one split, in the order of arrival, at a cost that large batches do not feel."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._offsets: Counter[int] = Counter()
        self._counted = self._records = 0

    def add(self, timestamps_us: Sequence[int]) -> None:
        """Take in the event times of a batch."""
        self._records += len(timestamps_us)
        runs = range(0, len(timestamps_us), _RECENT)
        step = -(-len(timestamps_us) // _SAMPLE_MAX) or 1
        # From the end, so that the newest records are always among them.
        for start in list(runs[::-1][::step])[::-1]:
            self._take(timestamps_us[start : start + _RECENT])
        if self._counted > _COUNTED_MAX:
            self._fade()

    def progress(self) -> SplitProgress | None:
        """What is known; None before the first record."""
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
    """The percentile watermark of a consumer.

    Args:
        percentile: above 0, below 100.
        watermark_us: the consumer's watermark.
        splits: of all sources that send to it, those that are neither idle nor finished; None: nothing is known.
        senders_us: how far all groupings that send to it have come, by what they act on.

    Returns:
        Not earlier than ``watermark_us``, and that if too little is known to tell one record in so many.
    """
    known_us = _quantile_us(percentile, splits) if splits else MAX_TIMESTAMP_US
    return max(watermark_us, min([known_us, *senders_us]))


def percentile_of(graph: PipelineGraph, node: TransformNode) -> float | None:
    """The percentile that the triggers of a grouping follow; None where it is all of it, or there are no triggers."""
    if not isinstance(node.operation, Group):
        return None
    strategy = graph.pcollections[node.inputs[0]].strategy
    return strategy.watermark_percentile if strategy.follows_percentile else None


def percentiles_of(plan: ExecutionPlan) -> Mapping[str, float]:
    """The percentiles that are followed, by the name of the stage that does."""
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
    """To three binary digits, towards the past: few different ones, and none that promises too much."""
    shift = max(abs(offset_us).bit_length() - 3, 0)
    return offset_us >> shift << shift
