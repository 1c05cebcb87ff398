"""KeyParts: what is sent to a key range, kept until all of it is there, and then given back part by part.

A key range is divided into `PARTS` parts by the hashes of its keys, always the same ones, whether there is much or
little.  What exceeds the limit of memory waits in a file: each time as sorted runs, one for each part, which are read
side by side in the end, a blob of each at a time (external merge sort).

**Invariant:** what is given back, and in which order, depends on what was sent alone: neither on the order in which it
came nor on what has been in the file.  What is for one part has bytes of its own from the sender on, so even what two
values share is the same.

`spilled_groups.py` guarantees less (the order of keys depends on memory there) and needs no more: a batch is not
continued with the output of another attempt.

Absent: dividing a part.  It is given back blob by blob, but what a grouping makes of it is in memory.
"""

from collections import defaultdict
from collections.abc import Iterator
from heapq import merge
from itertools import chain
from typing import NamedTuple

import attrs

from runners.batch.spill.spill_file import SpillFile
from runners.millwheel.model.ids import RangeId
from runners.stored.runs import decode_kept, decode_parts, encode_kept

#: The number of parts of a key range; fixed, because a mark in the store counts in them.
PARTS = 256
#: The memory that a blob takes beside its content, in bytes.
_BLOB_BYTES = 200


class _Kept(NamedTuple):
    """A blob for one part; compares in the order in which blobs are given back."""

    sender: RangeId
    number: int
    records: int
    blob: bytes


@attrs.frozen
class PartBatch:
    """Several parts, one after the other.

    Attributes:
        end: one past the last part.
        blobs: partials as bytes, in order; read while they are iterated, once, and before the next batch is asked for.
        size_bytes: of all blobs.
    """

    end: int
    blobs: Iterator[bytes] = attrs.field(eq=False)
    size_bytes: int


class KeyParts:
    """The parts of one key range; to be closed at the end.

    Args:
        first: the first part that is wanted; earlier ones are dropped.
        spill_bytes: how much of the range to keep in memory, in bytes of pickles.
    """

    def __init__(self, *, first: int, spill_bytes: int) -> None:
        self._first, self._spill_bytes = first, spill_bytes
        self._kept: dict[int, list[_Kept]] = defaultdict(list)
        self._kept_bytes = 0
        self._file: SpillFile | None = None
        #: Where in the file each part has runs, and of how many blobs.
        self._runs: dict[int, list[tuple[int, int]]] = defaultdict(list)
        #: How many records each part has, and how many bytes.
        self._records: dict[int, int] = defaultdict(int)
        self._sizes: dict[int, int] = defaultdict(int)

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()

    @property
    def has_spilled(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def take(self, sender: RangeId, number: int, blob: bytes) -> None:
        """Take in what a sender has sent (`Gatherer`, with `PARTS`) under a number of its own.

        Args:
            sender: the range that has sent it.
            number: of the sending; with the sender, the order in which parts are read.
            blob: as `Gatherer` encodes it.

        Raises:
            OSError: the temporary directory is full; another attempt may have more luck.
        """
        for part, records, content in decode_parts(blob):
            if part >= self._first:
                self._kept[part].append(_Kept(sender, number, records, content))
                self._kept_bytes += len(content) + _BLOB_BYTES
                self._records[part] += records
                self._sizes[part] += len(content)
        if self._kept_bytes > self._spill_bytes:
            self._spill()

    def batches(self, records: int, cut: int) -> Iterator[PartBatch]:
        """Everything, removed from here when it is read: each time as few parts as have so many records.

        Args:
            records: at least so many in each batch but the last, which is there even if it is empty.
            cut: a batch that comes to this part ends before it.
        """
        first = self._first
        waiting = size_bytes = 0
        for part in range(self._first, PARTS):
            waiting += self._records.get(part, 0)
            size_bytes += self._sizes.get(part, 0)
            if waiting >= records or part + 1 in (cut, PARTS):
                parts = range(first, part + 1)
                yield PartBatch(part + 1, chain.from_iterable(map(self._blobs, parts)), size_bytes)
                first = part + 1
                waiting = size_bytes = 0

    def _blobs(self, part: int) -> Iterator[bytes]:
        """The blobs of a part, in order."""
        kept = sorted(self._kept.pop(part, []), reverse=True)
        runs = [self._run(*each) for each in self._runs.pop(part, ())]
        # Not in memory any more when it has been given back.
        in_memory = (kept.pop() for _ in range(len(kept)))
        return (each.blob for each in merge(*runs, in_memory))

    def _run(self, place: int, count: int) -> Iterator[_Kept]:
        assert self._file is not None
        for found in self._file.read_from(place, count):
            ((computation, index, *rest),) = decode_kept(found)
            yield _Kept(RangeId(computation, index), *rest)

    def _spill(self) -> None:
        self._file = self._file or SpillFile()
        while self._kept:
            part, kept = self._kept.popitem()
            fields = ((*each.sender, *each[1:]) for each in sorted(kept))
            places = [self._file.write(encode_kept([each])) for each in fields]
            self._runs[part].append((places[0], len(places)))
        self._kept_bytes = 0
