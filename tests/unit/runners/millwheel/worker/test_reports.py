"""Reporter: what is new at once, but of many workers all together no more than a driver can take."""

import pytest

from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.wire.messages import Report
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.reports import (
    BUSY_REPORT_INTERVAL_MS,
    REPORT_INTERVAL_MS,
    REPORTS_PER_MS,
    Reporter,
)
from runners.testing.manual_clock import ManualClock

RANGE = RangeId("sum", 0)
SECOND_MS = 1_000


def owned(watermark_us: int) -> OwnedRange:
    return OwnedRange(
        range_id=RANGE,
        token=1,
        bundle=0,
        outbox=Outbox((), {}),
        delivered={},
        watermark_us=watermark_us,
        keys=KeyRange(0, 1),
    )


def reports(workers: int, *, is_busy: bool, has_news: bool = True) -> list[Report]:
    """What a worker reports in a second in which it makes a step every millisecond."""
    clock, found = ManualClock(), list[Report]()
    reporter = Reporter(0, "w", workers, clock, found.append, Counts)
    for ms in range(SECOND_MS):
        clock.advance(1)
        ranges = {RANGE: owned(ms if has_news else 0)}
        reporter.report(ranges, is_busy=is_busy, is_idle=True, is_pausing=False, as_of_ms=ms)
    return found


def test_one_of_few_reports_at_once_what_is_new() -> None:
    assert len(reports(2, is_busy=False)) == SECOND_MS
    assert len(reports(2, is_busy=True)) == SECOND_MS // BUSY_REPORT_INTERVAL_MS


@pytest.mark.parametrize("workers", [40, 200, 2_000])
@pytest.mark.parametrize("is_busy", [False, True])
def test_many_together_report_no_more_than_a_driver_can_take(
    workers: int, *, is_busy: bool
) -> None:
    found = reports(workers, is_busy=is_busy)

    assert len(found) * workers <= REPORTS_PER_MS * SECOND_MS
    # And no less than half of it, or a lease would end, and watermarks stand.
    assert len(found) * workers >= REPORTS_PER_MS * SECOND_MS / 2
    assert found[-1].watermarks_us[RANGE] >= SECOND_MS - workers // REPORTS_PER_MS - 1


def test_nothing_new_is_reported_as_a_sign_of_life() -> None:
    assert len(reports(2, is_busy=False, has_news=False)) == pytest.approx(
        SECOND_MS / REPORT_INTERVAL_MS, abs=1
    )


def test_a_worker_whose_first_step_is_the_long_one_reports_that_it_lives() -> None:
    sent = list[Report]()
    Reporter(0, "w", 1, ManualClock(), sent.append, Counts).repeat()

    assert [(each.worker, each.watermarks_us, each.is_quiet) for each in sent] == [("w", {}, False)]
