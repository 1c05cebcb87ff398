"""Clocks: what decides what is late, and what triggers follow."""

from typing import Any

import pytest

import dataflow as df


@pytest.mark.parametrize(
    ("percentile_us", "followed_us"), [(None, 10), (9, 10), (10, 10), (11, 11)]
)
def test_triggers_follow_the_percentile_where_it_is_ahead(
    percentile_us: int | None, followed_us: int
) -> None:
    """The watermark itself does not move by it: what is late is decided by that one."""
    percentile: dict[str, Any] = {} if percentile_us is None else {"percentile_us": percentile_us}
    clocks = df.Clocks(watermark_us=10, now_us=7, **percentile)

    assert (10, 7) == (clocks.watermark_us, clocks.now_us)
    assert (followed_us, 7) == (clocks.for_triggers.watermark_us, clocks.for_triggers.now_us)
    assert clocks.for_triggers.for_triggers is clocks.for_triggers


def test_no_clock_is_given_in_place_of_another() -> None:
    """The two clocks are always named."""
    with pytest.raises(TypeError):
        df.Clocks(10, 7)  # type: ignore[call-arg]
