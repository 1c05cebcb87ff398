"""Master: gives ranges to workers, keeps the watermarks, and knows when the job is done.

Ranges are dealt to slots, and follow whichever worker registers for a slot last.  A worker that is not heard for as
long as its lease loses its ranges to the others, and gets them back when it has been replaced; ranges can be moved by
hand.  The lease only says when to act: what makes it safe is the fence (`runners.millwheel.assignment`).
Splits and merges of ranges under load are not here yet.

`Master.step` does one round and never waits.  MillWheel, sections 4.1 and 7.
"""

from collections.abc import Iterable, Mapping

import attrs

from dataflow.serialization import loads_code
from runners.core.clock import Clock
from runners.core.percentile_watermark import percentiles_of
from runners.core.plan import ExecutionPlan
from runners.millwheel.assignment import Assignment, BySlot
from runners.millwheel.ids import RangeId
from runners.millwheel.messages import (
    Assign,
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
from runners.millwheel.signals import Signal, SignalBoard
from runners.millwheel.store.port import JobRow
from runners.millwheel.transport import Transport
from runners.millwheel.watermark_authority import WatermarkAuthority
from windowing.timestamps import MAX_TIMESTAMP_US

#: Workers hear from the master at least this often; silence means that it is gone.
SIGN_OF_LIFE_MS = 200
#: A worker that is not heard for so long loses its ranges, if there is another one to take them.
LEASE_TTL_MS = 10_000
#: Longest lease of a slot whose worker was only slow: each time it is given twice as long.
LEASE_TTL_MAX_MS = 600_000
#: A worker that does not answer is asked again after this long; only a lost message needs it.
ASK_AGAIN_MS = 2_000


@attrs.define
class _Slot:
    """One place for a worker, and who is in it."""

    worker: str | None = None
    address: str | None = None
    heard_ms: int = 0
    lease_ttl_ms: int = LEASE_TTL_MS
    #: The worker that has lost its lease, until there is a new one.
    expired: str | None = None
    is_ready: bool = False
    is_quiet: bool = False
    records_read: int = 0
    records_late: int = 0
    records_dead: int = 0


@attrs.frozen(kw_only=True)
class MasterStatistics:
    """What the job has done since this master started."""

    records_read: int
    records_late: int
    records_dead: int
    workers_ready: int
    workers_replaced: int
    watermark_us: int


class Master:
    """One per running job, in the driver; not thread-safe."""

    def __init__(
        self, job: JobRow, plan: ExecutionPlan, slots: int, transport: Transport, clock: Clock
    ) -> None:
        self._transport, self._clock = transport, clock
        ranges = tuple(sorted(job.ranges))
        self._slots = [_Slot() for _ in range(slots)]
        self._assignment = Assignment(ranges, slots)
        self._asked_ms = clock.monotonic_ms()
        self._authority = WatermarkAuthority(
            {name: plan.senders(name) for name in plan.stages},
            ranges,
            _known({range_id: row.watermark_us for range_id, row in job.ranges.items()}),
            percentiles=percentiles_of(plan),
            committed_percentiles_us=_known(
                {range_id: row.percentile_us for range_id, row in job.ranges.items()}
            ),
        )
        self._signals = SignalBoard(
            plan, ranges, {range_id: row.signal_mark for range_id, row in job.ranges.items()}
        )
        self._told_ms = clock.monotonic_ms()
        self._has_news = False
        self._records_before = self._late_before = self._dead_before = 0
        self._workers_replaced = 0
        self.failure: Exception | None = None

    def step(self, wait_ms: int = 0) -> None:
        """One round: what has arrived, then news to the workers."""
        for blob in self._transport.receive(wait_ms):
            self._has_news |= self._handle(decode(blob))
        self._take_from_the_silent()
        self._ask_again()
        now_ms = self._clock.monotonic_ms()
        if self._has_news or now_ms - self._told_ms >= SIGN_OF_LIFE_MS:
            self._told_ms, self._has_news = now_ms, False
            news = Watermarks(
                inputs_us=dict(self._authority.inputs_us),
                percentiles_us=dict(self._authority.percentiles_us),
                signals=self._signals.news,
            )
            self._tell_all(news)

    @property
    def is_listening(self) -> bool:
        """Whether the pipeline listens to signals, so that they should be read from the store."""
        return self._signals.is_listening

    @property
    def latest_signal(self) -> int:
        """The number of the last signal that it knows."""
        return self._signals.latest

    def hear_signals(self, signals: Iterable[Signal]) -> None:
        """Take in what the store has after `latest_signal`, in order; once before the first `step`, then now and then.

        The first time because a range must not be given to a worker before what it has not acted on is known.
        """
        self._has_news |= self._signals.post(signals)

    @property
    def is_done(self) -> bool:
        """Whether the end of time has passed through everything and nothing is left to acknowledge."""
        return (
            self._authority.lowest_output_us() >= MAX_TIMESTAMP_US
            and self._assignment.is_at_rest
            and all(slot.is_quiet for slot in self._slots if slot.is_ready)
        )

    def move(self, ranges: Iterable[RangeId], slot: int) -> None:
        """Have ranges go to the worker of a slot, while the job runs; those that are on their way are left alone.

        Raises:
            ValueError: there is no such slot.
        """
        if not 0 <= slot < len(self._slots):
            raise ValueError(f"there is no slot {slot}, only {len(self._slots)}")
        self._revoke(self._assignment.move(ranges, slot))

    def stop(self) -> None:
        """Tell every worker that the job is over."""
        self._tell_all(Stop())

    def statistics(self) -> MasterStatistics:
        """Counts since this master started."""
        return MasterStatistics(
            records_read=self._records_before + sum(slot.records_read for slot in self._slots),
            records_late=self._late_before + sum(slot.records_late for slot in self._slots),
            records_dead=self._dead_before + sum(slot.records_dead for slot in self._slots),
            workers_ready=sum(slot.is_ready for slot in self._slots),
            workers_replaced=self._workers_replaced,
            watermark_us=self._authority.lowest_output_us(),
        )

    def _handle(self, message: object) -> bool:
        """Act on a message; whether there is news for the workers."""
        if isinstance(message, Report):
            return self._hear(message)
        if isinstance(message, Register):
            self._place(message)
        elif isinstance(message, Ready | Released):
            self._settle(message)
        elif isinstance(message, Failed):
            self.failure = self.failure or loads_code(message.error)
        return False

    def _place(self, register: Register) -> None:
        slot = self._slots[register.slot]
        if slot.worker is not None:
            self._vacate(slot)
        slot.worker, slot.address, slot.expired = register.worker, register.address, None
        slot.heard_ms = self._clock.monotonic_ms()
        slot.is_ready = slot.is_quiet = False
        given = self._assignment.place(register.slot)
        # Senders must not go on sending to whoever had these ranges.
        self._tell_all(Routes(addresses=self._routes()))
        # Told even of no range: a worker that knows of none is ready to be given some.
        self._assign({register.slot: (), **given})
        self._revoke(self._assignment.bring_home(register.slot))

    def _settle(self, message: Ready | Released) -> None:
        """A worker has taken ranges over, or let go of them."""
        slot = self._slots[message.slot]
        if slot.worker != message.worker:
            return
        slot.heard_ms = self._clock.monotonic_ms()
        if isinstance(message, Ready):
            slot.is_ready = True
            self._assignment.settle(message.slot, message.ranges)
            self._tell_all(Routes(addresses=self._routes()))
        else:
            given = self._assignment.release(message.slot, message.ranges)
            self._tell_all(Routes(addresses=self._routes()))
            self._assign(given)

    def _take_from_the_silent(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for index, slot in enumerate(self._slots):
            if slot.worker is None or now_ms - slot.heard_ms <= slot.lease_ttl_ms:
                continue
            live = [
                other
                for other, each in enumerate(self._slots)
                if each.is_ready and now_ms - each.heard_ms <= each.lease_ttl_ms
            ]
            if not live:
                continue
            self._vacate(slot)
            slot.expired, slot.worker, slot.address = slot.worker, None, None
            slot.is_ready = slot.is_quiet = False
            given = self._assignment.expire(index, live)
            self._tell_all(Routes(addresses=self._routes()))
            self._assign(given)

    def _vacate(self, slot: _Slot) -> None:
        self._workers_replaced += 1
        self._records_before += slot.records_read
        self._late_before += slot.records_late
        self._dead_before += slot.records_dead
        slot.records_read = slot.records_late = slot.records_dead = 0
        if slot.address is not None:
            self._transport.forget(slot.address)

    def _ask_again(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms < ASK_AGAIN_MS:
            return
        self._asked_ms = now_ms
        # What is on its way is lost with its connection, and these are said only when something changes.
        self._tell_all(Routes(addresses=self._routes()))
        self._assign(self._assignment.awaited())
        self._revoke(self._assignment.asked_back())

    def _assign(self, given: BySlot) -> None:
        for index, ranges in given.items():
            assign = Assign(
                ranges=ranges,
                watermarks_us=dict(self._authority.inputs_us),
                percentiles_us=dict(self._authority.percentiles_us),
                signals=self._signals.news,
            )
            self._tell(self._slots[index], assign)

    def _revoke(self, asked: BySlot) -> None:
        for index, ranges in asked.items():
            self._tell(self._slots[index], Revoke(ranges=ranges))

    def _hear(self, report: Report) -> bool:
        slot = self._slots[report.slot]
        if slot.expired == report.worker:
            # It was only slow; what it does is fenced, but its successor is given more time.
            slot.expired = None
            slot.lease_ttl_ms = min(2 * slot.lease_ttl_ms, LEASE_TTL_MAX_MS)
        if slot.worker != report.worker or not slot.is_ready:
            return False
        slot.heard_ms = self._clock.monotonic_ms()
        slot.is_quiet = report.is_quiet
        slot.records_read, slot.records_late = report.records_read, report.records_late
        slot.records_dead = report.records_dead
        moved = self._authority.report(
            report.watermarks_us,
            report.idle,
            percentiles_us=report.percentiles_us,
            progress=report.progress,
        )
        return self._signals.report(report.signals) or moved

    def _routes(self) -> Mapping[RangeId, str]:
        return {
            range_id: slot.address
            for index, slot in enumerate(self._slots)
            if slot.is_ready and slot.address is not None
            for range_id in self._assignment.ranges_of(index)
            if self._assignment.is_settled(range_id)
        }

    def _tell(self, slot: _Slot, message: object) -> None:
        if slot.address is not None:
            self._transport.send(slot.address, encode(message))

    def _tell_all(self, message: object) -> None:
        blob = encode(message)
        for slot in self._slots:
            if slot.address is not None:
                self._transport.send(slot.address, blob)


def _known(watermarks_us: Mapping[RangeId, int | None]) -> Mapping[RangeId, int]:
    return {range_id: us for range_id, us in watermarks_us.items() if us is not None}
