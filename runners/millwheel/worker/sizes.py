"""How large what a step commits may be: in all, in each of its parts, and in a single value, which has no parts.

Records have any size, so their number bounds nothing.  A step takes in about as much as causes so many bytes, by the
measure of the step before (`StepSize`).  What it writes is divided into pieces (`Pieces`), however much that is.
A single value that is larger than the store accepts is refused by name, before anything is committed.

**Invariants**

* A piece is no larger than `StepLimits.piece_bytes`, or is a single thing.
* A step takes at least one thing in.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from dataflow.errors import TransformError
from runners.core.ground.element_text import shown
from runners.millwheel.store import port
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits

T = TypeVar("T")

#: A value that has no parts: all that is kept of a key and window, what a bundle has for them, a field of a row.
VALUE_BYTES_MAX = 256 << 20

#: A step may take in at most so many times as much as the one before it.
_GROWTH = 8


class StepSize:
    """How many things the next step may take in: records, timers, cells.

    Args:
        steps: how much a step may cause.
    """

    def __init__(self, steps: StepLimits) -> None:
        self._bytes_max, self._allowed = steps.nbytes, steps.first

    def allowed(self, most: int) -> int:
        """At least one, and not more than ``most``."""
        return max(1, min(most, self._allowed))

    def caused(self, count: int, nbytes: int) -> None:
        """Note how many things a step took in, and how many bytes were to be committed because of them.

        Args:
            count: of the things; 0 changes nothing.
            nbytes: of everything in the step, also what was written because of them.
        """
        if count:
            fitting = count * self._bytes_max // max(1, nbytes)
            self._allowed = max(1, min(fitting, _GROWTH * self._allowed))


class Pieces:
    """Encodes sequences of things in pieces.  Things that look alike mostly need to be encoded only once.

    Args:
        value_bytes_max: no single thing may be larger, in bytes.
        what: describes a thing that is, for the error: "transform 'sum' (main.py:7) cannot keep the state of key 1".
        steps: how large a piece may be.
    """

    def __init__(
        self, value_bytes_max: int, what: Callable[[Any], str], steps: StepLimits = STEP_LIMITS
    ) -> None:
        self._value_bytes_max, self._what = value_bytes_max, what
        # Otherwise a single value within a piece could be larger than its own limit.
        self._piece_bytes = min(steps.piece_bytes, value_bytes_max)
        #: The bytes of each thing in the piece before.
        self._bytes_each = 1

    def of(
        self, things: Sequence[T], dump: Callable[[Sequence[T]], bytes]
    ) -> Iterable[tuple[Sequence[T], bytes]]:
        """The things in their order, as pieces and the bytes of each; no piece if there is no thing.

        Args:
            things: of a sequence that may be divided.
            dump: encodes a piece.

        Raises:
            TransformError: one of them is too large; now, or when the pieces are iterated over.
        """
        if 0 < len(things) * self._bytes_each <= self._piece_bytes:
            return self._encoded(things, dump)
        return self._divided(things, dump)

    def _divided(
        self, things: Sequence[T], dump: Callable[[Sequence[T]], bytes]
    ) -> Iterator[tuple[Sequence[T], bytes]]:
        """Yield pieces of so many things as should fit."""
        start, end = 0, len(things)
        while start < end:
            count = min(end - start, max(1, self._piece_bytes // self._bytes_each))
            # A sequence that fits into one piece is not copied.
            piece = things if count == end else things[start : start + count]
            start += count
            yield from self._encoded(piece, dump)

    def _encoded(
        self, piece: Sequence[T], dump: Callable[[Sequence[T]], bytes]
    ) -> Iterable[tuple[Sequence[T], bytes]]:
        """One piece, if it is as small as it should be, which most are; else several."""
        blob = dump(piece)
        self._bytes_each = max(1, len(blob) // len(piece))
        if len(blob) <= self._piece_bytes:
            return ((piece, blob),)
        return self._halved(piece, blob, dump)

    def _halved(
        self, piece: Sequence[T], blob: bytes, dump: Callable[[Sequence[T]], bytes]
    ) -> Iterator[tuple[Sequence[T], bytes]]:
        middle = len(piece) // 2
        if middle:
            del blob
            yield from self._encoded(piece[:middle], dump)
            yield from self._encoded(piece[middle:], dump)
        elif len(blob) > self._value_bytes_max:
            raise too_large(self._what(piece[0]), len(blob), self._value_bytes_max)
        else:
            yield piece, blob


def too_large(what: str, size_bytes: int, bytes_max: int) -> TransformError:
    """Make the error about one thing that is too large.

    Args:
        what: names the thing and its transform: "transform 'sum' (main.py:7) cannot keep the state of key 1".
        size_bytes: what it has, encoded.
        bytes_max: what it may have.
    """
    return TransformError(
        f"{what}: it has {size_bytes:,} bytes, and may have {bytes_max:,}",
        detail="all of it is one value to the store, and is written again whenever it changes",
        hint="keep less of each key and window: CombinePerKey in place of GroupByKey, shorter windows, more keys, "
        f"large records in files and their names here; or give the runner a larger value_bytes_max, up to "
        f"{port.VALUE_BYTES_MAX:,}",
    )


def of_key(where: str, what: str, key: Any) -> str:
    """Describe a key that cannot be stored or sent, for `Pieces`.

    Args:
        where: the transform: "transform 'sum' (main.py:7)".
        what: what it cannot do: "keep the state".
        key: the user's; shown in a shortened form.
    """
    return f"{where} cannot {what} of key {shown(key)}"
