"""RowChanges: rows that are emitted and retracted, of a table with a key.

Emissions and retractions form a multiset of rows, in which a key has at most one row, since a table with a key can
store only one.  Two rows of one key, for example of two groups, are refused.  Otherwise the row that came last would be
shown, and the retraction of one of them would delete the other one too.

**Invariant:** any changes in any order leave the rows of the multiset, or are refused.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dataflow.errors import TableConflictError
from dataflow.table import Row, RowChange, TableSpec, TableWrite
from runners.core.tables.kinds import hashable


class RowChanges:
    """Collects changes of one table; an emission and its retraction leave nothing.

    Args:
        table: has a key.
    """

    def __init__(self, table: TableSpec) -> None:
        self._table, self._indexes = table, table.key_indexes
        #: By key: the rows to delete and the rows to add, each by its comparable form.
        self._changes: dict[Row, tuple[dict[Row, Row], dict[Row, Row]]] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, rows: Iterable[Row], signs: Iterable[int]) -> None:
        """Add rows that are emitted, +1, or retracted, -1.

        Args:
            rows: in the order of the table's columns.
            signs: of the rows.

        Raises:
            TableConflictError: a row is emitted twice.
        """
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
        """Add the changes of a later write."""
        for before, after in changes:
            if before is not None:
                self.add([before], [-1])
            if after is not None:
                self.add([after], [+1])

    def net(self) -> list[RowChange]:
        """The net changes.

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
    """The form of a row in which rows are equal if a table cannot distinguish them."""
    # Only NaN is not equal to itself.
    found = [_NAN if value != value else value for value in row]  # noqa: PLR0124 - true of NaN alone
    if not _CONTAINERS.isdisjoint(map(type, row)):
        return tuple([hashable(value) if type(value) in _CONTAINERS else value for value in found])
    return tuple(found)


_NAN = "NaN", "is not equal to itself"
_CONTAINERS = frozenset((dict, list))


def applied(
    rows: Mapping[Any, Row], writes: Sequence[TableWrite]
) -> Iterator[tuple[Row, Row | None]]:
    """The rows that writes to a table change, by key: the last row of each, or None if it is deleted.

    Args:
        rows: of the table, by key.
        writes: in order.

    Raises:
        TableConflictError: a row would be added beside another one of its key.
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
                present = current(key)
                if present is not None and comparable(present) == comparable(before):
                    found[key] = None
        for _, after in write.changes:
            if after is not None:
                key = tuple([after[index] for index in indexes])
                present = current(key)
                if present is not None:
                    raise _conflict(write.table, present, after)
                found[key] = after
    return iter(found.items())


def _conflict(table: TableSpec, one: Row, other: Row) -> TableConflictError:
    return conflict(table.name, f"key ({', '.join(table.key)}): {one!r} and {other!r}")


def conflict(table: str, detail: str) -> TableConflictError:
    """The error for two rows of one key.

    Args:
        table: its name.
        detail: the key and the rows.
    """
    return TableConflictError(
        f"two results have the same key in table {table}",
        detail=detail,
        hint="give the table a key that tells results apart (what they are grouped by, and the window), or group them "
        "by the table's key before; mark code that returns something else each time with df.nondeterministic; "
        "where new code makes other rows of the same results, write them to a table of another name",
    )
