"""Reporter: what is new at once, but of many workers all together no more than a driver can take."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.wire.messages import Report
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.reports import (
    AWAITED_REPORT_INTERVAL_MS,
    BUSY_REPORT_INTERVAL_MS,
    REPORT_INTERVAL_MS,
    REPORTS_PER_MS,
    UNAWAITED_REPORT_INTERVAL_MS,
    Reporter,
)
from runners.testing.manual_clock import ManualClock

RANGE = RangeId("sum", 0)
SECOND_MS = 1_000


def owned(watermark_us: int, range_id: RangeId = RANGE) -> OwnedRange:
    return OwnedRange(
        range_id=range_id,
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


def busy_reports(
    reached_us: Sequence[int], window_us: int, sender: str = "read"
) -> list[Mapping[RangeId, int]]:
    """What a worker reports that reads, and has windows that end at every multiple of some time, in busy milliseconds.

    The master answers at once, so windows fire by what was reported.
    """
    clock, found = ManualClock(), list[Mapping[RangeId, int]]()
    split, counted = RangeId(sender, 0), RangeId("sum", 0)
    due_us = window_us

    def send(report: Report) -> None:
        nonlocal due_us
        found.append(report.watermarks_us)
        due_us = (report.watermarks_us[split] // window_us + 1) * window_us

    reporter = Reporter(
        0, "w", 2, clock, send, Counts, senders={"sum": {"read"}}, due_us=lambda: {"sum": due_us}
    )
    for us in accumulate(reached_us):
        clock.advance(1)
        ranges = {split: owned(us, split), counted: owned(0, counted)}
        reporter.report(ranges, is_busy=True, is_idle=False, is_pausing=False, as_of_ms=0)
    return found


@given(
    steps_us=st.lists(st.integers(0, 20), min_size=1, max_size=200), window_us=st.integers(1, 50)
)
def test_what_a_window_waits_for_is_reported_at_once_and_once(
    steps_us: list[int], window_us: int
) -> None:
    found = [each[RangeId("read", 0)] for each in busy_reports(steps_us, window_us)]

    ends = {us // window_us for us in accumulate(steps_us)} - {0}
    assert {us // window_us for us in found} - {0} == ends
    assert len(found) <= len(ends) + len(steps_us) // BUSY_REPORT_INTERVAL_MS


def test_how_far_others_have_come_is_not_known_here() -> None:
    """The splits are in other workers, so what this one reports does not make its windows fire."""
    found = busy_reports([10] * SECOND_MS, 10, sender="other")

    assert len(found) == SECOND_MS // BUSY_REPORT_INTERVAL_MS


@pytest.mark.parametrize(
    ("waits_for_master", "interval_ms"),
    [
        # Another worker is behind, or the answer is on its way; the window is due all the while.
        (True, AWAITED_REPORT_INTERVAL_MS),
        (False, UNAWAITED_REPORT_INTERVAL_MS),
    ],
)
def test_what_is_reported_and_not_answered_is_not_reported_each_time(
    *,
    waits_for_master: bool,
    interval_ms: int,
) -> None:
    clock, found = ManualClock(), list[Report]()
    split = RangeId("read", 0)
    reporter = Reporter(
        0, "w", 2, clock, found.append, Counts, senders={"sum": {"read"}}, due_us=lambda: {"sum": 5},
        waits_for_master=lambda: waits_for_master,
    )  # fmt: skip
    for ms in range(SECOND_MS):
        clock.advance(1)
        ranges = {split: owned(ms, split)}
        reporter.report(ranges, is_busy=True, is_idle=False, is_pausing=False, as_of_ms=0)

    assert len(found) == pytest.approx(SECOND_MS // interval_ms, abs=1)
