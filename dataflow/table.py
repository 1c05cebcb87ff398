"""The writes that a table sink asks a store for: values, no SQL.

`TableSpec` describes a user's table, `TableWrite` the net effect of one bundle on it.
Stores and the direct runner both apply `TableWrite`, so retractions mean the same everywhere.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

#: Python types a column may have.  A ``datetime`` must be aware; what is stored is the instant, read back in UTC.
ColumnType = type[int] | type[float] | type[str] | type[bool] | type[bytes] | type[datetime]
Row = tuple[Any, ...]
#: A row that is retracted, and the row that is emitted in its place; either may be missing, and both have one key.
RowChange = tuple[Row | None, Row | None]


@attrs.frozen(kw_only=True)
class TableSpec:
    """A table of results: its name, its columns in order, and the columns that identify a row.

    Attributes:
        name: may be ``schema.table``.
        key: with a key, a row replaces the row of the same key, and a retraction deletes the row that was emitted;
            without one, rows are only ever added.
        is_shared: whether other jobs may write to it too; not a part of the table's identity.
    """

    name: str
    columns: Mapping[str, ColumnType]
    key: tuple[str, ...] = ()
    is_shared: bool = attrs.field(default=False, eq=False)

    @property
    def key_indexes(self) -> tuple[int, ...]:
        """Positions of the key's columns among ``columns``."""
        names = list(self.columns)
        return tuple(names.index(name) for name in self.key)


@attrs.frozen(kw_only=True)
class TableWrite:
    """The net effect of a bundle on one table; rows have the order of ``table.columns``.

    Keyed table: ``upserts`` replace the row of their key, and each key comes once.  Rows that can be retracted are not
    written so, but as ``changes``: a row is deleted only if all of it is as it was emitted, and one is added only where
    there is none of its key.  A write has either ``upserts`` or ``changes``.
    Table without a key: only ``inserts``.
    """

    table: TableSpec
    upserts: Sequence[Row] = ()
    changes: Sequence[RowChange] = ()
    inserts: Sequence[Row] = ()
