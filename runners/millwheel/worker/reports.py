"""What a worker reports to the master about the ranges that it owns."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import attrs

from runners.core.ground.clock import Clock
from runners.millwheel.model.accounts import WorkerAccount
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.wire.messages import Report
from runners.millwheel.worker.owned_range import OwnedRange
from windowing.timestamps import MIN_TIMESTAMP_US

#: Longest time without a report to the master.
REPORT_INTERVAL_MS = 100
#: Between two reports with an account.
ACCOUNT_INTERVAL_MS = 900
#: Everything that a busy worker does is news; what no window is known to wait for is reported so often, which bounds
#: how far watermarks lag behind.
BUSY_REPORT_INTERVAL_MS = 10
#: The same while a window is due by what was reported, and has not fired: others may wait behind it.
AWAITED_REPORT_INTERVAL_MS = 3
#: The same where nothing waits for the master: a report costs a worker as much as some records, and the driver more.
UNAWAITED_REPORT_INTERVAL_MS = 50
#: Reports of all workers together that the driver is sent in a millisecond, about: less than half of its core.
REPORTS_PER_MS = 4


class Reporter:
    """Reports to the master how far a worker is: news at once, or at intervals while it is busy or one of many.

    While it is busy what is *awaited* does not wait: a window of this worker is due as soon as the master knows how far
    the ranges here have come.  Whether others have come so far is not known here; nor is whether windows of others
    wait, but these mostly end at the same event times.

    Args:
        slot: of the worker.
        worker: its name.
        workers: how many there are.
        clock: for the intervals.
        send: sends to the master.
        counts: what it has done.
        account: of itself; None: it gives none.
        senders: by grouping, the computations that send to it.
        due_us: by grouping, the event time at which something of it that is here is due first, in microseconds.
        ahead_us: the input watermarks that are ahead of those that the master has sent, in microseconds.
        waits_for_master: whether anything may wait for what the master makes of reports: not where the worker has all
            ranges, and computes the watermarks itself.
    """

    def __init__(
        self,
        slot: int,
        worker: str,
        workers: int,
        clock: Clock,
        send: Callable[[Report], None],
        counts: Callable[[], Counts],
        account: Callable[[], WorkerAccount] | None = None,
        *,
        senders: Mapping[str, Collection[str]] = MappingProxyType({}),
        due_us: Callable[[], Mapping[str, int]] = dict,
        ahead_us: Callable[[], Mapping[str, int]] = dict,
        waits_for_master: Callable[[], bool] = lambda: True,
    ) -> None:
        self._waits_for_master = waits_for_master
        self._senders, self._due_us, self._ahead_us = senders, due_us, ahead_us
        self._account, self._accounted_ms = account, clock.monotonic_ms()
        self._slot, self._worker, self._clock = slot, worker, clock
        self._send, self._counts = send, counts
        self._interval_ms = workers // REPORTS_PER_MS
        self._reported_ms = clock.monotonic_ms()
        self._last: Report | None = None

    def report(
        self,
        ranges: Mapping[RangeId, OwnedRange],
        *,
        is_busy: bool,
        is_idle: bool,
        is_pausing: bool,
        as_of_ms: int,
    ) -> None:
        """Report, if it is time or there is news.

        Args:
            ranges: those that the worker owns.
            is_busy: whether the worker has done something in this round; it then reports at intervals only.
            is_idle: whether everything is durable, and compacted.
            is_pausing: whether the worker is to come to rest, for a pause of the job.
            as_of_ms: when the master sent the message received last, by its own clock.
        """
        now_ms = self._clock.monotonic_ms()
        silence_ms = now_ms - self._reported_ms
        if silence_ms < self._interval_ms:
            return
        if is_busy and silence_ms < self._busy_interval_ms(ranges, silence_ms):
            return
        report = self._report_of(ranges, is_idle=is_idle, is_pausing=is_pausing, as_of_ms=as_of_ms)
        if self._account is not None:
            holds = {range_id: owned.holds() for range_id, owned in ranges.items()}
            report = attrs.evolve(report, holds=holds)
        if silence_ms >= REPORT_INTERVAL_MS or report != self._last:
            self._last, self._reported_ms = report, now_ms
            self._send(self._with_account(report, now_ms))

    def _busy_interval_ms(self, ranges: Mapping[RangeId, OwnedRange], silence_ms: int) -> int:
        """How long a report waits while the worker is busy: less where a window is due by how far ranges are."""
        if not self._waits_for_master():
            return UNAWAITED_REPORT_INTERVAL_MS
        interval_ms = BUSY_REPORT_INTERVAL_MS
        if silence_ms >= interval_ms:
            return interval_ms
        reported_us = {} if self._last is None else self._last.watermarks_us
        for name, due_us in self._due_us().items():
            senders = [each for each in ranges if each.computation in self._senders[name]]
            if senders and all(ranges[each].next_output_us >= due_us for each in senders):
                known_us = min(reported_us.get(each, MIN_TIMESTAMP_US) for each in senders)
                if known_us < due_us:
                    return 0
                interval_ms = AWAITED_REPORT_INTERVAL_MS
        return interval_ms

    def _with_account(self, report: Report, now_ms: int) -> Report:
        if self._account is None or now_ms - self._accounted_ms < ACCOUNT_INTERVAL_MS:
            return report
        self._accounted_ms = now_ms
        return attrs.evolve(report, account=self._account())

    def forget(self) -> None:
        """Repeat nothing that was reported so far: ranges have been taken over since then."""
        self._last = None

    def repeat(self) -> None:
        """Send the last report again, if it is time: there is no news, but it shows that the worker lives.

        A worker whose first step is the long one has reported nothing yet, and sends an empty report.
        """
        now_ms = self._clock.monotonic_ms()
        if self._last is not None and now_ms - self._reported_ms < BUSY_REPORT_INTERVAL_MS:
            return
        if self._last is None:
            self._last = self._report_of({}, is_idle=False, is_pausing=False, as_of_ms=0)
        self._reported_ms = now_ms
        self._send(self._last)

    def _report_of(
        self,
        ranges: Mapping[RangeId, OwnedRange],
        *,
        is_idle: bool,
        is_pausing: bool,
        as_of_ms: int,
    ) -> Report:
        return report_of(
            ranges,
            slot=self._slot,
            worker=self._worker,
            is_idle=is_idle,
            is_pausing=is_pausing,
            counts=self._counts(),
            as_of_ms=as_of_ms,
            inputs_us=self._ahead_us(),
        )


def report_of(
    ranges: Mapping[RangeId, OwnedRange],
    *,
    slot: int,
    worker: str,
    is_idle: bool,
    is_pausing: bool,
    counts: Counts,
    as_of_ms: int,
    inputs_us: Mapping[str, int] = MappingProxyType({}),
) -> Report:
    """How far ranges are; advances their output watermarks.

    Args:
        ranges: those that the worker owns.
        slot: of the worker.
        worker: its name.
        is_idle: whether everything that the ranges have done is committed.
        is_pausing: whether the worker is to come to rest, for a pause of the job.
        counts: what the worker has done.
        as_of_ms: when the master sent the message received last, by its own clock.
        inputs_us: the input watermarks that are ahead of those that the master has sent, in microseconds.
    """
    is_quiet = is_idle and all(owned.outbox.is_empty for owned in ranges.values())
    return Report(
        slot=slot,
        worker=worker,
        watermarks_us={range_id: owned.advance_output() for range_id, owned in ranges.items()},
        idle=frozenset(
            range_id
            for range_id, owned in ranges.items()
            if owned.is_idle and owned.outbox.is_empty
        ),
        signals={
            range_id: number
            for range_id, owned in ranges.items()
            if (number := owned.passed_signal())
        },
        percentiles_us={
            range_id: percentile_us
            for range_id, owned in ranges.items()
            if (percentile_us := owned.passed_percentile_us()) is not None
        },
        progress={
            range_id: progress
            for range_id, owned in ranges.items()
            if (progress := owned.passed_progress()) is not None
        },
        polls={
            range_id: owned.poll for range_id, owned in ranges.items() if owned.poll is not None
        },
        routings={range_id: owned.passed_routing() for range_id, owned in ranges.items()},
        commits={each: owned.mark for each, owned in ranges.items()},
        is_quiet=is_quiet,
        is_paused=is_quiet and is_pausing,
        counts=counts,
        inputs_us=inputs_us,
        as_of_ms=as_of_ms,
    )
