"""Frames: stored fields with the number of the format and the kind in front of them.

A frame of an older format is brought up to date when it is read, number by number, by functions from the fields of one
format to those of the next (`Format.readers`).  So a job that continues under newer code has frames of both formats,
and newer code writes its own number.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import msgspec

from runners.errors import StoredFormatError

#: Converts the fields of a kind in one format to those in the next one.
Reader = Callable[[str, list[Any]], list[Any]]


@attrs.frozen(kw_only=True)
class Format:
    """A format of stored bytes.

    Attributes:
        number: from 1 on; it is raised when the bytes of any kind change.
        readers: for each older number that is read, the function that converts its fields to those of the next number.
        layout: converts fields as the functions of this package use them to those that are written, and ``restored``
            converts back; None: they are the same.  For tests that write another format.
    """

    number: int
    readers: Mapping[int, Reader] = attrs.field(factory=dict)
    layout: Reader | None = None
    restored: Reader | None = None

    @property
    def readable(self) -> frozenset[int]:
        """The numbers that are read: its own, and those from which readers lead to it."""
        numbers = {self.number}
        while min(numbers) - 1 in self.readers:
            numbers.add(min(numbers) - 1)
        return frozenset(numbers)


def _from_1(_kind: str, fields: list[Any]) -> list[Any]:
    """The fields of format 1, in which there were no pages: all else is as it was."""
    return fields


def _from_2(_kind: str, fields: list[Any]) -> list[Any]:
    """The fields of format 2, in which all columns of integers had 64 bits: who reads columns knows both."""
    return fields


#: The format that this code writes.
FORMAT = Format(number=3, readers={1: _from_1, 2: _from_2})

_current = FORMAT
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
#: What bytes that are no MessagePack are refused with: also texts that are not UTF-8, and what is nested too deep.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: The first byte of an array with 2 to 15 elements.
_FRAME_MIN, _FRAME_MAX = 0x92, 0x9F
#: The largest number that is one byte in MessagePack.
_NUMBER_MAX = 0x7F


def current_format() -> Format:
    """The format that is written, with those that are read."""
    return _current


@contextmanager
def writing(other: Format) -> Iterator[None]:
    """Write another format in this process, as another version of the package would; for tests."""
    global _current  # noqa: PLW0603 - the version of the code is one for a process
    before, _current = _current, other
    try:
        yield
    finally:
        _current = before


def frame(kind: str, *fields: Any) -> bytes:
    """Fields as bytes.

    Args:
        kind: of the frame.
        fields: numbers, texts, bytes and lists of these.

    Raises:
        OverflowError: an integer has more than 64 bits.
        UnicodeEncodeError: a text has a lone surrogate.
    """
    written: Sequence[Any] = fields
    if _current.layout is not None:
        written = _current.layout(kind, list(fields))
    return _encode((_current.number, kind, *written))


def unframed(kind: str, blob: bytes) -> list[Any]:
    """The fields of a frame of a kind.

    Args:
        kind: that the frame must have.
        blob: the frame.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    found, fields = opened(blob)
    if found != kind:
        raise wrong_kind(found, kind)
    return fields


def opened(blob: bytes) -> tuple[str, list[Any]]:
    """The kind of a frame, and its fields, brought up to date.  Nothing in it is unpickled.

    Raises:
        StoredFormatError: it is not a frame, or of a format that is not read.
    """
    number = number_of(blob)
    if number is None:
        raise _no_frame(blob)
    try:
        _, kind, *fields = _decode(blob)
    except _UNREADABLE as error:
        raise _no_frame(blob) from error
    current = _current
    if number == current.number:
        return kind, fields if current.restored is None else current.restored(kind, fields)
    check_number(number, f"stored bytes of the kind {kind!r}")
    for older in range(number, _current.number):
        fields = _current.readers[older](kind, fields)
    return kind, fields


def number_of(blob: bytes) -> int | None:
    """The number of the format of a frame; None if the bytes are not a frame."""
    if len(blob) > 1 and _FRAME_MIN <= blob[0] <= _FRAME_MAX and 0 < blob[1] <= _NUMBER_MAX:
        return blob[1]
    return None


def kind_of(blob: bytes) -> str | None:
    """The kind of a frame, whatever its format; None if the bytes are not a frame."""
    if number_of(blob) is None:
        return None
    try:
        return str(_decode(blob)[1])
    except _UNREADABLE:
        return None


def check_number(number: int, what: str) -> None:
    """Refuse a format that this code does not read.

    Args:
        number: of the format.
        what: the thing that is stored in it, for the error.

    Raises:
        StoredFormatError: the format is not read.
    """
    if number not in _current.readable:
        raise unreadable(number, what, writes=_current.number, reads=_current.readable)


def unreadable(number: int, what: str, *, writes: int, reads: Collection[int]) -> StoredFormatError:
    """The error for something stored in a format that code does not read.

    Args:
        number: of the format; 0: from before formats had numbers.
        what: the thing that is stored in it.
        writes: the number that the code writes.
        reads: the numbers that it reads.
    """
    hint = (
        "run it with the version of dataflow-model that wrote it, until it has finished or is drained; or with "
        "fresh=True, to start over"
    )
    if number > writes:
        hint = "run it with the version of dataflow-model that wrote it, or with a later one"
    written = f"format {number}" if number else "a format without a number, from before format 1"
    return StoredFormatError(
        f"{what} cannot be read: it is stored in {written}",
        detail=f"this version of dataflow-model writes format {writes}, and reads {_listed(reads)}",
        hint=hint,
    )


def _listed(numbers: Collection[int]) -> str:
    return " and ".join(map(str, sorted(numbers)))


def wrong_kind(found: str, expected: str) -> StoredFormatError:
    """The error for a frame of another kind than expected.

    Args:
        found: its kind.
        expected: the kind that it should have.
    """
    return StoredFormatError(
        f"stored bytes are of the kind {found!r} where {expected!r} was expected",
        hint="this is a bug in dataflow-model: keep the database and report it",
    )


def _no_frame(blob: bytes) -> StoredFormatError:
    return StoredFormatError(
        "stored bytes are of no format of this package",
        detail=f"{len(blob)} bytes that begin with {blob[:8]!r}",
        hint="stores from before format 1 cannot be read: run the job with fresh=True, to start over",
    )
