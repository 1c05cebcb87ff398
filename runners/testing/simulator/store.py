"""SimulatedStore: a worker's connection to the store, which breaks when the dice decide it.

`SharedStore` is the other end: one memory store for the whole job, whose every commit is checked.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from runners.errors import LostCommitsError, StoreError, StoreUnreachableError
from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.model.requests import StoredRequest
from runners.millwheel.model.signals import Signal
from runners.millwheel.store.guards import check_incarnation, check_sizes
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import (
    CellKey,
    CommitOutcome,
    Committed,
    Fenced,
    Indeterminate,
    JobRow,
    JobSpec,
    RangeRow,
    SplitsChange,
    TakenRange,
)
from runners.testing.manual_clock import ManualClock
from runners.testing.simulator.dice import Dice
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.fault import Fault, SyncPoint
from runners.testing.simulator.ledger import Ledger
from runners.testing.simulator.trace import Trace
from runners.testing.simulator.transactions import Transactions
from runners.testing.simulator.unanswered import Unanswered


class SharedStore:
    """The store itself: commits go through the `Ledger`, some of them late.

    Args:
        inner: where everything is kept.
        ledger: checks what is committed.
        clock: the virtual time.
        trace: of the run.
        committed: called with each production that was committed.
    """

    def __init__(
        self,
        inner: MemoryStore,
        ledger: Ledger,
        clock: ManualClock,
        trace: Trace,
        committed: Callable[[Production], None],
    ) -> None:
        self.inner, self._ledger, self._clock, self._trace = inner, ledger, clock, trace
        self._committed = committed
        self._down_until_ms = 0
        #: Changes when the store may have lost something.
        self.incarnation = "1"
        self._on_the_wire: list[tuple[int, str, Production]] = []
        self._transactions = Transactions(clock, trace)
        #: The commits whose senders do not know the outcome.
        self.unanswered = Unanswered()

    def fail(self, duration_ms: int) -> None:
        """Refuse everything for a while."""
        self._down_until_ms = max(self._down_until_ms, self._clock.monotonic_ms() + duration_ms)
        self._trace.note("store", f"is out of reach for {duration_ms} ms")

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self._clock.monotonic_ms()

    def restart(self) -> None:
        """Become another incarnation from now on; what was on its way to the former one never arrives."""
        self.incarnation = str(int(self.incarnation) + 1)
        self.unanswered.clear()
        self._on_the_wire.clear()
        self._transactions.end_all()
        self._trace.note("store", "is at an earlier moment")

    def tear(self, name: str) -> None:
        """Put a part of the store at an earlier moment; transactions under way end."""
        self._transactions.end_all()
        self.unanswered.clear()
        self._trace.note("store", f"has {name} as it was at an earlier moment, and nothing else")

    @property
    def is_down(self) -> bool:
        """Whether it refuses everything just now."""
        return self._clock.monotonic_ms() < self._down_until_ms

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way, with what it has locked, or on its way."""
        return bool(self._on_the_wire) or self._transactions.are_open

    def commit(self, who: str, production: Production) -> CommitOutcome:
        """Commit, and check what was committed.

        Args:
            who: the process.
            production: what it commits.

        Raises:
            InvariantError: it should not have been committed, or not like this.
        """
        self._check_sizes(production)
        before = self._ledger.before(production)
        outcome = self.inner.commit(production)
        fences = sorted(production.fences, key=lambda fence: fence.range_id)
        ranges = " ".join(f"{each.range_id}:{each.token}:{each.bundle}" for each in fences)
        self._trace.note(who, f"commits {ranges}: {type(outcome).__name__}")
        if isinstance(outcome, Committed):
            self._trace.detail(who, lambda: self._ledger.lines_of(production))
            self._ledger.applied(production, before)
            self._committed(production)
        return outcome

    def _check_sizes(self, production: Production) -> None:
        """Refuse for good what a store refuses each time: the worker must have seen that before it commits."""
        try:
            check_sizes(production, self.inner.value_bytes_max)
        except StoreError as error:
            raise InvariantError(
                f"I11: the store refuses a commit now and always: {error}"
            ) from None

    def post(self, who: str, production: Production, delay_ms: int) -> None:
        """Send a commit whose connection is dead already; it arrives later.

        Args:
            who: the process, which does not know the outcome.
            production: what it commits.
            delay_ms: from now on, in virtual time.
        """
        self._on_the_wire.append((self._clock.monotonic_ms() + delay_ms, who, production))

    def begin(
        self, who: str, production: Production, duration_ms: int, *, is_cut: bool = False
    ) -> bool:
        """Begin a commit that passes its fences, and takes a while.

        Args:
            who: the process.
            production: what it commits.
            duration_ms: from now on, in virtual time.
            is_cut: whether it never gets all that it is to write, so that it ends without effect.

        Returns:
            False, and nothing is begun, if it would be fenced.
        """
        rows = self._ledger.before(production)
        for fence in production.fences:
            row = rows.get(fence.range_id)
            if row is None or (row.token, row.bundle) != (fence.token, fence.bundle - 1):
                return False
        self._transactions.begin(who, production, duration_ms, is_cut=is_cut)
        return True

    def wait_for(self, job: str, range_ids: Iterable[RangeId]) -> None:
        """Wait, as for a lock, until no commit is under way on these ranges and those in a handover with them.

        Args:
            job: its name.
            range_ids: the ranges; those that the job does not have are passed over.
        """
        found = self.inner.read_job(job)
        rows = {} if found is None else found.ranges
        heads = {rows[each].handover_with or each for each in range_ids if each in rows}
        family = {each for each, row in rows.items() if each in heads or row.handover_with in heads}
        self._transactions.wait_for(family, self.land)

    def land(self, *, is_over: bool = False) -> None:
        """Let those commits arrive, or end, whose time has come, or all."""
        for transaction in self._transactions.ending(is_over=is_over):
            try:
                outcome = self.commit(transaction.who, transaction.production)
            except LostCommitsError:
                continue
            if not isinstance(outcome, Committed):
                ranges = ", ".join(map(str, sorted(transaction.locked)))
                raise InvariantError(
                    f"I6: {ranges} changed hands inside a commit that had locked them"
                )
        now_ms = self._clock.monotonic_ms()
        landing = [each for each in self._on_the_wire if is_over or each[0] <= now_ms]
        self._on_the_wire = [each for each in self._on_the_wire if each not in landing]
        for _, who, production in landing:
            self._trace.note(who, "has a commit land late")
            with suppress(LostCommitsError):
                self.commit(who, production)


class SimulatedStore:
    """Stands in for a `Store`: the port, as one process reaches the `SharedStore`.

    Args:
        shared: the store.
        who: the process.
        dice: decide what fails.
        sync: called at the points where the process can die or be paused.
        incarnation: the only one to work with, as for a store of Postgres.
    """

    def __init__(
        self,
        shared: SharedStore,
        who: str,
        dice: Dice,
        sync: Callable[[SyncPoint], None],
        incarnation: str | None = None,
    ) -> None:
        self._shared, self._who, self._dice, self._sync = shared, who, dice, sync
        self._bound_to = incarnation
        self._cut_until_ms = 0.0

    def cut_off(self, duration_ms: float) -> None:
        """Let nothing reach the store for a while; others are not concerned."""
        self._cut_until_ms = max(self._cut_until_ms, self._shared.now_ms + duration_ms)

    @property
    def is_cut_off(self) -> bool:
        """Whether this process cannot reach it."""
        return self._shared.now_ms < self._cut_until_ms

    def commit(self, production: Production) -> CommitOutcome:
        """Commit; the reply, or the commit itself, may get lost."""
        self._sync(SyncPoint.BEFORE_COMMIT)
        self._reach()
        self._shared.unanswered.check(production)
        outcome = self._sent(production)
        if isinstance(outcome, Indeterminate):
            self._shared.unanswered.note(production)
        return outcome

    def _sent(self, production: Production) -> CommitOutcome:
        self._shared.wait_for(production.job, [each.range_id for each in production.fences])
        if self._dice.strikes(Fault.REFUSED):
            raise StoreError("Postgres refused: canceling statement due to lock timeout")
        if self._dice.strikes(Fault.SLOW_COMMIT) and self._shared.begin(
            self._who, production, self._dice.duration_ms()
        ):
            self._sync(SyncPoint.COMMIT_SENT)
            return Indeterminate("the connection died inside COMMIT")
        if self._dice.strikes(Fault.CUT_COMMIT) and self._shared.begin(
            self._who, production, self._dice.duration_ms(), is_cut=True
        ):
            self._sync(SyncPoint.COMMIT_SENT)
            return Indeterminate("the connection died in the middle of a COPY")
        if self._dice.strikes(Fault.LATE_COMMIT):
            self._shared.post(self._who, production, self._dice.duration_ms())
            if self._dice.is_heads():
                # Something on the way has sent it twice: the first was answered, the second is late.
                return self._shared.commit(self._who, production)
            self._sync(SyncPoint.COMMIT_SENT)
            return Indeterminate("the connection died, and the commit is still on its way")
        if self._dice.strikes(Fault.LOST_REPLY):
            if self._dice.is_heads():
                self._shared.commit(self._who, production)
            self._sync(SyncPoint.COMMIT_SENT)
            return Indeterminate("the connection died before there was a reply")
        outcome = self._shared.commit(self._who, production)
        self._sync(SyncPoint.COMMIT_SENT)
        return outcome

    def resolve(self, production: Production) -> CommitOutcome:
        """Look up the outcome of a commit."""
        self._sync(SyncPoint.BEFORE_RESOLVE)
        if self._is_away:
            return Indeterminate("the store is out of reach")
        self._shared.wait_for(production.job, [each.range_id for each in production.fences])
        self.check()
        return self._shared.inner.resolve(production)

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        """Take ranges over."""
        self._sync(SyncPoint.BEFORE_TAKEOVER)
        self._reach()
        self._shared.wait_for(job, range_ids)
        taken = self._shared.inner.acquire(job, range_ids, owner, version, cause)
        self._sync(SyncPoint.AFTER_TAKEOVER)
        return taken

    def read_cells(
        self,
        job: str,
        computation: str,
        tokens: Mapping[RangeId, int],
        keys: Sequence[CellKey],
    ) -> Mapping[CellKey, bytes] | Fenced:
        """Cells that a worker does not have in memory."""
        self._sync(SyncPoint.BEFORE_LOAD)
        self._reach()
        return self._shared.inner.read_cells(job, computation, tokens, keys)

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        """The next cells of a range."""
        self._reach()
        return self._shared.inner.read_cell_page(job, range_id, token, first_hash, cells)

    def open_job(self, spec: JobSpec) -> JobRow:
        """Create or find the job."""
        self._reach()
        return self._shared.inner.open_job(spec)

    def change_splits(self, change: SplitsChange) -> Sequence[RangeRow]:
        """Note which splits a source has got and lost; the reply may get lost, or its receiver die."""
        self._sync(SyncPoint.BEFORE_COMMIT)
        self._reach()
        rows = self._shared.inner.change_splits(change)
        self._sync(SyncPoint.COMMIT_SENT)
        if self._dice.strikes(Fault.LOST_REPLY):
            raise StoreUnreachableError("the connection died before there was a reply")
        return rows

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        """The signals that the master does not know yet."""
        self._reach()
        return self._shared.inner.read_signals(job, after)

    def known_record_ids(
        self, job: str, range_id: RangeId, digests: Sequence[bytes]
    ) -> Collection[bytes]:
        """Which ids the range has."""
        self._reach()
        return self._shared.inner.known_record_ids(job, range_id, digests)

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        """A page of the range's ids."""
        self._reach()
        return self._shared.inner.read_record_ids(job, range_id, after, count)

    def read_requests(self, job: str, after: int) -> Sequence[StoredRequest]:
        """The requests that the driver does not know yet."""
        self._reach()
        return self._shared.inner.read_requests(job, after)

    @property
    def is_another(self) -> bool:
        """Whether the store has become another one than that to work with."""
        return self._bound_to not in (None, self._shared.incarnation)

    def check(self) -> None:
        """Check that the store is the one incarnation to work with.  Raises `StoreRestartedError`."""
        check_incarnation(self._bound_to, self._shared.incarnation, "the simulated store")

    def __getattr__(self, verb: str) -> Any:
        # Verbs that neither masters nor workers use while a job runs.
        return getattr(self._shared.inner, verb)

    @property
    def _is_away(self) -> bool:
        return self._shared.is_down or self._shared.now_ms < self._cut_until_ms

    def _reach(self) -> None:
        if self._is_away:
            raise StoreUnreachableError(
                "the store is out of reach", hint="this is a simulated outage"
            )
        self.check()
