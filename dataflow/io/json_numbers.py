"""Lines of JSON objects that differ in their numbers alone, parsed by NumPy, many at a time.

A block is taken only if it is certain to be that.  The first line says what all are like: each has as many numbers, and
in front of each number and behind the last one the same text.  All lines are read side by side: the text up to the next
number is compared sixteen bytes at a time, and where a number ends, and what it is, is found eight digits at a time.
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
#: What stands behind a piece: of its last line as many bytes are looked at as of the others, and behind a point.
_PADDING = b" " * (_WORD * (_WORDS + 1))
#: The first bytes of a word, by how many: in memory the first byte is that of the lowest value.
_FIRST = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_ZEROS, _OVER_NINE, _HIGH_BITS = (
    np.uint64(int.from_bytes(bytes([each]) * _WORD)) for each in (ord("0"), 0x7F - 9, 0x80)
)
#: Multiplied by a byte that is 1, in a word that has no other, it has the place of that byte as its highest byte.
_PLACES = np.uint64(int.from_bytes(range(_WORD), "big"))
#: A 64-bit integer has at most 19; a float of so many is exact, and so is its quotient by a power of ten.
_INT_DIGITS_MAX, _FLOAT_DIGITS_MAX = 19, 15
_INT_MAX = np.uint64((1 << 63) - 1)
_POWERS_OF_TEN = 10.0 ** np.arange(_FLOAT_DIGITS_MAX + 1)
_TENS = 10 ** np.arange(_FLOAT_DIGITS_MAX + 1, dtype=np.uint64)

_Bytes = NDArray[np.uint8]
_Words = NDArray[np.uint64]
_Number = TypeVar("_Number", bound=np.generic)
_Places = NDArray[np.int64]
_Bools = NDArray[np.bool_]


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
    line_bytes_min = len(b"".join((head, *gaps, tail, b"\n"))) + len(names)
    columns = _Columns.of(types, -(-len(block) // line_bytes_min))
    start = 0
    try:
        while start < len(block):
            end = block.find(b"\n", start + _PIECE_BYTES) + 1 or len(block)
            lines = _Lines.of(memoryview(block)[start:end], head, tail)
            for name, gap in zip(names, [b"", *gaps], strict=True):
                lines.skip(gap)
                columns.put(name, lines)
            lines.end(tail)
            columns.rows += len(lines.ends)
            start = end
    except _UnlikeError:
        return None
    return columns.table()


@attrs.define(eq=False)
class _Columns:
    """Room for the numbers of a block, which are put there piece by piece.

    Attributes:
        numbers: by name.
        rows: how many are there.
    """

    numbers: dict[str, NDArray[Any]]
    rows: int = 0

    @classmethod
    def of(cls, types: Mapping[str, pa.DataType], rows_max: int) -> "_Columns":
        """Make room.

        Args:
            types: of the columns, by name.
            rows_max: pages of memory that nobody writes to cost nothing.
        """
        kinds = {
            name: np.float64 if pa.types.is_floating(each) else np.int64
            for name, each in types.items()
        }
        return cls({name: np.empty(rows_max, kind) for name, kind in kinds.items()})

    def put(self, name: str, lines: "_Lines") -> None:
        """Read a number in each of some lines.

        Args:
            name: of the column.
            lines: those that follow what is there.

        Raises:
            _UnlikeError: there is something else.
        """
        column = self.numbers[name]
        part = lines.floats() if column.dtype == np.float64 else lines.integers()
        column[self.rows : self.rows + len(part)] = part

    def table(self) -> pa.Table:
        """All that is there."""
        return pa.table({name: array_of(each[: self.rows]) for name, each in self.numbers.items()})


@attrs.define(eq=False)
class _Lines:
    """Some lines, each of which has been read up to the same place of the form.

    Attributes:
        text: the lines, between what is looked at before the first one and behind the last one.
        ends: where each line ends.
        at: how far each has been read.
    """

    text: bytes
    ends: _Places
    at: _Places

    @classmethod
    def of(cls, lines: memoryview, head: bytes, tail: bytes) -> "_Lines":
        """Find the lines, and read them up to their first numbers.

        Args:
            lines: one at least.
            head: what each begins with.
            tail: what each ends with.

        Raises:
            _UnlikeError: they are not of this form.
        """
        # As if there were a line before them.
        before = tail + b"\n"
        end = b"" if lines[-1] == ord("\n") else b"\n"
        size = len(before) + len(lines) + len(end) + len(_PADDING)
        text = b"".join((before, lines, end, _PADDING, b" " * (-size % _WORD)))
        ends = _line_ends(text)
        found = cls(text, ends[1:], ends[:-1] - len(tail))
        found.skip(before + head)
        return found

    def skip(self, gap: bytes) -> None:
        """Read the same text in each line.

        Args:
            gap: what has to be there.

        Raises:
            _UnlikeError: in one there is something else.
        """
        for offset in range(0, len(gap), 2 * _WORD):
            words = self._two_words(self.at + offset if offset else self.at)
            for column in (0, 1):
                start = offset + column * _WORD
                wanted = gap[start : start + _WORD]
                found = words[:, column]
                if len(wanted) < _WORD:
                    found = found & _FIRST[len(wanted)]
                if np.count_nonzero(found != int.from_bytes(wanted, "little")):
                    raise _UnlikeError
        self.at = self.at + len(gap)

    def end(self, tail: bytes) -> None:
        """Read the last text in each line, which ends it.

        Args:
            tail: what has to be there; of all lines but the last one `of` has seen it.

        Raises:
            _UnlikeError: there is more in one line, or something else in the last one.
        """
        last = int(self.ends[-1])
        is_more = np.count_nonzero(self.at + len(tail) != self.ends)
        if is_more or self.text[last - len(tail) : last] != tail:
            raise _UnlikeError

    def integers(self) -> NDArray[np.int64]:
        """Read a number in each line.

        Raises:
            _UnlikeError: one is none that JSON or 64 bits have.
        """
        is_negative, first = self._sign()
        found, sizes, words = self._naturals(self.at)
        _check_first(first, sizes, is_negative)
        if words == _WORDS and (longest := int(sizes.max())) >= _INT_DIGITS_MAX:
            is_beyond = found > _INT_MAX if is_negative is None else found > _INT_MAX + is_negative
            if longest > _INT_DIGITS_MAX or np.count_nonzero(is_beyond):
                raise _UnlikeError
        self.at = self.at + sizes
        signed = found.view(np.int64)
        if is_negative is not None:
            np.negative(signed, out=signed, where=is_negative)
        return signed

    def floats(self) -> NDArray[np.float64]:
        """Likewise, as floats; those of more digits than a float has exactly one by one."""
        is_negative, first = self._sign()
        begins = self.at
        found, sizes, _ = self._naturals(begins)
        points = begins + sizes
        is_point = np.frombuffer(self.text, np.uint8)[points] == ord(".")
        _check_first(first, sizes, None if is_negative is None else is_negative & ~is_point)
        digits, fractions, _ = self._naturals(points + 1)
        if not fractions[is_point].all():
            raise _UnlikeError  # A point with nothing behind it.
        fractions[~is_point] = 0
        self.at = points + is_point + fractions
        is_long = sizes + fractions > _FLOAT_DIGITS_MAX
        fractions[is_long] = 0
        found = found * _TENS[fractions] + digits
        floats: NDArray[np.float64] = found.astype(np.float64) / _POWERS_OF_TEN[fractions]
        for row in np.flatnonzero(is_long).tolist():
            floats[row] = float(self.text[begins[row] : self.at[row]])
        return floats if is_negative is None else np.where(is_negative, -floats, floats)

    def _sign(self) -> tuple[_Bools | None, _Bytes]:
        """Read a minus where one is; returns whether, or None if none is, and the first digits."""
        characters = np.frombuffer(self.text, np.uint8)
        first = characters[self.at]
        is_negative = first == ord("-")
        if not np.count_nonzero(is_negative):
            return None, first
        self.at = self.at + is_negative
        return is_negative, characters[self.at]

    def _naturals(self, begins: _Places) -> tuple[_Words, _Places, int]:
        """The natural numbers that begin there, how many digits each has, and how many words were looked at.

        Where there is none it is 0, with no digit.  Of one with more digits than are looked at the first ones are
        taken: what follows is no text between numbers.
        """
        words = self._two_words(begins)
        found, sizes = _eight_digits(words[:, 0])
        for word in range(1, _WORDS):
            is_longer = sizes == word * _WORD
            if not np.count_nonzero(is_longer):
                return found, sizes, word
            if word % 2 == 0:
                words = self._two_words(begins + word * _WORD)
            lower, more = _eight_digits(words[:, word % 2], where=is_longer)
            found *= _TENS[more]
            found += lower
            sizes += more
        return found, sizes, _WORDS

    def _two_words(self, begins: _Places) -> _Words:
        """The sixteen bytes from each place on, as two numbers."""
        # Complex numbers are the sixteen bytes that NumPy picks at once.
        windows = _windows(self.text, np.complex128)
        return windows[begins].view(np.uint64).reshape(-1, 2)


def _eight_digits(words: _Words, where: _Bools | None = None) -> tuple[_Words, _Places]:
    """The natural number at the beginning of each eight bytes, and how many digits it has.

    Args:
        words: the bytes.
        where: there is one, as far as is known; elsewhere it has no digit, and is 0.  None: everywhere.
    """
    digits = words ^ _ZEROS
    # From the first character that is no digit on a high bit may be a carry.
    others = digits + _OVER_NINE
    others |= digits
    others &= _HIGH_BITS
    sizes = _byte_of((others & -others) >> np.uint64(7))
    if np.count_nonzero(others) < len(others):
        sizes[others == 0] = _WORD
    if where is not None:
        sizes *= where
    digits <<= ((_WORD - sizes) << 3).view(np.uint64)
    # Two digits of each two bytes, four of each four, and eight: Daniel Lemire, "Quickly parsing eight digits".
    seconds = digits >> np.uint64(8)
    digits *= np.uint64(10)
    digits += seconds
    pairs = np.uint64(0x000000FF_000000FF)
    inner = digits >> np.uint64(16)
    inner &= pairs
    inner *= np.uint64(0x00002710_00000001)
    digits &= pairs
    digits *= np.uint64(0x000F4240_00000064)
    digits += inner
    digits >>= np.uint64(32)
    return digits, sizes


def _line_ends(text: bytes) -> _Places:
    """Where the line ends of a text are, whose length is a multiple of eight.

    Where several are within eight bytes, which is in no line of a form, there is one at a place that has none.
    """
    # Eight bytes at a time: there are few of them to be looked at one by one.
    are_ends = (np.frombuffer(text, np.uint8) == ord("\n")).view(np.uint64)
    words = np.flatnonzero(are_ends != 0)
    found = are_ends[words]
    return words * _WORD + _byte_of(found)


def _byte_of(words: _Words) -> _Places:
    """The place of the byte that is 1 in each word that is 0 otherwise; 0 if there is none."""
    return ((words * _PLACES) >> np.uint64(56)).view(np.int64)


def _check_first(first: _Bytes, sizes: _Places, is_negative_integer: _Bools | None) -> None:
    """Refuse numbers that begin with no digit, or with a zero and more digits.

    -0 is refused too: to a parser of JSON it is the integer 0, whatever field it is for.

    Args:
        first: the characters that they begin with, behind the sign.
        sizes: how many digits each has.
        is_negative_integer: which are integers and have a minus; None: none is.
    """
    is_odd = sizes > 1
    if is_negative_integer is not None:
        is_odd |= is_negative_integer
    is_odd &= first == ord("0")
    if np.count_nonzero(sizes) < len(sizes) or np.count_nonzero(is_odd):
        raise _UnlikeError


def _windows(text: bytes, kind: type[_Number]) -> NDArray[_Number]:
    """Of each byte, as many as there are in a number of a kind, from that one on."""
    size = np.dtype(kind).itemsize
    return np.ndarray((len(text) - size + 1,), kind, text, strides=(1,))
