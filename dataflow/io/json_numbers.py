"""Lines of JSON objects that differ in their numbers alone, parsed as CSV, which takes half the time.

A block is taken only if it is certain to be that.  The first line says what all are like: without the characters of
numbers each has to be the same text.  So it is left to look at where these characters are: there has to be one behind
each colon, and any that are not between a colon and what ends its member are behind a blank then, or in front of one,
which no number has.  Whatever departs from it is left to a parser of JSON.
"""

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

#: The characters of numbers; one with an exponent is left to others, as that is a letter of names too.
_OF_NUMBERS = b"-.0123456789"
_MEMBER = rb' *"([A-Za-z_]+)" *: *-?[0-9]+(?:\.[0-9]+)? *'
_FIRST_LINE = re.compile(rb"\{%b(?:,%b)*\} *" % (_MEMBER, _MEMBER))
_NAMES = re.compile(rb'"([A-Za-z_]+)"')
#: Makes CSV of such lines: tabs of colons and last braces, which are blanks in it, and nothing of names and quotes.
_AS_CSV = bytes.maketrans(b":}", b"\t\t")
_NOT_CSV = bytes(set(range(256)) - set(_OF_NUMBERS + b":,} \n"))
#: So many bytes are parsed at once: they stay in the processor's cache.
_PIECE_BYTES = 1 << 21

_TAB, _LINE_FEED, _MINUS, _POINT, _ZERO, _NINE = b"\t\n-.09"

_Bytes = NDArray[np.uint8]


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
    form = first.translate(None, _OF_NUMBERS) + b"\n"
    tables = []
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + _PIECE_BYTES) + 1 or len(block)
        table = _parsed(block[start:end], form, names, types)
        if table is None:
            return None
        tables.append(table)
        start = end
    return pa.concat_tables(tables)


def _parsed(
    piece: bytes, form: bytes, names: list[str], types: Mapping[str, pa.DataType]
) -> pa.Table | None:
    """The columns of some lines; ``form`` is what a line is without the characters of numbers."""
    if not piece.endswith(b"\n"):
        piece += b"\n"
    forms = piece.translate(None, _OF_NUMBERS)
    if forms != form * (len(forms) // len(form)):
        return None
    text = piece.translate(_AS_CSV, _NOT_CSV)
    dense = text.translate(None, b" ") if b" " in form else text
    if not _are_numbers(np.frombuffer(dense, np.uint8)):
        return None
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(text),
            # One piece, on this thread: workers are as many as there are cores.
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=names
            ),
            parse_options=arrow_csv.ParseOptions(quote_char=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[]
            ),
        )
    except pa.ArrowInvalid:
        # A number is too large for its type, or there are two where one should be.
        return None


def _are_numbers(text: _Bytes) -> bool:
    """Whether there is a number behind each colon, and where it begins and has a point it is one of JSON.

    Args:
        text: lines that are known to be alike, as CSV without spaces.
    """
    before, here = text[:-1], text[1:]
    is_number = _is_between(here, _MINUS, _NINE)
    # A tab is of a colon, or of the brace that ends the line.
    if ((before == _TAB) & ~is_number & (here != _LINE_FEED)).any():
        return False
    is_zero, behind = before[1:] == _ZERO, here[1:]
    # To a parser of JSON -0 is the integer 0, whatever field it is for.
    is_odd = _is_between(behind, _ZERO, _NINE) & (before[:-1] == _TAB)
    is_odd |= (behind != _POINT) & (before[:-1] == _MINUS)
    if (is_zero & is_odd).any():
        return False
    points = np.flatnonzero(text == _POINT)
    is_digit = _is_between(text, _ZERO, _NINE)
    return bool((is_digit[points - 1] & is_digit[points + 1]).all())


def _is_between(characters: _Bytes, low: int, high: int) -> NDArray[np.bool_]:
    # What is less than the lowest one is more than all of them, as it wraps around.
    return characters - np.uint8(low) <= high - low
