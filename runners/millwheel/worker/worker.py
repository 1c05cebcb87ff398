"""Worker: owns ranges, steps their computations, commits, and sends only after the commit.

The imperative shell around the pure parts: `Worker.step` does one round of work, a step or two of each computation in
one commit (ADR 0054), which is under way while the next round is computed (ADR 0084); it waits for nothing else.  Its
caller decides how to wait for more to do (`runners.streaming.worker_task` on a cluster, a loop in a test).

**Invariants**

* Nothing leaves a worker before the commit that makes it durable: no delivery, no acknowledgement, no watermark.
* A worker that is fenced, or does not know whether it committed, stops; its successor starts from the store.
* A worker that receives nothing from its master stops by its own clock, however much it has to do.

MillWheel, sections 4.1, 6.1 and 6.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from traceback import format_exception
from types import MappingProxyType

import attrs

from dataflow.errors import DataflowError
from dataflow.metric_updates import collecting
from dataflow.times import in_words
from runners.core.ground.clock import Clock
from runners.core.stages.plan import ExecutionPlan
from runners.errors import JobFailedError, LostCommitsError, StoreError, WorkerStoppedError
from runners.millwheel.control.shapes import MergeKeys, RangeShape, Routing, SplitKeys
from runners.millwheel.model.accounts import WorkerAccount
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.events import UNKNOWN, Cause, EventKind
from runners.millwheel.model.ids import Channel, CommitMark, RangeId
from runners.millwheel.model.long_waits import LongWaits
from runners.millwheel.model.signals import SignalNews
from runners.millwheel.model.troubles import Trouble, TroubleKind
from runners.millwheel.store.channel_ends import check_not_older
from runners.millwheel.store.port import Store
from runners.millwheel.wire.messages import (
    Acknowledge,
    Assign,
    Deliver,
    EndHandover,
    EndSplits,
    Failed,
    HandoverEnded,
    RangesReleased,
    Ready,
    Register,
    Revoke,
    Routes,
    Stop,
    Waiting,
    Watermarks,
    decode,
    encode,
)
from runners.millwheel.wire.transport import Transport
from runners.millwheel.worker.caution import (
    UNWATCHED,
    Caution,
    Watch,
    of_deliveries,
    of_due,
    of_handed_on,
    of_split,
)
from runners.millwheel.worker.committer import Committer
from runners.millwheel.worker.compactor import Compactor
from runners.millwheel.worker.confirmed_reads import ConfirmedReads
from runners.millwheel.worker.courier import Courier
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.outgoing import Outgoing
from runners.millwheel.worker.own_watermarks import OwnWatermarks
from runners.millwheel.worker.owned_computation import Computation, build_computations, counts_of
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.reading_pace import (
    HELD_UP_REPORTED_AFTER_MS,
    ReadingPace,
    is_overrun,
    unacknowledged,
    why_not_read,
)
from runners.millwheel.worker.reports import Reporter
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.silence import MASTER_SILENCE_MS, Silence
from runners.millwheel.worker.source_computation import SourceComputation
from runners.millwheel.worker.tracing import BundleTracer, SpanMaker
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.millwheel.worker.worker_step import WorkerStep
from runners.stored.errors import encode_error
from triggers.clocks import Clocks
from windowing.errors import error_text
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Where other ranges have work, a range whose only work is to delete acknowledged productions waits so long.
FLUSH_INTERVAL_MS = 1_000
#: A round is long in which a worker is at work for so long, without the wait for its commit: it has much to do, since a
#: round takes in whatever has come during the one before, and so grows with the load.  Where other workers have ranges
#: the commit of such a round is waited for, since what it sends to them would wait for another round like it.
LONG_ROUND_MS = 10
#: Nobody receives records from a worker that has all ranges.  The commit of so long a round is waited for all the same:
#: beside it that is little, and reports and readers of sources do not wait for another one like it.
VERY_LONG_ROUND_MS = 100
#: Where a worker computes the watermarks itself, those by which nothing is due move so often: as often as busy workers
#: report to a master that computes them.
OWN_WATERMARK_INTERVAL_MS = 10
#: And no more often than so many ranges in a millisecond: some hundredths of a worker's time.
MOVED_RANGES_PER_MS = 10
#: With more ranges each commit would have to write too much about how far all of them have come.
CUT_RANGES_MAX = 32


@attrs.frozen(kw_only=True)
class WorkerSpec:
    """The parameters of one worker; travels inside the task closure.

    Attributes:
        workers: how many there are.
    """

    job: str
    slot: int
    workers: int = 1
    worker: str
    master: str
    version: int = 0
    options: WorkerOptions = attrs.field(factory=WorkerOptions)


class Worker:
    """One worker; not thread-safe.

    Args:
        spec: what distinguishes it from other workers, and its options.
        plan: the pipeline.
        store: the durable state of the job.
        transport: its endpoint of the network, to the master and the other workers.
        clock: both the time of day, for processing time, and the monotonic one.
        watch: of the process, from outside, for user code that kills it; by default there is none.
        spans: makes spans of what it does; None: nothing is traced.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        plan: ExecutionPlan,
        store: Store,
        transport: Transport,
        clock: Clock,
        watch: Watch = UNWATCHED,
        spans: SpanMaker | None = None,
    ) -> None:
        self._spec, self._store, self._clock = spec, store, clock
        self._outgoing = Outgoing(transport)
        self._router = Router(plan, spec.options)
        self._ranges: dict[RangeId, OwnedRange] = {}
        self._pace = ReadingPace(spec.options, clock)
        self._tracing = BundleTracer(spans, clock)
        self._courier = Courier(self._ranges, self._outgoing, clock, self._tracing)
        self._committer = Committer(
            spec.job,
            spec.worker,
            store,
            self._courier,
            self._outgoing,
            clock,
            spec.options.guarantees,
            spec.options.steps.nbytes,
            watch.commits,
            self._tracing,
            self._router.send,
        )
        reads = ConfirmedReads(store, self._committer.confirm)
        self._computations = build_computations(spec.job, plan, self._router, reads, spec.options)
        self._reporter = self._made_reporter(plan)
        self._watch, self._caution = watch, Caution(self._computations, watch, clock)
        #: For how long it was at work and waited for something to do, and until when that is counted.
        self._busy_ms = self._idle_ms = 0
        self._counted_ms = clock.monotonic_ms()
        self._committer.when_confirmed = self._caution.confirmed
        self._waits = LongWaits(
            clock,
            HELD_UP_REPORTED_AFTER_MS,
            lambda place, reason, *, is_over: self.report_waiting(reason, place, is_over=is_over),
        )
        self._compactor = Compactor(self._computations, self._committer, self._caution, clock)
        #: The input watermarks that groupings act by, and those of the master, which they may be ahead of.
        self._inputs_us, self._sent_us = dict[str, int](), dict[str, int]()
        self._own_watermarks = OwnWatermarks(self._ranges, plan, spec.options.guarantees)
        #: When those were last moved whatever was due.
        self._moved_ms = clock.monotonic_ms()
        self._percentiles_us = dict[str, int]()
        self._slowest_source_us = MIN_TIMESTAMP_US
        self._is_draining = False
        #: Splits that their input does not have any more.
        self._removed: set[RangeId] = set()
        #: Whether sources are not read; on the way to another pipeline they never are.
        self._is_pausing = plan.retirement is not None
        #: Whether state is converted, and so nothing may be taken in or fire that would need it as it was.
        self._is_converting = plan.retirement is not None and plan.retirement.is_converting
        #: The master's last news of signals, until windows have fired by them.
        self._news: SignalNews | None = None
        #: When the master sent the message received last, by its own clock.
        self._sent_ms = 0
        #: When acknowledged productions were last deleted by a commit of their own.
        self._flushed_ms = clock.monotonic_ms()
        self._silence, self._is_received = Silence(clock), False
        self.is_stopped = False

    def _made_reporter(self, plan: ExecutionPlan) -> Reporter:
        spec = self._spec
        return Reporter(
            spec.slot,
            spec.worker,
            spec.workers,
            self._clock,
            self._send_to_master,
            self._counts,
            self._account if spec.options.reports_on_itself else None,
            senders={each.name: plan.senders(each.name) for each in plan.groupings()},
            due_us=self._due_us,
            ahead_us=self._ahead_us,
            waits_for_master=self._waits_for_master,
        )

    @property
    def has_ranges(self) -> bool:
        """Whether it owns any."""
        return bool(self._ranges)

    def start(self) -> None:
        """Set user code up and register with the master."""
        for computation in self._computations.values():
            computation.setup()
        self._send_to_master(
            Register(slot=self._spec.slot, worker=self._spec.worker, address=self._outgoing.address)
        )

    def close(self) -> None:
        """Tear user code down."""
        for computation in self._computations.values():
            computation.close()

    def step(self, wait_ms: int = 0) -> bool:
        """Do one round: what has arrived, then deliveries, timers and sources; returns whether there was anything.

        Raises:
            WorkerStoppedError: the worker lost its ranges, does not know its state any more, or receives nothing from
                its master.
        """
        arrived = self._outgoing.receive(wait_ms)
        began_ms, committing_ms = self._clock.monotonic_ms(), self._committer.waited_ms
        self._idle_ms += began_ms - self._counted_ms
        try:
            with collecting():
                worked = self._whole_round(arrived)
        except LostCommitsError as error:
            # The next worker would fail in the same way.
            self._outgoing.drop()
            self._fail(error)
            return False
        except (WorkerStoppedError, StoreError):
            self._caution.refused()
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the job must be notified of it
            self._tracing.failed()
            # User code or input: the next worker would fail in the same way.
            self._fail(error)
            return False
        self._counted_ms = self._clock.monotonic_ms()
        took_ms = self._counted_ms - began_ms
        busy_ms = took_ms - (self._committer.waited_ms - committing_ms)
        self._busy_ms += busy_ms
        if busy_ms >= LONG_ROUND_MS:
            self._committer.counts["long_ms"] += took_ms
            self._committer.counts["long_rounds"] += 1
        self._reporter.report(
            self._ranges,
            is_busy=worked,
            is_idle=self._committer.is_idle
            and self._compactor.is_compacted(in_cells=self._is_pausing),
            is_pausing=self._is_pausing,
            as_of_ms=self._sent_ms,
        )
        self._courier.resend_stale()
        return worked

    def _whole_round(self, arrived: Sequence[bytes]) -> bool:
        began_ms, waited_ms = self._clock.monotonic_ms(), self._committer.waited_ms
        try:
            worked = self._round(arrived)
        except (WorkerStoppedError, StoreError):
            raise
        except Exception:
            # What the rounds before have done counts, whatever has failed in this one.
            self._committer.confirm()
            raise
        busy_ms = self._clock.monotonic_ms() - began_ms - (self._committer.waited_ms - waited_ms)
        longest_ms = VERY_LONG_ROUND_MS if self._own_watermarks.are_computed else LONG_ROUND_MS
        waits = busy_ms >= longest_ms or self._committer.is_of_watermarks_alone
        if not worked or waits or self.is_stopped:
            self._committer.confirm()
        return worked

    def _round(self, arrived: Sequence[bytes]) -> bool:
        for blob in arrived:
            self._handle(decode(blob))
        self._stop_if_cut_off()
        worked = self._work()
        self._flush_acknowledged(worked=worked)
        return worked | self._compactor.rest(
            worked=worked, is_last=self._is_ending, in_cells=self._is_pausing
        )

    def _stop_if_cut_off(self) -> None:
        """Stop if the master is silent, and leave the reason in the store, since the master may not receive it."""
        is_received, self._is_received = self._is_received, False
        if not self._silence.is_too_long(is_received=is_received):
            return
        reason = (
            f"it has received nothing from the driver for {in_words(MASTER_SILENCE_MS * 1_000)}\n"
            "the driver is gone, or the network between the two is cut"
        )
        place = f"slot {self._spec.slot}"
        with suppress(StoreError):
            self._store.note_troubles(
                self._spec.job, [Trouble(kind=TroubleKind.DEATH, place=place, reason=reason)]
            )
        raise WorkerStoppedError(f"worker {self._spec.worker} stops: {reason}")

    def _work(self) -> bool:
        # Signals come first: of the ranges that emit something in one step, the one that sends it may have passed a
        # signal on before it came here, and another one may not have processed it yet.  The receiver would get the
        # signal before what was emitted without it.
        worked = self._act_on_signals() | self._committer.resolve()
        due_us = dict[str, int]()
        if self._own_watermarks.are_computed:
            self._own_watermarks.index_ranges()
            due_us = self._due_us()
        moves_own = self._is_time_to_move_own()
        # Not before: a signal follows what was sent ahead of it.
        self._router.handed_on_to = self._handed_on_to()
        for name, computation in self._computations.items():
            self._committer.confirm_if_answered()
            if self._is_converting:
                worked |= isinstance(computation, GroupingComputation) and self._retract(
                    computation
                )
            elif isinstance(computation, GroupingComputation):
                if self._is_held_up(name, computation):
                    self._committer.send_handed_on(name)
                    continue  # its receivers are slow: neither more input nor more output
                if self._retract(computation):
                    worked = True
                    continue  # not before all of it is retracted
                # The watermark comes first: a former owner of a range may have fired by it, and reported that, without
                # a commit.  A record behind it must be late here, or its output is late for the next computation.
                worked |= self._advance(name, computation)
                # All that is due must have fired: until then windows are still open that a record must not go into.
                if computation.state.time.is_before(self._clocks_of(name)):
                    self._committer.send_handed_on(name)
                else:
                    worked |= self._take_in(name, computation)
                worked |= self._advance_by_own(name, computation, due_us, moves=moves_own)
            else:
                worked |= self._read(computation)
        self._router.handed_on_to = frozenset()
        if moves_own and not self._committer.is_round_empty:
            self._moved_ms = self._clock.monotonic_ms()
        self._compactor.compact_with_round()
        self._committer.commit_round()
        self._caution.submitted()
        if self._committer.is_confirmed:
            self._caution.confirmed()
        return worked | self._compactor.relieve()

    def _retract(self, computation: GroupingComputation) -> bool:
        """Go over some cells, on the way to another pipeline; returns whether there were any to look for."""
        if computation.retraction is None or not computation.is_retracting:
            return False
        self._commit(computation.retraction.step(self._clock.now_us()))
        return True

    def _commit(self, step: WorkerStep | None, taken_in: Iterable[Channel] = ()) -> None:
        self._committer.commit(step, taken_in)
        if self._caution.is_suspicious:
            # A death then has the same name each time: the numbers of what was taken in are durable.
            self._committer.commit_round()
            self._committer.confirm()

    def _is_held_up(self, name: str, computation: GroupingComputation) -> bool:
        place = f"{name} in slot {self._spec.slot}"
        if not is_overrun(computation.open_bytes):
            self._waits.goes_on(place)
            return False
        self._waits.waits(place, lambda: unacknowledged(self._owned(name)))
        return True

    @property
    def _is_ending(self) -> bool:
        """Whether nothing more will come, or nothing for long."""
        is_over = all(us >= MAX_TIMESTAMP_US for us in self._inputs_us.values())
        return is_over or self._is_draining or self._is_pausing

    def _act_on_signals(self) -> bool:
        news, self._news = self._news, None
        worked = False
        if news is not None:
            for name, computation in self._computations.items():
                is_retracting = (
                    isinstance(computation, GroupingComputation) and computation.is_retracting
                )
                if is_retracting or self._is_converting:
                    continue  # the master sends the news again
                steps = computation.on_signals(news, self._clock.now_us())
                if isinstance(computation, GroupingComputation) and computation.stage.signals:
                    steps = self._caution.of_steps(self._owned(name), steps)
                for step in steps:
                    self._commit(step)
                    worked = True
        return worked

    def _waits_for_master(self) -> bool:
        """Whether windows, signals or reading may wait for what the master makes of reports."""
        return (
            not self._own_watermarks.are_all_computed
            # The master alone lets watermarks pass a split that is idle.
            or any(owned.is_idle for owned in self._ranges.values())
            or self._spec.options.skew_limit_us is not None
            or any(
                isinstance(each, GroupingComputation) and each.stage.signals
                for each in self._computations.values()
            )
        )

    def _handed_on_to(self) -> frozenset[str]:
        """The groupings that partials are handed on to, with no number that they were taken in (ADR 0112)."""
        is_possible = (
            self._own_watermarks.are_computed
            and len(self._ranges) <= CUT_RANGES_MAX
            # Deliveries that are traced are named by such a number.
            and not self._tracing.is_on
            and not self._is_converting
            and all(owned.handover_with is None for owned in self._ranges.values())
        )
        return self._own_watermarks.with_both_guarantees if is_possible else frozenset()

    def _take_in(self, name: str, computation: GroupingComputation) -> bool:
        deliveries = computation.deliveries
        handed_on = self._committer.take_handed_on(name, deliveries.bytes_max)
        if not handed_on:
            return self._take_deliveries(name, computation)
        parts = deliveries.parts_of(handed_on)
        with self._caution.at(of_handed_on(parts)):
            step = deliveries.take_handed_on(parts, self._clock.now_us())
        self._commit(step)
        return True

    def _take_deliveries(self, name: str, computation: GroupingComputation) -> bool:
        steps = self._spec.options.steps
        bytes_max = computation.deliveries.bytes_max
        deliveries = self._courier.inbox.take(name, steps.deliveries, bytes_max)
        if not deliveries:
            return False
        channels = dict.fromkeys(each.channel for each in deliveries)
        self._tracing.begin()
        with self._caution.at(of_deliveries(deliveries)):
            self._tracing.take_in(self._ranges, deliveries)
            step = computation.deliveries.take_in(deliveries, self._clock.now_us())
        self._commit(self._tracing.done(step), channels)
        return True

    def _advance(self, name: str, computation: GroupingComputation) -> bool:
        """Fire some of what is due, so that other computations get their turn; returns whether anything was due."""
        clocks = self._clocks_of(name)
        if not computation.firing.has_due(clocks):
            self._caution.nothing_due(name)
            return False
        owned = self._owned(name)
        self._tracing.begin()
        with self._caution.at(of_due(owned)):
            self._tracing.fire(owned)
            step = computation.firing.advance(clocks)
        self._commit(self._tracing.done(step))
        return True

    def _advance_by_own(
        self, name: str, computation: GroupingComputation, due_us: dict[str, int], *, moves: bool
    ) -> bool:
        """Fire some of what is due by the watermark that is computed here; returns whether anything was due.

        Args:
            name: of the grouping.
            computation: the grouping, after it has taken in what there was.
            due_us: as `_due_us` was before that in this round; brought up to date.
            moves: whether the watermark is to move although nothing is due by it, if this round has a commit anyway.
        """
        next_us = computation.firing.next_event_us
        if next_us is not None:
            due_us[name] = next_us
        is_time = moves and not self._committer.is_round_empty
        watermark_us = self._own_watermarks.input_us(name, due_us, is_time=is_time)
        if watermark_us is None or watermark_us <= self._inputs_us.get(name, MIN_TIMESTAMP_US):
            return False
        behind = self._own_watermarks.behind_in_store(name)
        if behind:
            self._commit(WorkerStep.touching(*behind))
        self._inputs_us[name] = watermark_us
        return self._advance(name, computation)

    def _is_time_to_move_own(self) -> bool:
        """Whether watermarks that are computed here are to move, although nothing may be due by them."""
        # Each range is looked at for each grouping that it sends to.
        interval_ms = max(OWN_WATERMARK_INTERVAL_MS, len(self._ranges) // MOVED_RANGES_PER_MS)
        return self._clock.monotonic_ms() - self._moved_ms >= interval_ms

    def _owned(self, name: str) -> list[OwnedRange]:
        return [owned for range_id, owned in self._ranges.items() if range_id.computation == name]

    def _clocks_of(self, name: str) -> Clocks:
        """The time now, and the watermarks that a computation acts by: of the master, or computed here."""
        watermark_us = self._inputs_us.get(name, MIN_TIMESTAMP_US)
        is_drained = self._is_draining and watermark_us >= MAX_TIMESTAMP_US
        return Clocks(
            watermark_us=watermark_us,
            # Timers that still wait are due, so that their windows expire.
            now_us=MAX_TIMESTAMP_US if is_drained else self._clock.now_us(),
            percentile_us=self._percentiles_us.get(name, MIN_TIMESTAMP_US),
            is_drained=is_drained,
        )

    def _read(self, computation: SourceComputation) -> bool:
        computation.notify()
        worked, unfinished = False, computation.unfinished()
        for owned in unfinished:
            # An earlier poll does not count any more.
            owned.is_idle = False
        if self._is_pausing:
            return False
        sources = [owned for owned in self._ranges.values() if owned.keys is None]
        open_bytes = sum(owned.outbox.open_bytes for owned in sources)
        for owned in self._pace.in_turn(unfinished):
            if self._is_draining:
                self._commit(computation.end(owned.range_id))
                worked = True
                continue
            if owned.range_id in self._removed:
                self._commit(computation.end(owned.range_id, is_removed=True))
                worked = True
                continue
            hindrance = self._pace.hindrance(
                owned, open_bytes=open_bytes, slowest_source_us=self._slowest_source_us
            )
            if hindrance is not None:
                self._waits.waits(owned.range_id, partial(why_not_read, hindrance, owned, sources))
                continue
            is_columnar = computation.reads_columns(owned.range_id)
            allowed = self._pace.records_allowed(owned, is_columnar=is_columnar)
            if not allowed:
                continue
            open_bytes -= owned.outbox.open_bytes
            self._tracing.begin()
            with self._caution.at(of_split(owned)):
                step, count = computation.read(
                    owned.range_id, allowed, now_us=self._clock.now_us(),
                    has_read=self._tracing.has_read,
                )  # fmt: skip
            self._pace.spend(owned.range_id, count)
            self._note_outage(owned)
            self._commit(self._tracing.done(step))
            open_bytes += owned.outbox.open_bytes
            self._committer.counts["read"] += count
            worked |= step is not None
        return worked

    def _note_outage(self, owned: OwnedRange) -> None:
        """Note whether a split that was just polled could be read."""
        outage = None if owned.poll is None else owned.poll.outage
        if outage is None:
            self._waits.goes_on(owned.range_id)
            return
        reason = f"{outage.what} cannot be read\n{outage.error}"
        self._waits.waits(owned.range_id, lambda: reason)

    def _flush_acknowledged(self, *, worked: bool) -> None:
        """Delete what has been acknowledged although nothing else is to be committed on a range.

        Now and then in the midst of work too: a range with nothing to do may be beside one that never rests.
        """
        now_ms = self._clock.monotonic_ms()
        is_overdue = now_ms - self._flushed_ms >= FLUSH_INTERVAL_MS
        if worked and not is_overdue:
            return
        self._flushed_ms = now_ms
        waiting = [owned for owned in self._ranges.values() if owned.outbox.has_acknowledged]
        if is_overdue:
            for name in dict.fromkeys(owned.range_id.computation for owned in waiting):
                # Steps that wait to be committed are older, and delete what their own ranges have.
                self._committer.flush(name)
        waiting = [
            owned
            for owned in waiting
            if owned.outbox.has_acknowledged
            and not self._committer.is_behind(owned.range_id.computation)
        ]
        if waiting:
            self._committer.commit(WorkerStep.touching(*waiting))
            self._committer.commit_round()
            self._committer.confirm()

    def _handle(self, message: object) -> None:
        if isinstance(message, Deliver):
            self._courier.take_in(message)
        elif isinstance(message, Acknowledge):
            self._courier.take_acknowledged(message)
        elif isinstance(message, Watermarks):
            if message.sent_ms >= self._sent_ms:
                self._own_watermarks.granted = message.sole_owner_ranges
            self._on_news(message)
            self._slowest_source_us = message.slowest_source_us
            self._is_draining, self._is_pausing = message.is_draining, message.is_pausing
        elif isinstance(message, Assign):
            self._take_over(message)
        elif isinstance(message, Revoke):
            self._release(message)
        elif isinstance(message, EndSplits):
            self._removed.update(each for each in message.ranges if each in self._ranges)
        elif isinstance(message, Routes):
            self._follow(message.routing)
            self._courier.reroute(message.addresses)
        elif isinstance(message, SplitKeys | MergeKeys):
            self._reshape(message)
        elif isinstance(message, EndHandover):
            self._end_handovers(message)
        elif isinstance(message, Stop):
            self.is_stopped = True

    def _on_news(self, news: Watermarks | Assign) -> None:
        self._is_received, self._sent_ms = True, news.sent_ms
        self._news = news.signals
        for known_us, sent_us in (
            (self._inputs_us, news.inputs_us),
            (self._sent_us, news.inputs_us),
            (self._percentiles_us, news.percentiles_us),
        ):
            for name, watermark_us in sent_us.items():
                known_us[name] = max(watermark_us, known_us.get(name, watermark_us))

    def _follow(self, routing: Routing) -> None:
        self._router.follow(routing)
        for owned in self._ranges.values():
            owned.follow_routing(self._router.number)

    def _take_over(self, assign: Assign) -> None:
        # User code may be put on trial from here on, in a process that cannot wait for a commit of this one.
        self._committer.confirm()
        self._own_watermarks.granted = 0
        self._on_news(assign)
        self._follow(assign.routing)
        if self._spec.options.tries is not None:
            self._caution.suspect(assign.suspects)
        # The master assigns again when an answer is lost.
        missing = [range_id for range_id in assign.ranges if range_id not in self._ranges]
        self._report_ready(
            dict.fromkeys([*assign.ranges, *self._acquire(missing, assign.commits, assign.cause)])
        )

    def _acquire(
        self,
        range_ids: Sequence[RangeId],
        commits: Mapping[RangeId, CommitMark] = MappingProxyType({}),
        cause: Cause = UNKNOWN,
    ) -> Sequence[RangeId]:
        """Take ranges over, with those that are in handover with them.

        What is due in them fires in the next rounds, as any other: it can be more than fits into a step, or than their
        receivers can take.  ``commits``: how far some ranges were committed, as other workers have reported.

        Raises:
            LostCommitsError: the store does not have all that they had committed.
        """
        if not range_ids:
            return ()
        spec = self._spec
        self._committer.confirm()
        self._reporter.forget()
        taken = self._store.acquire(spec.job, range_ids, spec.worker, spec.version, cause)
        known = {each: self._ranges.pop(each) for each in taken if each in self._ranges}
        for reported in (commits, {each: owned.mark for each, owned in known.items()}):
            check_not_older(spec.job, taken, reported)
        for range_id in known:
            # Another worker may have owned it meanwhile, so what is in memory of it does not count.
            self._computations[range_id.computation].release(range_id)
        for range_id, each in taken.items():
            computation: Computation = self._computations[range_id.computation]
            owned = self._ranges[range_id] = computation.take(each)
            if range_id in known:
                owned.remember(known[range_id].delivered)
            owned.follow_routing(self._router.number)
            self._pace.begin(range_id)
        # Also to ranges that were here before, whose routes do not change.
        self._courier.send_all_of(taken)
        return list(taken)

    def _report_ready(self, range_ids: Iterable[RangeId]) -> None:
        ranges = dict.fromkeys(range_ids)
        # A range that is in handover with one of them goes into the same report: together they have all keys.
        heads = {self._ranges[each].handover_with or each for each in ranges}
        ranges |= {
            each: None for each, owned in self._ranges.items() if owned.handover_with in heads
        }
        shapes = {
            each: RangeShape(self._ranges[each].keys, self._ranges[each].handover_with)
            for each in (*ranges, *heads)
            if isinstance(self._computations[each.computation], GroupingComputation)
        }
        ready = Ready(
            slot=self._spec.slot,
            worker=self._spec.worker,
            ranges=tuple(ranges),
            shapes=shapes,
        )
        self._send_to_master(ready)

    def _reshape(self, asked: SplitKeys | MergeKeys) -> None:
        """Split or merge ranges, once however often the master asks for it."""
        computation = self._computations[asked.range_id.computation]
        other = asked.born if isinstance(asked, SplitKeys) else asked.gone
        if asked.range_id not in self._ranges or not isinstance(computation, GroupingComputation):
            return
        self._compactor.compact_all(asked.range_id.computation)
        cause = Cause(EventKind.TAKEOVER, asked.reason)
        if isinstance(asked, SplitKeys) and other not in self._ranges:
            self._committer.commit(computation.split(asked))
            self._acquire([asked.range_id], cause=cause)
        elif isinstance(asked, MergeKeys) and other in self._ranges and self._ranges[other].keys:
            self._committer.commit(computation.merge(asked))
            self._acquire([asked.range_id], cause=cause)
        self._report_ready([each for each in (asked.range_id, other) if each in self._ranges])

    def _end_handovers(self, end_handover: EndHandover) -> None:
        """End the handover of ranges, and retire those that have nothing left to do."""
        done = []
        for range_id in end_handover.ranges:
            owned = self._ranges.get(range_id)
            if owned is not None and owned.keys is None and not owned.outbox.is_empty:
                continue  # what it has sent is not acknowledged, or not deleted; the master will ask again
            done.append(range_id)
            if owned is not None and owned.handover_with is not None:
                self._committer.flush(range_id.computation)
                ended, is_retired = frozenset([range_id]), owned.keys is None
                self._committer.commit(
                    WorkerStep(
                        ranges={range_id: owned},
                        ended_handovers=ended,
                        finished=ended if is_retired else frozenset(),
                    )
                )
                owned.handover_with = None
            if owned is not None and owned.keys is None:
                # Perhaps its former owner has retired it already, and the master was not notified of it.
                self._forget(range_id)
        if done:
            ended_handovers = HandoverEnded(
                slot=self._spec.slot, worker=self._spec.worker, ranges=tuple(done)
            )
            self._send_to_master(ended_handovers)

    def _release(self, revoke: Revoke) -> None:
        # When all that it did is committed there is nothing left to send; what is unacknowledged is sent again.
        for range_id in revoke.ranges:
            if range_id in self._ranges:
                self._committer.flush(range_id.computation)
                self._forget(range_id)
        released = RangesReleased(
            slot=self._spec.slot, worker=self._spec.worker, ranges=revoke.ranges
        )
        self._send_to_master(released)

    def _forget(self, range_id: RangeId) -> None:
        self._computations[range_id.computation].release(range_id)
        self._pace.end(range_id)
        self._waits.forget(range_id)
        self._removed.discard(range_id)
        del self._ranges[range_id]
        self._courier.inbox.forget(range_id)
        self._tracing.forget(range_id)

    def report_waiting(
        self, reason: str, place: str | None = None, *, is_over: bool = False
    ) -> None:
        """Report to the master that the worker lives, and that it cannot go on without something, or goes on again.

        Args:
            reason: what it waits for, or why it goes on.
            place: what waits; empty: the whole worker.
            is_over: it goes on.
        """
        waiting = Waiting(
            slot=self._spec.slot,
            worker=self._spec.worker,
            reason=reason,
            place=place,
            is_over=is_over,
        )
        # It relies on no commit, and may be about the very one that others wait for.
        self._outgoing.send_at_once(self._spec.master, encode(waiting))

    def report_alive(self) -> None:
        """Report to the master that the worker lives, in the middle of a step that is known to take long."""
        self._reporter.repeat()

    def _due_us(self) -> dict[str, int]:
        """The event time at which something of each grouping is due first, of those of which something is."""
        return {
            name: due_us
            for name, each in self._computations.items()
            if isinstance(each, GroupingComputation)
            and (due_us := each.firing.next_event_us) is not None
        }

    def _ahead_us(self) -> Mapping[str, int]:
        """The input watermarks of groupings that are ahead of those that the master has sent."""
        furthest_us = {
            name: max(each.state.time.furthest_us, self._inputs_us.get(name, MIN_TIMESTAMP_US))
            for name, each in self._computations.items()
            if isinstance(each, GroupingComputation)
        }
        return {
            name: us
            for name, us in furthest_us.items()
            if us > self._sent_us.get(name, MIN_TIMESTAMP_US)
        }

    def _counts(self) -> Counts:
        return counts_of(self._computations.values(), self._committer.counts)

    def _account(self) -> WorkerAccount:
        latencies = self._committer.latencies
        return WorkerAccount(
            busy_ms=self._busy_ms,
            blocked_ms=self._committer.waited_ms,
            idle_ms=self._idle_ms,
            stages_us=dict(self._caution.spent_us),
            commit_counts=tuple(latencies.counts),
            commit_sum_us=latencies.sum_us,
            committed_us=latencies.last_us,
            frequent={
                range_id: frequent
                for each in self._computations.values()
                for range_id, frequent in each.meter.frequent().items()
            },
            overdue={
                name: overdue
                for name, each in self._computations.items()
                if isinstance(each, GroupingComputation)
                and (overdue := each.firing.overdue(self._clocks_of(name))) is not None
            },
        )

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, DataflowError):
            error = JobFailedError(
                f"worker {self._spec.worker} failed with an unexpected {type(error).__name__}: {error_text(error)}",
                detail="".join(format_exception(error)).strip(),
            )
        failed = Failed(worker=self._spec.worker, error=encode_error(error))
        self._send_to_master(failed)
        self.is_stopped = True

    def _send_to_master(self, message: object) -> None:
        self._outgoing.send(self._spec.master, encode(message))
