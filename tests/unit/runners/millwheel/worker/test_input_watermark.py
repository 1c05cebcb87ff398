"""InputWatermark: by which clocks the ranges of a computation fire."""

import attrs
import pytest

from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.input_watermark import InputWatermark
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.owned_range import OwnedRange
from triggers.clocks import Clocks
from windowing.timestamps import MIN_TIMESTAMP_US


@pytest.mark.parametrize(
    ("follows_percentile", "known_us"), [(True, 50), (False, MIN_TIMESTAMP_US)]
)
def test_a_percentile_that_no_trigger_follows_any_more_is_not_known(
    *, follows_percentile: bool, known_us: int
) -> None:
    """The range may have been left by a version of the job whose triggers followed one."""
    owned = OwnedRange(
        RangeId("count", 0), 1, 0, Outbox([], {}), {}, watermark_us=20, percentile_us=50
    )
    time = InputWatermark({owned.range_id: owned}, follows_percentile=follows_percentile)
    time.take(owned)
    clocks = time.known(Clocks(watermark_us=10, now_us=7))

    assert (20, known_us) == (clocks.watermark_us, clocks.percentile_us)
    assert clocks.now_us == 7


def test_open_windows_and_whoever_is_behind_hold_what_can_have_been_reported() -> None:
    owned = OwnedRange(RangeId("count", 0), 1, 0, Outbox([], {}), {}, watermark_us=0)
    time = InputWatermark({owned.range_id: owned}, follows_percentile=False)
    time.act_on(Clocks(watermark_us=40, now_us=0))
    master = Clocks(watermark_us=50, now_us=7)
    found = []
    for hold_us in (None, 60, 30):
        time.window_hold_us = hold_us
        found.append((time.known(master).output_watermark_us, time.reached(7).output_watermark_us))

    assert found == [(40, 40), (40, 40), (30, 30)]
    behind = OwnedRange(RangeId("count", 1), 1, 0, Outbox([], {}), {}, watermark_us=20)
    ranges = {each.range_id: each for each in (owned, behind)}
    time = InputWatermark(ranges, follows_percentile=False)
    time.act_on(Clocks(watermark_us=40, now_us=0))
    time.take(attrs.evolve(behind))
    behind.watermark_us, time.window_hold_us = 20, 30
    assert time.reached(7).output_watermark_us == 20


def test_no_range_goes_back_when_some_of_what_is_due_has_fired() -> None:
    """A range that was taken over catches up, a part at a time; the others were further, and stay so."""
    ranges = {
        RangeId("count", index): OwnedRange(
            RangeId("count", index), 1, 0, Outbox([], {}), {}, watermark_us=watermark_us
        )
        for index, watermark_us in enumerate((50, 10))
    }
    time = InputWatermark(ranges, follows_percentile=False)
    for owned in ranges.values():
        time.take(owned)
    time.act_in_part(Clocks(watermark_us=30, now_us=0), 20)

    assert [owned.watermark_us for owned in ranges.values()] == [50, 20]
    assert time.least_us == MIN_TIMESTAMP_US, "until all that is due has fired for all of them"
    time.act_on(time.known(Clocks(watermark_us=30, now_us=0)))
    assert [owned.watermark_us for owned in ranges.values()] == [50, 50]
    assert time.least_us == 50
    behind = OwnedRange(RangeId("count", 2), 1, 0, Outbox([], {}), {}, watermark_us=20)
    ranges[behind.range_id] = behind
    time.take(behind)
    assert time.least_us == 20


def test_a_master_that_knows_less_takes_nothing_back() -> None:
    """It may be a new one, which knows what was committed, and not what was fired by without a commit."""
    owned = OwnedRange(RangeId("count", 0), 1, 0, Outbox([], {}), {}, watermark_us=0)
    time = InputWatermark({owned.range_id: owned}, follows_percentile=True)
    time.take(owned)
    for watermark_us, percentile_us in ((40, 60), (30, 50)):
        clocks = Clocks(watermark_us=watermark_us, now_us=0, percentile_us=percentile_us)
        known = time.known(clocks)
        time.act_on(known)

        assert (known.watermark_us, known.percentile_us) == (40, 60)
        assert (owned.watermark_us, owned.percentile_us, time.least_us) == (40, 60, 40)
        assert not time.is_before(clocks)
