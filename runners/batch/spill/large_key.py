"""LargeKey: the partials of one key that do not fit into memory, sorted by windows through a file.

Partials come in any order, and are written in sorted runs, each as large as memory may be.  In the end the runs
are read side by side (external merge sort), so that what belongs to one window comes together, and the windows in
order.  Only the heads of frames are read for that: values stay where they are, cut into pieces.

A group of values that fits is given as a list, one that does not as `FileValues`.  Other accumulators are merged, a
part of them at a time, so the one that comes out must fit.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any

from runners.batch.spill.file_values import FileValues, Stored
from runners.batch.spill.run_file import RunFile, Stretch
from runners.core.open_windows.open_windows import OneKey
from runners.core.partials.partial import Partial
from runners.core.single_firing.single_panes import BUNDLE_PANES
from runners.core.stages.grouping import Step
from runners.core.stages.stage_clocks import StageClocks
from runners.stored.runs import encode_own, encode_run_frame

#: Values that are read in one go, in bytes of pickles; a larger value is read alone.
PIECE_BYTES = 256 << 10
#: The memory that a frame takes beside its bytes.
_FRAME_BYTES = 150
#: Accumulators merged in one go, at most.
_MERGED_MAX = 100

_first = itemgetter(0)


class LargeKey:
    """Takes partials of one key, and gives them back as one for each window.

    Args:
        windows: those of the key.
        kept_bytes: how much to keep in memory, in bytes of pickles: of partials on their way in, and of groups on their
            way out.
        piece_bytes: see `PIECE_BYTES`.
    """

    def __init__(
        self,
        windows: OneKey,
        *,
        kept_bytes: int,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.key = windows.key
        self.file = RunFile()
        self._windows, self._order = windows, windows.order
        self._kept_bytes, self._piece_bytes = kept_bytes, piece_bytes
        self._frames: list[tuple[tuple[int, int], bytes]] = []
        self._frames_bytes = 0
        self._runs: list[Stretch] = []

    def add(self, partial: Partial) -> None:
        """Take a partial in."""
        _, window, accumulator, count = partial
        place = self._order(partial)
        for piece, piece_count in self._pieces(accumulator, count):
            written = encode_run_frame(window, piece_count, piece)
            self._frames.append((place, written))
            self._frames_bytes += len(written) + _FRAME_BYTES
        if self._frames_bytes > self._kept_bytes:
            self._write_run()

    def steps(self, clocks: StageClocks) -> Iterator[Step]:
        """Fire the windows, in order; as many at a time as memory allows.

        Args:
            clocks: the clocks, with the watermark at the end of time.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        for part in self._windows.windows(self._parts()):
            yield self._windows.fire(part, clocks)

    def _parts(self) -> Iterator[Sequence[Partial]]:
        self._write_run()
        part: list[Partial] = []
        part_bytes = 0
        runs = [self._partials(run) for run in self._runs]
        sorted_partials = merge(*runs, key=self._order)
        for key, window, stored, count in self._windows.joined(sorted_partials, Stored.join):
            is_full = part_bytes + stored.size_bytes > self._kept_bytes
            if part and (is_full or len(part) == BUNDLE_PANES):
                yield part
                part, part_bytes = [], 0
            part.append((key, window, self._accumulator(stored), count))
            part_bytes += stored.size_bytes
        if part:
            yield part

    def _pieces(self, accumulator: Any, count: int) -> Iterator[tuple[bytes, int]]:
        blob = encode_own(accumulator)
        excess = len(blob) // self._piece_bytes
        if not (self._windows.is_list and excess and len(accumulator) > 1):
            yield blob, count
            return
        step = max(1, len(accumulator) // (excess + 1))
        for start in range(0, len(accumulator), step):
            piece = accumulator[start : start + step]
            # The values in it may be of very different sizes.
            yield from self._pieces(piece, len(piece))

    def _write_run(self) -> None:
        if self._frames:
            self._frames.sort(key=_first)
            self._runs.append(self.file.append(written for _, written in self._frames))
            self._frames, self._frames_bytes = [], 0

    def _partials(self, run: Stretch) -> Iterator[Partial]:
        for head in self.file.heads(run):
            stored = Stored(self.file, [(head.at, head.end)], head.records, head.end - head.at)
            yield self.key, head.window, stored, head.records

    def _accumulator(self, stored: Stored) -> Any:
        if self._windows.is_list:
            values = FileValues(stored)
            return values if stored.size_bytes > self._kept_bytes else list(values)
        batch: list[Any] = []
        batch_bytes = 0
        for head in stored.heads():
            batch.append(self.file.content(head))
            batch_bytes += head.end - head.at
            if len(batch) == _MERGED_MAX or batch_bytes > self._kept_bytes:
                batch, batch_bytes = [self._windows.merged(batch)], 0
        return self._windows.merged(batch)
