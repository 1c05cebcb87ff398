"""SimulatedStore: a worker's connection to the store, which breaks when the dice decide it.

`SharedStore` is the other end: one memory store for the whole job, whose every commit is checked.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

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


@attrs.define(eq=False)
class Sent:
    """A commit on its way, for as long as that takes, or until its process waits for it.

    Attributes:
        outcome: what became of it, once it has arrived.
    """

    due_ms: int
    who: str
    production: Production
    outcome: CommitOutcome | LostCommitsError | None = None


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
        self._on_the_wire: list[Sent] = []
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

    def post(self, who: str, production: Production, delay_ms: int) -> Sent:
        """Send a commit that arrives later, whether its process is there then or not.

        Args:
            who: the process, which does not know the outcome.
            production: what it commits.
            delay_ms: from now on, in virtual time.
        """
        sent = Sent(self._clock.monotonic_ms() + delay_ms, who, production)
        self._on_the_wire.append(sent)
        return sent

    def wait_for_answer(self, sent: Sent) -> CommitOutcome:
        """Wait until a commit has arrived, and return its outcome, unless it has got lost with the former store.

        Args:
            sent: on its way.

        Raises:
            LostCommitsError: what the store has raised.
        """
        if sent in self._on_the_wire:
            self._on_the_wire.remove(sent)
            self._arrive(sent)
        if isinstance(sent.outcome, LostCommitsError):
            raise sent.outcome
        return sent.outcome or Indeterminate("the connection died before there was a reply")

    def _arrive(self, sent: Sent) -> None:
        try:
            sent.outcome = self.commit(sent.who, sent.production)
        except LostCommitsError as error:
            sent.outcome = error

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
        landing = [each for each in self._on_the_wire if is_over or each.due_ms <= now_ms]
        self._on_the_wire = [each for each in self._on_the_wire if each not in landing]
        for each in landing:
            self._trace.note(each.who, "has a commit arrive that it does not wait for")
            self._arrive(each)


class SimulatedCommit:
    """A commit that a process has submitted; its outcome can be asked for again.

    Args:
        wait: makes it arrive, if it has not, and returns its outcome; called once.
        has_answer: whether its answer is there.
    """

    def __init__(self, wait: Callable[[], CommitOutcome], has_answer: Callable[[], bool]) -> None:
        self._wait: Callable[[], CommitOutcome] | None = wait
        self._has_answer = has_answer
        self._outcome: CommitOutcome | StoreError | None = None
        #: Whether the process has asked for the outcome.
        self.is_known = False

    @property
    def is_answered(self) -> bool:
        """Whether its answer is there."""
        return self._wait is None or self._has_answer()

    def wait(self) -> None:
        """Let it happen."""
        wait, self._wait = self._wait, None
        if wait is None:
            return
        try:
            self._outcome = wait()
        except StoreError as error:
            self._outcome = error

    def outcome(self) -> CommitOutcome:
        """What became of it; raises what the store has raised."""
        self.is_known = True
        self.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, StoreError):
            raise self._outcome
        return self._outcome


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
        #: The commit that was submitted last.
        self._under_way: SimulatedCommit | None = None

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
        returns = self._shared.unanswered.returns
        outcome = self._sent(production)
        if isinstance(outcome, Indeterminate):
            self._shared.unanswered.note(production, returns)
        return outcome

    def submit(
        self, production: Production, ready: Callable[[], None] = lambda: None
    ) -> SimulatedCommit:
        """Commit at once, or only when the process waits for it, or on its own in between, by chance.

        So others act while it is under way, and the process can die before or after it has happened.
        """
        ready()
        if self._is_under_way:
            raise InvariantError("I6: a commit is sent before that ahead of it has an outcome")
        travel_ms = self._dice.travel_ms()
        if travel_ms:
            sent = self._sent_off(production, travel_ms)
            wait = partial(self._answer_to, sent, self._shared.unanswered.returns)
        else:
            wait = partial(self.commit, production)
        under_way = self._under_way = SimulatedCommit(wait, self._dice.is_answered)
        if travel_ms == 0:
            under_way.wait()
        return under_way

    def _sent_off(self, production: Production, travel_ms: int) -> Sent:
        self._sync(SyncPoint.BEFORE_COMMIT)
        self._reach()
        self._shared.unanswered.check(production)
        return self._shared.post(self._who, production, travel_ms)

    def _answer_to(self, sent: Sent, returns: int) -> CommitOutcome:
        outcome = self._shared.wait_for_answer(sent)
        self._sync(SyncPoint.COMMIT_SENT)
        if self._is_away or self._dice.strikes(Fault.LOST_REPLY):
            outcome = Indeterminate("the connection died before there was a reply")
        if isinstance(outcome, Indeterminate):
            self._shared.unanswered.note(sent.production, returns)
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
        self._ask()
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
        self._ask()
        return self._shared.inner.read_cells(job, computation, tokens, keys)

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        """The next cells of a range."""
        self._ask()
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
        self._ask()
        return self._shared.inner.known_record_ids(job, range_id, digests)

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        """A page of the range's ids."""
        self._ask()
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

    @property
    def _is_under_way(self) -> bool:
        return self._under_way is not None and not self._under_way.is_known

    def _ask(self) -> None:
        if self._is_under_way:
            raise InvariantError(
                "I6: a worker asks the store for something while its commit is under way"
            )
        self._reach()

    def _reach(self) -> None:
        if self._is_away:
            raise StoreUnreachableError(
                "the store is out of reach", hint="this is a simulated outage"
            )
        self.check()
