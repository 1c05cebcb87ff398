"""The shape of a table, looked up before it is read, and checks of it: columns, key, replica identity, rights."""

from typing import Any

import attrs

from dataflow.errors import InputError
from dataflow.io.postgres_reads.connection import error_code, is_lost, quoted
from dataflow.io.postgres_reads.row_form import Columns
from dataflow.io.postgres_reads.values import ORDERED_TYPES, TEXT_TYPES

_TABLE = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relreplident::text, c.relpages,
       has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT attname, atttypid::int8 FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_KEY = """
SELECT a.attname, a.atttypid::int8
FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisprimary ORDER BY k.place
"""


@attrs.frozen(kw_only=True)
class TableShape:
    """A table as the server describes it.

    Attributes:
        oid: its number, which no other table has.
        kind: of `pg_class`: ``r`` is an ordinary table.
        identity: of `pg_class`: ``f`` is REPLICA IDENTITY FULL.
        pages: how many blocks it had when the server last counted.
        columns: those that are not generated.
        key: the primary key; empty: it has none.
    """

    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    pages: int
    columns: Columns
    key: Columns

    @property
    def sql_name(self) -> str:
        """Its name as SQL has it."""
        return quoted(self.schema, self.name)

    @property
    def shown(self) -> str:
        """Its name as people write it."""
        return f"{self.schema}.{self.name}"


def table_shape(connection: Any, table: str) -> TableShape:
    """Describe a table.

    Args:
        connection: a session.
        table: its name, as SQL has it.

    Raises:
        InputError: there is none, or it may not be read.
    """
    try:
        found = connection.execute(_TABLE, [table]).fetchone()
    except Exception as error:
        if error_code(error) is None or is_lost(error):
            raise
        raise InputError(f"{table!r} is no name of a table", detail=str(error).strip()) from None
    if found is None:
        raise InputError(
            f"there is no table {table!r}",
            detail=f"in the database {connection.info.dbname!r} at {connection.info.host or 'its socket'}",
            hint="check the name, its schema (schema.table) and the dsn; names with capitals are quoted: '\"Orders\"'",
        )
    oid, schema, name, kind, identity, pages, may_read = found
    if not may_read:
        raise InputError(
            f"the table {schema}.{name} may not be read by {connection.info.user!r}",
            hint=f"GRANT SELECT ON {quoted(schema, name)} TO {quoted(connection.info.user)}",
        )
    return TableShape(
        oid=oid,
        schema=schema,
        name=name,
        kind=kind,
        identity=identity,
        pages=pages,
        columns=tuple(connection.execute(_COLUMNS, [oid]).fetchall()),
        key=tuple(connection.execute(_KEY, [oid]).fetchall()),
    )


def check_for_changes(connection: Any, shape: TableShape, *, table: int | None = None) -> None:
    """Check that changes of a table can be followed.

    Args:
        connection: a session.
        shape: of the table.
        table: the number of the table that was read before; None: none was.

    Raises:
        InputError: they cannot; says what to do.
    """
    if table is not None and table != shape.oid:
        raise InputError(
            f"{shape.shown} is another table than the one that was read",
            detail=f"it was the table with the number {table} in pg_class, and is {shape.oid}; "
            "it was made anew, or renamed",
            hint="begin anew with another slot and a job of another name; or give the table its name again",
        )
    (level,) = connection.execute("SELECT current_setting('wal_level')").fetchone()
    if level != "logical":
        raise InputError(
            "the Postgres server writes too little into its log to follow changes",
            detail=f"wal_level is {level!r}",
            hint="ALTER SYSTEM SET wal_level = 'logical', and restart the server",
        )
    if shape.kind != "r":
        raise InputError(
            f"{shape.shown} is no ordinary table, and its changes cannot be followed",
            detail=f"its relkind is {shape.kind!r}",
            hint="read the changes of the tables behind it: a view's tables, a partitioned table's partitions",
        )
    if shape.identity != "f":
        raise InputError(
            f"the server does not log the old rows of {shape.shown}, which are needed to retract them",
            detail=f"its replica identity is {shape.identity!r} (pg_class.relreplident)",
            hint=f"ALTER TABLE {shape.sql_name} REPLICA IDENTITY FULL",
        )
    if not shape.key:
        raise InputError(
            f"{shape.shown} has no primary key, without which its first copy could not be continued",
            hint=f"ALTER TABLE {shape.sql_name} ADD PRIMARY KEY (...)",
        )
    if wrong := [name for name, oid in shape.key if oid not in ORDERED_TYPES | TEXT_TYPES]:
        raise InputError(
            f"the primary key of {shape.shown} has the column {wrong[0]!r}, of a type whose order is the server's own",
            hint="let the key have numbers, texts, uuids, dates or times; not enums, char(n) or floats",
        )
