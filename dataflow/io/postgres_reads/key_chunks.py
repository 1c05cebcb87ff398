"""The rows of a table or query in the order of a key, in chunks, each a short transaction of its own.

No snapshot is held, and nothing but a key has to be remembered; so the server may be a standby or behind a pooler, may
be restarted, and its vacuum waits for nobody, however long it takes.  In exchange the rows are not of one moment: each
chunk is as the table was when it was read (`docs/connectors/postgres.md` says what that means).

The server alone compares keys, in the order of their index; here they are texts, of which SQL is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs

from dataflow.errors import InputError
from dataflow.io.postgres_reads import table_rows
from dataflow.io.postgres_reads.connection import (
    TRANSACTION_SETTINGS,
    checked_session,
    connect,
    quoted,
    raw_rows,
)
from dataflow.io.postgres_reads.connection_retries import ConnectionRetries
from dataflow.io.postgres_reads.keys import KeyOrder, literals
from dataflow.io.postgres_reads.row_form import Columns
from dataflow.io.postgres_reads.rows import RowShape, batch_of_rows
from dataflow.io.postgres_reads.table import TableShape
from dataflow.io.postgres_reads.table_rows import RowsSource
from dataflow.source import Source, SourceBatch, SourceReader

#: Of which parts of about equal size are found: keys of so many rows, about.
SAMPLE_ROWS = 10_000
#: What is sampled: ordinary and partitioned tables, and materialized views.
_SAMPLED = {"r", "m", "p"}
_INTEGERS = {20, 21, 23}
#: Behind the bounds of a part: a key, or the first columns of one, as texts.
KeyTexts = tuple[str, ...]
#: The rows above a key up to another one; None: there is no such bound.  Plain data, as it is stored.
KeySplit = tuple[KeyTexts | None, KeyTexts | None]
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {TRANSACTION_SETTINGS}"
_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_index i
    WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND %s::text[] = (
        SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
        LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE k.place <= i.indnkeyatts))
"""
_NEVER_NULL = """
SELECT count(*) = cardinality(%s::text[]) FROM pg_attribute
WHERE attrelid = %s AND attname = ANY(%s) AND attnotnull
"""
_SIZE = """
SELECT coalesce(sum(greatest(relpages, 0)), 0)::int8, coalesce(sum(greatest(reltuples, 0)), 0)::float8
FROM pg_class WHERE relkind <> 'p' AND (oid = %s OR oid IN (SELECT relid FROM pg_partition_tree(%s)))
"""


@attrs.frozen(kw_only=True)
class KeyedRows:
    """A query with its columns and its key, as the server describes them.

    Attributes:
        query: the rows, without an order.
        shape: of the table; None: it is a query.
        columns: of the rows.
        key: those of the key, in order.
        types: names of the types of the key, as SQL.
        places: where the key is among the columns.
    """

    query: str
    shape: TableShape | None
    columns: Columns
    key: Columns
    types: tuple[str, ...]
    places: tuple[int, ...]

    def key_of(self, raw: Sequence[Any]) -> tuple[Any, ...]:
        """The key of a row.

        Args:
            raw: its values, as the server has sent them.
        """
        return tuple(raw[place] for place in self.places)

    @property
    def order(self) -> KeyOrder:
        """The order of the key."""
        return KeyOrder(self.key, is_of_bytes=False)

    def values(self, session: Any, texts: KeyTexts) -> list[str]:
        """A key, or its first columns, as SQL.

        Args:
            session: any.
            texts: of it.
        """
        types = self.types[: len(texts)]
        return [
            f"{literal}::{kind}"
            for literal, kind in zip(literals(session, texts), types, strict=True)
        ]


@attrs.frozen(kw_only=True)
class KeyChunksSource(Source):
    """Reads a table or query in the order of a key; see `ReadFromPostgres` for the arguments.

    Attributes:
        rows: what is read, and what elements are made of it.
        key: its columns; empty: the primary key.
    """

    rows: RowsSource
    key: tuple[str, ...] = ()

    @property
    def element_type(self) -> Any:
        """The row type, or dicts."""
        return self.rows.element_type

    @property
    def input_name(self) -> str:
        """The table, or the query, and the key: a position is one of its values."""
        return f"{self.rows.table} by {', '.join(self.key) or 'its primary key'}"

    @property
    def has_event_times(self) -> bool:
        """Whether it is configured where event times are."""
        return self.rows.has_event_times

    def check(self) -> None:
        """Check that the server answers, and the rows can be read in this order.

        Raises:
            InputError: they cannot.
        """
        with self._session() as session:
            keyed = self.keyed_rows(session)
            RowShape(self.rows.form, keyed.columns, self.rows.table)
            if keyed.shape is not None and keyed.shape.kind in _SAMPLED:
                self._check_unique(session, keyed, keyed.shape)

    def _session(self) -> Any:
        return checked_session(self.rows.dsn, self.rows.table, has_settings=False)

    def keyed_rows(self, session: Any) -> KeyedRows:
        """The query, its columns and its key, as the server describes them now.

        Args:
            session: one of its.

        Raises:
            InputError: it is not there, or has no such key.
        """
        table = self.rows.table
        query, columns = self.rows.query(session, None)
        shape = None if self.rows.is_query else self.rows.shape(session)
        names = self.key or tuple(name for name, _ in (shape.key if shape else ()))
        if not names:
            raise InputError(
                f"{table} has no primary key to be read by",
                hint='name the columns that identify a row: key_chunks=["id"]',
            )
        types = dict(columns)
        if missing := [name for name in names if name not in types]:
            raise InputError(
                f"{table} cannot be read by its column {missing[0]!r}",
                detail=f"the columns that are read are {', '.join(types)}",
                hint="name columns that identify a row, and are not generated: key_chunks=[...]",
            )
        key = tuple((name, types[name]) for name in names)
        shown = "SELECT pg_catalog.format_type(%s, -1)"
        return KeyedRows(
            query=query,
            shape=shape,
            columns=columns,
            key=key,
            types=tuple(session.execute(shown, [oid]).fetchone()[0] for _, oid in key),
            places=tuple([*types].index(name) for name in names),
        )

    def _check_unique(self, session: Any, keyed: KeyedRows, shape: TableShape) -> None:
        names = [name for name, _ in keyed.key]
        if session.execute(_UNIQUE, [shape.oid, names]).fetchone()[0]:
            return
        raise InputError(
            f"{shape.shown} has no unique index with exactly the columns {', '.join(names)}, in this order",
            detail="each chunk would sort what is left of the table, and rows with equal keys would be lost between "
            "two chunks",
            hint=f"CREATE UNIQUE INDEX CONCURRENTLY ON {shape.sql_name} ({', '.join(map(quoted, names))}); or name "
            "the columns of one that is there",
        )

    def splits(self, desired: int) -> Sequence[KeySplit]:
        """Ranges of keys, with about as many rows each: found by a sample of a table, else of integers alone.

        Raises:
            InputError: a row has no key.
        """
        with self._session() as session:
            keyed = self.keyed_rows(session)
            session.execute(_BEGIN)
            self._check_null(session, keyed)
            bounds: list[KeyTexts | None] = [None]
            if keyed.shape is not None and keyed.shape.kind in _SAMPLED:
                bounds += _sampled_bounds(session, keyed, keyed.shape, desired)
            elif keyed.key[0][1] in _INTEGERS:
                bounds += _even_bounds(session, keyed, desired)
        return list(pairwise([*bounds, None]))

    def _check_null(self, session: Any, keyed: KeyedRows) -> None:
        names = [name for name, _ in keyed.key]
        if keyed.shape is not None:
            answer = session.execute(_NEVER_NULL, [names, keyed.shape.oid, names])
            if answer.fetchone()[0]:
                return
        is_null = " OR ".join(f"{quoted(name)} IS NULL" for name in names)
        query = f"SELECT FROM ({keyed.query}) AS q WHERE {is_null} LIMIT 1"
        if raw_rows(session, query):
            raise self.no_key(", ".join(names), "NULL in a column of it")

    def no_key(self, names: str, what: str) -> InputError:
        """The error about columns that do not identify a row.

        Args:
            names: of the columns.
            what: was found.
        """
        return InputError(
            f"{self.rows.table} cannot be read in chunks by {names}: a row has {what}",
            detail="rows behind it would be lost between two chunks",
            hint="name columns that identify a row, and are never NULL: key_chunks=[...]",
        )

    def open(self, split: KeySplit, position: KeyTexts | None, *, fence: int) -> KeyChunksReader:
        """Read a part behind a key."""
        return KeyChunksReader(self, split, position)


def _sampled_bounds(
    session: Any, keyed: KeyedRows, shape: TableShape, desired: int
) -> list[KeyTexts]:
    """Keys between parts that have about as many rows each, whatever the keys are."""
    pages, rows = session.execute(_SIZE, [shape.oid, shape.oid]).fetchone()
    parts = min(desired, pages // table_rows.PART_PAGES_MIN)
    if parts < 2:
        return []
    names = ", ".join(quoted(name) for name, _ in keyed.key)
    percent = min(100.0, 100 * SAMPLE_ROWS / max(rows, 1))
    sampled = raw_rows(
        session,
        f"SELECT {names} FROM {shape.sql_name} TABLESAMPLE SYSTEM ({percent}) ORDER BY {keyed.order}",  # noqa: S608 - names are quoted
    )
    places = [len(sampled) * part // parts for part in range(1, parts)]
    # Of few rows some are the same.
    return [texts_of(sampled[place]) for place in dict.fromkeys(places) if place < len(sampled)]


def _even_bounds(session: Any, keyed: KeyedRows, desired: int) -> list[KeyTexts]:
    """Integers that divide those between the least and the greatest one."""
    name = quoted(keyed.key[0][0])
    ((least, greatest),) = raw_rows(
        session,
        f"SELECT min({name}), max({name}) FROM ({keyed.query}) AS q",  # noqa: S608 - names are quoted
    )
    if least is None:
        return []
    start, width = int(least), int(greatest) - int(least)
    bounds = {start + width * part // desired for part in range(1, desired)}
    return [(str(each),) for each in sorted(bounds)]


def texts_of(raw: Sequence[bytes]) -> KeyTexts:
    """A key as texts.

    Args:
        raw: as the server has sent it.
    """
    return tuple(each.decode("utf-8") for each in raw)


class KeyChunksReader(SourceReader):
    """Reads a part, a chunk at a time; while the server is away, there is nothing to read.

    Args:
        source: the source.
        split: the part.
        position: the key of the last row that was read before; None: none was.
    """

    def __init__(self, source: KeyChunksSource, split: KeySplit, position: KeyTexts | None) -> None:
        self._source, self._split, self._position = source, split, position
        self._session: Any = None
        self._keyed: KeyedRows | None = None
        self._rows: RowShape | None = None
        self._retries = ConnectionRetries(source.rows.table, is_known=position is not None)
        self._is_finished = False

    def read(self, max_records: int) -> SourceBatch:
        """The next chunk.

        Raises:
            InputError: the server refuses, or the key does not identify a row.
        """
        if self._is_finished or self._retries.is_pausing:
            return self._batch([])
        try:
            taken = self._chunk(max_records)
            self._retries.succeeded()
        except InputError:
            self.close()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised there, unless another try may help
            self.close()
            self._retries.failed(error)
            taken = []
        return self._batch(taken)

    def _chunk(self, max_records: int) -> list[tuple[Any, ...]]:
        if self._session is None:
            self._session = connect(self._source.rows.dsn, has_settings=False)
            self._keyed = self._source.keyed_rows(self._session)
            self._rows = RowShape(
                self._source.rows.form, self._keyed.columns, self._source.rows.table
            )
        assert self._keyed is not None
        self._session.execute(_BEGIN.encode())
        # One more shows whether there are others, and whether its key is another one.
        taken = raw_rows(self._session, self._query(self._keyed, max_records + 1))
        self._session.execute(b"COMMIT")
        self._check_keys(self._keyed, taken)
        if len(taken) <= max_records:
            self._is_finished = True
            self.close()
        taken = taken[:max_records]
        if taken:
            self._position = texts_of(self._keyed.key_of(taken[-1]))
        return taken

    def _query(self, keyed: KeyedRows, rows_max: int) -> str:
        start, end = self._split
        above = self._position or start
        conditions = [
            keyed.order.compared(how, keyed.values(self._session, bound))
            for how, bound in ((">", above), ("<=", end))
            if bound is not None
        ]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        names = ", ".join(quoted(name) for name, _ in keyed.columns)
        return f"SELECT {names} FROM ({keyed.query}) AS q {where} ORDER BY {keyed.order} LIMIT {rows_max}"  # noqa: S608 - names are quoted

    def _check_keys(self, keyed: KeyedRows, taken: Sequence[tuple[Any, ...]]) -> None:
        keys = [keyed.key_of(raw) for raw in taken]
        names = ", ".join(name for name, _ in keyed.key)
        if any(None in key for key in keys):
            raise self._source.no_key(names, "NULL in a column of it")
        if twice := next((key for key, following in pairwise(keys) if key == following), None):
            raise self._source.no_key(names, f"the same key as another, {texts_of(twice)}")

    def _batch(self, taken: Sequence[tuple[Any, ...]]) -> SourceBatch:
        found = batch_of_rows(self._rows, taken, self._position, is_finished=self._is_finished)
        return attrs.evolve(found, outage=self._retries.outage)

    def close(self) -> None:
        """End the session.  Idempotent."""
        if self._session is not None:
            self._session.close()
        self._session = None
