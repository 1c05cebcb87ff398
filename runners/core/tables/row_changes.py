"""RowChanges: rows that are said and taken back, of a table whose key says which row is meant.

What is said and taken back is a multiset of rows, in which a key has at most one row: that is what a table with a key
can hold.  Two rows of one key, of two groups say, are refused.  Which of them is shown would depend on who came last,
and when one is taken back, the other would be gone with it.

**Invariant:** any changes in any order leave the rows of the multiset, or are refused.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dataflow.errors import TableConflictError
from dataflow.io.table import Row, RowChange, TableSpec, TableWrite


class RowChanges:
    """Gathers changes of one table; what is said and taken back again leaves nothing.

    Args:
        table: which has a key.
    """

    def __init__(self, table: TableSpec) -> None:
        self._table, self._indexes = table, table.key_indexes
        #: By key: rows that are to go and rows that are to come, as what is compared.
        self._changes: dict[Row, tuple[dict[Row, Row], dict[Row, Row]]] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, rows: Iterable[Row], signs: Iterable[int]) -> None:
        """Rows that are said, +1, and taken back, -1."""
        for row, sign in zip(rows, signs, strict=True):
            key = tuple([row[index] for index in self._indexes])
            gone, come = self._changes.setdefault(key, ({}, {}))
            ours, others = (come, gone) if sign > 0 else (gone, come)
            same = comparable(row)
            if others.pop(same, None) is None:
                if same in ours and sign > 0:
                    raise _conflict(self._table, row, row)
                ours[same] = row

    def take(self, changes: Iterable[RowChange]) -> None:
        """Changes of a write that comes after what is here."""
        for before, after in changes:
            if before is not None:
                self.add([before], [-1])
            if after is not None:
                self.add([after], [+1])

    def net(self) -> list[RowChange]:
        """What is left of all of them.

        Raises:
            TableConflictError: a key has two rows.
        """
        found: list[RowChange] = []
        for gone, come in self._changes.values():
            emitted, retracted = list(come.values()), list(gone.values())
            if len(emitted) > 1:
                raise _conflict(self._table, emitted[0], emitted[1])
            if emitted or retracted:
                found.append(
                    (retracted.pop(0) if retracted else None, emitted[0] if emitted else None)
                )
            found += [(each, None) for each in retracted]
        return found


def comparable(row: Row) -> Row:
    """What is equal for rows that a table cannot tell from each other."""
    # NaN alone is not equal to itself.
    return tuple([_NAN if value != value else value for value in row])  # noqa: PLR0124 - true of NaN alone


_NAN = "NaN", "is not equal to itself"


def applied(
    rows: Mapping[Any, Row], writes: Sequence[TableWrite]
) -> Iterator[tuple[Row, Row | None]]:
    """What the changes of some writes to a table make of its rows, by key: the last row of each, or None.

    Raises:
        TableConflictError: a row would come beside another one of its key.
    """
    found: dict[Row, Row | None] = {}

    def current(key: Row) -> Row | None:
        return found[key] if key in found else rows.get(key)

    for write in writes:
        indexes = write.table.key_indexes
        for row in write.upserts:
            found[tuple([row[index] for index in indexes])] = row
        for before, _ in write.changes:
            if before is not None:
                key = tuple([before[index] for index in indexes])
                held = current(key)
                if held is not None and comparable(held) == comparable(before):
                    found[key] = None
        for _, after in write.changes:
            if after is not None:
                key = tuple([after[index] for index in indexes])
                held = current(key)
                if held is not None:
                    raise _conflict(write.table, held, after)
                found[key] = after
    return iter(found.items())


def _conflict(table: TableSpec, one: Row, other: Row) -> TableConflictError:
    return conflict(table.name, f"key ({', '.join(table.key)}): {one!r} and {other!r}")


def conflict(table: str, detail: str) -> TableConflictError:
    """The error for two rows of one key."""
    return TableConflictError(
        f"two results have the same key in table {table}",
        detail=detail,
        hint="give the table a key that tells results apart (what they are grouped by, and the window), or group them "
        "by the table's key before; mark code that says something else each time with df.nondeterministic; "
        "where new code makes other rows of the same results, write them to a table of another name",
    )
