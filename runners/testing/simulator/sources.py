"""Sources in a simulation: read in small bundles, with points at which the reader's process can die.

`Promise` watches a source without faults, to know whether its records stay behind no watermark.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from dataflow.graph import ParDo, PipelineGraph, Read, StatefulParDo
from dataflow.source import Source, SourceBatch, SourceReader, SplitChanges, SplitStatus
from runners.testing.simulator.fault import SyncPoint
from windowing.timestamps import MIN_TIMESTAMP_US

#: Label of the read, its source, split, position and fence.
Open = Callable[[str, Source, Any, Any, int], SourceReader]


def with_sources(graph: PipelineGraph, open_split: Open) -> PipelineGraph:
    """Make a graph with other readers of the same sources.

    Args:
        graph: is not changed.
        open_split: opens a reader, given label, source, split, position and fence.
    """
    transforms = [
        attrs.evolve(node, operation=_opened_by(node.label, node.operation, open_split))
        if isinstance(node.operation, Read)
        else node
        for node in graph.transforms
    ]
    return attrs.evolve(graph, transforms=tuple(transforms))


def _opened_by(label: str, read: Read, open_split: Open) -> Read:
    return attrs.evolve(read, source=_Wrapped(label, read.source, open_split))


class _Wrapped(Source):
    def __init__(self, label: str, inner: Source, open_split: Open) -> None:
        self._label, self._inner, self._open = label, inner, open_split

    @property
    def element_type(self) -> Any:
        return self._inner.element_type

    @property
    def is_bounded(self) -> bool:
        return self._inner.is_bounded

    @property
    def has_arrival_order(self) -> bool:
        return self._inner.has_arrival_order

    @property
    def has_event_times(self) -> bool:
        return self._inner.has_event_times

    @property
    def has_trusted_watermark(self) -> bool:
        return self._inner.has_trusted_watermark

    @property
    def acknowledges(self) -> bool:
        return True

    @property
    def emits_retractions(self) -> bool:
        return self._inner.emits_retractions

    @property
    def keeps_set_aside(self) -> bool:
        return self._inner.keeps_set_aside

    @property
    def input_name(self) -> str | None:
        return self._inner.input_name

    @property
    def discover_every_ms(self) -> int | None:
        return self._inner.discover_every_ms

    def splits(self, desired: int) -> Sequence[Any]:
        return self._inner.splits(desired)

    def discover(self, known: Sequence[Any]) -> SplitChanges:
        return self._inner.discover(known)

    def open(self, split: Any, position: Any | None, *, fence: int) -> SourceReader:
        return self._open(self._label, self._inner, split, position, fence)


class FragileReader(SourceReader):
    """A reader whose process can die before and after a read.

    Args:
        inner: reads.
        sync: called at these points.
        records_max: at most so many records in a batch.
        on_batch: called with what was read, for the story.
        on_committed: called with the position that is durable.
    """

    def __init__(
        self,
        inner: SourceReader,
        sync: Callable[[SyncPoint], None],
        records_max: int,
        on_batch: Callable[[SourceBatch], None],
        on_committed: Callable[[Any], None],
    ) -> None:
        self._inner, self._sync, self._records_max = inner, sync, records_max
        self._on_batch, self._on_committed = on_batch, on_committed

    def read(self, max_records: int) -> SourceBatch:
        """At most ``max_records`` more records."""
        self._sync(SyncPoint.BEFORE_READ)
        batch = self._inner.read(min(max_records, self._records_max))
        self._on_batch(batch)
        self._sync(SyncPoint.AFTER_READ)
        return batch

    def committed(self, position: Any) -> None:
        """Everything up to a position is durable."""
        self._on_committed(position)

    def close(self) -> None:
        """Release what the reader holds."""
        self._inner.close()


def fragile(
    graph: PipelineGraph,
    sync: Callable[[SyncPoint], None],
    records_max: Callable[[], int],
    on_batch: Callable[[str, Any, SourceBatch], None],
    on_committed: Callable[[str, Any, int, Any], None],
) -> PipelineGraph:
    """Make a graph with a `FragileReader` for every split.

    Args:
        graph: is not changed.
        sync: called at the points where the process can die.
        records_max: called for each reader: at most so many records in a batch.
        on_batch: called with the label of the read, the split and what was read.
        on_committed: called with the label of the read, the split, the number of the reader in this process, and a
            position that is durable.
    """
    numbers = itertools.count(1)
    return with_sources(
        graph,
        lambda label, source, split, position, fence: FragileReader(
            source.open(split, position, fence=fence),
            sync,
            records_max(),
            partial(on_batch, label, split),
            partial(on_committed, label, split, next(numbers)),
        ),
    )


@attrs.define
class Promise:
    """Whether no source of a pipeline goes behind its watermark, so that nothing can be late.

    Attributes:
        is_kept: no record was behind the watermark of its split, and none came after a silence.
    """

    is_kept: bool = True

    @classmethod
    def of(cls, graph: PipelineGraph) -> "Promise":
        """The promise of the sources of a graph, before anything is read: broken where a transform sets times back."""
        is_shifted = any(
            isinstance(node.operation, ParDo | StatefulParDo)
            and node.operation.allowed_timestamp_skew_us
            for node in graph.transforms
        )
        return cls(is_kept=not is_shifted)

    def watch(
        self, label: str, source: Source, split: Any, position: Any | None, fence: int
    ) -> SourceReader:
        """Open a reader of a split, every batch of which is looked at.

        Args:
            label: of the read; not used.
            source: the source without faults.
            split: of the source.
            position: where to begin; None: at the start.
            fence: of the owner.
        """
        del label
        return _Watched(source.open(split, position, fence=fence), self)

    def look(self, batch: SourceBatch, output_watermark_us: int, *, has_been_idle: bool) -> None:
        """Take in a batch that was read.

        A split that is idle holds the others back no longer; how far they come meanwhile differs from run to run, so
        all that comes after a silence may be late.

        Args:
            batch: of one split.
            output_watermark_us: what the source had reported of this split before.
            has_been_idle: whether the split was idle before.
        """
        if has_been_idle and batch.values:
            self.is_kept = False
        if any(timestamp_us < output_watermark_us for timestamp_us in batch.timestamps_us):
            self.is_kept = False


class _Watched(SourceReader):
    def __init__(self, inner: SourceReader, promise: Promise) -> None:
        self._inner, self._promise = inner, promise
        self._output_watermark_us, self._has_been_idle = MIN_TIMESTAMP_US, False

    def read(self, max_records: int) -> SourceBatch:
        batch = self._inner.read(max_records)
        self._promise.look(batch, self._output_watermark_us, has_been_idle=self._has_been_idle)
        self._output_watermark_us = max(self._output_watermark_us, batch.watermark_us)
        self._has_been_idle |= batch.status is SplitStatus.IDLE
        return batch

    def close(self) -> None:
        self._inner.close()
