"""What a job has read of its input: over that alone, the pipeline emits what a drained job must have emitted."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dataflow.graph import PipelineGraph, Read
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import RangeRow
from runners.stored.places import decode_split, encode_position
from windowing.timestamps import MAX_TIMESTAMP_US


def read_so_far(graph: PipelineGraph, ranges: Mapping[RangeId, RangeRow]) -> PipelineGraph:
    """The graph with sources that end where the splits of a job are.

    Args:
        graph: of the job.
        ranges: of the job, as they are in the store; a split without a position has read nothing.
    """
    ends: dict[str, list[tuple[bytes, bytes | None]]] = {}
    for range_id, row in sorted(ranges.items()):
        if row.split is not None:
            ends.setdefault(range_id.computation, []).append((row.split, row.position))
    transforms = [
        attrs.evolve(node, operation=_cut(node.operation, ends.get(node.label, [])))
        if isinstance(node.operation, Read)
        else node
        for node in graph.transforms
    ]
    return attrs.evolve(graph, transforms=tuple(transforms))


def _cut(read: Read, ends: Sequence[tuple[bytes, bytes | None]]) -> Read:
    return attrs.evolve(read, source=_Cut(read.source, ends))


class _Cut(Source):
    """The splits that a job has made of a source, up to their positions in the job."""

    def __init__(self, inner: Source, ends: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._inner, self._ends = inner, ends

    @property
    def is_bounded(self) -> bool:
        return True

    @property
    def emits_retractions(self) -> bool:
        return self._inner.emits_retractions

    def splits(self, desired: int) -> Sequence[int]:
        return range(len(self._ends))

    def open(self, split: int, position: Any | None, *, fence: int) -> SourceReader:
        encoded, end = self._ends[split]
        return _CutReader(self._inner.open(decode_split(encoded), None, fence=fence), end)


class _CutReader(SourceReader):
    def __init__(self, inner: SourceReader, end: bytes | None) -> None:
        self._inner, self._end = inner, end
        self._is_over = end is None

    def read(self, max_records: int) -> SourceBatch:
        if self._is_over:
            return SourceBatch(
                values=[],
                timestamps_us=[],
                position=None,
                watermark_us=MAX_TIMESTAMP_US,
                status=SplitStatus.FINISHED,
            )
        # One by one: a job may have stopped behind any record.
        batch = self._inner.read(1)
        self._is_over = (
            encode_position(batch.position) == self._end or batch.status is SplitStatus.FINISHED
        )
        return attrs.evolve(batch, status=SplitStatus.ACTIVE)

    def close(self) -> None:
        self._inner.close()
