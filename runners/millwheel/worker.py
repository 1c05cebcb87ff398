"""Worker: owns ranges, steps their computations, commits, and only then speaks.

The imperative shell around the pure parts: `Worker.step` does one round of work and never waits;
whoever runs it decides how
to wait (`runners.streaming.worker_task` on a cluster, a loop in a test).

**Invariants**

* Nothing leaves a worker before the commit that makes it durable: no delivery, no acknowledgement, no watermark.
* A worker that is fenced, or does not know whether it committed, stops; its successor starts from the store.

MillWheel, sections 4.1, 6.1 and 6.2.
"""

from collections.abc import Iterable, Mapping
from traceback import format_exception

import attrs

from dataflow.errors import DataflowError
from dataflow.serialization import dumps_code
from runners.core.clock import Clock
from runners.core.plan import ExecutionPlan
from runners.errors import JobFailedError, StoreError
from runners.millwheel.computation import Computation, build_computations
from runners.millwheel.draft import Draft
from runners.millwheel.grouping_computation import GroupingComputation
from runners.millwheel.ids import Channel, RangeId
from runners.millwheel.inbox import Inbox
from runners.millwheel.messages import (
    Acknowledge,
    Assign,
    Deliver,
    Failed,
    Ready,
    Register,
    Released,
    Report,
    Revoke,
    Routes,
    Stop,
    Watermarks,
    decode,
    encode,
)
from runners.millwheel.owned_range import OwnedRange
from runners.millwheel.signals import SignalNews
from runners.millwheel.source_computation import SourceComputation
from runners.millwheel.store.port import Committed, Indeterminate, Store
from runners.millwheel.token_bucket import TokenBucket
from runners.millwheel.transport import Transport
from windowing.timestamps import MIN_TIMESTAMP_US

#: Records that a source hands over in one step.
RECORDS_PER_STEP = 5_000
#: Deliveries that one step of a computation takes in.
DELIVERIES_PER_STEP = 64
#: A source range stops reading, and a computation working, while this much of what it sent is not acknowledged.
UNACKNOWLEDGED_BYTES_MAX = 4 << 20
#: Longest silence towards the master.
REPORT_INTERVAL_MS = 100
#: Unacknowledged deliveries are sent again after this long; only a lost message needs it.
RESEND_INTERVAL_MS = 2_000


class WorkerStoppedError(DataflowError):
    """This worker must not go on: another owns its ranges, or its last commit is unknown."""


@attrs.frozen(kw_only=True)
class WorkerSpec:
    """What a worker is started with; travels inside the task closure.

    ``records_per_second`` limits each source range, None for as fast as it can.
    ``tries``: of a record that makes user code fail, see `runners.core.poison`; None: the first failure stops the job.
    """

    job: str
    slot: int
    worker: str
    master: str
    range_counts: Mapping[str, int]
    records_per_second: float | None = None
    tries: int | None = None


class Worker:
    """One worker; not thread-safe."""

    def __init__(
        self,
        spec: WorkerSpec,
        plan: ExecutionPlan,
        store: Store,
        transport: Transport,
        clock: Clock,
    ) -> None:
        self._spec, self._store, self._transport, self._clock = spec, store, transport, clock
        self._computations = build_computations(spec.job, plan, spec.range_counts, tries=spec.tries)
        self._ranges: dict[RangeId, OwnedRange] = {}
        self._buckets: dict[RangeId, TokenBucket] = {}
        self._routes: dict[RangeId, str] = {}
        self._inbox = Inbox(self._ranges)
        self._inputs_us: dict[str, int] = {}
        self._percentiles_us: dict[str, int] = {}
        #: What the master said last of signals, until it is acted on.
        self._news: SignalNews | None = None
        self._records_read = self._records_late = self._records_dead = 0
        self._reported_ms = self._resent_ms = clock.monotonic_ms()
        self._last_report: Report | None = None
        #: When the master was last heard.
        self.heard_ms = clock.monotonic_ms()
        self.is_stopped = False

    def start(self) -> None:
        """Set user code up and tell the master that this worker is here."""
        for computation in self._computations.values():
            computation.setup()
        self._tell_master(
            Register(
                slot=self._spec.slot, worker=self._spec.worker, address=self._transport.address
            )
        )

    def close(self) -> None:
        """Tear user code down."""
        for computation in self._computations.values():
            computation.close()

    def step(self, wait_ms: int = 0) -> bool:
        """One round: what has arrived, then deliveries, timers and sources; whether there was anything to do.

        Raises:
            WorkerStoppedError: the worker lost its ranges or does not know its state any more.
        """
        arrived = self._transport.receive(wait_ms)
        try:
            for blob in arrived:
                self._handle(decode(blob))
            worked = self._work()
            if not worked:
                self._flush_acknowledged()
        except (WorkerStoppedError, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the job must hear of it
            # User code or input: the next worker would meet the same.
            self._fail(error)
            return False
        self._report(is_busy=worked)
        self._resend_stale()
        return worked

    def _work(self) -> bool:
        worked = self._act_on_signals()
        for name, computation in self._computations.items():
            if isinstance(computation, GroupingComputation):
                if computation.open_bytes > UNACKNOWLEDGED_BYTES_MAX:
                    continue  # those who receive from it are slow: neither more input nor more output
                # First the watermark: whoever owned a range before may have acted on it, and told the world so, without
                # a commit; a record behind it must be late here, or what it makes is late for the next computation.
                worked |= self._advance(name, computation)
                worked |= self._take_deliveries(name, computation)
            else:
                worked |= self._read(computation)
        return worked

    def _act_on_signals(self) -> bool:
        news, self._news = self._news, None
        worked = False
        if news is not None:
            for computation in self._computations.values():
                for draft in computation.hear(news, self._clock.now_us()):
                    self._commit(draft)
                    worked = True
        return worked

    def _take_deliveries(self, name: str, computation: GroupingComputation) -> bool:
        deliveries = self._inbox.take(name, DELIVERIES_PER_STEP)
        if not deliveries:
            return False
        self._commit(computation.deliver(deliveries, self._clock.now_us()))
        self._acknowledge(dict.fromkeys(each.channel for each in deliveries))
        return True

    def _advance(self, name: str, computation: GroupingComputation) -> bool:
        said = (
            self._inputs_us.get(name, MIN_TIMESTAMP_US),
            self._percentiles_us.get(name, MIN_TIMESTAMP_US),
        )
        worked = False
        while computation.has_due(*said, now_us := self._clock.now_us()):
            self._commit(computation.advance(*said, now_us))
            worked = True
        return worked

    def _read(self, computation: SourceComputation) -> bool:
        worked = False
        for owned in computation.unfinished():
            if owned.outbox.open_bytes > UNACKNOWLEDGED_BYTES_MAX:
                continue
            bucket = self._buckets[owned.range_id]
            allowed = bucket.available(RECORDS_PER_STEP)
            if not allowed:
                continue
            draft, count = computation.read(owned.range_id, allowed, now_us=self._clock.now_us())
            bucket.spend(count)
            self._commit(draft)
            self._records_read += count
            worked |= draft is not None
        return worked

    def _commit(self, draft: Draft | None) -> None:
        if draft is None:
            return
        production = draft.production()
        outcome = self._store.commit(production)
        if isinstance(outcome, Indeterminate):
            outcome = self._store.resolve(production)
        if not isinstance(outcome, Committed):
            raise WorkerStoppedError(f"worker {self._spec.worker} stops: {outcome}")
        draft.committed()
        self._records_late += sum(late.count for late in production.late)
        self._records_dead += len(production.dead)
        for checkpoint in draft.checkpoints:
            self._deliver(Deliver(checkpoint.channel, checkpoint.sequence, checkpoint.payload))

    def _deliver(self, delivery: Deliver) -> None:
        receiver = delivery.channel.receiver
        if receiver in self._ranges:
            if self._inbox.put(delivery):
                self._acknowledge([delivery.channel])
            return
        self._send(receiver, delivery)

    def _acknowledge(self, channels: Iterable[Channel]) -> None:
        for channel in channels:
            owned = self._ranges.get(channel.receiver)
            sequence = owned.delivered.get(channel, 0) if owned else 0
            if not sequence:
                continue
            sender = self._ranges.get(channel.sender)
            if sender is not None:
                sender.outbox.acknowledge(channel, sequence)
            else:
                self._send(channel.sender, Acknowledge(channel, sequence))

    def _send(self, range_id: RangeId, message: Deliver | Acknowledge) -> None:
        # Without a route the range is changing hands: its next owner is sent everything, or sends
        # again and is answered.
        address = self._routes.get(range_id)
        if address is not None:
            self._transport.send(address, encode(message))

    def _flush_acknowledged(self) -> None:
        """Delete what has been acknowledged although nothing else is to be committed."""
        waiting = [owned for owned in self._ranges.values() if owned.outbox.has_acknowledged]
        if waiting:
            draft = Draft(self._spec.job)
            for owned in waiting:
                draft.touch(owned)
            self._commit(draft)

    def _handle(self, message: object) -> None:
        if isinstance(message, Deliver):
            if self._inbox.put(message):
                self._acknowledge([message.channel])
        elif isinstance(message, Acknowledge):
            owned = self._ranges.get(message.channel.sender)
            if owned is not None:
                owned.outbox.acknowledge(message.channel, message.sequence)
        elif isinstance(message, Watermarks):
            self._hear(message.inputs_us, message.percentiles_us, message.signals)
        elif isinstance(message, Assign):
            self._take_over(message)
        elif isinstance(message, Revoke):
            self._release(message)
        elif isinstance(message, Routes):
            self._reroute(message)
        elif isinstance(message, Stop):
            self.is_stopped = True

    def _hear(
        self, inputs_us: Mapping[str, int], percentiles_us: Mapping[str, int], news: SignalNews
    ) -> None:
        self.heard_ms = self._clock.monotonic_ms()
        self._news = news
        for known_us, heard_us in (
            (self._inputs_us, inputs_us),
            (self._percentiles_us, percentiles_us),
        ):
            for name, watermark_us in heard_us.items():
                known_us[name] = max(watermark_us, known_us.get(name, watermark_us))

    def _take_over(self, assign: Assign) -> None:
        self._hear(assign.watermarks_us, assign.percentiles_us, assign.signals)
        # It is asked again when its answer is lost.
        missing = [range_id for range_id in assign.ranges if range_id not in self._ranges]
        taken = self._store.acquire(self._spec.job, missing, self._spec.worker) if missing else {}
        for range_id, each in taken.items():
            computation: Computation = self._computations[range_id.computation]
            self._ranges[range_id] = computation.take(each)
            self._buckets[range_id] = TokenBucket(self._clock, self._spec.records_per_second)
        for name in dict.fromkeys(range_id.computation for range_id in taken):
            computation = self._computations[name]
            if isinstance(computation, GroupingComputation):
                self._advance(name, computation)
        # Also to ranges that were here before, whose routes do not change.
        self._send_again({*self._routes, *self._ranges}, taken)
        ready = Ready(slot=self._spec.slot, worker=self._spec.worker, ranges=assign.ranges)
        self._tell_master(ready)

    def _release(self, revoke: Revoke) -> None:
        # Every step has committed what it did, so there is nothing to say any more; what waits is sent again.
        for range_id in revoke.ranges:
            if range_id not in self._ranges:
                continue
            self._computations[range_id.computation].release(range_id)
            del self._ranges[range_id], self._buckets[range_id]
            self._inbox.forget(range_id)
        released = Released(slot=self._spec.slot, worker=self._spec.worker, ranges=revoke.ranges)
        self._tell_master(released)

    def _reroute(self, routes: Routes) -> None:
        changed = {
            range_id
            for range_id, address in routes.addresses.items()
            if self._routes.get(range_id) != address
        }
        for address in set(self._routes.values()) - set(routes.addresses.values()):
            self._transport.forget(address)
        self._routes = dict(routes.addresses)
        self._send_again(changed, self._ranges)

    def _resend_stale(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._resent_ms >= RESEND_INTERVAL_MS:
            self._resent_ms = now_ms
            self._send_again(set(self._routes) - set(self._ranges), self._ranges)

    def _send_again(self, receivers: set[RangeId], senders: Iterable[RangeId]) -> None:
        for owned in [self._ranges[each] for each in senders]:
            for checkpoint in list(owned.outbox.for_receivers(receivers)):
                self._deliver(Deliver(checkpoint.channel, checkpoint.sequence, checkpoint.payload))

    def _report(self, *, is_busy: bool) -> None:
        now_ms = self._clock.monotonic_ms()
        watermarks_us = {
            range_id: owned.advance_output() for range_id, owned in self._ranges.items()
        }
        report = Report(
            slot=self._spec.slot,
            worker=self._spec.worker,
            watermarks_us=watermarks_us,
            idle=frozenset(
                range_id
                for range_id, owned in self._ranges.items()
                if owned.is_idle and owned.outbox.is_empty
            ),
            signals={
                range_id: number
                for range_id, owned in self._ranges.items()
                if (number := owned.passed_signal())
            },
            percentiles_us={
                range_id: percentile_us
                for range_id, owned in self._ranges.items()
                if (percentile_us := owned.passed_percentile_us()) is not None
            },
            progress={
                range_id: progress
                for range_id, owned in self._ranges.items()
                if (progress := owned.passed_progress()) is not None
            },
            is_quiet=all(owned.outbox.is_empty for owned in self._ranges.values()),
            records_read=self._records_read,
            records_late=self._records_late,
            records_dead=self._records_dead,
        )
        is_news = report != self._last_report
        if now_ms - self._reported_ms >= REPORT_INTERVAL_MS or (is_news and not is_busy):
            self._last_report, self._reported_ms = report, now_ms
            self._tell_master(report)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, DataflowError):
            error = JobFailedError(
                f"worker {self._spec.worker} met an unexpected {type(error).__name__}: {error}",
                detail="".join(format_exception(error)).strip(),
            )
        self._tell_master(Failed(worker=self._spec.worker, error=dumps_code(error, "an error")))
        self.is_stopped = True

    def _tell_master(self, message: object) -> None:
        self._transport.send(self._spec.master, encode(message))
