"""Master: gives ranges to workers, keeps the watermarks, and knows when the job is done.

Ranges are dealt to slots, and belong to the worker that registered last for their slot.  A worker that sends nothing
for as long as its lease loses its ranges to the others; its slot gets them back when it has been replaced
(`.assignment`).  Ranges can be moved, split and merged while the job runs (`.shapes`).

`Master.step` does one round and never waits.  MillWheel, sections 4.1 and 7.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dataflow.times import in_words
from runners.core.ground.clock import Clock
from runners.core.stages.percentile_watermark import percentiles_of
from runners.core.stages.plan import ExecutionPlan
from runners.errors import LostCommitsError
from runners.millwheel.control.discovery import growing
from runners.millwheel.control.shapes import MergeKeys, ShapeError, Shapes, SplitKeys
from runners.millwheel.master.assignment import Assignment, BySlot
from runners.millwheel.master.deaths import Deaths
from runners.millwheel.master.merges import Merges
from runners.millwheel.master.pace import SIGN_OF_LIFE_MS, Pace
from runners.millwheel.master.slots import (
    MasterStatistics,
    Slot,
    are_paused,
    idle_splits,
    live_slots,
)
from runners.millwheel.master.sole_owner import SoleOwner
from runners.millwheel.master.view import MasterView, SlotView
from runners.millwheel.master.watermark_authority import WatermarkAuthority
from runners.millwheel.master.witness import Witness
from runners.millwheel.model.accounts import Latencies
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.events import UNKNOWN, Cause, EventKind
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.long_waits import LongWaits
from runners.millwheel.model.signals import Signal, SignalBoard
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.troubles import TroubleBook, TroubleKind, reason_of
from runners.millwheel.store.port import JobRow, RangeRow
from runners.millwheel.wire.messages import (
    Assign,
    Died,
    EndHandover,
    EndSplits,
    Failed,
    HandoverEnded,
    Heartbeat,
    RangesReleased,
    Ready,
    Register,
    Report,
    Revoke,
    Routes,
    Stop,
    Waiting,
    Watermarks,
    decode,
    encode,
)
from runners.millwheel.wire.transport import Transport
from runners.stored.errors import decode_error
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: A worker that does not answer is asked again after this long; only a lost message needs it.
ASK_AGAIN_MS = 2_000
#: A slot without a worker is reported after this long: until then Spark is starting it, or replacing one that died.
MISSING_REPORTED_AFTER_MS = 15_000


class Master:
    """One per running job, in the driver; not thread-safe.  Set ``is_pausing`` to have its workers read no further.

    Args:
        job: as the store has it.
        plan: of its pipeline.
        slots: how many workers there are to be.
        transport: to the workers.
        clock: for leases and for what is sent again.
    """

    def __init__(
        self, job: JobRow, plan: ExecutionPlan, slots: int, transport: Transport, clock: Clock
    ) -> None:
        self._transport, self._clock = transport, clock
        rows = {each: row for each, row in sorted(job.ranges.items()) if not row.is_retired}
        ranges = tuple(rows)
        senders = self._senders = {name: plan.senders(name) for name in plan.stages}
        self._slots = [Slot() for _ in range(slots)]
        self._shapes = Shapes(job.ranges, senders)
        handovers = {each: row.handover_with for each, row in rows.items() if row.handover_with}
        self._assignment = Assignment(ranges, slots, handovers)
        #: Whether the worker of a range's slot owns it, and is not asked to release it.
        self.is_stable = self._assignment.is_stable
        self._merges = Merges(self._shapes, self._assignment)
        #: The ranges whose handover workers have been asked to end, since that was last asked again.
        self._asked_to_end: set[RangeId] = set()
        self._asked_ms, self._pace = clock.monotonic_ms(), Pace(slots, clock)
        #: Ranges that were merged into others.
        self._retired = job.ranges.keys() - rows.keys()
        self._percentiles = percentiles_of(plan)
        self._authority = WatermarkAuthority(
            senders,
            ranges,
            {range_id: row.input_watermark_us for range_id, row in rows.items()},
            growing=growing(plan),
            percentiles=self._percentiles,
            committed_percentiles_us={each: row.percentile_us for each, row in rows.items()},
        )
        marks = {range_id: row.signal_mark for range_id, row in rows.items()}
        self._signals = SignalBoard(plan, ranges, marks)
        self._sole_owner = SoleOwner(has_been_one=has_begun(rows.values()))
        self._has_reports = self._is_draining = self.is_pausing = False
        #: Whether the job is on its way to another pipeline; then nothing is read.
        self._is_retracting = plan.retirement is not None
        #: Splits that their input does not have any more, until their owners have ended them.
        self._ending = {each for each, row in rows.items() if row.is_removed}
        #: Whether a range has changed its owner, and workers have not been sent the new routes.
        self._has_moved = False
        #: The counts of workers that are gone.
        self._counts_before, self._workers_replaced = Counts(), 0
        #: The watermark of the whole job, as it was shown last.
        self._shown_us = MIN_TIMESTAMP_US
        #: The last poll of each split, by any owner.
        self._polls: dict[RangeId, SplitPoll] = {}
        self.failure: Exception | None = None
        #: The commits that workers have reported, to compare with a store that has restarted.
        self.witness = Witness(job)
        #: Why workers have ended, or wait.
        self.troubles = TroubleBook()
        self._deaths = Deaths(job.job, self.troubles)
        self._missing = LongWaits(clock, MISSING_REPORTED_AFTER_MS, self._note_wait)
        #: Why ranges change their owners, until they have; and why all of them do where nothing else is known.
        self._causes: dict[RangeId, Cause] = {}
        self._first_cause = _first_cause(rows.values())
        self._longest_round_ms = 0
        #: When ranges that move were asked back, and how long it took until their new owners had them.
        self._moved_us: dict[RangeId, int] = {}
        self._moves = Latencies()

    def step(self, wait_ms: int = 0) -> None:
        """Do one round: handle what has arrived, then send news to the workers."""
        arrived = self._transport.receive(self._pace.patience_ms(wait_ms))
        began_ms = self._clock.monotonic_ms()
        for blob in arrived:
            self._handle(decode(blob))
        self._act()
        took_ms = self._clock.monotonic_ms() - began_ms
        self._longest_round_ms = max(self._longest_round_ms, took_ms)

    def _act(self) -> None:
        """Do what follows from what has arrived, and from the time."""
        if self._has_reports:
            self._has_reports = False
            idle = idle_splits(self._slots, self._assignment.slots, self._clock.monotonic_ms())
            self._pace.has_news |= self._authority.advance(idle) | self._signals.pass_on()
        self._look_for_missing()
        self._take_from_the_silent()
        for asked in self._merges.begin():
            self._ask(asked)
        self._end_handovers()
        self._ask_again()
        if self._has_moved:
            # One message for all changes: while many workers start, each would be notified of each other one.
            self._has_moved = False
            self._send_all(self._routes())
        if self._pace.is_time():
            news = Watermarks(
                **self._news(),
                slowest_source_us=self._authority.slowest_source_us(),
                is_draining=self._is_draining,
                is_pausing=self.is_pausing or self._is_retracting,
                sole_owner_ranges=self._sole_owner_ranges(),
            )
            self._send_all(news, self._awaiting_news())

    @property
    def is_listening(self) -> bool:
        """Whether the pipeline listens to signals, so that they should be read from the store."""
        return self._signals.is_listening

    @property
    def retired(self) -> frozenset[RangeId]:
        """Ranges that were merged into others, and that no worker will be given any more."""
        return frozenset(self._retired)

    @property
    def latest_signal(self) -> int:
        """The number of the last signal that it knows."""
        return self._signals.latest

    def on_signals(self, signals: Iterable[Signal]) -> None:
        """Add the signals that the store has after `latest_signal`, in order; call before the first `step`, then often.

        Before the first `step`, because a range must not be given to a worker before the signals are known by which it
        has not fired yet.
        """
        self._pace.has_news |= self._signals.post(signals)

    @property
    def is_done(self) -> bool:
        """Whether every watermark is at the end of time and nothing is left to acknowledge."""
        return (
            self._authority.lowest_output_us() >= MAX_TIMESTAMP_US
            and not self._authority.may_grow
            and self._shapes.is_at_rest
            and self._assignment.is_at_rest
            and all(slot.is_quiet for slot in self._slots if slot.is_ready)
        )

    @property
    def is_paused(self) -> bool:
        """Whether for a while nothing has been read, and nothing has been on its way."""
        return self._assignment.is_at_rest and are_paused(self._slots, self._clock.monotonic_ms())

    @property
    def ranges(self) -> Mapping[RangeId, int]:
        """Every range that has something to do, and the slot that it is in or on its way to."""
        return self._assignment.slots

    @property
    def silence_ms(self) -> int:
        """For how long nothing has come from the worker that has sent nothing for longest; 0: there is none."""
        now_ms = self._clock.monotonic_ms()
        return max((now_ms - each.last_seen_ms for each in self._slots if each.worker), default=0)

    @property
    def key_ranges(self) -> Mapping[RangeId, KeyRange]:
        """What each key range covers."""
        return self._shapes.routing.keys

    @property
    def is_at_rest(self) -> bool:
        """Whether every range is where it belongs, and none is being split or merged."""
        return self._assignment.is_at_rest and self._shapes.is_at_rest

    def move(self, ranges: Iterable[RangeId], slot: int, reason: str = UNKNOWN.reason) -> BySlot:
        """Have ranges go to the worker of a slot, while the job runs; returns which will, by the slot they are in now.

        Those that are on their way already, or in a handover, are left alone.

        Args:
            ranges: to be moved.
            slot: its number, from 0.
            reason: for people.

        Raises:
            ValueError: there is no such slot.
        """
        if not 0 <= slot < len(self._slots):
            raise ValueError(f"there is no slot {slot}, only {len(self._slots)}")
        asked = self._assignment.move(ranges, slot)
        self._note_causes(asked, Cause(EventKind.MOVE, reason))
        now_us = self._clock.now_us()
        self._moved_us |= {each: now_us for found in asked.values() for each in found}
        self._revoke(asked)
        return asked

    def _note_causes(self, ranges: BySlot, cause: Cause) -> None:
        for found in ranges.values():
            self._causes.update(dict.fromkeys(found, cause))

    def split(
        self, range_id: RangeId, at: int | None = None, reason: str = UNKNOWN.reason
    ) -> RangeId:
        """Have a key range divided while the job runs; its upper keys get a range of their own.

        Args:
            range_id: the range to divide.
            at: the first key hash of the new range; None: its owner divides its state in halves.
            reason: for people.

        Returns:
            The new range, which may be moved as soon as nothing is on its way by the former bounds.

        Raises:
            ShapeError: there is no such range, or it is changing its owner or its keys.
        """
        self._check_may_reshape()
        asked = self._shapes.split(range_id, at, self.is_stable, reason)
        # The new range counts for watermarks before it exists, so that its hold is in place when it does.
        self._adopt(asked.born, range_id)
        self._ask(asked)
        return asked.born

    def merge(self, range_id: RangeId, gone: RangeId, reason: str = UNKNOWN.reason) -> None:
        """Have a key range take in its neighbour while the job runs, which is moved to it first if need be.

        Args:
            range_id: has all keys afterwards.
            gone: its neighbour, which is retired.
            reason: for people.

        Raises:
            ShapeError: there are no such ranges, or they are no neighbours, or are changing their owner or keys.
        """
        self._check_may_reshape()
        self._shapes.check_merge(range_id, gone, self.is_stable)
        self._merges.want(range_id, gone, reason)
        reason_of_move = f"to be merged with {range_id}: {reason}"
        self.move([gone], self._assignment.slot_of(range_id), reason_of_move)

    def _check_may_reshape(self) -> None:
        if self._is_retracting:
            # A new range would not know how far its keys have been retracted.
            raise ShapeError(
                "the job retracts what removed transforms have emitted, and its ranges stay as they are meanwhile"
            )

    def drain(self) -> None:
        """Have sources end where they are, so that every window fires, and the job is done.

        Another master of this job has to be asked to drain again.
        """
        self._is_draining = self._pace.has_news = True
        self._authority.stop_growing()

    def takes_splits(self) -> bool:
        """Whether a source may get splits now: not while a worker computes watermarks, which is asked to stop that.

        Call it again if not; `hold_splits` comes next if so.
        """
        if self._is_draining or self.is_pausing or self._is_retracting:
            return True
        self._sole_owner.revoke(self._clock.monotonic_ms())
        return self._sole_owner.is_revoked(self._assignment, self._slots)

    def hold_splits(self, source: str) -> int | None:
        """Hold what a source feeds, as it is about to get splits, until `adopt_splits` is called.

        Args:
            source: the computation that reads it.

        Returns:
            The watermark at which the new splits begin; None: the job gets no splits now, as it is coming to its end or
            to a pause.
        """
        self._sole_owner.let_go()
        if self._is_draining or self.is_pausing or self._is_retracting:
            return None
        return self._authority.hold(source)

    def adopt_splits(self, source: str, rows: Iterable[RangeRow]) -> None:
        """Give splits that a source has got to workers, and end the hold.

        Args:
            source: the computation that reads it.
            rows: of the new splits, as the store has them; those that are known already may be among them.
        """
        given: dict[int, list[RangeId]] = {}
        live = live_slots(self._slots, self._clock.monotonic_ms())
        for row in rows:
            if self._authority.knows(row.range_id):
                continue
            self._authority.add_split(row.range_id, row.watermark_us or MIN_TIMESTAMP_US)
            self._signals.add_split(row.range_id)
            self._shapes.add_sender(row.range_id)
            given.setdefault(self._assignment.add(row.range_id, live), []).append(row.range_id)
        self._authority.let_go(source)
        new = {slot: tuple(ranges) for slot, ranges in given.items()}
        why = f"{source} has got new splits"
        self._note_causes(new, Cause(EventKind.ASSIGNMENT, why))
        self._assign(new)

    def open_splits(self, ranges: Iterable[RangeId]) -> list[RangeId]:
        """The splits among these that have not come to their end, and are not to be ended yet."""
        return [
            each
            for each in ranges
            if each not in self._ending and not self._authority.is_ended(each)
        ]

    def end_splits(self, ranges: Iterable[RangeId]) -> None:
        """Have splits that their input does not have any more end where they have been read to.

        Args:
            ranges: splits of sources.
        """
        self._ending.update(ranges)
        self._end_splits()

    @property
    def polls(self) -> Mapping[RangeId, SplitPoll]:
        """The last poll of each split, as far as workers have reported."""
        return dict(self._polls)

    def remember_polls(self, polls: Mapping[RangeId, SplitPoll]) -> None:
        """Take the polls of drivers before this one for the last ones; before the first `step`.

        Args:
            polls: as the store has them.
        """
        known = {each: poll for each, poll in polls.items() if self._authority.knows(each)}
        self._polls = known | self._polls

    def last_poll(self, range_id: RangeId) -> SplitPoll | None:
        """The last poll of a split, by any owner; None: none is known.

        Args:
            range_id: of the split.
        """
        return self._polls.get(range_id)

    def go_on_counting(self, before: MasterStatistics) -> None:
        """Add the counts of a master before this one; before the first `step`."""
        self._counts_before = Counts() + before.of_the_past()
        self._workers_replaced = before.workers_replaced
        self._polls.update(before.splits)

    def stop(self) -> None:
        """Report to every worker that the job is over."""
        self._send_all(Stop())

    def statistics(self) -> MasterStatistics:
        """Counts since this master started."""
        # Nothing is known of a range that has just got another owner; what is shown does not go back by that.
        self._shown_us = max(self._shown_us, self._authority.lowest_output_us())
        return MasterStatistics.of(
            self._slots,
            before=self._counts_before,
            workers_replaced=self._workers_replaced,
            watermark_us=self._shown_us,
            splits=self._polls,
        )

    def view(self) -> MasterView:
        """What it knows now."""
        longest_round_ms, self._longest_round_ms = self._longest_round_ms, 0
        now_us, now_ms = self._clock.now_us(), self._clock.monotonic_ms()
        authority, assignment = self._authority, self._assignment
        return MasterView(
            taken_us=now_us,
            senders=self._senders,
            percentiles=self._percentiles,
            inputs_us=dict(authority.inputs_us),
            percentiles_us=dict(authority.percentiles_us),
            outputs_us=dict(authority.outputs_us),
            holds_us=dict(authority.holds_us),
            growing=authority.growing,
            idle=authority.idle,
            slowest_source_us=authority.slowest_source_us(),
            owners=assignment.slots,
            confirmed=assignment.confirmed,
            leaving=assignment.leaving,
            heads=assignment.heads,
            slots=[
                SlotView(
                    worker=slot.worker,
                    is_ready=slot.is_ready,
                    reported_us=now_us - (now_ms - slot.last_seen_ms) * 1_000
                    if slot.registered
                    else None,
                    lease_ttl_ms=slot.lease_ttl_ms,
                    holds=slot.holds,
                    account=slot.account,
                    heartbeat=slot.heartbeat,
                    refused=slot.refused,
                )
                for slot in self._slots
            ],
            statistics=self.statistics(),
            is_pausing=self.is_pausing,
            is_draining=self._is_draining,
            is_retracting=self._is_retracting,
            longest_round_ms=longest_round_ms,
            key_ranges=dict(self.key_ranges),
            moves=(tuple(self._moves.counts), self._moves.sum_us),
        )

    def _handle(self, message: object) -> None:
        if isinstance(message, Report):
            self._on_report(message)
        elif isinstance(message, Register):
            self._place(message)
        elif isinstance(message, Ready | RangesReleased):
            self._confirm(message)
        elif isinstance(message, HandoverEnded):
            self._let_go(message)
        elif isinstance(message, Heartbeat):
            if self._slots[message.slot].worker == message.worker:
                self._slots[message.slot].heartbeat = message, self._clock.now_us()
        elif isinstance(message, Died):
            self._slots[message.slot].on_end(is_silent=message.is_silent)
            self.failure = self.failure or self._deaths.note(message)
        elif isinstance(message, Waiting):
            place = f"slot {message.slot}" if message.place is None else message.place
            self._note_wait(place, message.reason, is_over=message.is_over)
        elif isinstance(message, Failed):
            self._fail(message)

    def _note_wait(self, place: str, reason: str, *, is_over: bool) -> None:
        self.troubles.note(TroubleKind.RESUMED if is_over else TroubleKind.WAIT, place, reason)

    def _look_for_missing(self) -> None:
        """Note slots that have no worker, or have lost it: the cluster that runs the workers may have no room."""
        now_ms = self._clock.monotonic_ms()
        for index, slot in enumerate(self._slots):
            if slot.worker is None or not slot.is_within_lease(now_ms):
                self._missing.waits(f"slot {index}", self._why_missing)
            else:
                self._missing.goes_on(f"slot {index}")

    def _why_missing(self) -> str:
        now_ms = self._clock.monotonic_ms()
        there = sum(
            slot.worker is not None and slot.is_within_lease(now_ms) for slot in self._slots
        )
        return (
            "no worker is there for it\n"
            f"{there} of {len(self._slots)} are; each needs a free task slot of Spark (a core of an executor) for as "
            "long as the job runs: are there so many, and does something else have them?"
        )

    def _fail(self, failed: Failed) -> None:
        if self.failure is None:
            self._give_up(decode_error(failed.error), failed.worker)

    def _give_up(self, error: Exception, place: str) -> None:
        if isinstance(error, LostCommitsError):
            # Kept for the person who repairs the store, who will want to know why the job has ended.
            self.troubles.note(TroubleKind.DEATH, place, reason_of(error))
        self.failure = self.failure or error

    def _place(self, register: Register) -> None:
        slot = self._slots[register.slot]
        if register.worker in slot.registered:
            # A copy that comes late.  A former worker must not be believed again: what it reports of its ranges was
            # true before those after it have split and merged them.
            return
        cause = self._cause_of_placing(slot)
        if slot.worker is not None:
            self._vacate(slot)
        slot.place(register.worker, register.address, self._clock.monotonic_ms())
        given = self._assignment.place(register.slot)
        self._note_causes(given, cause)
        # Senders must not go on sending to the former owner of these ranges.
        self._has_moved = True
        # Sent even with no range: a worker that knows that it has none is ready to be given some.
        self._assign({register.slot: (), **given})
        home = self._assignment.bring_home(register.slot)
        why = f"slot {register.slot}, where it belongs, has a worker again"
        self._note_causes(home, Cause(EventKind.MOVE, why))
        self._revoke(home)

    def _cause_of_placing(self, slot: Slot) -> Cause:
        """Why the ranges of a slot go to the worker that has just registered for it."""
        if not slot.registered:
            return self._first_cause
        former = slot.registered[-1]
        why = f"its worker before, {former}, is gone"
        latest = self.troubles.latest
        if latest is not None and latest.kind is TroubleKind.DEATH:
            why += f"; the last trouble: {latest.headline}"
        return Cause(EventKind.TAKEOVER, why)

    def _confirm(self, message: Ready | RangesReleased) -> None:
        """Note that a worker has taken ranges over, or has released them."""
        slot = self._slots[message.slot]
        if slot.worker != message.worker:
            return
        slot.last_seen_ms = self._clock.monotonic_ms()
        if isinstance(message, Ready):
            slot.confirm()
            self._sole_owner.note_taken_over(slot.last_seen_ms)
            # Not only a new owner: the same worker may have taken them over again, to reshape them.
            self._authority.begin_anew(message.ranges)
            for range_id, head in self._shapes.learn(message.shapes).items():
                self._adopt(range_id, head)
            self._assignment.confirm(message.slot, message.ranges)
            for range_id in message.ranges:
                self._causes.pop(range_id, None)
                moved_us = self._moved_us.pop(range_id, None)
                if moved_us is not None:
                    self._moves.note(moved_us, self._clock.now_us())
        else:
            self._assign(self._assignment.release(message.slot, message.ranges))
        self._has_moved = True

    def _let_go(self, message: HandoverEnded) -> None:
        if self._slots[message.slot].worker != message.worker:
            return
        for range_id in message.ranges:
            # An answer that comes twice may be about an earlier handover, and from where the range was then.
            is_here = self._assignment.slots.get(range_id) == message.slot
            if is_here and self._shapes.is_in_handover(range_id):
                is_retired = self._shapes.ended_handovers(range_id)
                self._assignment.end_handover(range_id, is_retired=is_retired)
                if is_retired:
                    self._retired.add(range_id)
                    self._authority.retire(range_id)
                    self._signals.retire(range_id)
                    self.witness.retire(range_id)

    def _adopt(self, range_id: RangeId, head: RangeId) -> None:
        self._assignment.handover(range_id, head)
        if not self._authority.knows(range_id):
            self._authority.add(range_id)
            self._signals.add(range_id, head)

    def _end_handovers(self) -> None:
        for range_id in self._shapes.ripe():
            if range_id not in self._asked_to_end and self._assignment.is_stable(range_id):
                self._asked_to_end.add(range_id)
                slot = self._slots[self._assignment.slot_of(range_id)]
                self._send(slot, EndHandover(ranges=(range_id,)))

    def _end_splits(self) -> None:
        self._ending = {each for each in self._ending if not self._authority.is_ended(each)}
        for range_id in self._ending:
            if self._assignment.is_stable(range_id):
                slot = self._slots[self._assignment.slot_of(range_id)]
                self._send(slot, EndSplits(ranges=(range_id,)))

    def _ask(self, asked: SplitKeys | MergeKeys) -> None:
        if self._assignment.is_stable(asked.range_id):
            self._send(self._slots[self._assignment.slot_of(asked.range_id)], asked)

    def _take_from_the_silent(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for index, slot in enumerate(self._slots):
            if slot.worker is None or slot.is_within_lease(now_ms):
                continue
            live = live_slots(self._slots, now_ms)
            if not live:
                continue
            why = (
                f"{slot.worker}, in slot {index}, has sent nothing for "
                f"{in_words((now_ms - slot.last_seen_ms) * 1_000)}"
            )
            self._vacate(slot)
            slot.expired, slot.worker, slot.address = slot.worker, None, None
            given = self._assignment.expire(index, live)
            self._note_causes(given, Cause(EventKind.TAKEOVER, why))
            self._assign(given)
            self._has_moved = True

    def _vacate(self, slot: Slot) -> None:
        self._workers_replaced += 1
        self._counts_before += slot.counts.of_the_past()
        slot.vacate()
        if slot.address is not None:
            self._transport.forget(slot.address)

    def _ask_again(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms < ASK_AGAIN_MS:
            return
        self._asked_ms = now_ms
        # A message is lost with its connection, and these are sent only when something changes.
        self._has_moved = True
        awaited = self._assignment.awaited().items()
        self._assign({at: it for at, it in awaited if self._slots[at].is_within_lease(now_ms)})
        self._revoke(self._assignment.asked_back())
        for asked in self._shapes.asked.values():
            self._ask(asked)
        self._asked_to_end.clear()
        self._end_splits()

    def _assign(self, given: BySlot) -> None:
        for index, ranges in given.items():
            self._authority.begin_anew(ranges)
            assign = Assign(
                ranges=tuple(each for each in ranges if each not in self._shapes.unborn),
                routing=self._shapes.routing,
                suspects=tuple(self._deaths.suspects(ranges)),
                commits=self.witness.known_of({each.computation for each in ranges}),
                cause=self._cause_of(ranges),
                **self._news(),
            )
            self._send(self._slots[index], assign)

    def _cause_of(self, ranges: Iterable[RangeId]) -> Cause:
        known = (self._causes[each] for each in ranges if each in self._causes)
        return next(known, self._first_cause)

    def _news(self) -> dict[str, Any]:
        return {
            "inputs_us": dict(self._authority.inputs_us),
            "percentiles_us": dict(self._authority.percentiles_us),
            "signals": self._signals.news,
            "sent_ms": self._clock.monotonic_ms(),
        }

    def _sole_owner_ranges(self) -> int:
        if self._is_retracting or self._authority.holds_us or not self._shapes.is_at_rest:
            return 0
        return self._sole_owner.ranges(self._assignment)

    def _revoke(self, asked: BySlot) -> None:
        for index, ranges in asked.items():
            self._send(self._slots[index], Revoke(ranges=ranges))

    def _on_report(self, report: Report) -> None:
        slot = self._slots[report.slot]
        slot.forgive(report.worker)
        if slot.worker != report.worker or not slot.is_ready:
            return
        slot.last_seen_ms = self._clock.monotonic_ms()
        slots = self._assignment.slots
        strays = [each for each in report.watermarks_us if slots.get(each, -1) != report.slot]
        strays = [each for each in strays if each in slots or each in self._retired]
        if strays:
            # It got them with a range that is in handover with them, unknown here, or slept while they were retired.
            self._send(slot, Revoke(ranges=tuple(strays)))
            self._refuse(
                slot, "are in other slots, or no more, and it was asked to release", strays
            )
            return
        unknown = [each for each in report.watermarks_us if not self._authority.knows(each)]
        if unknown:
            # It has divided a range, and its message about that has not arrived.
            self._refuse(slot, "the driver does not know", unknown)
            return
        try:
            self.witness.on_report(report.commits)
        except LostCommitsError as error:
            self._give_up(error, report.worker)
            return
        slot.on_report(report)
        self._shapes.report(report.routings)
        self._authority.report(
            report.watermarks_us,
            inputs_us=report.inputs_us,
            percentiles_us=report.percentiles_us,
            progress=report.progress,
        )
        self._signals.report(report.signals)
        for range_id, poll in report.polls.items():
            self._polls[range_id] = poll.following(self._polls.get(range_id))
        self._has_reports = True

    def _refuse(self, slot: Slot, what: str, ranges: Iterable[RangeId]) -> None:
        names = ", ".join(map(str, ranges))
        slot.refuse(self._clock.now_us(), f"it reports of ranges that {what}: {names}")

    def _routes(self) -> Routes:
        addresses = {
            range_id: slot.address
            for range_id, index in self._assignment.slots.items()
            if self.is_stable(range_id) and (slot := self._slots[index]).is_ready and slot.address
        }
        return Routes(addresses=addresses, routing=self._shapes.routing)

    def _send(self, slot: Slot, message: object) -> None:
        if slot.address is not None:
            self._transport.send(slot.address, encode(message))

    def _awaiting_news(self) -> list[Slot]:
        """The slots to which news goes now; to a worker without ranges only as a sign of life.

        A worker that got them without its lease would never end itself.  While another worker lives, a worker that has
        lost its lease loses its slot too, and gets no messages any more.  But all of them can have lost it.
        """
        now_ms = self._clock.monotonic_ms()
        with_ranges = {*self._assignment.slots.values()}
        found = []
        for index, slot in enumerate(self._slots):
            is_due = index in with_ranges or now_ms - slot.sent_ms >= SIGN_OF_LIFE_MS
            if is_due and slot.is_within_lease(now_ms):
                slot.sent_ms = now_ms
                found.append(slot)
        return found

    def _send_all(self, message: object, slots: Sequence[Slot] | None = None) -> None:
        blob = encode(message)
        for slot in self._slots if slots is None else slots:
            if slot.address is not None:
                self._transport.send(slot.address, blob)


def has_begun(rows: Iterable[RangeRow]) -> bool:
    """Whether workers have had some of these ranges; after an update nobody owns them."""
    return any(row.owner is not None or row.bundle > 0 for row in rows)


def _first_cause(rows: Iterable[RangeRow]) -> Cause:
    """Why ranges are given to the first workers of this driver."""
    if has_begun(rows):
        return Cause(EventKind.TAKEOVER, "another driver runs the job, with workers of its own")
    return Cause(EventKind.ASSIGNMENT, "the job begins")
