"""Sessions that read from a Postgres server; the one module here that knows psycopg.

psycopg is imported when there is something to connect to, as it takes long.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dataflow.errors import InputError
from dataflow.io.postgres_reads.values import SESSION_SETTINGS
from dataflow.postgres_links import NOTICED
from dataflow.postgres_logins import is_login_refused

if TYPE_CHECKING:
    import psycopg

_STATUS = struct.Struct("!cqqqqb")
#: Of SQLSTATE: lost connections, transactions that a server has ended (a standby that must replay what a query is in
#: the way of), too few resources, a server that stops or starts.
_PASSING_CLASSES = {"08", "40", "53", "57"}
#: Of these classes: cancelled by somebody, and a database that was dropped.
_STAYING = {"57014", "57P04"}
#: SQLSTATE of a slot that another session reads from.
SLOT_IN_USE = "55006"
_EPOCH_US = 946_684_800_000_000
#: Of a session that waits for work of ours for as long as it takes.
_WITHOUT_TIMEOUTS = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}


#: The same settings as statements, for the transaction that they are in: what comes behind a pooler that lends out
#: sessions by the transaction has no settings of its own.
TRANSACTION_SETTINGS = "; ".join(
    f"SET LOCAL {name} = '{value}'"
    for name, value in {**SESSION_SETTINGS, "statement_timeout": "0"}.items()
)


def connect(
    dsn: str, *, is_replication: bool = False, has_settings: bool = True
) -> psycopg.Connection[Any]:
    """Open a session whose values are texts as `SESSION_SETTINGS` has them.

    Args:
        dsn: of the database.
        is_replication: whether it can follow a replication slot.
        has_settings: whether the session has the settings; else each transaction makes its own
            (`TRANSACTION_SETTINGS`).

    Raises:
        InputError: the address is none.
        psycopg.OperationalError: the server does not answer, or refuses.
    """
    import psycopg  # noqa: PLC0415 - see the module

    conninfo = conninfo_of(dsn, is_replication=is_replication, has_settings=has_settings)
    return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)


def checked_session(dsn: str, table: str, *, has_settings: bool = True) -> psycopg.Connection[Any]:
    """A session, without which nothing can begin.

    Args:
        dsn: of the database.
        table: that is to be read, for messages.
        has_settings: as of `connect`.

    Raises:
        InputError: the server does not answer, or refuses.
    """
    try:
        return connect(dsn, has_settings=has_settings)
    except Exception as error:
        if not is_lost(error):
            raise
        raise login_error(table, error) from error


def conninfo_of(dsn: str, *, is_replication: bool = False, has_settings: bool = True) -> str:
    """The address of such a session, for libpq.

    Args:
        dsn: of the database.
        is_replication: whether it can follow a replication slot.
        has_settings: as of `connect`.

    Raises:
        InputError: the address is none.
    """
    import psycopg  # noqa: PLC0415 - see the module
    from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415 - see the module

    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise InputError(
            "the address of the Postgres server is malformed",
            detail=str(error).strip(),
            hint="give dsn='postgresql://user@host/database'",
        ) from None
    settings = {**SESSION_SETTINGS, **_WITHOUT_TIMEOUTS}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    ours: dict[str, Any] = {
        **({"options": f"{given.get('options') or ''} {options}".strip()} if has_settings else {}),
        "client_encoding": "UTF8",
        "application_name": "dataflow",
        **({"replication": "database"} if is_replication else {}),
    }
    return make_conninfo("", **{**NOTICED, **given, **ours})


def raw_rows(connection: psycopg.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, with all values as texts.

    Args:
        connection: of `connect`.
        query: without parameters.

    Raises:
        psycopg.Error: the server refuses it.
    """
    result = connection.execute(query.encode()).pgresult
    assert result is not None
    columns = range(result.nfields)
    return [
        tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples)
    ]


def is_lost(error: BaseException) -> bool:
    """Whether an error is one of a connection, or of a server that starts or stops, which another try may not have.

    Args:
        error: whatever was raised.
    """
    import psycopg  # noqa: PLC0415 - see the module

    if isinstance(error, psycopg.InterfaceError):
        return True
    code = error_code(error)
    if code is None:
        return isinstance(error, psycopg.OperationalError)
    return (code[:2] in _PASSING_CLASSES and code not in _STAYING) or code == SLOT_IN_USE


def refuses_login(error: BaseException) -> bool:
    """Whether the server is there, and refuses the login: the lost connections that no other try may be without.

    Args:
        error: whatever was raised.
    """
    return is_lost(error) and error_code(error) is None and is_login_refused(str(error))


def login_error(table: str, error: BaseException) -> InputError:
    """The error about a server that no session can be had of.

    Args:
        table: that is read.
        error: of the attempt.
    """
    detail = " ".join(str(error).split())
    if refuses_login(error):
        return InputError(
            f"the Postgres server of {table} refuses the login",
            detail=detail,
            hint="check user, password and database of the dsn, and the server's pg_hba.conf",
        )
    return InputError(
        f"the Postgres server of {table} cannot be reached",
        detail=detail,
        hint="check the dsn, and that the server runs and lets this user in",
    )


def error_code(error: BaseException) -> str | None:
    """The SQLSTATE of an error of the server; None: it is another one.

    Args:
        error: whatever was raised.
    """
    return getattr(error, "sqlstate", None)


def quoted(*names: str) -> str:
    """Names as SQL has them, joined with dots.

    Args:
        names: as they are.
    """
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


class CopyStream:
    """Messages of a walsender, as they come; never waits longer than asked.

    Args:
        dsn: of the database.
        command: ``START_REPLICATION ...``.
        before: is called with the session before that.

    Raises:
        psycopg.Error: the server refuses it.
    """

    def __init__(self, dsn: str, command: str, before: Callable[[Any], None]) -> None:
        self._connection = connect(dsn, is_replication=True)
        try:
            before(self._connection)
            self._connection.execute(command.encode())
        except BaseException:
            self._connection.close()
            raise
        self._pg = self._connection.pgconn

    def next(self, wait_s: float = 0.0) -> bytes | None:
        """The next message; None: there is none now.

        Args:
            wait_s: how long to wait for one, in seconds.

        Raises:
            psycopg.OperationalError: the stream has ended.
        """
        import psycopg  # noqa: PLC0415 - see the module

        for is_last in (False, True):
            size, data = self._pg.get_copy_data(1)
            if size > 0:
                return bytes(data)
            if size < 0:
                result = self._pg.get_result()
                message = "" if result is None else result.error_message.decode("utf-8", "replace")
                raise psycopg.OperationalError(f"the replication has ended: {message.strip()}")
            if is_last:
                break
            if wait_s > 0:
                select.select([self._pg.socket], [], [], wait_s)
            self._pg.consume_input()
        return None

    def report(self, lsn: int, *, now_us: int, wants_answer: bool) -> None:
        """Report what the slot need not keep any more.

        Args:
            lsn: everything before it is durable here.
            now_us: the clock, in microseconds since 1970.
            wants_answer: whether the server is to say how far it is.

        Raises:
            psycopg.OperationalError: the connection is lost.
        """
        self._pg.put_copy_data(
            _STATUS.pack(b"r", lsn, lsn, lsn, now_us - _EPOCH_US, int(wants_answer))
        )
        self._pg.flush()

    def close(self) -> None:
        """End the session.  Idempotent."""
        self._connection.close()
