"""PeriodicImpulse: an element for each instant that the clock has reached, once, whoever reads on."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.io.arrival import ArrivalTime
from dataflow.io.periodic import PeriodicSource
from dataflow.source import SplitStatus
from dataflow.testing import assert_that, contains_in_any_order
from windowing.timestamps import MAX_TIMESTAMP_US

START = datetime(2020, 1, 1, tzinfo=UTC)


def instants(number: int) -> list[datetime]:
    return [START + timedelta(minutes=each) for each in range(number)]


@pytest.mark.parametrize("seconds", [179, 180])
def test_instants_up_to_the_stop_are_emitted(seconds: int) -> None:
    with df.Pipeline() as p:
        stop = START + timedelta(seconds=seconds)
        impulses = p | df.PeriodicImpulse(START, stop, 60, apply_windowing=True)
        stamped = impulses | df.Reify.Window()
        ends = stamped | df.MapTuple(lambda x, at, window: (x, x == at, x == window.start))
        assert_that(ends, contains_in_any_order([(each, True, True) for each in instants(3)]))


@given(
    st.integers(-50, 50),
    st.integers(0, 100),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(-200, 200), st.integers(1, 5), st.booleans()), max_size=8),
)
def test_each_instant_comes_once_when_the_clock_has_reached_it(
    start_us: int, length_us: int, interval_us: int, reads: list[tuple[int, int, bool]]
) -> None:
    """Whatever the clock does, and also where another reader goes on; the watermark keeps its word."""
    now_us = [0]
    clock = ArrivalTime(lambda: now_us[0])
    source = PeriodicSource(start_us, start_us + length_us, interval_us, clock)
    (split,) = source.splits(4)
    reader, watermark_us = source.open(split, None, fence=0), start_us
    found: list[int] = []
    for at_us, records, is_new in [*reads, *[(1000, 5, False)] * 30]:
        now_us[0] = at_us
        batch = reader.read(records)
        assert all(watermark_us <= each <= at_us for each in batch.timestamps_us)
        assert len(batch.values) <= records
        assert batch.watermark_us >= watermark_us
        watermark_us = batch.watermark_us
        found += batch.timestamps_us
        if is_new:
            reader = source.open(split, batch.position, fence=0)

    assert list(range(start_us, start_us + length_us, interval_us)) == found
    assert (SplitStatus.FINISHED, MAX_TIMESTAMP_US) == (batch.status, batch.watermark_us)


def test_it_begins_with_the_job_and_has_no_end_unless_given() -> None:
    source = PeriodicSource(None, None, 10, ArrivalTime(lambda: 7))

    assert [7] == source.splits(1)
    assert not source.is_bounded
    assert [7] == source.open(7, None, fence=0).read(5).timestamps_us
    assert not (df.Pipeline() | df.PeriodicImpulse()).is_bounded


def test_batch_does_not_wait() -> None:
    source = PeriodicSource(0, 30, 10, ArrivalTime(lambda: 0))

    assert [0] == source.open(0, None, fence=0).read(9).timestamps_us
    assert [0, 10, 20] == source.repeatable().open(0, None, fence=0).read(9).timestamps_us
    assert attrs.evolve(source, is_repeatable=True) == source.repeatable()


def test_impossible_sequences_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"fire_interval": 0},
        {"fire_interval": -1},
        {"start_timestamp": 5, "stop_timestamp": 4},
    ]
    for each in wrong:
        with pytest.raises(df.PipelineError, match="PeriodicImpulse"):
            df.PeriodicImpulse(**each)
