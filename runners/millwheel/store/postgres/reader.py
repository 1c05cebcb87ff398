"""ReadOnlyStore: statements that only read, as of one moment, for what shows a store and must not change it.

It asks of the server only SELECT on the schema `dataflow`, applies no migration, takes no lock that a commit waits
for, and ends statements that take too long.  Instants come as microseconds since 1970, the infinite ones as the ends
of time.

Thread-safe.
"""

import queue
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs
import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier
from psycopg.types.datetime import TimestamptzLoader

from runners.errors import StoreError, StoreUnreachableError, UnsuitableStoreError
from runners.millwheel.store.port import Store
from runners.millwheel.store.postgres.connection import conninfo_of, describe
from runners.millwheel.store.postgres.queries import load_migrations
from runners.millwheel.store.postgres.store import PostgresStore
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_timestamp_us

_CONNECTIONS = 2
_OPTIONS = (
    "-c default_transaction_read_only=on -c timezone=UTC -c jit=off -c lock_timeout=500 "
    "-c idle_in_transaction_session_timeout=10000"
)
_INFINITE = {b"infinity": MAX_TIMESTAMP_US, b"-infinity": MIN_TIMESTAMP_US}


@attrs.frozen(kw_only=True)
class Statement:
    """A statement that reads.

    Attributes:
        text: SQL, with parameters as ``%(name)s``.
        parameters: by name.
    """

    text: str
    parameters: Mapping[str, object]


@attrs.frozen(kw_only=True)
class FoundRows:
    """What a statement has found.

    Attributes:
        rows: by column; None: not known.
        reason: why not; empty where they are known.
    """

    rows: list[dict[str, Any]] | None
    reason: str = ""


class ReadOnlyStore:
    """A store that is read by few connections, each opened when it is needed.

    Args:
        dsn: libpq connection string or URI; never shown.
        role: to become after the login; None: none.
        statement_timeout_ms: how long a statement may take before the server ends it.
        connect_timeout_s: how long to wait for the server, and for a connection that others use.
    """

    def __init__(
        self,
        dsn: str,
        *,
        role: str | None = None,
        statement_timeout_ms: int = 2_000,
        connect_timeout_s: int = 5,
    ) -> None:
        self._dsn, self._role = dsn, role
        self._statement_timeout_ms, self._connect_timeout_s = (
            statement_timeout_ms,
            connect_timeout_s,
        )
        self._free: queue.LifoQueue[psycopg.Connection[Any] | None] = queue.LifoQueue()
        for _ in range(_CONNECTIONS):
            self._free.put(None)

    def read(self, statements: Mapping[str, Statement]) -> Mapping[str, FoundRows]:
        """What statements find, all as of one moment; one that fails leaves the others as they are.

        Args:
            statements: by a name of the caller's.

        Raises:
            StoreUnreachableError: nobody answers, or the login is refused.
            UnsuitableStoreError: it has no schema, or an older one than this code reads.
        """
        try:
            opened = self._free.get(timeout=self._connect_timeout_s)
        except queue.Empty:
            raise StoreUnreachableError(
                "the store is busy with other reads of this program", detail=describe(self._dsn)
            ) from None
        kept: psycopg.Connection[Any] | None = None
        try:
            if opened is None or opened.closed:
                opened = self._connect()
            found = self._read(opened, statements)
            kept = opened
        except psycopg.OperationalError as error:
            raise self._unreachable(error) from error
        except psycopg.Error as error:
            raise StoreError("the store cannot be read", detail=str(error)) from error
        finally:
            if kept is None and opened is not None:
                opened.close()
            self._free.put(kept)
        return found

    def as_port(self) -> Store:
        """A store whose verbs that read can be used, over a connection of its own; to be closed.

        Raises:
            StoreError: the store cannot be read, or is of an older version.
        """
        # It migrates what is of an older version, so that must not be.
        self.read({})
        options = _OPTIONS if self._role is None else f"{_OPTIONS} -c role={self._role}"
        return PostgresStore(
            make_conninfo(conninfo_of(self._dsn), options=options),
            connect_timeout_s=self._connect_timeout_s,
            statement_timeout_ms=self._statement_timeout_ms,
        )

    def close(self) -> None:
        """Close the connections; reads afterwards open new ones."""
        taken: list[psycopg.Connection[Any] | None] = []
        with suppress(queue.Empty):
            while True:
                taken.append(self._free.get_nowait())
        for opened in taken:
            if opened is not None:
                opened.close()
            self._free.put(None)

    def _read(
        self, opened: psycopg.Connection[Any], statements: Mapping[str, Statement]
    ) -> Mapping[str, FoundRows]:
        opened.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            opened.execute(
                "SELECT set_config('statement_timeout', %s, TRUE)",
                (str(self._statement_timeout_ms),),
            )
            return {name: _rows(opened, each) for name, each in statements.items()}
        finally:
            if not opened.closed:
                opened.execute("ROLLBACK")

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            opened = psycopg.connect(
                conninfo_of(self._dsn),
                autocommit=True,
                connect_timeout=self._connect_timeout_s,
                application_name="dataflow ui",
                options=_OPTIONS,
            )
        except psycopg.OperationalError as error:
            raise self._unreachable(error) from error
        try:
            if self._role is not None:
                opened.execute(SQL("SET ROLE {}").format(Identifier(self._role)))
            opened.adapters.register_loader("timestamptz", _InstantLoader)
            self._check_schema(opened)
        except BaseException:
            opened.close()
            raise
        return opened

    def _check_schema(self, opened: psycopg.Connection[Any]) -> None:
        needed = load_migrations()[-1].version
        found = opened.execute("SELECT to_regclass('dataflow.schema_versions') IS NOT NULL")
        has_schema = (found.fetchone() or (False,))[0]
        version = 0
        if has_schema:
            row = opened.execute("SELECT max(version) FROM dataflow.schema_versions").fetchone()
            version = row[0] if row and row[0] else 0
        if version < needed:
            raise UnsuitableStoreError(
                "the tables of this store are older than this program, or not there",
                detail=f"they are at version {version}, and version {needed} is read: {describe(self._dsn)}",
                hint="what only reads does not change them: dataflow jobs, of this version, does",
            )

    def _unreachable(self, error: psycopg.Error) -> StoreUnreachableError:
        return StoreUnreachableError(
            "no connection to Postgres",
            detail=f"{describe(self._dsn)}: {' '.join(str(error).split())}",
            hint="check the DSN and that the server is up and accepts this user from this machine",
        )


def _rows(opened: psycopg.Connection[Any], statement: Statement) -> FoundRows:
    """Inside a savepoint: one that is ended, or not allowed, must not end the others."""
    opened.execute("SAVEPOINT one")
    try:
        with opened.cursor(row_factory=dict_row) as cursor:
            found = cursor.execute(statement.text.encode(), statement.parameters).fetchall()
    except (psycopg.errors.QueryCanceled, psycopg.errors.InsufficientPrivilege) as error:
        opened.execute("ROLLBACK TO SAVEPOINT one")
        return FoundRows(rows=None, reason=str(error).partition("\n")[0])
    return FoundRows(rows=found)


class _InstantLoader(TimestamptzLoader):
    """Microseconds since 1970; a datetime has no infinity."""

    def load(self, data: Any) -> Any:
        infinite = _INFINITE.get(bytes(data))
        return to_timestamp_us(super().load(data)) if infinite is None else infinite
