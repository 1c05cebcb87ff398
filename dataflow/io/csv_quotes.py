"""QuoteScan: which line ends of a CSV file end a record, and which belong to a quoted field.

It treats quotes as Python's `csv` module does, without ``strict``: a quote opens a field only at its beginning, a
doubled one in a quoted field is a character, and what follows the closing one is the field's.  So a malformed record
has an end, and where it is does not depend on where a file is divided.
"""

import re
from enum import Enum, auto

import numpy as np

_QUOTE, _SEPARATORS = ord('"'), b",\r\n"
_SEPARATOR = re.compile(rb"[,\r\n]")
_AROUND = np.zeros(256, bool)
_AROUND[list(b',\r\n"')] = True


class _At(Enum):
    """State of the scan: where in a field, or in its quotes, the next byte is."""

    FIELD_START = auto()
    PLAIN = auto()
    QUOTED = auto()
    #: ... behind a quote in a quoted field, which closes it, or is the first of two.
    BEHIND_QUOTE = auto()


class QuoteScan:
    """Passes over a file from the beginning of a record on, in pieces of any size."""

    def __init__(self) -> None:
        self._at = _At.FIELD_START

    @property
    def is_in_quotes(self) -> bool:
        """Whether a line end here would belong to a field."""
        return self._at is _At.QUOTED

    def pass_over(self, piece: bytes) -> None:
        """Take in the next bytes."""
        if not piece:
            return
        if self._at is _At.BEHIND_QUOTE:
            self._step(piece[:1])
            piece = piece[1:]
        if b'"' not in piece:
            self._pass_over_plain(piece)
        elif not self._pass_over_regular(piece):
            self._step(piece)

    def _pass_over_plain(self, piece: bytes) -> None:
        if piece and self._at is not _At.QUOTED:
            self._at = _At.FIELD_START if piece[-1] in _SEPARATORS else _At.PLAIN

    def _pass_over_regular(self, piece: bytes) -> bool:
        """Do what `pass_over` does, but quickly, if every quote opens or closes a field, or is one of two.

        Returns whether that was so.
        """
        data = np.frombuffer(piece, np.uint8)
        quotes = np.flatnonzero(data == _QUOTE)
        is_open = self._at is _At.QUOTED
        opening, closing = quotes[is_open::2], quotes[1 - is_open :: 2]
        if len(opening) and opening[0] == 0:
            if self._at is not _At.FIELD_START:
                return False
            opening = opening[1:]
        is_last = len(closing) > 0 and closing[-1] == len(piece) - 1
        inner = closing[:-1] if is_last else closing
        if not (_AROUND[data[opening - 1]].all() and _AROUND[data[inner + 1]].all()):
            return False
        if is_open ^ bool(len(quotes) % 2):
            self._at = _At.QUOTED
        elif is_last:
            self._at = _At.BEHIND_QUOTE
        else:
            self._at = _At.FIELD_START if piece[-1] in _SEPARATORS else _At.PLAIN
        return True

    def _step(self, piece: bytes) -> None:
        """Field by field."""
        place, size = 0, len(piece)
        while place < size:
            if self._at is _At.QUOTED:
                found = piece.find(b'"', place)
                if found < 0:
                    return
                self._at, place = _At.BEHIND_QUOTE, found + 1
            elif self._at is _At.PLAIN:
                separator = _SEPARATOR.search(piece, place)
                if separator is None:
                    return
                self._at, place = _At.FIELD_START, separator.end()
            else:
                self._at = self._behind(piece[place])
                place += 1

    def _behind(self, byte: int) -> _At:
        if byte == _QUOTE:
            return _At.QUOTED
        return _At.FIELD_START if byte in _SEPARATORS else _At.PLAIN
