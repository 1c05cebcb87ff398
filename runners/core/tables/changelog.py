"""Result tables as values: the meaning of a `TableWrite`, and which rows fit their table.

The direct runner and every store adapter use these functions, so a retraction means the same everywhere, and a row that
does not fit is refused with the same error before any transaction starts.

**Invariant:** `apply_table_write` makes all changes of the write, or, when it raises, none.

This module knows no SQL.  Rows must still fit into Postgres columns, because a pipeline must not start failing when it
moves from a test in memory to a server.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import NoneType
from typing import Any

from dataflow.errors import TableRowError, TimeError
from dataflow.table import ColumnType, Row, TableSpec, TableWrite, element_type, type_name
from runners.core.tables.columns import TableColumns
from runners.core.tables.kinds import kind_of, size_of
from runners.core.tables.row_changes import applied
from runners.core.tables.values import as_stored
from windowing.timestamps import to_timestamp_us

#: The rows of a table: by key tuple, or by insertion number, which grows, where the table has no key.
Rows = dict[Row | int, Row]

#: The most bytes that the values of a key may have together: an entry of a Postgres index has at most 2,704 bytes.
KEY_BYTES_MAX = 2_000

#: The most bytes that a text, or bytes, may have in a row; a Postgres field, or message, has at most a gigabyte.
VALUE_BYTES_MAX = 256 << 20

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_UTF8_BYTES_MAX = 4


class CheckedRows(list[Row]):
    """Rows that were found to fit their table, each key once, so that nobody has to look at them again.

    Args:
        table: the table.
        rows: in the order of its columns.
    """

    def __init__(self, table: TableSpec, rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self.table = table


def apply_table_write(rows: Rows, write: TableWrite) -> None:
    """Bring ``rows`` up to date with the net effect of one bundle.

    Repeating a write to a keyed table changes nothing; repeating inserts adds them again, so callers apply each bundle
    once.

    Args:
        rows: of the table; changed in place.
        write: the net effect.

    Raises:
        TableRowError: see `check_write`; ``rows`` is unchanged then.
        TableConflictError: a retractable row would be added beside another one of its key; ``rows`` is unchanged then.
    """
    check_write(write)
    if not write.table.key:
        last = next(reversed(rows), -1)
        assert isinstance(last, int)
        # Not the number of rows: those of an outbox go.
        rows.update(enumerate(write.inserts, start=last + 1))
        return
    for key, row in applied(rows, [write]):
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row


def check_write(write: TableWrite) -> None:
    """Check a write, and refuse it if its table cannot take it.

    Raises:
        TableRowError: a row or key does not fit (`check_rows`), the same key is written twice, or
            the write does not suit the table (upserts or changes without a key, inserts with one, or both).
    """
    table = write.table
    if not write.changes and _are_checked(table, write.upserts or write.inserts):
        return
    if table.key and write.inserts:
        raise _misuse(table, "plain inserts into a table with a key", "write upserts")
    if write.upserts and write.changes:
        raise _misuse(table, "upserts beside changes", "write them one after the other")
    if not table.key and (write.upserts or write.changes):
        raise _misuse(
            table,
            "upserts or changes, but the table has no key to find rows by",
            "give the table a key, or do not send it retractions",
        )
    check_rows(table, write.inserts)
    check_rows(table, write.upserts)
    for rows in zip(*write.changes, strict=True):
        check_rows(table, [row for row in rows if row is not None])
    if table.key:
        _check_keys_once(write)


def _are_checked(table: TableSpec, rows: Sequence[Row]) -> bool:
    """Whether rows are known to fit a table, each key once."""
    return isinstance(rows, TableColumns | CheckedRows) and rows.table == table


def check_rows(table: TableSpec, rows: Sequence[Row]) -> None:
    """Check rows, and refuse those that do not fit the table, naming table, column and value.

    A column takes values of its own type and None; a float column also takes ints that a float can represent exactly.
    A key takes neither None nor NaN, because neither equals itself.

    Args:
        table: the table.
        rows: in the order of its columns.

    Raises:
        TableRowError: a row has another number of values than the table has columns, or a value
            does not fit its column, or a key has more than `KEY_BYTES_MAX` bytes.
    """
    _check_columns(table, table.columns, rows)
    _check_key_sizes(table, rows)


def checked(table: TableSpec, rows: Sequence[Row]) -> Sequence[Row]:
    """Rows as they are stored; refuses those that do not fit the table.

    Args:
        table: the table.
        rows: in the order of its columns; a key may come several times.

    Raises:
        TableRowError: as `check_rows`.
    """
    if not _fit_as_they_are(table, rows):
        rows = as_stored(table, rows)
        _check_columns(table, table.columns, rows)
    _check_key_sizes(table, rows)
    return rows


def _fit_as_they_are(table: TableSpec, rows: Sequence[Row]) -> bool:
    """Whether the values of rows certainly fit, and are stored as they are."""
    if set(map(len, rows)) != {len(table.columns)}:
        return False
    columns = zip(table.columns.items(), zip(*rows, strict=True), strict=True)
    return all(_all_fit(kind, values, is_key=name in table.key) for (name, kind), values in columns)


def _check_keys_once(write: TableWrite) -> None:
    """Check that each key comes once per bundle: a statement has no order, so a second row of a key has no meaning."""
    key_indexes = write.table.key_indexes
    after = [row for _, row in write.changes if row is not None]
    seen = {tuple(row[index] for index in key_indexes) for row in (*write.upserts, *after)}
    if len(seen) != len(write.upserts) + len(after):
        raise _misuse(
            write.table,
            "the same key more than once in one bundle",
            "fold the changes of a key into one before writing",
        )


def _check_columns(
    table: TableSpec, columns: Mapping[str, ColumnType], rows: Sequence[Row]
) -> None:
    if not rows:
        return
    if set(map(len, rows)) != {len(columns)}:
        wrong = next(row for row in rows if len(row) != len(columns))
        raise TableRowError(
            f"a row does not fit table {table.name}",
            detail=f"it has {len(wrong)} values, not {len(columns)} ({', '.join(columns)}): "
            f"{_shown(wrong)}",
            hint="return one value per column, in the order of the columns",
        )
    for (name, kind), values in zip(columns.items(), zip(*rows, strict=True), strict=True):
        is_key = name in table.key
        if not _all_fit(kind, values, is_key=is_key):
            _refuse_first_misfit(table, name, kind, values)


def _check_key_sizes(table: TableSpec, rows: Sequence[Row]) -> None:
    long = [table.key_indexes[at] for at, name in enumerate(table.key) if _is_long(table, name)]
    kinds = list(table.columns.values())
    chars_max = sum(max((size_of(kinds[at], row[at]) for row in rows), default=0) for at in long)
    if chars_max * _UTF8_BYTES_MAX <= KEY_BYTES_MAX:
        return
    for row in rows:
        size = sum(_size_bytes(row[index]) for index in long)
        if size > KEY_BYTES_MAX:
            raise TableRowError(
                f"a row does not fit table {table.name}",
                detail=f"its key ({', '.join(table.key)}) has {size:,} bytes and may have "
                f"{KEY_BYTES_MAX:,}: {_shown(row)}",
                hint="leave what is long out of the key, or use its hash, e.g. hashlib.sha256",
            )


def _is_long(table: TableSpec, column: str) -> bool:
    return table.columns[column] in (str, bytes, Decimal)


def _size_bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else size_of(Decimal, value)


def _all_fit(kind: ColumnType, values: Sequence[Any], *, is_key: bool) -> bool:
    """Whether a column certainly fits, without a call per value; False means "look closer"."""
    types = set(map(type, values))
    if NoneType in types and not is_key:
        types.discard(NoneType)
        values = [value for value in values if value is not None]
    if not values:
        return True
    if types != {kind}:
        return False
    if kind is int:
        return bool(min(values) >= _INT64_MIN and max(values) <= _INT64_MAX)
    if kind is str:
        text = "".join(values)
        is_short = len(text) * _UTF8_BYTES_MAX <= VALUE_BYTES_MAX
        return is_short and "\0" not in text and (text.isascii() or _is_encodable(text))
    if kind is float:
        return not is_key
    if kind is bytes:
        return sum(map(len, values)) <= VALUE_BYTES_MAX
    if kind is datetime:
        return all(value.tzinfo is UTC for value in values)
    return kind is bool


def _refuse_first_misfit(
    table: TableSpec, name: str, kind: ColumnType, values: Sequence[Any]
) -> None:
    for value in values:
        reason = _misfit(kind, value, is_key=name in table.key)
        if reason:
            what, hint = reason
            raise TableRowError(
                f"a row does not fit table {table.name}",
                detail=f"column {name} ({type_name(kind)}) holds {_shown(value)}, {what}",
                hint=hint,
            )


def _misfit(kind: ColumnType, value: Any, *, is_key: bool) -> tuple[str, str] | None:
    """Why one value does not fit, and what to do; None when it does."""
    if value is None:
        return ("but a key has no nulls", "fill the key before writing") if is_key else None
    if kind is float:
        return _misfit_float(value, is_key=is_key)
    element = element_type(kind)
    if element is not None:
        return _misfit_array(kind, element, value)
    other = kind_of(kind)
    if other is not None:
        if is_key and value != value:  # noqa: PLR0124 - true of NaN alone
            return "but NaN identifies no row", "choose a key that is never NaN"
        return other.misfit(value) or _misfit_long(kind, value)
    assert isinstance(kind, type)
    # In Python a bool is an int, but the author of an int column never means one.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return f"a {type(value).__name__}", f"convert it to {kind.__name__}, or change the column"
    if isinstance(value, str | bytes) and (too_long := _misfit_size(value)):
        return too_long
    if isinstance(value, str):
        return _misfit_str(value)
    if isinstance(value, datetime):
        return _misfit_datetime(value)
    if kind is int and not _INT64_MIN <= int(value) <= _INT64_MAX:
        return "which is not a 64-bit integer", "use a float or str column for it"
    return None


def _misfit_array(kind: ColumnType, element: Any, value: Any) -> tuple[str, str] | None:
    if not isinstance(value, list | tuple):
        return f"a {type(value).__name__}", f"convert it to {type_name(kind)}, or change the column"
    for each in value:
        reason = _misfit(element, each, is_key=False)
        if reason:
            return f"in which {_shown(each)} is {reason[0]}", reason[1]
    return _misfit_long(kind, value)


def _misfit_long(kind: ColumnType, value: Any) -> tuple[str, str] | None:
    size = size_of(kind, value) * _UTF8_BYTES_MAX
    if size <= VALUE_BYTES_MAX:
        return None
    return f"which may have {size:,} bytes, and more than {VALUE_BYTES_MAX:,}", _TOO_LONG


def _misfit_float(value: Any, *, is_key: bool) -> tuple[str, str] | None:
    if isinstance(value, bool) or not isinstance(value, float | int):
        return f"a {type(value).__name__}", "convert it to float, or change the column"
    try:
        number = float(value)
    except OverflowError:
        return "which no float can hold", "use a str column for it"
    if isinstance(value, int) and number != value:
        return "which a float cannot hold exactly", "use an int column, or round it first"
    if is_key and number != number:  # noqa: PLR0124 - NaN is the one value unequal to itself
        return "but NaN identifies no row", "choose a key that is never NaN"
    return None


def _misfit_size(value: str | bytes) -> tuple[str, str] | None:
    size = len(value)
    if size * _UTF8_BYTES_MAX > VALUE_BYTES_MAX:
        size = _size_bytes(value) if isinstance(value, bytes) or _is_encodable(value) else size
    if size <= VALUE_BYTES_MAX:
        return None
    return f"which has {size:,} bytes and may have {VALUE_BYTES_MAX:,}", _TOO_LONG


_TOO_LONG = "write what is so long to a file, and its name to the table"


def _misfit_str(value: str) -> tuple[str, str] | None:
    if "\0" in value:
        return "which contains a NUL character", "remove it, or use a bytes column"
    if not _is_encodable(value):
        return "which contains a lone surrogate and so is not Unicode text", (
            "decode the input strictly, or use a bytes column"
        )
    return None


def _misfit_datetime(value: datetime) -> tuple[str, str] | None:
    if value.utcoffset() is None:
        return "which has no time zone, so it names no instant", (
            "give the zone that is meant, e.g. value.replace(tzinfo=datetime.UTC)"
        )
    try:
        to_timestamp_us(value)
    except TimeError:
        return "which is outside the years 1 to 9999 in UTC", "clip it, or use a str column"
    return None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    """A value for an error message: short, and printable even where the value is not text."""
    try:
        text = ascii(value)
    except ValueError:  # Python does not print every integer
        text = f"a {type(value).__name__} with thousands of digits"
    length_max = 120
    return text if len(text) <= length_max else text[:length_max] + "..."


def _misuse(table: TableSpec, what: str, hint: str) -> TableRowError:
    return TableRowError(
        f"a write does not suit table {table.name}", detail=f"it contains {what}", hint=hint
    )
