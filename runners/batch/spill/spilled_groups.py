"""SpilledGroups: a key range whose groups need not fit into memory together.

Partials go into cells in memory while these are small.  When they are not, the range is divided into buckets by other
bits of the hashes of its keys (Grace hash join: Kitsuregawa, Tanaka, Moto-oka, 1983): the cells and timers so far, and
all partials still to come, go to one file for each bucket.  Then the buckets are processed one after the other, each
as if it were the range; one that is too large itself is divided again.

Nothing depends on the order of keys: a cell belongs to one key, and so to one bucket, and what comes for it stays in
its order.

A key cannot be divided like that.  Where windows fire once, a key that has most of what is in memory is taken out of
the range (`OpenWindows.large_key`), and sorted by windows through a file of its own (`LargeKey`): neither many windows
nor one with many values have to fit, as a group of `GroupByKey` that does not fit is a sequence over the file
(`FileValues`).

**Invariant:** what is emitted is what would have been emitted without files, but for the order of keys, and for the
order of values where windows merge.

Views of side inputs, and elements that wait for them, are put into pages in a file (`FiledCells`) as soon as what is in
memory of one shard is too large.

Absent: a key that is larger than memory where there is more to a window than its accumulator (stateful DoFns; triggers,
retractions and event times of panes that the user has chosen), where user code merges windows, and the one accumulator
of a `CombineFn` that is itself larger than memory; all these are kept in memory, however large.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any
from weakref import WeakSet

from runners.batch.spill.filed_cells import FiledCells, PageFile
from runners.batch.spill.large_key import LargeKey
from runners.batch.spill.run_file import RunFile
from runners.batch.spill.spill_file import SpillFile
from runners.core.columns.partials import PartialColumns
from runners.core.ground.cells import CellId
from runners.core.open_windows.choice import opened_until_all_is_there
from runners.core.open_windows.open_windows import Arrival, OpenWindows
from runners.core.partials.partial import Partial
from runners.core.partials.parts import by_label
from runners.core.stages.entries import Changes, Entry, Released, Whole
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from runners.stored.journal import decode_entry, encode_changes
from runners.stored.partials import decode_partials, encode_partials

#: State of a task in memory, as stored bytes; Python objects take some seven times as much.
SPILL_BYTES = 48 << 20
#: Columns take as much as their bytes, and as much again for their order and while they are merged: less than half of
#: what objects take.
_COLUMNS_SHARE = 2
#: What a cell takes beside its content, in the same measure.
CELL_BYTES = 200
#: What can be in pages is put there when it takes this part of memory, as it is there twice meanwhile.
_IN_PAGES = 4
#: How large a page of state is, about.
PAGE_BYTES = 16 << 10
#: Timers fired in one go.
BUNDLE_TIMERS = 10_000
_BUCKET_BITS = 4
_BUCKETS = 1 << _BUCKET_BITS
_HASH_BITS = 64


#: Partials, or a cell with its timers, for a bucket, and the size in bytes.
_Chunk = tuple[Sequence[Partial] | Changes, int]


class _Memory:
    """How much one bucket takes in memory.

    Args:
        windows: everything that is kept of it.
    """

    def __init__(self, windows: OpenWindows) -> None:
        self._windows = windows
        self._content_bytes = 0

    @property
    def size_bytes(self) -> int:
        """An upper limit of the size: what is folded or emitted already still counts as what it was."""
        return self._content_bytes + CELL_BYTES * len(self._windows)

    def grow(self, content: Entry, size_bytes: int) -> None:
        self._content_bytes += size_bytes // _share(content)

    def measure(self) -> int:
        """Count the size anew, at the cost of encoding everything."""
        contents = self._windows.contents()
        self._content_bytes = sum(len(_encoded(each)) // _share(each) for each in contents)
        return self.size_bytes


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
        #: The pages of state that does not fit.
        self._pages = PageFile()
        self._is_in_pages = False

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
        self._pages.close()

    def _steps(self, chunks: Iterator[_Chunk], shift: int) -> Iterator[Step]:
        cells = FiledCells(self._pages, self._spill_bytes // 2)
        windows = opened_until_all_is_there(self._grouping, cells)
        if self._is_in_pages:
            self._grouping.keep_in_pages(PAGE_BYTES, cells.need_pages, cells.changed)
        memory, limit_bytes = _Memory(windows), self._spill_bytes
        for content, size_bytes in chunks:
            memory.grow(content, size_bytes)
            if isinstance(content, Changes):
                windows.restore(content)
                self._note(cells, [cell_id for cell_id, _ in content.cells])
            else:
                step = windows.take([Arrival(content)], self._while_input)
                self._note(cells, step.effects.touched)
                yield step
            if self._grouping.grows_in_pages and memory.size_bytes > self._spill_bytes // _IN_PAGES:
                self._keep_in_pages(cells)
            if memory.size_bytes > limit_bytes:
                del content
                divided = self._divided(windows, memory, chunks, shift)
                if divided is not None:
                    yield from divided
                    return
                # Counting looks at everything, which is not worth its cost for every chunk.
                limit_bytes = max(self._spill_bytes, 2 * memory.size_bytes)
        while (ended := windows.advance(self._at_the_end, timers_max=BUNDLE_TIMERS)) is not None:
            self._note(cells, ended.effects.touched)
            yield ended

    def _keep_in_pages(self, cells: FiledCells) -> None:
        """Keep what is large in pages from here on."""
        if not self._is_in_pages:
            self._is_in_pages = True
            self._grouping.keep_in_pages(PAGE_BYTES, cells.need_pages, cells.changed)

    def _note(self, cells: FiledCells, cell_ids: Iterable[CellId]) -> None:
        """Note cells that have changed, where there may be pages among them."""
        if self._is_in_pages:
            cells.changed(cell_ids)

    def _divided(
        self, windows: OpenWindows, memory: _Memory, chunks: Iterator[_Chunk], shift: int
    ) -> Iterator[Step] | None:
        """The output for what is in memory and is to come, in buckets; None if all stays in memory."""
        # Folding can shrink it much: then it pays to count, and again when as much has come in addition.
        if memory.measure() <= self._spill_bytes / 2:
            return None
        large = self._large_key(windows)
        if large is None and (shift >= _HASH_BITS or not _has_several_keys(windows)):
            return None
        self.spills += 1
        return self._in_buckets(windows, chunks, shift, large)

    def _large_key(self, windows: OpenWindows) -> LargeKey | None:
        """A file for the key that most of memory is used for, if there is one and it can be taken out."""
        found = windows.large_key()
        if found is None:
            return None
        large = LargeKey(found, kept_bytes=self._spill_bytes // 2)
        self._files.add(large.file)
        return large

    def _in_buckets(
        self,
        windows: OpenWindows,
        chunks: Iterator[_Chunk],
        shift: int,
        large: LargeKey | None,
    ) -> Iterator[Step]:
        with ExitStack() as stack:
            files = [stack.enter_context(closing(SpillFile())) for _ in range(_BUCKETS)]
            self._divide(windows, chunks, shift, large, files)
            if large is not None:
                yield from large.steps(self._at_the_end)
                # Its file goes as soon as nothing reads it any more.
                large = None
            for file in files:
                yield from self._steps(map(self._chunk, file.read()), shift + _BUCKET_BITS)
                file.close()

    def _divide(
        self,
        windows: OpenWindows,
        chunks: Iterator[_Chunk],
        shift: int,
        large: LargeKey | None,
        files: Sequence[SpillFile],
    ) -> None:
        """Write everything that is in memory, and that is still to come; columns stay columns."""

        def bucket_of(key: Any) -> int | None:
            is_large = large is not None and key == large.key
            return None if is_large else self._bucket(key, shift)

        for content in chain(windows.spill(), (content for content, _ in chunks)):
            if isinstance(content, Changes):
                files[self._bucket(_key(content), shift)].write(_encoded(content))
                continue
            assert not isinstance(content, Whole | Released)
            for bucket, part in by_label(content, bucket_of).items():
                if bucket is None:
                    assert large is not None
                    for partial in part:
                        large.add(partial)
                else:
                    files[bucket].write(_encoded(part))

    def _chunk(self, blob: bytes) -> _Chunk:
        """The partials, or the cell, that were written to the file of a bucket."""
        content = decode_entry(blob, self._grouping.combiners)
        assert not isinstance(content, Whole | Released)
        return content, len(blob)

    def _bucket(self, key: Any, shift: int) -> int:
        # From the low end: the range itself is an interval, so its keys agree in the high bits.
        return (self._grouping.codec.encode(key).hash >> shift) % _BUCKETS


def _share(content: Entry) -> int:
    """What the size of a content in bytes is divided by, so that it is compared with that of objects."""
    return _COLUMNS_SHARE if isinstance(content, PartialColumns) else 1


def _encoded(entry: Entry) -> bytes:
    if isinstance(entry, Changes):
        return encode_changes(*entry)
    assert not isinstance(entry, Whole | Released)
    return encode_partials(entry)


def _key(kept: Changes) -> Any:
    return kept.cells[0][0][0]


def _has_several_keys(windows: OpenWindows) -> bool:
    keys = windows.keys()
    first = next(keys, None)
    return any(key != first for key in keys)
