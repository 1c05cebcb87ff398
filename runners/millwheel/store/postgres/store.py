"""PostgresStore: the store port on one Postgres connection.

A commit is one transaction in one round trip: the fences and everything of the production, sent as one pipeline.  The
other verbs are rare and idempotent, and are repeated when the connection ends under them.

**Invariant:** `Store.commit` and `Store.submit` report `Committed` and `Fenced` on proof only (outcomes.py), and
never send a production again unless the first attempt certainly did nothing.

Not here: SQL (``sql/``), names (catalog.py), tokens (takeover.py), user tables (tables.py).
MillWheel, section 6; ADR 0004.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import attrs
import psycopg

from dataflow.table import Row, TableSpec
from runners.core.tables.changelog import check_write
from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.channel_ends import lost_by
from runners.millwheel.store.guards import (
    check_fenced,
    check_fences,
    check_names,
    check_sizes,
    check_version,
    unknown_job,
    unknown_range,
)
from runners.millwheel.store.port import (
    VALUE_BYTES_MAX,
    Answered,
    CommitOutcome,
    Fenced,
    Indeterminate,
    JobRow,
    JobSpec,
    JobSummary,
    ResultTable,
    TakenRange,
    UnderWay,
)
from runners.millwheel.store.postgres import catalog, partitions, takeover
from runners.millwheel.store.postgres.catalog import JobIds
from runners.millwheel.store.postgres.cells import CellVerbs
from runners.millwheel.store.postgres.evidence import EvidenceVerbs
from runners.millwheel.store.postgres.kept_rows import KeptRowVerbs
from runners.millwheel.store.postgres.lanes import LaneVerbs
from runners.millwheel.store.postgres.outcomes import Lost
from runners.millwheel.store.postgres.patience import ignore
from runners.millwheel.store.postgres.portions import PORTION_BYTES_MAX
from runners.millwheel.store.postgres.queries import QUERIES
from runners.millwheel.store.postgres.seen_ids import RecordIdVerbs
from runners.millwheel.store.postgres.session import Answer, SentTransaction, Session
from runners.millwheel.store.postgres.signals_and_requests import SignalAndRequestVerbs
from runners.millwheel.store.postgres.snapshots import SnapshotVerbs
from runners.millwheel.store.postgres.splits import SplitVerbs
from runners.millwheel.store.postgres.statements import (
    check_messages,
    commit_statements,
)
from runners.millwheel.store.postgres.tables import Statement, count_rows
from runners.millwheel.store.postgres.troubles import TroubleVerbs
from runners.millwheel.store.postgres.updates import UpdateVerbs

_LOG = logging.getLogger(__name__)
#: Of a statement of somebody who only looks.
_READ_TIMEOUT_MS = "5000"
_T = TypeVar("_T")
_Work = Callable[[psycopg.Connection[Any]], _T]


def _changed(production: Production) -> Sequence[str]:
    return [write.table.name for write in production.tables if write.changes]


@attrs.frozen
class _Submitted:
    """A production that was sent, and what the answer to its transaction says of it."""

    sent: SentTransaction
    read: Callable[[Answer], CommitOutcome]

    @property
    def is_answered(self) -> bool:
        return self.sent.is_answered

    def outcome(self) -> CommitOutcome:
        return self.read(self.sent.answer())


class PostgresStore(
    RecordIdVerbs,
    CellVerbs,
    EvidenceVerbs,
    LaneVerbs,
    KeptRowVerbs,
    SignalAndRequestVerbs,
    SnapshotVerbs,
    SplitVerbs,
    TroubleVerbs,
    UpdateVerbs,
):
    """The store port on Postgres; see `runners.millwheel.store.port.Store` for the contract.

    Has one connection, opened at the first use and again after it was lost; not thread-safe.
    Made from a DSN alone, so each worker process makes its own.

    Args:
        dsn: libpq connection string or URI; never shown.
        incarnation: what `incarnation` returned before, to refuse any other; None: whichever is there.
        connect_timeout_s: how long to wait for a server that is starting up, or short of disk or memory, in seconds.
        lock_timeout_ms: how long a statement waits for a lock; also how long `acquire` waits for
            a commit in flight before it ends that session.
        idle_timeout_ms: how long a session may sit in an open transaction.
        statement_timeout_ms: how long a statement may take before the server ends it; 0: as long as it likes.
        waits: called with the reason, each time that something which did nothing is tried again.
    """

    def __init__(
        self,
        dsn: str,
        *,
        incarnation: str | None = None,
        connect_timeout_s: float = 30.0,
        lock_timeout_ms: int = 5_000,
        idle_timeout_ms: int = 10_000,
        statement_timeout_ms: int = 0,
        waits: Callable[[str], None] = ignore,
    ) -> None:
        self._ids: dict[str, JobIds] = {}
        self._session = Session(
            dsn,
            incarnation=incarnation,
            connect_timeout_s=connect_timeout_s,
            lock_timeout_ms=lock_timeout_ms,
            idle_timeout_ms=idle_timeout_ms,
            statement_timeout_ms=statement_timeout_ms,
            when_lost=self._ids.clear,
            waits=waits,
        )
        #: See `runners.millwheel.store.port.Store`.
        self.value_bytes_max = VALUE_BYTES_MAX

    def __repr__(self) -> str:
        return f"PostgresStore({self._session.place})"

    def connect(self) -> psycopg.Connection[Any]:
        """The connection, opened if need be; raises what `Session.connect` raises."""
        return self._session.connect()

    def incarnation(self) -> str:
        """When the server was started: a restart, a failover and a restore all change it."""
        return self._session.incarnation()

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """One read-only transaction, with a limit for each statement."""
        opened = self.connect()
        with opened.transaction():
            opened.execute(QUERIES["read_at_one_moment"])
            opened.execute(QUERIES["limit_statement"], {"timeout_ms": _READ_TIMEOUT_MS})
            self._is_reading = True
            try:
                yield
            finally:
                self._is_reading = False

    def open_job(self, spec: JobSpec) -> JobRow:
        """Create the job, its ranges and its tables, or return them as they are."""
        check_names(spec)

        def work(opened: psycopg.Connection[Any]) -> JobRow:
            is_new = catalog.create_job(opened, spec)
            found = catalog.read_job(opened, spec.job)
            assert found is not None
            return attrs.evolve(found[0], is_new=is_new)

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

    def result_tables(self, job: str) -> Sequence[ResultTable]:
        """The tables that the job writes to."""
        return self._transact(lambda opened: catalog.result_tables(opened, job))

    def own_tables(self, job: str, tables: Sequence[TableSpec]) -> Mapping[str, int]:
        """The tables that are the job's own, with how many rows they have."""

        def work(opened: psycopg.Connection[Any]) -> Mapping[str, int]:
            found = catalog.own_tables(opened, job, tables)
            opened.execute(QUERIES["allow_scans"])
            return {name: count_rows(opened, *place) for name, place in found.items()}

        return self._transact(work)

    def read_job(self, job: str) -> JobRow | None:
        """The job as it stands, or None."""
        found = self._transact(lambda opened: catalog.read_job(opened, job))
        return found and found[0]

    def read_jobs(self) -> Sequence[JobSummary]:
        """All jobs, by name."""
        return self._transact(catalog.read_jobs)

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        """Move every token first, then read; a session that does not release its locks is ended."""
        known = self._ids.get(job)
        if known and known.version == version and known.ranges.keys() >= set(range_ids):
            taken = self._take_over(known, range_ids, owner, version, cause)
            if taken is not None:
                return taken
        ids = self._load(job)
        if ids is None:
            raise unknown_job(job)
        if not ids.ranges.keys() >= set(range_ids):
            # An update may have deleted them, which is no loss; the version is looked up after the ranges.
            found = self._transact(lambda opened: catalog.read_job(opened, job))
            if found is None:
                raise unknown_job(job)
            check_version(job, version, found[0].version)
        taken = self._take_over(ids, range_ids, owner, version, cause)
        if taken is None:
            raise StoreError(f"job {job} was reset or updated", hint="open the job again")
        return taken

    def _take_over(
        self,
        ids: JobIds,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None,
        cause: Cause,
    ) -> Mapping[RangeId, TakenRange] | None:
        """Take ranges over by numbers that may be those of a job that is gone: then None, and nothing was done."""
        found = self._transact(
            lambda opened: takeover.take_over(opened, ids, range_ids, owner, version, cause),
            locks=[ids.range(range_id).number for range_id in range_ids],
        )
        if found is None:
            return None
        self._ids[ids.job], taken = found
        return taken

    def commit(self, production: Production) -> CommitOutcome:
        """Make the production durable, whole, in one round trip, if every fence is valid."""
        return self.submit(production).outcome()

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        """Send the production, and return without its outcome."""
        found = self._packed(production)
        ready()
        if isinstance(found, Fenced):
            return Answered(found)
        ids, statements = found
        sent = self._session.submit(statements, _changed(production))
        return _Submitted(sent, partial(self._outcome, production, ids))

    def _packed(self, production: Production) -> tuple[JobIds, Sequence[Statement]] | Fenced:
        check_fences(production)
        check_sizes(production, self.value_bytes_max)
        for write in production.tables:
            check_write(write)
        ids = self._ids_of(production)
        if isinstance(ids, Fenced):
            return ids
        fenced = [fence.range_id for fence in production.fences]
        keys = {range_id: ids.ranges[range_id].keys for range_id in fenced}
        check_fenced(production, keys, ids.ranges)
        portion_bytes = min(PORTION_BYTES_MAX, self.value_bytes_max)
        statements = commit_statements(production, ids, self._session.tables, portion_bytes)
        check_messages(production, statements)
        return ids, statements

    def _outcome(self, production: Production, ids: JobIds, outcome: Answer) -> CommitOutcome:
        if production.reshape is not None:
            self._ids.pop(production.job, None)
        if isinstance(outcome, Lost):
            raise lost_by(production.job, ids.by_number[outcome.range_number])
        if isinstance(outcome, int):
            # The ranges may belong to a job made anew under the old name: read their numbers again next time.
            self._ids.pop(production.job, None)
            return Fenced(ids.by_number[outcome])
        return outcome

    def _ids_of(self, production: Production) -> JobIds | Fenced:
        """The numbers of all ranges that a production names, each of which another connection may just have made.

        Raises:
            StoreError: a range that is not fenced is not there, though the fences are valid.
        """
        named, ids = production.named_ranges(), self._ids.get(production.job)
        if ids is not None and named <= ids.ranges.keys():
            return ids
        found = self._transact(lambda opened: catalog.read_job(opened, production.job))
        rows = {} if found is None else found[0].ranges
        for fence in production.fences:
            if fence.range_id not in rows or rows[fence.range_id].token != fence.token:
                # Also when the production names what an update has deleted.
                self._ids.pop(production.job, None)
                return Fenced(fence.range_id)
        assert found is not None
        if unknown := named - rows.keys():
            raise unknown_range(production.job, min(unknown))
        ids = self._ids[production.job] = found[1]
        return ids

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
                lambda opened: takeover.compact(opened, ids, production), locks=numbers
            )
        except StoreUnreachableError as error:
            return Indeterminate(str(error))

    def read_table(self, table: TableSpec) -> Sequence[Row]:
        """All rows of a result table; times come back in UTC."""

        def work(opened: psycopg.Connection[Any]) -> Sequence[Row]:
            opened.execute(QUERIES["allow_scans"])
            statement = self._session.tables.read(table)
            return opened.cursor(binary=True).execute(statement).fetchall()

        return self._transact(work)

    def read_rows(self, table: str, count: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Rows of a result table by the names of its columns; times come back in UTC."""
        return self._transact(lambda opened: catalog.read_rows(opened, table, count))

    def close(self) -> None:
        """Release the connection; a later call would open a new one."""
        self._session.close()

    def _load(self, job: str) -> JobIds | None:
        """Read the job's numbers again."""
        found = self._transact(lambda opened: catalog.read_job(opened, job))
        if found is None:
            self._ids.pop(job, None)
            return None
        self._ids[job] = found[1]
        return found[1]

    def _transact(
        self, work: _Work[_T], locks: Sequence[int] = (), *, is_one_statement: bool = False
    ) -> _T:
        return self._session.transact(work, locks, is_one_statement=is_one_statement)
