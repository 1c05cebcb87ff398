"""Which event time a pane has, and that the watermark behind the grouping waits for it."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from tests.oracle.evaluator import Arrivals, Record, Windowing
from tests.oracle.laws import Mode, microseconds, window_fn
from tests.pane_log import run_logged
from tests.scripted_source import Batch, ScriptedSource
from tests.strategies import streams, triggers, windowings

COMBINERS: dict[df.TimestampCombiner, Callable[[Sequence[int]], int]] = {
    df.TimestampCombiner.EARLIEST: min,
    df.TimestampCombiner.LATEST: max,
}


def grouped(
    windowing: Windowing,
    arrivals: list[Arrivals],
    mode: Mode,
    trigger: df.Trigger,
    combiner: df.TimestampCombiner,
) -> tuple[df.Pipeline, Any]:
    pipeline = df.Pipeline(DirectRunner())
    source = ScriptedSource(
        [
            Batch(
                [(record.key, record.value) for record in arrival.records],
                [record.timestamp_us for record in arrival.records],
                arrival.watermark_us,
            )
            for arrival in arrivals
        ]
    )
    windowed = (
        pipeline
        | df.Read(source)
        | df.WindowInto(
            window_fn(windowing),
            trigger=trigger,
            accumulation_mode=mode,
            allowed_lateness=microseconds(windowing.lateness_us),
            timestamp_combiner=combiner,
        )
    )
    return pipeline, windowed | "first" >> df.GroupByKey()


@given(
    windowing=windowings(),
    arrivals=streams(),
    mode=st.sampled_from(Mode),
    trigger=triggers(),
    combiner=st.sampled_from(list(COMBINERS)),
)
def test_a_pane_has_the_event_time_of_a_record_in_it(
    windowing: Windowing,
    arrivals: list[Arrivals],
    mode: Mode,
    trigger: df.Trigger,
    combiner: df.TimestampCombiner,
) -> None:
    """Of the earliest or of the latest; a retraction has that of what it takes back."""
    times_us = {r.value: r.timestamp_us for arrival in arrivals for r in arrival.records}
    pipeline, groups = grouped(windowing, arrivals, mode, trigger, combiner)
    seen: list[df.Change[Any]] = []
    groups | df.ToChangelog() | df.Map(seen.append)
    pipeline.run()
    for change in seen:
        values = change.value[1]
        expected_us = (
            COMBINERS[combiner]([times_us[value] for value in values])
            if values
            else change.window.max_timestamp_us
        )

        assert expected_us == change.timestamp_us


@given(
    windowing=windowings(st.just(0)),
    arrivals=streams(),
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_a_pane_is_never_late_behind_its_grouping(
    windowing: Windowing, arrivals: list[Arrivals], combiner: df.TimestampCombiner
) -> None:
    """Put into windows of an instant each, every pane that was on time is in time again."""
    arrivals = without_late(windowing, arrivals)
    pipeline, groups = grouped(windowing, arrivals, Mode.DISCARDING, df.AfterWatermark(), combiner)
    groups | df.WindowInto(df.FixedWindows(microseconds(1))) | "second" >> df.GroupByKey()
    log = run_logged(pipeline)

    assert [row for row in log.late_records() if row["transform"] == "second"] == []


def without_late(windowing: Windowing, arrivals: list[Arrivals]) -> list[Arrivals]:
    """The stream without records behind the watermark."""
    kept: list[Arrivals] = []
    watermark_us = -(1 << 62)
    for arrival in arrivals:
        records: tuple[Record, ...] = tuple(
            record for record in arrival.records if record.timestamp_us >= watermark_us
        )
        kept.append(Arrivals(records, arrival.watermark_us))
        watermark_us = max(watermark_us, arrival.watermark_us)
    return kept
