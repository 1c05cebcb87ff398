"""InputWatermark: by which clocks the ranges of a computation fire."""

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
    clocks = time.known(Clocks(watermark_us=10, now_us=7), output_watermark_us=5)

    assert (20, known_us) == (clocks.watermark_us, clocks.percentile_us)
    assert (5, 7) == (clocks.output_watermark_us, clocks.now_us)
