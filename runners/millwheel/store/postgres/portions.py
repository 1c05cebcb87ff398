"""Portions: rows of one kind as several statements, where together they are more than a message to Postgres can be.

A statement with all its parameters is one message, and the server ends a connection that sends it one of 1 GiB.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

RowT = TypeVar("RowT")

#: The bytes of the rows of one statement, unless it is a single row.
PORTION_BYTES_MAX = 32 << 20


def portions(
    rows: Sequence[RowT], size_of: Callable[[RowT], int], bytes_max: int
) -> Iterator[Sequence[RowT]]:
    """Divide rows, in their order, into as few portions as possible, with at least one row each.

    Args:
        rows: all.
        size_of: how many bytes a row has.
        bytes_max: for each portion, unless it is a single row.
    """
    sizes = list(map(size_of, rows))
    if sum(sizes) <= bytes_max:
        if rows:
            yield rows
        return
    start = portion_bytes = 0
    for index, size in enumerate(sizes):
        if portion_bytes + size > bytes_max and index > start:
            yield rows[start:index]
            start, portion_bytes = index, 0
        portion_bytes += size
    yield rows[start:]
