"""Gatherer: partials on their way into a shuffle, combined over bundles and packed into blobs.

The partials that wait are bounded in records and in number, and through the size of the last blobs also in bytes.
Where their size does not grow with the records of a key, as that of sums does not, the bound of the records rises.
Nothing is in order afterwards, and nothing needs to be: combining is commutative, grouping looks at
event times only, and stateful DoFns are given their elements in the order of these.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.columns import WindowColumn
from dataflow.graph import TransformNode
from runners.batch.digests import MASK, Digest, salts_of, sums_of
from runners.batch.layout import Layout
from runners.batch.pack_sizes import Packings, PackSizes
from runners.core.columns.partials import PartialColumns, distinct_keys, divided_by
from runners.core.ground.key_codec import KeyCodec
from runners.core.partials.lifting import Lifter
from runners.core.partials.partial import Partial
from runners.core.partials.parts import parts_of
from runners.core.partials.stateful_inputs import StatefulInputs, lifter_of
from runners.core.partials.table import PartialTable
from runners.core.partials.unfolded import UnfoldedPartials
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.millwheel.model.key_range import range_index, range_indexes
from runners.stored.partials import encode_partials
from runners.stored.runs import PartBlob, encode_parts
from windowing.merging import bounds_of
from windowing.window import GLOBAL_WINDOW, Window
from windowing.window_columns import Int64s

#: Records gathered for one grouping before they are packed, at most, where more of them take more room.
RECORDS_MAX = 200_000
#: Partials gathered for one grouping before they are packed, at most.
PARTIALS_MAX = 200_000
#: Records gathered the first time, when their size is unknown.
RECORDS_FIRST = 10_000
#: Bytes that the blobs of one packing should have together.
PACKED_BYTES = 8 << 20
#: Partials in one blob, at most; what a receiver takes in one step.
BLOB_PARTIALS_MAX = 20_000

#: Partials that wait as columns before they are packed.
COLUMN_PARTIALS_MAX = 500_000

_count_of = itemgetter(3)

#: What a shuffle moves: the number of the target, and partials for it as bytes, or those for each of its parts.
Packed = tuple[int, bytes]
#: Key range, hash of a key, window, and number of records.
Counted = tuple[int, int, Window, int]


class Gatherer:
    """Gathers the partials of one stage for the groupings after it.

    Args:
        plan: the plan of the pipeline.
        stage: the stage whose outputs are gathered.
        layout: where groupings are.
        parts: into how many a target divides its keys, by the low end of their hashes, to take them in part by part;
            None: it does not.
    """

    def __init__(
        self, plan: ExecutionPlan, stage: Stage, layout: Layout, parts: int | None = None
    ) -> None:
        self._lanes = {
            group.label: _Lane(plan, group, layout, parts)
            for group in stage.groups
            if layout.wanted[group.label]
        }

    @property
    def is_needed(self) -> bool:
        """Whether any grouping waits for the outputs of the stage."""
        return bool(self._lanes)

    def add(self, groups: Mapping[str, Sequence[Partial]]) -> Iterator[Packed]:
        """Take the partials of one bundle; blobs come out when enough is gathered."""
        for label, partials in groups.items():
            if label in self._lanes:
                for part in parts_of(partials):
                    yield from self._lanes[label].add(part)

    def flush(self) -> Iterator[Packed]:
        """Pack what is left."""
        for lane in self._lanes.values():
            yield from lane.pack()

    def digests(self) -> Mapping[int, int] | None:
        """Digests of all partials so far, packed or not, by target (`runners.batch.digests`); None if not needed."""
        if not self._lanes:
            return None
        return dict(each for lane in self._lanes.values() for each in lane.digests())

    def packings(self) -> Mapping[int, Sequence[int]]:
        """How what was gathered so far is packed, as numbers, by the first target of each grouping.

        Nothing where targets do not divide their keys: there the next attempt may pack as it likes.
        """
        return dict(each for lane in self._lanes.values() for each in lane.packings())

    def follow(self, before: Mapping[int, Sequence[int]]) -> None:
        """Pack as an earlier attempt has done; to be called before anything is gathered.

        Args:
            before: the packings of that attempt, as far as they are known.
        """
        for lane in self._lanes.values():
            lane.follow(before)


class _Lane:
    """The way to one grouping."""

    def __init__(
        self, plan: ExecutionPlan, node: TransformNode, layout: Layout, parts: int | None
    ) -> None:
        self._parts = parts
        self._lifter = lifter_of(plan.graph, node)
        self._codec = KeyCodec(str(node))
        self._offset, self._count = layout.offsets[node.label], layout.counts[node.label]
        self._wanted = layout.wanted[node.label]
        self._table = PartialTable(self._lifter)
        lifter = self._lifter
        self._is_merging = isinstance(lifter, Lifter) and lifter.merging.is_merging
        self._digest = Digest(self._count, with_windows=not self._is_merging)
        self._sign_of = lifter.sign_of if isinstance(lifter, Lifter) else None
        self._net_count = lifter.net_count if isinstance(lifter, StatefulInputs) else None
        self._columns: list[PartialColumns] = []
        #: None where nobody minds how attempts pack.
        self._sizes = None if parts is None else PackSizes(RECORDS_FIRST)
        self._records_max = RECORDS_FIRST
        #: Unknown until some have been packed.
        self._partials_max: int | None = None

    def packings(self) -> Iterator[tuple[int, Sequence[int]]]:
        if self._sizes is not None and self._sizes.packings.count:
            yield self._offset, self._sizes.packings.numbers

    def follow(self, before: Mapping[int, Sequence[int]]) -> None:
        if self._sizes is not None and self._offset in before:
            self._sizes = PackSizes(RECORDS_FIRST, Packings.of(before[self._offset]))

    def add(self, partials: Sequence[Partial]) -> Iterator[Packed]:
        if isinstance(partials, PartialColumns):
            self._columns.append(partials)
            if sum(map(len, self._columns)) >= COLUMN_PARTIALS_MAX:
                yield from self._pack_columns()
            return
        if self._sign_of is not None:
            # Once they are folded it is not known how many were retractions.
            self._digest.sums[:] = self._digest.with_counts(self._signed(partials, self._sign_of))
        self._table.add(partials)
        if self._is_full():
            yield from self.pack()

    def digests(self) -> Iterator[tuple[int, int]]:
        sums: Sequence[int] = self._digest.sums
        if self._columns or (self._table.records and self._sign_of is None):
            sums = self._digest.with_counts(self._waiting())
        for index, each in enumerate(sums):
            if index in self._wanted:
                yield self._offset + index, each & MASK

    def _signed(
        self, partials: Sequence[Partial], sign_of: Callable[[Any], int]
    ) -> Iterator[Counted]:
        if not isinstance(partials, UnfoldedPartials):
            return self._counted((key, window, count) for key, window, _, count in partials)
        windows = partials.windows or itertools.repeat(GLOBAL_WINDOW)
        # The pairs are as many as the windows, if there are any.
        pairs = zip(partials.pairs, windows, strict=False)
        return self._counted((key, window, sign_of(value)) for (key, value), window in pairs)

    def _waiting(self) -> Iterator[Counted]:
        yield from self._counted(self._table.counted())
        for columns in self._columns:
            yield from self._counted((key, window, count) for key, window, _, count in columns)

    def _counted(self, counted: Iterable[tuple[Any, Window, int]]) -> Iterator[Counted]:
        for key, window, count in counted:
            key_hash = self._codec.hash(key)
            yield range_index(key_hash, self._count), key_hash, window, count

    def _is_full(self) -> bool:
        table = self._table
        if self._partials_max is None:
            return table.records >= self._records_max
        if table.records >= self._records_max:
            table.fold()
            if not table.is_of_numbers():
                return True
            # Looking at all records is not worth its cost for every bundle.
            self._records_max = 2 * table.records
        return table.size >= self._partials_max

    def pack(self) -> Iterator[Packed]:
        yield from self._pack_columns()
        records, taken = self._table.records, self._table.take()
        packed_bytes = 0
        for index, partials in self._by_range(taken):
            for start in range(0, len(partials), BLOB_PARTIALS_MAX):
                blob = self._blob(partials[start : start + BLOB_PARTIALS_MAX])
                packed_bytes += len(blob)
                yield self._offset + index, blob
        if packed_bytes:
            records_fit = _fitting(records, packed_bytes, RECORDS_MAX)
            partials_fit = _fitting(len(taken), packed_bytes, PARTIALS_MAX)
            if (sizes := self._sizes) is not None:
                sizes.packed(records_fit, partials_fit)
                assert sizes.partials_max is not None
                records_fit, partials_fit = sizes.records_max, sizes.partials_max
            self._records_max, self._partials_max = records_fit, partials_fit

    def _by_range(self, partials: Sequence[Partial]) -> Iterator[tuple[int, list[Partial]]]:
        """Divide partials among the key ranges that are wanted, and add them to the digests of all."""
        keys = [each[0] for each in partials]
        # In memory two keys are equal exactly if their bytes are.
        distinct = list(dict.fromkeys(keys))
        hashes = self._codec.hashes(distinct)
        if len(distinct) < len(keys):
            number_of = dict(zip(distinct, itertools.count(), strict=False))
            hashes = hashes[np.fromiter(map(number_of.__getitem__, keys), np.int64, len(keys))]
        ranges_of = range_indexes(hashes, self._count)
        if self._sign_of is None:
            net_counts = map(self._net_count or _count_of, partials)
            counts = np.fromiter(net_counts, np.int64, len(partials))
            self._add_sums(hashes, [each[1] for each in partials], counts, ranges_of)
        for index in sorted(self._wanted.intersection(np.unique(ranges_of).tolist())):
            yield index, list(itertools.compress(partials, (ranges_of == index).tolist()))

    def _pack_columns(self) -> Iterator[Packed]:
        waiting, self._columns = self._columns, []
        assert not waiting or isinstance(self._lifter, Lifter)
        lifter = self._lifter
        merged = lifter.merging.columns(waiting) if isinstance(lifter, Lifter) else None
        if merged is None:
            for partials in waiting:
                self._table.add(partials)
            return
        if not len(merged):
            return
        which, keys = distinct_keys(merged)
        hashes = self._codec.hashes(keys)
        ranges = range_indexes(hashes, self._count)
        self._add_sums(hashes[which], merged.windows, merged.counts, ranges[which])
        for index, partials in divided_by(merged, which, ranges.tolist()):
            if index in self._wanted:
                yield self._offset + index, self._blob(partials)

    def _add_sums(
        self,
        hashes: NDArray[np.uint64],
        windows: Sequence[Window],
        counts: Int64s,
        ranges: Int64s,
    ) -> None:
        """Add partials to the digests, by the hashes of their keys."""
        salts = None if self._is_merging else salts_of(*_bounds_us(windows))
        for index, each in enumerate(sums_of(hashes, salts, counts, ranges, self._count)):
            self._digest.sums[index] += each

    def _blob(self, partials: Sequence[Partial]) -> bytes:
        if self._parts is None:
            return encode_partials(partials)
        hash_of, parts = self._codec.hash, self._parts
        by_part: dict[int, list[Partial]] = {}
        # One by one in whatever form they came: a receiver of parts takes no columns.
        for partial in partials:
            by_part.setdefault(hash_of(partial[0]) % parts, []).append(partial)
        return encode_parts(
            [
                PartBlob(part, sum(each[3] for each in some), encode_partials(some))
                for part, some in by_part.items()
            ]
        )


def _bounds_us(windows: Sequence[Window]) -> tuple[Int64s, Int64s]:
    if isinstance(windows, WindowColumn):
        return windows.starts_us, windows.ends_us
    return bounds_of(windows)


def _fitting(count: int, size_bytes: int, count_max: int) -> int:
    """How many should be packed the next time, when ``count`` took so many bytes."""
    return max(1, min(count_max, PACKED_BYTES * count // size_bytes))
