"""A record whose event time a transform sets is treated as if its source had given it that time."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.laws import microseconds, window_fn
from tests.pane_log import run_logged
from tests.strategies import streams, windowings
from windowing.timestamps import US_PER_SECOND

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)
SHIFT_US = 30


def outcome(
    windowing: Windowing, arrivals: Sequence[Arrivals], shift_us: int
) -> tuple[list[Any], list[Any]]:
    """Panes and late records when the source gives times that are off by so much, which a transform puts right."""
    script = [
        Batch(
            [(record.key, (record.value, record.timestamp_us)) for record in arrival.records],
            [record.timestamp_us + shift_us for record in arrival.records],
            arrival.watermark_us,
        )
        for arrival in arrivals
    ]
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Read(ScriptedSource(script))
        | df.WithTimestamps(
            lambda pair: pair[1][1] / US_PER_SECOND, allowed_timestamp_skew=microseconds(SHIFT_US)
        )
        | df.Map(lambda pair: (pair[0], pair[1][0]))
        | df.WindowInto(
            window_fn(windowing),
            allowed_lateness=microseconds(windowing.lateness_us),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.GroupByKey()
    )
    log = run_logged(pipeline)
    return log.panes, log.late_records()


@pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
@given(windowing=windowings(), arrivals=streams(), shift_us=st.integers(-SHIFT_US, SHIFT_US))
def test_only_the_new_time_counts(
    windowing: Windowing, arrivals: list[Arrivals], shift_us: int
) -> None:
    """For windows, lateness and the watermark: set forward or back, before it or behind it."""
    assert outcome(windowing, arrivals, 0) == outcome(windowing, arrivals, shift_us)
