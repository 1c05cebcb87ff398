"""SpilledGroups: a key range whose groups need not fit into memory together.

Partials go into cells in memory while these are small.  When they are not, the range is divided into buckets by other
bits of the hashes of its keys (Grace hash join: Kitsuregawa, Tanaka, Moto-oka, 1983): the cells and timers so far, and
all partials still to come, go to one file for each bucket.  Then the buckets are processed one after the other, each
as if it were the range; one that is too large itself is divided again.

Nothing depends on the order of keys: a cell belongs to one key, and so to one bucket, and what comes for it stays in
its order.

A key cannot be divided like that.  Where windows fire once (`ReplayPanes`), a key that has most of what is in memory is
taken out of the range, and sorted by windows through a file of its own (`LargeKey`): neither many windows nor one with
many values have to fit, as a group of `GroupByKey` that does not is a sequence over the file (`FileValues`).

**Invariant:** what is emitted is what would have been emitted without files, but for the order of keys, and for the
order of values where windows merge.

Absent: a key that is larger than memory where there is more to a window than its accumulator (stateful DoFns; triggers,
retractions and event times of panes that the user has chosen), where user code merges windows, and the one accumulator
of a `CombineFn` that is itself larger than memory; all these are kept in memory, however large.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from operator import itemgetter
from typing import Any
from weakref import WeakSet

from runners.batch.spill.large_key import LargeKey
from runners.batch.spill.run_file import RunFile
from runners.batch.spill.spill_file import SpillFile
from runners.core.ground.cells import Cell, CellId, TimerId
from runners.core.ground.timers import Timers
from runners.core.open_windows.entries import Changes, Released, Whole
from runners.core.partials.partial import Partial
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from runners.stored.journal import decode_entry, encode_changes
from runners.stored.partials import decode_partials, encode_partials

#: State of a task in memory, as stored bytes; Python objects take some seven times as much.
SPILL_BYTES = 48 << 20
#: What a cell takes beside its content, in the same measure.
CELL_BYTES = 200
#: Timers fired in one go.
BUNDLE_TIMERS = 10_000
_BUCKET_BITS = 4
_BUCKETS = 1 << _BUCKET_BITS
_HASH_BITS = 64
_first = itemgetter(0)


#: Partials, or a cell with its timers, for a bucket, and the size in bytes.
_Chunk = tuple[Sequence[Partial] | Changes, int]


class _Memory:
    """The cells and timers of one bucket."""

    def __init__(self) -> None:
        self.cells: dict[CellId, Cell] = {}
        #: In the order in which they were set last, which is that of timers of one instant.
        self.timers: dict[TimerId, int] = {}
        self._content_bytes = 0

    @property
    def size_bytes(self) -> int:
        """An upper limit of the size: what is folded or emitted already still counts as what it was."""
        return self._content_bytes + CELL_BYTES * len(self.cells)

    def grow(self, size_bytes: int) -> None:
        self._content_bytes += size_bytes

    def take(self, kept: Changes) -> None:
        self.cells.update(kept.cells)
        self.set_timers(dict(kept.timers))

    def set_timers(self, changes: Mapping[TimerId, int | None]) -> None:
        for timer, fire_us in changes.items():
            self.timers.pop(timer, None)
            if fire_us is not None:
                self.timers[timer] = fire_us

    def measure(self, kept: Iterable[Sequence[Partial]]) -> int:
        """Count the size anew, together with the partials in memory, at the cost of a pickle."""
        cells = (encode_changes([item], ()) for item in self.cells.items())
        self._content_bytes = sum(map(len, chain(cells, map(encode_partials, kept))))
        return self.size_bytes

    def kept(self) -> Iterator[Changes]:
        """Everything, one cell at a time; each is removed from here when it is yielded."""
        by_cell: dict[CellId, list[tuple[TimerId, int | None]]] = {}
        for timer, fire_us in self.timers.items():
            by_cell.setdefault(timer[0], []).append((timer, fire_us))
        self.timers.clear()
        while self.cells:
            cell_id, cell = self.cells.popitem()
            yield Changes([(cell_id, cell)], by_cell.pop(cell_id, []))


class SpilledGroups:
    """Runs one grouping stage over the partials of a key range.

    Args:
        grouping: the stage, set up.
        while_input: the clocks until all partials are there.
        at_the_end: the clocks after that.
        spill_bytes: how much to keep in memory, in bytes of pickles; see `SPILL_BYTES`.
    """

    def __init__(
        self,
        grouping: GroupingStage,
        while_input: StageClocks,
        at_the_end: StageClocks,
        spill_bytes: int = SPILL_BYTES,
    ) -> None:
        self._grouping, self._spill_bytes = grouping, spill_bytes
        self._while_input, self._at_the_end = while_input, at_the_end
        #: How often a range or a bucket was divided.
        self.spills = 0
        #: Those that may still be read.
        self._files: WeakSet[RunFile] = WeakSet()

    def steps(self, blobs: Iterable[bytes]) -> Iterator[Step]:
        """Everything that the grouping emits, in steps that each fit into memory.

        Args:
            blobs: partials as bytes.

        Raises:
            OSError: the temporary directory is full; another attempt may have more luck.
        """
        combiners = self._grouping.combiners
        return self._steps(((decode_partials(blob, combiners), len(blob)) for blob in blobs), 0)

    def close(self) -> None:
        """End the output: groups that are in files can be read no more."""
        for file in self._files:
            file.close()

    def _steps(self, chunks: Iterator[_Chunk], shift: int) -> Iterator[Step]:
        memory = _Memory()
        limit_bytes = self._spill_bytes
        for content, size_bytes in chunks:
            memory.grow(size_bytes)
            if isinstance(content, Changes):
                memory.take(content)
            else:
                yield from self._take_in(memory, content)
            if memory.size_bytes > limit_bytes:
                del content
                divided = self._divided(memory, chunks, shift)
                if divided is not None:
                    yield from divided
                    return
                # Counting costs as much as there is, so not for every chunk.
                limit_bytes = max(self._spill_bytes, 2 * memory.size_bytes)
        yield from self._last_steps(memory)

    def _take_in(self, memory: _Memory, partials: Sequence[Partial]) -> Iterator[Step]:
        if self._grouping.replay is not None:
            self._grouping.replay.hold(partials)
            return
        step = self._grouping.add(memory.cells, partials, self._while_input)
        memory.set_timers(step.effects.timers)
        yield step

    def _divided(
        self, memory: _Memory, chunks: Iterator[_Chunk], shift: int
    ) -> Iterator[Step] | None:
        """The output for the partials in memory and those to come, in buckets; None if all stays in memory."""
        replay = self._grouping.replay
        kept = () if replay is None else replay.fold()
        # Folding can shrink the partials much: then it pays to count, and again when as much has come in addition.
        if memory.measure(kept) <= self._spill_bytes / 2:
            return None
        large = self._large_key(kept)
        if large is None and (shift >= _HASH_BITS or not _has_several_keys(memory, kept)):
            return None
        self.spills += 1
        return self._in_buckets(memory, chunks, shift, large)

    def _large_key(self, kept: Sequence[Sequence[Partial]]) -> LargeKey | None:
        """A file for the key that most of memory is used for, if there is one and it can be taken out."""
        replay = self._grouping.replay
        if replay is None or replay.order is None:
            return None
        weights: dict[Any, int] = {}
        for key, _, _, count in chain.from_iterable(kept):
            weights[key] = weights.get(key, 0) + (count if replay.is_list else 1)
        key = max(weights, key=weights.__getitem__)
        if 2 * weights[key] <= sum(weights.values()):
            return None
        large = LargeKey(key, replay, replay.order, kept_bytes=self._spill_bytes // 2)
        self._files.add(large.file)
        return large

    def _in_buckets(
        self, memory: _Memory, chunks: Iterator[_Chunk], shift: int, large: LargeKey | None
    ) -> Iterator[Step]:
        with ExitStack() as stack:
            files = [stack.enter_context(closing(SpillFile())) for _ in range(_BUCKETS)]
            self._divide(memory, chunks, shift, large, files)
            if large is not None:
                yield from self._emitted_by(large)
                # Its file goes as soon as nothing reads it any more.
                large = None
            for file in files:
                yield from self._steps(map(self._chunk, file.read()), shift + _BUCKET_BITS)
                file.close()

    def _divide(
        self,
        memory: _Memory,
        chunks: Iterator[_Chunk],
        shift: int,
        large: LargeKey | None,
        files: Sequence[SpillFile],
    ) -> None:
        """Write everything that is in memory, and that is still to come."""
        for kept in memory.kept():
            files[self._bucket(_key(kept), shift)].write(encode_changes(*kept))
        replay = self._grouping.replay
        in_memory = iter(()) if replay is None else _emptied(replay.release())
        for content, _ in chain(in_memory, chunks):
            if isinstance(content, Changes):
                files[self._bucket(_key(content), shift)].write(encode_changes(*content))
                continue
            parts: dict[int, list[Partial]] = {}
            for partial in content:
                if large is not None and partial[0] == large.key:
                    large.add(partial)
                else:
                    parts.setdefault(self._bucket(partial[0], shift), []).append(partial)
            for bucket, part in parts.items():
                files[bucket].write(encode_partials(part))

    def _chunk(self, blob: bytes) -> _Chunk:
        """The partials, or the cell, that were written to the file of a bucket."""
        content = decode_entry(blob, self._grouping.combiners)
        assert not isinstance(content, Whole | Released)
        return content, len(blob)

    def _emitted_by(self, large: LargeKey) -> Iterator[Step]:
        for part in large.parts():
            yield self._grouping.fire_for(part, self._at_the_end)

    def _bucket(self, key: Any, shift: int) -> int:
        # From the low end: the range itself is an interval, so its keys agree in the high bits.
        return (self._grouping.codec.encode(key).hash >> shift) % _BUCKETS

    def _last_steps(self, memory: _Memory) -> Iterator[Step]:
        if self._grouping.replay is not None:
            yield from self._grouping.fire(self._at_the_end)
            return
        timers = Timers()
        for timer, fire_us in memory.timers.items():
            timers.set(timer, fire_us)
        memory.timers.clear()
        while due := timers.pop_due(self._at_the_end, BUNDLE_TIMERS):
            step = self._grouping.fire_timers(memory.cells, due, self._at_the_end)
            for timer, changed_us in step.effects.timers.items():
                timers.set(timer, changed_us)
            yield step


def _key(kept: Changes) -> Any:
    return kept.cells[0][0][0]


def _emptied(kept: list[Sequence[Partial]]) -> Iterator[_Chunk]:
    """The partials in memory, each released when it is yielded: together they are large."""
    while kept:
        yield kept.pop(0), 0


def _has_several_keys(memory: _Memory, kept: Sequence[Sequence[Partial]]) -> bool:
    parts = (map(_first, part) for part in kept)
    keys = chain(map(_first, memory.cells), *parts)
    first = next(keys, None)
    return any(key != first for key in keys)
