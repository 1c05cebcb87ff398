"""FileValues: the values of a group that does not fit into memory, as a sequence.

What `GroupByKey` gives in place of a list: it can be iterated any number of times, also at the same time, has a length,
and its values have indexes.  A piece at a time is in memory, a few hundred kilobytes of pickles.
It compares like a list, and is a list once it is pickled or copied.

Absent: changing it; ``list(values)`` may be changed, and takes the memory.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, overload

import attrs

from runners.batch.spill.run_file import Head, RunFile, Stretch

_SHOWN_VALUES = 3


@attrs.define
class Stored:
    """Contents of frames, in order, of which ``count`` and ``size_bytes`` are the sums."""

    file: RunFile
    stretches: list[Stretch]
    count: int
    size_bytes: int

    def join(self, other: "Stored") -> "Stored":
        """This and the other, whose frames follow in the same file."""
        for start, end in other.stretches:
            if start == self.stretches[-1][1]:
                self.stretches[-1] = (self.stretches[-1][0], end)
            else:
                self.stretches.append((start, end))
        self.count += other.count
        self.size_bytes += other.size_bytes
        return self

    def heads(self) -> Iterator[Head]:
        """The frames."""
        for stretch in self.stretches:
            yield from self.file.heads(stretch)

    def contents(self) -> Iterator[Any]:
        """The contents of the frames."""
        return map(self.file.content, self.heads())


class FileValues(Sequence[Any]):
    """Values in a file: frames with lists of them.

    Raises:
        TransformError: whenever it is read after its time, which ends with the task.
    """

    # Unhashable, as a list is.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._index: _Index | None = None

    def __len__(self) -> int:
        return self._stored.count

    def __iter__(self) -> Iterator[Any]:
        for piece in self._stored.contents():
            yield from piece

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._at(each) for each in range(*index.indices(len(self)))]
        return self._at(range(len(self))[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | FileValues):
            return NotImplemented
        pairs = zip(self, other, strict=False)
        return len(self) == len(other) and all(mine == its for mine, its in pairs)

    def __repr__(self) -> str:
        if not self._stored.file.close.alive:
            return f"<{len(self)} values that are gone>"
        shown = [repr(each) for each in islice(self, _SHOWN_VALUES)]
        more = len(self) - len(shown)
        return f"[{', '.join(shown)}{f', ... {more} more' if more else ''}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (), None, iter(self)

    def _at(self, at: int) -> Any:
        if self._index is None:
            self._index = _Index(self._stored)
        return self._index.value(at)


class _Index:
    """Where each piece is, and the piece that was used last."""

    def __init__(self, stored: Stored) -> None:
        self._file = stored.file
        self._starts, self._places = array("Q"), array("Q")
        start = 0
        for head in stored.heads():
            self._starts.append(start)
            self._places.extend((head.at, head.end))
            start += head.records
        self._number = -1
        self._piece: list[Any] = []

    def value(self, at: int) -> Any:
        number = bisect_right(self._starts, at) - 1
        if number != self._number:
            place = self._places[2 * number], self._places[2 * number + 1]
            (head,) = self._file.heads(place)
            self._number, self._piece = number, self._file.content(head)
        return self._piece[at - self._starts[number]]
