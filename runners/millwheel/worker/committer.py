"""Committer: makes what steps did durable and then sends it; or sends it first, where the user allows that.

**Strong productions** (the default): the steps of one round of the worker, of all its computations, are one commit that
contains their productions.  After the commit these are sent, and the deliveries that were taken in are acknowledged.
What goes to a range of the same worker is handed on within the round; if it is taken in there, then by the same commit,
and it is never kept for itself (ADR 0054).  While the worker has all ranges of the job that is on no channel either
(ADR 0112).

The commit of a round is *under way* while the next round is computed: memory is one commit ahead of what is known to be
durable, and whatever is sent meanwhile is kept back (ADR 0084).  It is *confirmed* before the next one is sent.

**Weak productions**, for code that may run twice: they are sent at once, and the commit does not contain them.  The
commit waits until the receivers have acknowledged them; steps that wait are committed together.  A production that is
not acknowledged within a second is committed with the step after all, so that a slow receiver does not hold up the
senders before it (MillWheel, section 6.1.3 and figure 11).  After a crash the steps that had not been committed are
done again, so receivers may get their productions twice.

**Invariants**

* A delivery is acknowledged when its effects are durable, weak or not; so nothing is ever lost.
* Between two rounds everything strong that was done is durable or under way, in one commit; nothing that relies on that
  has left the worker, or has reached a reader or a count.
* No commit is sent before the one ahead of it is known to have happened.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs

from dataflow.metric_updates import take_updates, uncount
from runners.core.ground.clock import Clock
from runners.errors import StoreError, WorkerStoppedError
from runners.millwheel.model.accounts import Latencies
from runners.millwheel.model.guarantees import BOTH, Guarantees
from runners.millwheel.model.ids import Channel
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.store.commit_or_resolve import (
    CommitResult,
    SubmittedCommit,
    submit_or_resolve,
)
from runners.millwheel.store.port import Committed, Fenced, Store
from runners.millwheel.worker.courier import Courier
from runners.millwheel.worker.handed_on import HandedOn
from runners.millwheel.worker.outgoing import Outgoing
from runners.millwheel.worker.productions import (
    note_durable,
    note_submitted,
    production_of,
    take_in_own,
)
from runners.millwheel.worker.step_limits import STEP_LIMITS
from runners.millwheel.worker.tracing import BundleTracer
from runners.millwheel.worker.worker_step import WorkerStep, merged

#: Weak productions that are not acknowledged after this long are checkpointed.
STRAGGLER_MS = 1_000


@attrs.frozen
class _UnderWay:
    """A commit that was sent: what is durable with it, what that acknowledges, and since when it is under way.

    Attributes:
        since_us: in microseconds since 1970.
    """

    commit: SubmittedCommit
    step: WorkerStep
    channels: Collection[Channel]
    since_us: int


@attrs.define
class _Waiting:
    """Steps that are to be committed together, and the channels that they took deliveries from."""

    since_ms: int = 0
    steps: list[WorkerStep] = attrs.field(factory=list)
    channels: dict[Channel, None] = attrs.field(factory=dict)

    def add(self, step: WorkerStep) -> None:
        """Add a step to those that wait before it."""
        assert not (self.steps and step.is_alone), (
            "steps wait before one that is a commit of its own"
        )
        assert not any(each.is_alone for each in self.steps), (
            "nothing may be added to a step that is a commit of its own"
        )
        self.steps.append(step)

    @property
    def is_acknowledged(self) -> bool:
        """Whether all that they have sent has been acknowledged."""
        return not any(step.unacknowledged for step in self.steps)


class Committer:
    """Makes the steps of one worker durable; not thread-safe.

    Args:
        job: its name.
        worker: its name, for errors.
        store: commits productions.
        courier: sends deliveries and acknowledgements.
        outgoing: what the worker sends by; keeps back while a commit is under way.
        clock: for stragglers.
        guarantees: of computations that do not have both.
        round_bytes_max: a commit has more only if it is of one step, in bytes; what there is goes before that.
        commits: called when a commit is waited for, with the time in microseconds when it was sent, and with 0 when its
            outcome is known.
        tracing: of the worker; None: nothing is traced.
        send: makes what is sent on channels of what was handed on and is not taken in.
    """

    def __init__(
        self,
        job: str,
        worker: str,
        store: Store,
        courier: Courier,
        outgoing: Outgoing,
        clock: Clock,
        guarantees: Mapping[str, Guarantees],
        round_bytes_max: int = STEP_LIMITS.nbytes,
        commits: Callable[[int], None] = lambda _: None,
        tracing: BundleTracer | None = None,
        send: Callable[[HandedOn], Sequence[Checkpoint]] = lambda _: (),
    ) -> None:
        self._tracing = tracing or BundleTracer(None, clock)
        self._job, self._worker, self._store = job, worker, store
        self._courier, self._outgoing, self._clock = courier, outgoing, clock
        self._round_bytes_max, self._commits = round_bytes_max, commits
        self._restricted = {name for name, each in guarantees.items() if each != BOTH}
        self._weak = {name for name, each in guarantees.items() if not each.strong_productions}
        #: Of computations with weak productions: the steps whose productions are being waited for, and those after.
        self._closed: dict[str, _Waiting] = {}
        self._open: dict[str, _Waiting] = {}
        #: Of all other computations: the steps of this round.
        self._round, self._round_bytes = _Waiting(), 0
        #: What they have handed on, by its receiver, who has not taken it in.
        self._handed_on: dict[str, list[HandedOn]] = {}
        self._send_handed_on = send
        #: Committed late records, dead letters and stragglers; and what the worker counts itself.
        self.counts: Counter[str] = Counter()
        #: How long it has waited for the store, in milliseconds.
        self.waited_ms = 0
        #: How long each commit took.
        self.latencies = Latencies()
        #: The commit that is under way, and whether a watermark is all that it has.
        self._under_way: _UnderWay | None = None
        self._is_empty = False
        #: Called when a commit that was under way is durable.
        self.when_confirmed: Callable[[], None] = lambda: None

    def commit(self, step: WorkerStep | None, taken_in: Iterable[Channel] = ()) -> None:
        """Commit a step, at the end of the round at the latest, and acknowledge the deliveries that it took in then.

        Args:
            step: what it did; None: nothing, so there is only something to acknowledge.
            taken_in: the channels that it took deliveries from.

        Raises:
            WorkerStoppedError: the commit did not happen, or it is unknown whether it did.
        """
        if step is None:
            uncount()
            self._courier.acknowledge(taken_in)
            return
        name = self._seal(step).computation
        if name not in self._weak:
            self._add_to_round(step, taken_in)
            return
        self._send(step.checkpoints)
        waiting = self._open.get(name)
        if waiting is None:
            waiting = self._open[name] = _Waiting(self._clock.monotonic_ms())
        waiting.add(step)
        waiting.channels.update(dict.fromkeys(taken_in))
        self._resolve(name)

    def commit_at_once(self, step: WorkerStep) -> None:
        """Commit a step that sends nothing, also where productions are weak.  Raises as `commit` does."""
        self.commit_round()
        self._submit(self._seal(step))
        self.confirm()

    def _seal(self, step: WorkerStep) -> WorkerStep:
        """Note in a step how far its ranges have come, and what user code has counted since the step before."""
        return step.seal(take_updates(self._clock.now_us()))

    @property
    def is_round_empty(self) -> bool:
        """Whether nothing was done in this round that is to be committed."""
        return not self._round.steps

    def is_weak(self, computation: str) -> bool:
        """Whether the productions of a computation are weak, so that its steps may wait to be committed."""
        return computation in self._weak

    def commit_round(self) -> None:
        """Send the commit of this round's steps, when the one before is durable.  Raises as `commit` does."""
        for receiver in list(self._handed_on):
            self.send_handed_on(receiver)
        steps, channels = self._round.steps, self._round.channels
        if not steps:
            return
        is_empty, self._round, self._round_bytes = not self._round_bytes, _Waiting(), 0
        step = merged(steps)
        take_in_own(step)
        self._submit(step, channels)
        self._is_empty = is_empty
        self._send(step.unacknowledged)
        if step.is_alone:
            self.confirm()

    def take_handed_on(self, receiver: str, bytes_max: int) -> Sequence[HandedOn]:
        """Take what was handed on to a computation in this round; the step that takes it in says so.

        Args:
            receiver: the name of the computation.
            bytes_max: what has more is sent on channels, as is what must not overtake something sent before.
        """
        handed_on = self._handed_on.get(receiver, ())
        if not handed_on:
            return ()
        if (
            self._courier.inbox.has(receiver)
            or sum(each.nbytes for each in handed_on) > bytes_max
            or any(self._courier.has_on_its_way(each.sender, receiver) for each in handed_on)
        ):
            self.send_handed_on(receiver)
            return ()
        return self._handed_on.pop(receiver)

    def send_handed_on(self, receiver: str) -> None:
        """Send on channels what was handed on to a computation that does not take it in within the round."""
        for each in self._handed_on.pop(receiver, ()):
            sender = each.sender
            step = WorkerStep(
                ranges={sender.range_id: sender}, checkpoints=self._send_handed_on(each)
            )
            self._round.add(step)
            for checkpoint in step.checkpoints:
                self._courier.hand_on(checkpoint)

    def confirm(self) -> None:
        """Wait until all that was sent to be committed is durable, and let go what was kept back for it.

        Raises as `commit` does, and again each time, since what is in memory relies on it.
        """
        if self._under_way is None:
            return
        under_way, began_ms = self._under_way, self._clock.monotonic_ms()
        step, commit = under_way.step, under_way.commit
        self._commits(under_way.since_us)
        result = commit.result()
        self._commits(0)
        self.waited_ms += self._clock.monotonic_ms() - began_ms
        if step.traces:
            self._tracing.committed(step, commit.production, under_way.since_us, result)
        if not isinstance(result.outcome, Committed):
            raise self._stopped(result)
        self._under_way = None
        self.latencies.note(under_way.since_us, self._clock.now_us())
        note_durable(step)
        self.counts["late"] += sum(late.count for late in step.late)
        self.counts["dead"] += len(step.dead)
        self.when_confirmed()
        self._outgoing.release()
        began_us = self._clock.now_us() if step.traces else 0
        self._courier.acknowledge(under_way.channels)
        if step.traces:
            self._tracing.has_acknowledged(step, began_us)

    def confirm_if_answered(self) -> None:
        """Confirm without waiting, if that can be done.  Raises as `commit` does."""
        if self._under_way is not None and self._under_way.commit.is_answered:
            self.confirm()

    @property
    def is_confirmed(self) -> bool:
        """Whether no commit is under way."""
        return self._under_way is None

    @property
    def is_of_watermarks_alone(self) -> bool:
        """Whether a watermark is all that is under way: a round beside it would have a commit for as little."""
        return self._is_empty and not self.is_confirmed

    def _add_to_round(self, step: WorkerStep, taken_in: Iterable[Channel]) -> None:
        nbytes = step.nbytes
        is_full = self._round_bytes + nbytes > self._round_bytes_max
        if step.is_alone or (is_full and not step.takes_handed_on):
            self.commit_round()
        self._round.add(step)
        if self._handed_on:
            sent_to = {each.channel.receiver.computation for each in step.checkpoints}
            assert sent_to.isdisjoint(self._handed_on), (
                "what is sent would overtake what was handed on before it"
            )
        for each in step.handed_on:
            self._handed_on.setdefault(each.receiver, []).append(each)
        self._round.channels.update(dict.fromkeys(taken_in))
        self._round_bytes += nbytes
        if step.is_alone or self._round_bytes > self._round_bytes_max:
            self.commit_round()
            return
        for checkpoint in step.checkpoints:
            # Without all guarantees no number in the store would tell that the receiver has taken it in.
            if checkpoint.channel.receiver.computation not in self._restricted:
                self._courier.hand_on(checkpoint)

    def resolve(self) -> bool:
        """Commit what has been acknowledged, or has waited long enough; returns whether there was anything."""
        worked = False
        for name in {**self._closed, **self._open}:
            worked |= self._resolve(name)
        return worked

    def flush(self, computation: str) -> None:
        """Commit all that is left of a computation, as strong productions; then its ranges may change their owner."""
        self.commit_round()
        for waiting in (self._closed.pop(computation, None), self._open.pop(computation, None)):
            if waiting is not None:
                self._finish(waiting)
        self.confirm()

    def is_behind(self, computation: str) -> bool:
        """Whether steps of a computation wait to be committed."""
        return computation in self._closed or computation in self._open

    @property
    def is_idle(self) -> bool:
        """Whether everything is durable."""
        return self.is_confirmed and not self._closed and not self._open and not self._round.steps

    def _resolve(self, name: str) -> bool:
        worked = False
        while True:
            waiting = self._closed.get(name)
            if waiting is not None:
                waited_ms = self._clock.monotonic_ms() - waiting.since_ms
                if not waiting.is_acknowledged and waited_ms < STRAGGLER_MS:
                    return worked
                del self._closed[name]
                self._finish(waiting)
                worked = True
            if name not in self._open:
                return worked
            self._closed[name] = self._open.pop(name)

    def _finish(self, waiting: _Waiting) -> None:
        # What is under way may be a receiver's of this worker, and acknowledge some of these: a straggler that is made
        # durable when it has been acknowledged would stay in the store.
        self.confirm()
        step = merged(waiting.steps)
        # What was acknowledged meanwhile need not become durable.
        stragglers = step.unacknowledged
        self.counts["stragglers"] += len(stragglers)
        self._submit(attrs.evolve(step, checkpoints=stragglers), waiting.channels)
        self.confirm()

    def _submit(self, step: WorkerStep, channels: Collection[Channel] = ()) -> None:
        try:
            commit = submit_or_resolve(
                self._store, production_of(self._job, step, self._courier.ranges), self.confirm
            )
        except StoreError:
            # It cannot be sent as it is; what is blamed for that is not what the one ahead has done.
            self.confirm()
            raise
        self._under_way = _UnderWay(commit, step, channels, self._clock.now_us())
        self._outgoing.keep_back()
        note_submitted(step)

    def _stopped(self, result: CommitResult) -> WorkerStoppedError:
        """The error that stops the worker: the final outcome of the commit, and the first one."""
        outcome = result.outcome
        if isinstance(outcome, Fenced):
            why = f"{outcome.range_id} is not this worker's (any more), so nothing of its last commit happened"
        else:
            why = "the store does not report what became of its last commit"
        return WorkerStoppedError(
            f"worker {self._worker} stops: {why}",
            detail=result.detail,
            hint="its ranges go on from what the store has",
        )

    def _send(self, checkpoints: Iterable[Checkpoint]) -> None:
        for checkpoint in checkpoints:
            self._courier.send(checkpoint)
