"""Session: one connection to Postgres, opened again when it was lost, and transactions on it.

**Invariants**

* A transaction is repeated only if it is idempotent, or certainly did nothing (outcomes.py).
* What no standby has confirmed, though the server is configured to wait for one, is not reported as durable.  If the
  wait is cancelled (for example by `pg_cancel_backend`), Postgres answers with a warning beside it, and a
  failover then loses what was "committed".
* A session that is bound to an incarnation of the server never uses another one: after a restart, a failover or a
  restore commits may be gone that this process, or one that it has received messages from, still relies on.

Not thread-safe.
"""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus

from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.store.guards import check_incarnation
from runners.millwheel.store.port import Committed, Indeterminate
from runners.millwheel.store.postgres import checks, connection, schema, takeover
from runners.millwheel.store.postgres.outcomes import (
    LOCK_TIMEOUT_SQLSTATE,
    Lost,
    Verdict,
    classify,
    is_passing,
    range_number,
    reason,
    refused,
    rejected,
)
from runners.millwheel.store.postgres.patience import Patience, ignore
from runners.millwheel.store.postgres.pipeline_mode import StatementPipeline
from runners.millwheel.store.postgres.queries import QUERIES
from runners.millwheel.store.postgres.tables import Statement, TableStatements

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_Work = Callable[[psycopg.Connection[Any]], _T]
#: What became of a transaction: see `Session.send`.
Answer = Committed | Indeterminate | Lost | int

#: A connection that has sent more at once is closed: its buffer never shrinks.  Twice what a step causes to be written.
BUFFER_BYTES_MAX = 32 << 20
#: The function of the server that warns when its wait for a standby was cancelled; its name is not translated.
_WAIT_FOR_STANDBY = "SyncRepWaitForLSN"


class Session:
    """One connection at a time, and transactions on it; see the module.

    Args:
        dsn: libpq connection string or URI; never shown.
        incarnation: of the server, the only one to use; None: any.
        connect_timeout_s: how long to wait for a server that is starting up, or short of disk or memory, in seconds.
        lock_timeout_ms: how long a statement waits for a lock.
        idle_timeout_ms: how long it may sit in an open transaction.
        statement_timeout_ms: how long a statement may take; 0: as long as it likes.
        waits: called with the reason, each time that something which did nothing is tried again.
        when_lost: called when what was learnt on a connection is not to be believed any more.
    """

    def __init__(
        self,
        dsn: str,
        *,
        incarnation: str | None,
        connect_timeout_s: float,
        lock_timeout_ms: int,
        idle_timeout_ms: int,
        statement_timeout_ms: int = 0,
        when_lost: Callable[[], None],
        waits: Callable[[str], None] = ignore,
    ) -> None:
        self._dsn, self._bound_to, self._when_lost = dsn, incarnation, when_lost
        self._on_wait = waits
        self.place = connection.describe(dsn)
        self._connect_timeout_s = connect_timeout_s
        self._lock_timeout_ms = lock_timeout_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._statement_timeout_ms = statement_timeout_ms
        self._connection: psycopg.Connection[Any] | None = None
        #: The process that has opened it, and connections of processes that this one was forked from.
        self._process, self._inherited = 0, list[psycopg.Connection[Any]]()
        self._pipeline: StatementPipeline | None = None
        self._tables: TableStatements | None = None
        #: The incarnation of the server that it is connected to.
        self._incarnation = ""
        #: The server's warnings about the last commit, if no standby has confirmed it.
        self._unconfirmed: list[str] = []
        #: The transaction that was sent, and whose answer may not have been read.
        self._under_way: SentTransaction | None = None

    def connect(self) -> psycopg.Connection[Any]:
        """The connection, opened if need be, on a server and schema found suitable.

        Raises:
            StoreUnreachableError: no connection within the timeout.
            StoreRestartedError: the server is not the one that the session is bound to.
            UnsuitableStoreError: the server or its schema cannot keep the guarantees.
            StoreError: the schema could not be created.
        """
        if self._connection is not None and self._process != os.getpid():
            # User code on trial reads state; what it sent here would be answered to the process that waits for it.
            self._inherited.append(self._connection)
            self._connection = self._under_way = None
        if self._under_way is not None:
            self._under_way.wait()
            self._under_way = None
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._forget_connection()
        opened = connection.connect(
            self._dsn,
            timeout_s=self._connect_timeout_s,
            lock_timeout_ms=self._lock_timeout_ms,
            idle_timeout_ms=self._idle_timeout_ms,
            statement_timeout_ms=self._statement_timeout_ms,
            set_up=self._check_server,
            waits=self._on_wait,
        )
        opened.add_notice_handler(self._on_notice)
        self._connection, self._process = opened, os.getpid()
        self._pipeline = StatementPipeline(opened)
        self._tables = TableStatements(opened)
        return opened

    @property
    def tables(self) -> TableStatements:
        """Statements on users' tables; connects if need be, and does not wait for what is under way."""
        is_open = self._connection is not None and not self._connection.closed
        if not is_open or self._process != os.getpid():
            self.connect()
        assert self._tables is not None
        return self._tables

    def incarnation(self) -> str:
        """The incarnation of the server that it is connected to; connects if need be."""
        self.connect()
        return self._incarnation

    def close(self) -> None:
        """Release the connection; a later call would open a new one."""
        if self._connection is not None:
            self._connection.close()
        self._forget_connection()

    def send(self, statements: Sequence[Statement], changed: Sequence[str] = ()) -> Answer:
        """Send a transaction, again while it certainly did nothing; returns the outcome.

        Args:
            statements: of one transaction, in their order.
            changed: tables for whose rows the commit fails if another row has their key.

        Returns:
            The outcome; `Lost` with the number of the range whose commit is gone; or the number of a range that has
            another owner.

        Raises:
            StoreError: it certainly did nothing, and trying again does not help.
            TableConflictError: the same, because of such a row.
        """
        return self.submit(statements, changed).answer()

    def submit(
        self, statements: Sequence[Statement], changed: Sequence[str] = ()
    ) -> "SentTransaction":
        """Send a transaction once, and return without its outcome; the server works on it meanwhile.

        Whatever else is asked of the session waits for it first.

        Args:
            statements: as for `send`.
            changed: as for `send`.
        """
        opened = self.connect()
        assert self._pipeline is not None
        try:
            self._unconfirmed.clear()
            answer = self._pipeline.begin(statements)
        except psycopg.Error as error:
            answer = partial(_raise, error)
        except BaseException:
            opened.close()
            raise
        wait = partial(self._answered, opened, answer, statements, changed)
        self._under_way = SentTransaction(wait, self._pipeline.has_answers)
        return self._under_way

    def _again(self, statements: Sequence[Statement]) -> None:
        self._unconfirmed.clear()
        assert self._pipeline is not None
        self._pipeline.run(statements)

    def _answered(
        self,
        opened: psycopg.Connection[Any],
        answer: Callable[[], None],
        statements: Sequence[Statement],
        changed: Sequence[str],
    ) -> Answer:
        patience = Patience(self._connect_timeout_s)
        while True:
            try:
                answer()
            except psycopg.Error as error:
                verdict = classify(error, opened)
                _end_transaction(opened, verdict)
                if verdict is Verdict.FENCED:
                    return range_number(error)
                if verdict is Verdict.LOST:
                    return Lost(range_number(error))
                if verdict is Verdict.UNKNOWN:
                    return Indeterminate(reason(error))
                if verdict is Verdict.REFUSED or not self._waits(patience, error):
                    raise rejected(error, changed) from error
                answer = partial(self._again, statements)
            except BaseException:
                # Interrupted half-way: only a closed connection is certain to send no more.
                opened.close()
                raise
            else:
                return self._committed(opened)

    def _committed(self, opened: psycopg.Connection[Any]) -> Committed | Indeterminate:
        assert self._pipeline is not None
        if self._unconfirmed:
            # The transaction that looks the commit up waits for the standby too.
            self._warn_of_unconfirmed()
            return Indeterminate(f"no standby has confirmed the commit: {self._unconfirmed[0]}")
        if self._pipeline.largest_bytes > BUFFER_BYTES_MAX:
            # The next transaction opens another one, whose buffers are small.
            opened.close()
        return Committed()

    def transact(
        self, work: _Work[_T], locks: Sequence[int] = (), *, is_one_statement: bool = False
    ) -> _T:
        """Run an idempotent transaction, again if it was cut off, gave way to another or is not confirmed.

        Args:
            work: called with a connection on which the transaction has begun, once for each attempt.
            locks: numbers of the ranges whose fences it takes; sessions that keep them locked beyond the timeout are
                ended.
            is_one_statement: whether it needs neither BEGIN nor COMMIT, each a round trip of its own.

        Returns:
            What ``work`` returned in the attempt that was committed.

        Raises:
            StoreUnreachableError: it could not be carried out in time.
            StoreError: the server refuses it.
        """
        patience = Patience(self._connect_timeout_s)
        is_confirming = False
        while True:
            opened = self.connect()
            self._unconfirmed.clear()
            locked_out = False
            try:
                with nullcontext() if is_one_statement else opened.transaction():
                    result = work(opened)
                    if is_confirming:
                        # Even with nothing left to do, its COMMIT waits for all that was written before.
                        opened.execute(QUERIES["write_something"])
            except psycopg.Error as error:
                if not is_passing(error, opened) or not self._waits(patience, error):
                    raise self._failure(error, opened) from error
                locked_out = bool(locks) and error.sqlstate == LOCK_TIMEOUT_SQLSTATE
            else:
                if not self._unconfirmed:
                    return result
                self._warn_of_unconfirmed()
                is_confirming = True
                if not patience.wait(None):
                    raise StoreUnreachableError(
                        "no standby of this Postgres has confirmed a transaction",
                        detail=f"{self.place}: {self._unconfirmed[0]}",
                        hint="is a standby of synchronous_standby_names up? who lifts the wait for it, by "
                        "pg_cancel_backend or a time-out? docs/how-to/fail-over-and-restore.md",
                    )
            if locked_out:
                self._evict(locks)

    def _check_server(self, opened: psycopg.Connection[Any]) -> None:
        facts = checks.read_facts(opened)
        checks.refuse_unsuitable(facts, self.place)
        check_incarnation(self._bound_to, facts.incarnation, self.place)
        schema.migrate(opened)
        self._incarnation = facts.incarnation

    def _on_notice(self, notice: Diagnostic) -> None:
        if notice.source_function == _WAIT_FOR_STANDBY:
            self._unconfirmed.append(notice.message_primary or _WAIT_FOR_STANDBY)

    def _warn_of_unconfirmed(self) -> None:
        _LOG.warning(
            "a transaction at %s is committed there, but no standby has confirmed it: %s",
            self.place,
            self._unconfirmed[0],
        )
        self._on_wait(f"the store: no standby has confirmed a commit: {self._unconfirmed[0]}")

    def _forget_connection(self) -> None:
        self._connection = None
        self._pipeline = None
        self._tables = None
        self._when_lost()

    def _failure(self, error: psycopg.Error, opened: psycopg.Connection[Any]) -> StoreError:
        """The error for the caller of an idempotent verb, when trying again did not help."""
        if not is_passing(error, opened):
            return refused(error)
        return StoreUnreachableError(
            "Postgres did not carry out a transaction",
            detail=f"{self.place}: {reason(error)}",
            hint="try again; look for restarts in its log and for locks in pg_stat_activity",
        )

    def _waits(self, patience: Patience, error: psycopg.Error) -> bool:
        _LOG.info("a transaction did nothing, and may be tried again: %s", reason(error))
        self._on_wait(f"the store: {reason(error)}")
        return patience.wait(error.sqlstate)

    def _evict(self, numbers: Sequence[int]) -> None:
        opened = self.connect()
        try:
            count = takeover.evict_holders(opened, numbers)
        except psycopg.Error as error:
            # The next attempt finds out whether they are still locked.
            _LOG.warning("could not end sessions at %s: %s", self.place, reason(error))
        else:
            _LOG.warning("ended %d sessions that kept ranges locked at %s", count, self.place)


class SentTransaction:
    """A transaction that was sent, and whose answer may not have been read.

    Args:
        wait: for the outcome; called once.
        has_arrived: whether there is anything of the answer.
    """

    def __init__(self, wait: Callable[[], Answer], has_arrived: Callable[[], bool]) -> None:
        self._wait: Callable[[], Answer] | None = wait
        self._has_arrived = has_arrived
        self._outcome: Answer | StoreError | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the answer has been read, or has begun to arrive: the server sends it in one piece mostly."""
        return self._wait is None or self._has_arrived()

    def wait(self) -> None:
        """Wait for the outcome, whatever it is."""
        if self._wait is None:
            return
        wait, self._wait = self._wait, None
        self._outcome = Indeterminate("the wait for the answer was interrupted")
        try:
            self._outcome = wait()
        except StoreError as error:
            self._outcome = error

    def answer(self) -> Answer:
        """Wait for the outcome; returns and raises what `Session.send` does, each time that it is called."""
        self.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, StoreError):
            raise self._outcome
        return self._outcome


def _raise(error: psycopg.Error) -> None:
    raise error


def _end_transaction(opened: psycopg.Connection[Any], verdict: Verdict) -> None:
    """Free the locks of a failed commit before anything else happens."""
    if verdict is Verdict.UNKNOWN:
        opened.close()
    elif opened.info.transaction_status is not TransactionStatus.IDLE:
        try:
            opened.execute(QUERIES["rollback"])
        except psycopg.Error:
            opened.close()
