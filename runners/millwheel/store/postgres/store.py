"""PostgresStore: the store port on one Postgres connection.

A commit is one transaction in one round trip: BEGIN, the fences, everything of the production,
COMMIT, sent as one pipeline.  The other verbs are rare and idempotent, and are repeated when the
connection ends under them.

**Invariant:** `Store.commit` reports `Committed` and `Fenced` on proof only (outcomes.py), and
never sends a production again unless the first attempt certainly did nothing.

Not here: SQL (``sql/``), names (catalog.py), tokens (takeover.py), user tables (tables.py).
MillWheel, section 6; DESIGN section 6.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from dataflow.io.table import Row, TableSpec
from runners.core.changelog import check_write
from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.ids import RangeId
from runners.millwheel.production import Production
from runners.millwheel.signals import Signal
from runners.millwheel.store.guards import (
    check_fenced,
    check_fences,
    check_names,
    unknown_job,
    unknown_range,
)
from runners.millwheel.store.port import (
    CommitOutcome,
    Committed,
    Fenced,
    Indeterminate,
    JobRow,
    JobSpec,
    JobSummary,
    TakenRange,
)
from runners.millwheel.store.postgres import (
    catalog,
    checks,
    connection,
    partitions,
    schema,
    signals,
    takeover,
)
from runners.millwheel.store.postgres.catalog import JobIds
from runners.millwheel.store.postgres.cells import CellVerbs
from runners.millwheel.store.postgres.kept_rows import KeptRowVerbs
from runners.millwheel.store.postgres.outcomes import (
    LOCK_TIMEOUT_SQLSTATE,
    Verdict,
    fenced_range_number,
    is_passing,
    judge,
    refused,
)
from runners.millwheel.store.postgres.patience import Patience
from runners.millwheel.store.postgres.pipeline import Pipeline
from runners.millwheel.store.postgres.queries import QUERIES
from runners.millwheel.store.postgres.record_ids import RecordIdVerbs
from runners.millwheel.store.postgres.requests import RequestVerbs
from runners.millwheel.store.postgres.statements import commit_statements
from runners.millwheel.store.postgres.tables import Statement, TableStatements
from runners.millwheel.store.postgres.updates import UpdateVerbs

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_Work = Callable[[psycopg.Connection[Any]], _T]


class PostgresStore(RecordIdVerbs, CellVerbs, KeptRowVerbs, RequestVerbs, UpdateVerbs):
    """The store port on Postgres; see `runners.millwheel.store.port.Store` for the contract.

    Holds one connection, opened at the first use and again after it was lost; not thread-safe.
    Made from a DSN alone, so each worker process makes its own.

    Args:
        dsn: libpq connection string or URI; never shown.
        connect_timeout_s: how long to wait for a server that is starting up, or short of disk or memory.
        lock_timeout_ms: how long a statement waits for a lock; also how long `acquire` waits for
            a commit in flight before it ends that session.
        idle_timeout_ms: how long a session may sit in an open transaction.
    """

    def __init__(
        self,
        dsn: str,
        *,
        connect_timeout_s: float = 30.0,
        lock_timeout_ms: int = 5_000,
        idle_timeout_ms: int = 10_000,
    ) -> None:
        self._dsn = dsn
        self._place = connection.describe(dsn)
        self._connect_timeout_s = connect_timeout_s
        self._lock_timeout_ms = lock_timeout_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._connection: psycopg.Connection[Any] | None = None
        self._pipeline: Pipeline | None = None
        self._tables: TableStatements | None = None
        self._ids: dict[str, JobIds] = {}

    def __repr__(self) -> str:
        return f"PostgresStore({self._place})"

    def connect(self) -> psycopg.Connection[Any]:
        """The connection, opened if need be, on a server and schema found suitable.

        Raises:
            StoreUnreachableError: no connection within the timeout.
            UnsuitableStoreError: the server or its schema cannot keep the guarantees.
            StoreError: the schema could not be created.
        """
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._forget_connection()
        opened = connection.connect(
            self._dsn,
            timeout_s=self._connect_timeout_s,
            lock_timeout_ms=self._lock_timeout_ms,
            idle_timeout_ms=self._idle_timeout_ms,
            set_up=self._judge,
        )
        self._connection = opened
        self._pipeline = Pipeline(opened)
        self._tables = TableStatements(opened)
        return opened

    def open_job(self, spec: JobSpec) -> JobRow:
        """Create the job, its ranges and its tables, or return them as they are."""
        check_names(spec)

        def work(opened: psycopg.Connection[Any]) -> JobRow:
            catalog.create_job(opened, spec)
            found = catalog.read_job(opened, spec.job)
            assert found is not None
            return found[0]

        job = self._transact(work)
        partitions.drop_partitions_of_nobody(self.connect())
        return job

    def reset_job(self, job: str) -> None:
        """Forget the job; drop the tables it created, unless another job writes to them too."""
        ids = self._load(job)
        if ids is None:
            return

        def work(opened: psycopg.Connection[Any]) -> None:
            opened.execute(QUERIES["lock_catalog"])
            takeover.lock_fences(opened, list(ids.by_number))
            catalog.delete_job(opened, ids.number)

        self._transact(work, locks=list(ids.by_number))
        self._ids.pop(job, None)
        partitions.drop_partitions_of_nobody(self.connect())

    def read_job(self, job: str) -> JobRow | None:
        """The job as it stands, or None."""
        found = self._transact(lambda opened: catalog.read_job(opened, job))
        return found and found[0]

    def read_jobs(self) -> Sequence[JobSummary]:
        """All jobs, by name."""
        return self._transact(catalog.read_jobs)

    def send_signal(self, job: str, name: str) -> int:
        """Keep a signal for the job, once however often the connection is lost, and say its number."""
        token = self._transact(lambda opened: opened.execute(QUERIES["next_token"]).fetchone())
        assert token is not None
        return self._transact(lambda opened: signals.insert_signal(opened, job, name, token[0]))

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        """The job's signals with numbers above ``after``."""
        return self._transact(
            lambda opened: signals.read_signals(opened, job, after), is_one_statement=True
        )

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
    ) -> Mapping[RangeId, TakenRange]:
        """Move every token first, then read; a session that will not let go is ended."""
        ids = self._load(job)
        if ids is None:
            raise unknown_job(job)
        self._ids[job], taken = self._transact(
            lambda opened: takeover.take_over(opened, ids, range_ids, owner, version),
            locks=[ids.range(range_id).number for range_id in range_ids],
        )
        return taken

    def commit(self, production: Production) -> CommitOutcome:
        """Make the production durable, whole, in one round trip, if every fence holds."""
        check_fences(production)
        for write in production.tables:
            check_write(write)
        ids = self._ids_of(production)
        if isinstance(ids, Fenced):
            return ids
        fenced = [fence.range_id for fence in production.fences]
        keys = {range_id: ids.ranges[range_id].keys for range_id in fenced}
        check_fenced(production, keys, ids.ranges)
        opened = self.connect()
        assert self._tables is not None
        statements = commit_statements(production, ids, self._tables)
        outcome = self._send(opened, statements)
        if production.reshape is not None:
            self._ids.pop(production.job, None)
        if isinstance(outcome, int):
            # The ranges may belong to a job made anew under the old name: look again next time.
            self._ids.pop(production.job, None)
            return Fenced(ids.by_number[outcome])
        return outcome

    def _ids_of(self, production: Production) -> JobIds | Fenced:
        """The numbers of all ranges that a production names, each of which another connection may just have made.

        Raises:
            StoreError: a range that is not fenced is not there, though the fences hold.
        """
        named, ids = production.named_ranges(), self._ids.get(production.job)
        if ids is not None and named <= ids.ranges.keys():
            return ids
        found = self._transact(lambda opened: catalog.read_job(opened, production.job))
        rows = {} if found is None else found[0].ranges
        for fence in production.fences:
            if fence.range_id not in rows or rows[fence.range_id].token != fence.token:
                # Also the end of whoever names what an update has left behind.
                self._ids.pop(production.job, None)
                return Fenced(fence.range_id)
        assert found is not None
        if unknown := named - rows.keys():
            raise unknown_range(production.job, min(unknown))
        ids = self._ids[production.job] = found[1]
        return ids

    def _send(
        self, opened: psycopg.Connection[Any], statements: Sequence[Statement]
    ) -> Committed | Indeterminate | int:
        """Send a transaction, again while it certainly did nothing; the number of a lost range."""
        assert self._pipeline is not None
        patience = Patience(self._connect_timeout_s)
        while True:
            try:
                tag = self._pipeline.run(statements)
            except psycopg.Error as error:
                verdict = judge(error, opened)
                _end_transaction(opened, verdict)
                if verdict is Verdict.FENCED:
                    return fenced_range_number(error)
                if verdict is Verdict.UNKNOWN:
                    return Indeterminate(_reason(error))
                if verdict is Verdict.REFUSED or not _waits(patience, error):
                    raise refused(error) from error
            except BaseException:
                # Interrupted half-way: only a closed connection is certain to send no more.
                opened.close()
                raise
            else:
                if tag == "COMMIT":
                    return Committed()
                opened.close()
                return Indeterminate(f"COMMIT was answered with {tag}")

    def resolve(self, production: Production) -> CommitOutcome:
        """Whether the production landed, by its reigns; if not, it never will from here on."""
        try:
            ids = self._load(production.job)
            if ids is None:
                return Fenced(production.fences[0].range_id)
            numbers = [
                ids.ranges[fence.range_id].number
                for fence in production.fences
                if fence.range_id in ids.ranges
            ]
            return self._transact(
                lambda opened: takeover.settle(opened, ids, production), locks=numbers
            )
        except StoreUnreachableError as error:
            return Indeterminate(str(error))

    def read_table(self, table: TableSpec) -> Sequence[Row]:
        """All rows of a result table; times come back in UTC."""

        def work(opened: psycopg.Connection[Any]) -> Sequence[Row]:
            assert self._tables is not None
            opened.execute(QUERIES["allow_scans"])
            return opened.cursor(binary=True).execute(self._tables.read(table)).fetchall()

        return self._transact(work)

    def close(self) -> None:
        """Release the connection; a later call would open a new one."""
        if self._connection is not None:
            self._connection.close()
        self._forget_connection()

    def _judge(self, opened: psycopg.Connection[Any]) -> None:
        checks.refuse_unsuitable(checks.read_facts(opened), self._place)
        schema.migrate(opened)

    def _forget_connection(self) -> None:
        self._connection = None
        self._pipeline = None
        self._tables = None
        self._ids.clear()

    def _load(self, job: str) -> JobIds | None:
        """The job's numbers, read anew."""
        found = self._transact(lambda opened: catalog.read_job(opened, job))
        if found is None:
            self._ids.pop(job, None)
            return None
        self._ids[job] = found[1]
        return found[1]

    def _transact(
        self, work: _Work[_T], locks: Sequence[int] = (), *, is_one_statement: bool = False
    ) -> _T:
        """Run an idempotent transaction, again if it was cut off or gave way to another.

        ``locks``: fences that it takes; sessions that keep them locked beyond the timeout are
        ended.  ``is_one_statement``: it needs neither BEGIN nor COMMIT, each a round trip of its own.
        """
        patience = Patience(self._connect_timeout_s)
        while True:
            opened = self.connect()
            try:
                with nullcontext() if is_one_statement else opened.transaction():
                    return work(opened)
            except psycopg.Error as error:
                if not is_passing(error, opened) or not _waits(patience, error):
                    raise self._failure(error, opened) from error
                locked_out = locks and error.sqlstate == LOCK_TIMEOUT_SQLSTATE
            if locked_out:
                self._evict(locks)

    def _failure(self, error: psycopg.Error, opened: psycopg.Connection[Any]) -> StoreError:
        """The error for the caller of an idempotent verb, when trying again did not help."""
        if not is_passing(error, opened):
            return refused(error)
        return StoreUnreachableError(
            "Postgres did not carry out a transaction",
            detail=f"{self._place}: {_reason(error)}",
            hint="try again; look for restarts in its log and for locks in pg_stat_activity",
        )

    def _evict(self, numbers: Sequence[int]) -> None:
        opened = self.connect()
        try:
            count = takeover.evict_holders(opened, numbers)
        except psycopg.Error as error:
            # The next attempt finds out whether they are locked still.
            _LOG.warning("could not end sessions at %s: %s", self._place, _reason(error))
        else:
            _LOG.warning("ended %d sessions that kept ranges locked at %s", count, self._place)


def _end_transaction(opened: psycopg.Connection[Any], verdict: Verdict) -> None:
    """Free the locks of a failed commit before anything else happens."""
    if verdict is Verdict.UNKNOWN:
        opened.close()
    elif opened.info.transaction_status is not TransactionStatus.IDLE:
        try:
            opened.execute(QUERIES["rollback"])
        except psycopg.Error:
            opened.close()


def _reason(error: psycopg.Error) -> str:
    words = str(error).split()
    return f"{error.sqlstate or type(error).__name__}: {' '.join(words)}"


def _waits(patience: Patience, error: psycopg.Error) -> bool:
    _LOG.info("a transaction did nothing, and may be tried again: %s", _reason(error))
    return patience.wait(error.sqlstate)
