"""Lines of JSON objects that differ in their numbers alone, parsed by NumPy, many at a time.

A block is taken only if it is certain to be that.  The first line says what all are like: each has as many numbers, and
in front of each number and behind the last one the same text.  Numbers are runs of the characters that numbers have;
what stands between two runs is compared sixteen bytes at a time, and eight digits are made a number at a time.
Whatever departs from it is left to a parser of JSON.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow.arrow_numbers import array_of

_MEMBER = rb' *"([A-Za-z_]+)" *: *-?[0-9]+(?:\.[0-9]+)? *'
_FIRST_LINE = re.compile(rb"\{%b(?:,%b)*\} *" % (_MEMBER, _MEMBER))
_NAMES = re.compile(rb'"([A-Za-z_]+)"')
#: A number with an exponent is left to others, as that is a letter of names too.
_NUMBERS = re.compile(rb"[-.0-9]+")
#: So many bytes are parsed at once: what is made of them stays in the processor's cache.
_PIECE_BYTES = 1 << 18

#: The digits of so many bytes are made a number at a time, and so many of them are looked at.
_WORD, _WORDS = 8, 3
#: What stands before a piece, so that the words of its first number are there.
_PADDING = b" " * (_WORD * _WORDS)
#: The first bytes of a word, and the last ones, by how many: in memory the first byte is that of the lowest value.
_FIRST = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_LAST = np.array([(1 << 64) - (1 << 8 * (_WORD - size)) for size in range(_WORD + 1)], np.uint64)
_ZEROS, _OVER_NINE, _HIGH_BITS = (
    np.uint64(int.from_bytes(bytes([each]) * _WORD)) for each in (ord("0"), 0x7F - 9, 0x80)
)
#: A 64-bit integer has at most 19; a float of so many is exact, and so is its quotient by a power of ten.
_INT_DIGITS_MAX, _FLOAT_DIGITS_MAX = 19, 15
_INT_MAX = np.uint64((1 << 63) - 1)
_POWERS_OF_TEN = 10.0 ** np.arange(_FLOAT_DIGITS_MAX + 1)
_TENS = 10 ** np.arange(_FLOAT_DIGITS_MAX + 1, dtype=np.uint64)

_Bytes = NDArray[np.uint8]
_Words = NDArray[np.uint64]
_Number = TypeVar("_Number", bound=np.generic)
_Places = NDArray[np.int64]


class _UnlikeError(Exception):
    """The lines are something else, or might be."""


def number_columns(block: bytes, types: Mapping[str, pa.DataType]) -> pa.Table | None:
    """The columns of a block of lines; None if they are something else, or might be.

    Args:
        block: whole lines, each ended by LF, but for the last one perhaps.
        types: of the members that each line has, by name: 64-bit integers or floats.
    """
    first = block[: block.find(b"\n") % (len(block) + 1)]
    if not _FIRST_LINE.fullmatch(first):
        return None
    names = [name.decode() for name in _NAMES.findall(first)]
    if sorted(names) != sorted(types):
        return None
    head, *gaps, tail = _NUMBERS.split(first)
    form = (tail + b"\n" + head, *gaps)
    columns: dict[str, list[pa.Array[Any]]] = {}
    start = 0
    try:
        while start < len(block):
            end = block.find(b"\n", start + _PIECE_BYTES) + 1 or len(block)
            piece = _Piece.of(memoryview(block)[start:end], form, len(head))
            for index, name in enumerate(names):
                is_float = pa.types.is_floating(types[name])
                part = piece.floats(index) if is_float else piece.integers(index)
                columns.setdefault(name, []).append(array_of(part))
            start = end
    except _UnlikeError:
        return None
    return pa.table({name: pa.chunked_array(columns[name], types[name]) for name in types})


@attrs.frozen(eq=False)
class _Piece:
    """Some lines, and where each of their numbers begins and ends: a row of places for each number of a line."""

    text: bytes
    starts: _Places
    ends: _Places

    @classmethod
    def of(cls, lines: memoryview, form: tuple[bytes, ...], head_size: int) -> "_Piece":
        """Find the numbers.

        Args:
            lines: one at least.
            form: what stands in front of each number of a line; in front of the first one also what ends the line
                before.
            head_size: how much of that belongs to its own line.

        Raises:
            _UnlikeError: they are not of this form.
        """
        between = form[0]
        # As if there were a line before them and one after them.
        tail, head = between[: len(between) - head_size], between[len(between) - head_size :]
        end = b"" if lines[-1] == ord("\n") else b"\n"
        text = b"".join((_PADDING, tail, lines, end, head, _PADDING))
        characters = np.frombuffer(text, np.uint8)
        is_number = characters - np.uint8(ord("-")) <= ord("9") - ord("-")
        is_edge = np.zeros(len(text), np.bool_)
        np.not_equal(is_number[1:], is_number[:-1], out=is_edge[1:])
        places = np.flatnonzero(is_edge)
        if not len(places) or len(places) % (2 * len(form)):
            raise _UnlikeError
        by_number = places.reshape(-1, len(form), 2)
        starts, ends = (np.ascontiguousarray(by_number[:, :, side].T) for side in (0, 1))
        before = np.concatenate([[len(_PADDING)], ends[-1]])
        after = np.append(starts[0], len(text) - len(_PADDING))
        _check_gaps(text, before, after, between)
        for index, (gap, following) in enumerate(zip(form[1:], starts[1:], strict=True)):
            _check_gaps(text, ends[index], following, gap)
        return cls(text, starts, ends)

    def integers(self, index: int) -> NDArray[np.int64]:
        """The numbers at one place of each line.

        Args:
            index: the place.

        Raises:
            _UnlikeError: one is none that JSON or 64 bits have.
        """
        begins, is_negative, first = self._signs(index)
        sizes = self.ends[index] - begins
        _check_first(first, sizes, is_negative)
        found = self._natural(self.ends[index], sizes)
        if int(sizes.max()) >= _INT_DIGITS_MAX and (
            int(sizes.max()) > _INT_DIGITS_MAX or (found > _INT_MAX + is_negative).any()
        ):
            raise _UnlikeError
        signed = found.astype(np.int64)
        if is_negative.any():
            np.negative(signed, out=signed, where=is_negative)
        return signed

    def floats(self, index: int) -> NDArray[np.float64]:
        """Likewise, as floats; those of more digits than a float has exactly one by one."""
        begins, is_negative, first = self._signs(index)
        ends = self.ends[index]
        points = self._points(begins, ends)
        _check_first(first, points - begins, is_negative & (points == ends))
        fractions = np.maximum(ends - points - 1, 0)
        if (ends == points + 1).any():
            raise _UnlikeError  # A point with nothing behind it.
        is_long = points - begins + fractions > _FLOAT_DIGITS_MAX
        sizes = np.where(is_long, 1, points - begins)
        fractions = np.where(is_long, 0, fractions)
        found = self._natural(np.where(is_long, begins + 1, points), sizes) * _TENS[fractions]
        found += self._natural(ends, fractions)
        floats: NDArray[np.float64] = found.astype(np.float64) / _POWERS_OF_TEN[fractions]
        for row in np.flatnonzero(is_long).tolist():
            written = self.text[begins[row] : ends[row]]
            if not written.replace(b".", b"0", 1).isdigit():
                raise _UnlikeError
            floats[row] = float(written)
        return np.where(is_negative, -floats, floats)

    def _signs(self, index: int) -> tuple[_Places, NDArray[np.bool_], _Bytes]:
        """Where digits begin, whether a minus is before them, and the first of them."""
        characters, starts = np.frombuffer(self.text, np.uint8), self.starts[index]
        first = characters[starts]
        is_negative = first == ord("-")
        if not is_negative.any():
            return starts, is_negative, first
        begins = starts + is_negative
        return begins, is_negative, characters[begins]

    def _points(self, begins: _Places, ends: _Places) -> _Places:
        """Where the point of each number is, or its end if it has none."""
        found = ends.copy()
        is_point = np.frombuffer(self.text, np.uint8) == ord(".")
        places = np.flatnonzero(is_point)
        rows = np.searchsorted(begins, places, side="right") - 1
        is_here = (rows >= 0) & (places < ends[rows])
        # From the last to the first, so that the first of several counts; the others are no digits.
        found[rows[is_here][::-1]] = places[is_here][::-1]
        return found

    def _natural(self, ends: _Places, sizes: _Places) -> _Words:
        """The natural numbers of so many digits that end there; without digits 0.  Raises if others are among them."""
        longest = int(sizes.max())
        if longest > _WORD * _WORDS:
            raise _UnlikeError
        found = self._eight_digits(ends, sizes)
        for word in range(1, -(-longest // _WORD)):
            upper = self._eight_digits(ends - word * _WORD, sizes - word * _WORD)
            found += upper * np.uint64(10 ** (word * _WORD))
        return found

    def _eight_digits(self, ends: _Places, sizes: _Places) -> _Words:
        digits = _windows(self.text, np.uint64)[ends - _WORD] ^ _ZEROS
        digits &= _LAST[np.clip(sizes, 0, _WORD)]
        if (((digits + _OVER_NINE) | digits) & _HIGH_BITS).any():
            raise _UnlikeError
        # Two digits of each two bytes, four of each four, and eight: Daniel Lemire, "Quickly parsing eight digits".
        digits = digits * np.uint64(10) + (digits >> np.uint64(8))
        pairs = np.uint64(0x000000FF_000000FF)
        outer = (digits & pairs) * np.uint64(0x000F4240_00000064)
        inner = ((digits >> np.uint64(16)) & pairs) * np.uint64(0x00002710_00000001)
        return (outer + inner) >> np.uint64(32)


def _check_first(first: _Bytes, sizes: _Places, is_negative_integer: NDArray[np.bool_]) -> None:
    """Refuse numbers that begin with no digit, or with a zero and more digits.

    -0 is refused too: to a parser of JSON it is the integer 0, whatever field it is for.
    """
    is_odd = (first == ord("0")) & ((sizes > 1) | is_negative_integer)
    if int(sizes.min()) < 1 or is_odd.any():
        raise _UnlikeError


def _check_gaps(text: bytes, ends: _Places, starts: _Places, gap: bytes) -> None:
    """Refuse lines where something else than ``gap`` stands between two numbers.

    Args:
        text: the lines.
        ends: of the first number of each two.
        starts: of the second one.
        gap: what has to be there.
    """
    if (starts - ends != len(gap)).any():
        raise _UnlikeError
    # Complex numbers are the sixteen bytes that NumPy picks at once.
    windows, size = _windows(text, np.complex128), 2 * _WORD
    for offset in range(0, len(gap), size):
        part = gap[offset : offset + size]
        found = windows[ends + offset if offset else ends].view(np.uint64).reshape(-1, 2)
        for column in (0, 1):
            wanted = part[column * _WORD : (column + 1) * _WORD]
            if (found[:, column] & _FIRST[len(wanted)] != int.from_bytes(wanted, "little")).any():
                raise _UnlikeError


def _windows(text: bytes, kind: type[_Number]) -> NDArray[_Number]:
    """Of each byte, as many as there are in a number of a kind, from that one on."""
    size = np.dtype(kind).itemsize
    return np.ndarray((len(text) - size + 1,), kind, text, strides=(1,))
