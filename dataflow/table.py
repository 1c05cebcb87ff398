"""The writes that a table sink asks a store for: values, no SQL.

`TableSpec` describes a user's table, `TableWrite` the net effect of one bundle on it.
Stores and the direct runner both apply `TableWrite`, so retractions mean the same everywhere.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, get_args, get_origin
from uuid import UUID

import attrs

#: Python types a column may have, in tables of `COLUMN_TYPES`; a class of names (`Enum`), or ``list[...]`` of one of
#: these.  A ``datetime`` must be aware; what is stored is the instant, read back in UTC.
ColumnType = type[Any]
#: Those that are classes of their own: an integer of 64 bits, numbers, texts, times; ``dict`` and ``list`` are JSON.
COLUMN_TYPES = (
    int,
    float,
    str,
    bool,
    bytes,
    datetime,
    Decimal,
    date,
    time,
    timedelta,
    UUID,
    dict,
    list,
)
_NO_ELEMENTS = (dict, list)
Row = tuple[Any, ...]
#: A row that is retracted, and the row that is emitted in its place; either may be missing, and both have one key.
RowChange = tuple[Row | None, Row | None]


def element_type(column_type: Any) -> Any:
    """The type of the elements of an array, ``list[...]``; None of other types of columns.

    Args:
        column_type: of the column.
    """
    if type(column_type) is type:
        return None  # Most are, and to ask for an origin takes longer than all else that is asked about a column.
    return get_args(column_type)[0] if get_origin(column_type) is list else None


def is_column_type(column_type: Any) -> bool:
    """Whether a column may be of this type.

    Args:
        column_type: whatever was given for one.
    """
    element = element_type(column_type)
    if element is not None:
        return (
            element not in _NO_ELEMENTS
            and element_type(element) is None
            and is_column_type(element)
        )
    return column_type in COLUMN_TYPES or (
        isinstance(column_type, type) and issubclass(column_type, Enum)
    )


def can_be_in_key(column_type: Any) -> bool:
    """Whether a column of this type may be in the key of a table: JSON and arrays may not.

    Args:
        column_type: of the column.
    """
    return column_type not in _NO_ELEMENTS and element_type(column_type) is None


def type_name(column_type: Any) -> str:
    """The name of a column's type, as one writes it.

    Args:
        column_type: of the column.
    """
    element = element_type(column_type)
    return column_type.__name__ if element is None else f"list[{type_name(element)}]"


@attrs.frozen(kw_only=True)
class TableSpec:
    """A table of results: its name, its columns in order, and the columns that identify a row.

    Attributes:
        name: may be ``schema.table``.
        key: with a key, a row replaces the row of the same key, and a retraction deletes the row that was emitted;
            without one, rows are only ever added.
        is_shared: whether other jobs may write to it too; not a part of the table's identity.
        is_outbox: whether its rows are on their way to a sink (`dataflow.sink`): they have an order then, and go when
            the sink has them.
    """

    name: str
    columns: Mapping[str, ColumnType]
    key: tuple[str, ...] = ()
    is_shared: bool = attrs.field(default=False, eq=False)
    is_outbox: bool = False

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
