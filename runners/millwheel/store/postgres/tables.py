"""Result tables: the user's own tables, written in the commits of the core.

The only place that composes SQL, because these names are the user's; every name is quoted.
A table is created if it is missing and otherwise verified: it is never altered.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from typing import Any
from uuid import UUID

import attrs
import pyarrow as pa
from psycopg import Connection, sql
from psycopg.rows import dict_row

from dataflow.sink import LANE
from dataflow.table import ColumnType, Row, TableSpec, TableWrite, element_type
from runners.core.tables.columns import TableColumns
from runners.core.tables.kinds import size_of
from runners.core.tables.values import may_be_long
from runners.errors import StoreError, TableMismatchError
from runners.millwheel.store.postgres.arrays import (
    BoolArray,
    ByteaArray,
    DateArray,
    Float8Array,
    Int8Array,
    IntervalArray,
    JsonbArray,
    NumericArray,
    PackedArray,
    TextArray,
    TimeArray,
    TimestamptzArray,
    UuidArray,
    lists_of,
    packed_rows,
)
from runners.millwheel.store.postgres.portions import PORTION_BYTES_MAX, portions
from runners.millwheel.store.postgres.queries import QUERIES

#: The one Postgres type of every column type, as ``format_type`` spells it, and its array.
_TYPES: Mapping[Any, tuple[str, type[PackedArray]]] = {
    int: ("bigint", Int8Array),
    float: ("double precision", Float8Array),
    str: ("text", TextArray),
    bool: ("boolean", BoolArray),
    bytes: ("bytea", ByteaArray),
    datetime: ("timestamp with time zone", TimestamptzArray),
    Decimal: ("numeric", NumericArray),
    date: ("date", DateArray),
    time: ("time without time zone", TimeArray),
    timedelta: ("interval", IntervalArray),
    UUID: ("uuid", UuidArray),
    dict: ("jsonb", JsonbArray),
    list: ("jsonb", JsonbArray),
}
#: Postgres cuts longer names off without an error, which could make two tables one.
_NAME_BYTES_MAX = 63
#: The column of an outbox that orders its rows.
OUTBOX_ID = "dataflow_id"
#: When a row of an outbox came.
OUTBOX_AT = "dataflow_at"

_RESERVED_SCHEMAS = frozenset({"dataflow", "information_schema", "pg_catalog", "pg_toast"})

#: Bytes of a character in UTF-8, at most.
_CHARACTER_BYTES_MAX = 4
#: So many rows are worth the round trips of a COPY: it costs Postgres a third of what other inserts do.
COPY_ROWS_MIN = 5_000


@attrs.frozen
class CopyRows:
    """A ``COPY ... FROM STDIN`` in binary, and all that it reads."""

    query: bytes
    rows: bytes


#: A statement with ``%(name)b`` parameters, and the parameters.
Query = tuple[bytes, Mapping[str, PackedArray]]
Statement = Query | CopyRows


@attrs.frozen(kw_only=True)
class PlacedTable:
    """Where a result table is, and whether this call created it."""

    schema: str
    name: str
    is_created: bool


@attrs.frozen(kw_only=True)
class _TableQueries:
    upsert: bytes
    delete: bytes
    insert: bytes
    copy: bytes
    select: bytes


def ensure_table(connection: Connection[Any], table: TableSpec) -> PlacedTable:
    """Create the table if it is missing, else verify it.  In a transaction that locks the catalog.

    Args:
        connection: to the store.
        table: as the pipeline describes it; without a schema in its name, it is created in the first one of the search
            path.

    Raises:
        TableMismatchError: it exists with other columns, another key, or is no plain durable table.
        StoreError: its name is not a possible one.
    """
    identifier = table_identifier(table)
    quoted_name = identifier.as_string(connection)
    found = connection.execute(QUERIES["find_table"], {"quoted_name": quoted_name}).fetchone()
    if found is not None:
        schema, name, kind, persistence = found
        _refuse_other_kind(table, kind, persistence)
        columns = connection.execute(QUERIES["read_columns"], {"quoted_name": quoted_name})
        shape = columns.fetchall()
        _refuse_other_shape(table, shape)
        if table.is_outbox and all(each != OUTBOX_AT for each, *_ in shape):
            # Of a version that noted no times; its rows wait since now, as far as anybody knows.
            connection.execute(
                sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(identifier, _AT_COLUMN)
            )
        return PlacedTable(schema=schema, name=name, is_created=False)
    schema, name = _split(table.name)
    if schema is None:
        row = connection.execute(QUERIES["current_schema"]).fetchone()
        schema = row[0] if row else None
        if schema is None:
            raise StoreError(
                f"there is no schema to create table {table.name} in",
                detail="no schema of the session's search_path exists",
                hint="name the table schema.table, or set search_path for this role",
            )
    else:
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    connection.execute(_create(sql.Identifier(schema, name), table))
    return PlacedTable(schema=schema, name=name, is_created=True)


def is_name_of(table: TableSpec, schema: str, name: str) -> bool:
    """Whether a table may be this one; a name without a schema fits any, as a missing table cannot be looked up.

    Args:
        table: as a pipeline describes it.
        schema: that in which a table was.
        name: that of this table, without its schema.
    """
    wanted_schema, wanted = _split(table.name)
    return wanted == name and wanted_schema in (None, schema)


def has_rows(connection: Connection[Any], schema: str, name: str) -> bool:
    """Whether a table, which must exist, has a row.

    Args:
        connection: to the store.
        schema: in which the table is.
        name: of the table, without its schema.
    """
    query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(schema, name))
    row = connection.execute(query).fetchone()
    return row is not None and bool(row[0])


def count_rows(connection: Connection[Any], schema: str, name: str) -> int:
    """How many rows a table has, which must exist.

    Args:
        connection: to the store.
        schema: in which the table is.
        name: of the table, without its schema.
    """
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, name))
    row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])


def rows_in_order(
    connection: Connection[Any], schema: str, name: str, count: int | None
) -> list[dict[str, Any]]:
    """Rows of a table by the names of its columns, in the order of its key if it has one.

    Args:
        connection: to the store.
        schema: in which the table is.
        name: of the table, without its schema.
        count: at most so many; None: all.
    """
    table = sql.Identifier(schema, name)
    quoted_name = table.as_string(connection)
    shape = connection.execute(QUERIES["read_columns"], {"quoted_name": quoted_name})
    keys = [sql.Identifier(column) for column, _, is_key in shape if is_key]
    query = sql.SQL("SELECT * FROM {}{}{} LIMIT {}").format(
        table,
        sql.SQL(" ORDER BY " if keys else ""),
        sql.SQL(", ").join(keys),
        sql.Literal(count),
    )
    return connection.cursor(row_factory=dict_row).execute(query).fetchall()


def place_of(connection: Connection[Any], table: TableSpec) -> tuple[str, str] | None:
    """The schema and the name of a table; None if it is not there.

    Args:
        connection: to the store.
        table: as a pipeline describes it.
    """
    quoted_name = table_identifier(table).as_string(connection)
    found = connection.execute(QUERIES["find_table"], {"quoted_name": quoted_name}).fetchone()
    return None if found is None else (found[0], found[1])


def empty_table(connection: Connection[Any], schema: str, name: str) -> None:
    """Delete all rows of a table, at once, however many they are.

    Args:
        connection: to the store; nobody reads the table until its transaction ends.
        schema: in which the table is.
        name: of the table, without its schema.
    """
    connection.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(schema, name)))


def drop_table(connection: Connection[Any], schema: str, name: str) -> None:
    """Drop a result table that a job created; no error if a person already did.

    Args:
        connection: to the store.
        schema: in which the table is.
        name: of the table, without its schema.
    """
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, name)))


class TableStatements:
    """Turns `TableWrite` values into statements, composing each table's SQL once.

    Belongs to one connection, whose encoding quotes the names.
    """

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._queries: dict[Any, _TableQueries] = {}

    def write(self, write: TableWrite, portion_bytes: int = PORTION_BYTES_MAX) -> list[Statement]:
        """Statements for rows that are deleted, replaced and inserted: one each, unless rows are large.

        Args:
            write: rows of one table; of a key, at most one of its rows goes and one comes.
            portion_bytes: rows that take more are divided into several statements.
        """
        table, queries = write.table, self._of(write.table)
        # In key order, two jobs that write the same keys wait for each other in turn instead
        # of deadlocking; the checks made sure that keys of a table can be compared.
        gone = [before for before, _ in write.changes if before is not None]
        come = [after for _, after in write.changes if after is not None]
        statements: list[Statement] = [
            (query, _arrays(table.columns, rows))
            # Where there is a row of the key already, the insert fails.
            for query, found in (
                (queries.delete, gone),
                (queries.insert, come),
                (queries.upsert, write.upserts),
            )
            if found
            for rows in _portions(table, _in_key_order(table, found), portion_bytes)
        ]
        if len(write.inserts) >= COPY_ROWS_MIN:
            kinds, columns = _kinds_and_columns(table.columns, write.inserts)
            statements.append(CopyRows(queries.copy, packed_rows(kinds, columns)))
        else:
            statements += [
                (queries.insert, _arrays(table.columns, rows))
                for rows in _portions(table, write.inserts, portion_bytes)
            ]
        return statements

    def read(self, table: TableSpec) -> bytes:
        """The statement that reads the whole table."""
        return self._of(table).select

    def _of(self, table: TableSpec) -> _TableQueries:
        key = (table.name, tuple(table.columns.items()), table.key)
        queries = self._queries.get(key)
        if queries is None:
            queries = self._queries[key] = self._compose(table)
        return queries

    def _compose(self, table: TableSpec) -> _TableQueries:
        def composed(template: str) -> bytes:
            # The templates are the constants below; every name in them is an identifier object.
            text = sql.SQL(template)
            return text.format(**parts).as_bytes(self._connection)

        names = [sql.Identifier(name) for name in table.columns]
        keys = [sql.Identifier(name) for name in table.key]
        updates = [
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name))
            for name in table.columns
            if name not in table.key
        ]
        action = sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(updates))
        parts: dict[str, sql.Composable] = {
            "table": table_identifier(table),
            "columns": sql.SQL(", ").join(names),
            "rows": _rows(list(table.columns.values())),
            "keys": sql.SQL(", ").join(keys),
            "action": action if updates else sql.SQL("DO NOTHING"),
            "matches": sql.SQL(" AND ").join(
                sql.SQL(
                    "t.{0} = gone.{0}"
                    if name in table.key
                    else "t.{0} IS NOT DISTINCT FROM gone.{0}"
                ).format(sql.Identifier(name))
                for name in table.columns
            ),
        }
        insert = "INSERT INTO {table} ({columns}) SELECT * FROM {rows} AS r"
        return _TableQueries(
            upsert=composed(insert + " ON CONFLICT ({keys}) {action}"),
            delete=composed(
                "DELETE FROM {table} t USING {rows} AS gone ({columns}) WHERE {matches}"
            ),
            insert=composed(insert),
            copy=composed("COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)"),
            select=composed("SELECT {columns} FROM {table}"),
        )


def _rows(kinds: Sequence[ColumnType]) -> sql.Composable:
    """Rows of the parameters, of which each is a column; arrays are texts in it."""
    names = [sql.Identifier(f"c{index}") for index in range(len(kinds))]
    unnest = sql.SQL("unnest({})").format(
        sql.SQL(", ").join(sql.Placeholder(f"c{index}", "b") for index in range(len(kinds)))
    )
    if all(element_type(kind) is None for kind in kinds):
        return unnest
    found = [
        name if element_type(kind) is None else sql.SQL("{}::" + _type(kind)[0]).format(name)
        for name, kind in zip(names, kinds, strict=True)
    ]
    return sql.SQL("(SELECT {} FROM {} AS u ({}))").format(
        sql.SQL(", ").join(found), unnest, sql.SQL(", ").join(names)
    )


def _type(kind: Any) -> tuple[str, type[PackedArray]]:
    """The Postgres type of a column type, and its array."""
    return _known_type(kind)


@lru_cache(maxsize=1_000)
def _known_type(kind: Any) -> tuple[str, type[PackedArray]]:
    element = element_type(kind)
    if element is not None:
        name, inner = _type(element)
        return f"{name}[]", lists_of(inner)
    # Members of an enum are texts.
    return _TYPES.get(kind, _TYPES[str])


def _portions(table: TableSpec, rows: Sequence[Row], portion_bytes: int) -> Iterator[Sequence[Row]]:
    long = [(i, kind) for i, kind in enumerate(table.columns.values()) if may_be_long(kind)]
    if isinstance(rows, TableColumns):
        # The size of columns is known for all rows together, so they are divided evenly.
        count = 1 + sum(array.nbytes for array in rows.arrays) // portion_bytes
        size = -(-len(rows) // count)
        return (rows[start : start + size] for start in range(0, len(rows), max(1, size)))
    size = sum(_CHARACTER_BYTES_MAX * sum([size_of(kind, r[i]) for r in rows]) for i, kind in long)
    if size <= portion_bytes:
        return iter([rows] if rows else [])
    return portions(
        rows,
        lambda row: sum([_CHARACTER_BYTES_MAX * size_of(kind, row[i]) for i, kind in long]),
        portion_bytes,
    )


def _in_key_order(table: TableSpec, rows: Sequence[Row]) -> Sequence[Row]:
    if isinstance(rows, TableColumns):
        return rows.in_key_order()
    return sorted(rows, key=itemgetter(*table.key_indexes))


def _arrays(columns: Mapping[str, ColumnType], rows: Sequence[Row]) -> dict[str, PackedArray]:
    kinds, found = _kinds_and_columns(columns, rows)
    return {
        f"c{index}": kind.of(each) if isinstance(each, Sequence) else kind.of_column(each)
        for index, (kind, each) in enumerate(zip(kinds, found, strict=True))
    }


def _kinds_and_columns(
    columns: Mapping[str, ColumnType], rows: Sequence[Row]
) -> tuple[Sequence[type[PackedArray]], Sequence[pa.Array | Sequence[Any]]]:
    kinds = [_type(kind)[1] for kind in columns.values()]
    if isinstance(rows, TableColumns):
        return kinds, rows.arrays
    return kinds, list(zip(*rows, strict=True))


def _create(identifier: sql.Identifier, table: TableSpec) -> sql.Composed:
    parts = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(_type(kind)[0]))
        for name, kind in table.columns.items()
    ]
    if table.key:
        keys = sql.SQL(", ").join(sql.Identifier(name) for name in table.key)
        parts.append(sql.SQL("PRIMARY KEY ({})").format(keys))
    if table.is_outbox:
        parts.append(
            sql.SQL("{0} bigint GENERATED ALWAYS AS IDENTITY, {2}, PRIMARY KEY ({1}, {0})").format(
                sql.Identifier(OUTBOX_ID), sql.Identifier(LANE), _AT_COLUMN
            )
        )
    return sql.SQL("CREATE TABLE {} ({})").format(identifier, sql.SQL(", ").join(parts))


_AT_COLUMN = sql.SQL("{} timestamptz NOT NULL DEFAULT clock_timestamp()").format(
    sql.Identifier(OUTBOX_AT)
)


def _split(name: str) -> tuple[str | None, str]:
    parts = name.split(".")
    is_possible = len(parts) in {1, 2} and all(
        part and "\0" not in part and len(part.encode(errors="replace")) <= _NAME_BYTES_MAX
        for part in parts
    )
    if not is_possible:
        raise StoreError(
            f"{name!a} is not a table name",
            hint=f"write table or schema.table, each part 1 to {_NAME_BYTES_MAX} bytes long",
        )
    schema = parts[0] if len(parts) == 2 else None
    if schema in _RESERVED_SCHEMAS:
        raise StoreError(
            f"table {name} would lie in a schema that belongs to the system",
            hint="put result tables into a schema of your own, or leave the schema out",
        )
    return schema, parts[-1]


def table_identifier(table: TableSpec) -> sql.Identifier:
    """The quoted name of a table.

    Raises:
        StoreError: it is not a possible one.
    """
    schema, name = _split(table.name)
    return sql.Identifier(name) if schema is None else sql.Identifier(schema, name)


def _refuse_other_kind(table: TableSpec, kind: str, persistence: str) -> None:
    if kind not in {"r", "p"}:
        raise TableMismatchError(
            f"{table.name} exists, but is not a table",
            detail=f"its relkind in pg_class is {kind!r}",
            hint="write to another name",
        )
    if persistence != "p":
        raise TableMismatchError(
            f"table {table.name} is not durable",
            detail="an unlogged table is emptied after a crash, a temporary one with the session",
            hint=f"ALTER TABLE {table.name} SET LOGGED, or write to another table",
        )


def _refuse_other_shape(table: TableSpec, found: Sequence[tuple[str, str, bool]]) -> None:
    columns = {name: type_name for name, type_name, _ in found}
    key = {name for name, _, is_key in found if is_key}
    wanted = {name: _type(kind)[0] for name, kind in table.columns.items()}
    if table.is_outbox and columns.pop(OUTBOX_ID, None) == "bigint":
        columns.pop(OUTBOX_AT, None)
        if columns == wanted:
            return
    if not table.is_outbox and columns == wanted and key == set(table.key):
        return
    raise TableMismatchError(
        f"table {table.name} exists with other columns or another key",
        detail=f"it has {_shape(columns, key)}; "
        f"the pipeline writes {_shape(wanted, set(table.key))}",
        hint="change the pipeline or the table, write to another table, or drop this one",
    )


def _shape(columns: Mapping[str, str], key: set[str]) -> str:
    listed = ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()))
    return f"({listed}) with key ({', '.join(sorted(key))})" if key else f"({listed}) without a key"
