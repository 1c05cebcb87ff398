"""Which event time a pane has, and that the watermark behind the grouping waits for it."""

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.direct.job import Job
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.evaluator import Arrivals, Record, Windowing
from tests.oracle.laws import Mode, microseconds, window_fn
from tests.oracle.stamped import CHOSEN, pane_time_us, times_in_time_us
from tests.pane_log import run_logged
from tests.strategies import NOTHING_EMITTED_US, streams, triggers, windowings
from windowing.timestamps import US_PER_SECOND

COMBINERS = st.sampled_from([df.TimestampCombiner.EARLIEST, df.TimestampCombiner.LATEST])


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
    combiner=COMBINERS,
)
def test_a_pane_has_the_event_time_of_a_record_in_it(
    windowing: Windowing,
    arrivals: list[Arrivals],
    mode: Mode,
    trigger: df.Trigger,
    combiner: df.TimestampCombiner,
) -> None:
    """Of the earliest or of the latest that was not late; a retraction has that of what it retracts.

    What is neither retracted nor emitted for the first time makes no difference to the event time.
    """
    in_time_us = times_in_time_us(arrivals)
    pipeline, groups = grouped(windowing, arrivals, mode, trigger, combiner)
    seen: list[df.Change[Any]] = []
    groups | df.ToChangelog() | df.Map(seen.append)
    pipeline.run()
    is_merging = windowing.kind in ("sessions", "own gaps")
    emitted: dict[Any, set[int]] = defaultdict(set)
    for change in seen:
        values = set(change.value[1])
        before = emitted[None if is_merging else change.window]
        counted = values if mode is Mode.ACCUMULATING_AND_RETRACTING else values - before
        before |= values
        end_us = change.window.end_us

        assert pane_time_us(combiner, sorted(counted), end_us, in_time_us) == change.timestamp_us


@given(
    windowing=windowings(),
    arrivals=streams(),
    mode=st.sampled_from(Mode),
    trigger=triggers(),
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_no_pane_is_too_late_behind_its_grouping(
    windowing: Windowing,
    arrivals: list[Arrivals],
    mode: Mode,
    trigger: df.Trigger,
    combiner: df.TimestampCombiner,
) -> None:
    """Put into windows of an instant each, for which the same lateness is allowed; late records among them or not."""
    pipeline, groups = grouped(windowing, arrivals, mode, trigger, combiner)
    (
        groups
        | df.Map(lambda pair: (pair[0], tuple(sorted(pair[1]))))
        | df.WindowInto(
            df.FixedWindows(microseconds(1)),
            accumulation_mode=mode,
            allowed_lateness=microseconds(windowing.lateness_us),
        )
        | "second" >> df.GroupByKey()
    )
    log = run_logged(pipeline)

    assert [row for row in log.late_records() if row["transform"] == "second"] == []


@given(windowing=windowings(), arrivals=streams(), trigger=triggers(), combiner=COMBINERS)
def test_late_records_hold_nobody_back(
    windowing: Windowing,
    arrivals: list[Arrivals],
    trigger: df.Trigger,
    combiner: df.TimestampCombiner,
) -> None:
    """Where all that comes is late, the watermark behind the grouping is that of its input, at every moment."""
    ahead_us = 41
    arrivals = [
        Arrivals(each.records, max(each.watermark_us, ahead_us))
        for each in [Arrivals((), ahead_us), *arrivals]
    ]
    windowing = windowing._replace(lateness_us=ahead_us)
    pipeline, _ = grouped(windowing, arrivals, Mode.DISCARDING, trigger, combiner)
    job = _Noted(plan(pipeline.graph()))
    job.run(1_000)

    assert job.output_watermark_us == job.input_watermark_us


@given(
    watermark_us=st.integers(5, 20),
    near_us=st.integers(-1, 1),
    ahead_us=st.integers(0, 30),
    mode=st.sampled_from(Mode),
    combiner=COMBINERS,
)
def test_late_is_what_is_behind_the_watermark_of_the_grouping(
    watermark_us: int, near_us: int, ahead_us: int, mode: Mode, combiner: df.TimestampCombiner
) -> None:
    """However far ahead the source is that the record is from: the grouping also waits for the other one."""
    at_us = watermark_us + near_us
    one = ScriptedSource(
        [
            Batch([], [], watermark_us + ahead_us),
            Batch([("k", 1)], [at_us], watermark_us + ahead_us),
        ]
    )
    other = ScriptedSource([Batch([], [], watermark_us), Batch([], [], watermark_us)])
    pipeline = df.Pipeline(DirectRunner())
    windows = df.WindowInto(
        df.FixedWindows(microseconds(100)), accumulation_mode=mode, timestamp_combiner=combiner
    )
    seen: list[df.Change[Any]] = []
    both = (pipeline | "one" >> df.Read(one), pipeline | "other" >> df.Read(other)) | df.Flatten()
    both | windows | df.GroupByKey() | df.ToChangelog() | df.Map(seen.append)
    pipeline.run()

    assert [at_us if near_us >= 0 else 99] == [change.timestamp_us for change in seen]


@given(
    times_us=st.lists(st.integers(-25, 35), min_size=1, max_size=4),
    mode=st.sampled_from(Mode),
    combiner=COMBINERS,
)
def test_a_pane_is_within_its_window_whatever_event_times_code_has_set(
    times_us: list[int], mode: Mode, combiner: df.TimestampCombiner
) -> None:
    """Behind `WindowInto` they need not be within the window; a pane at one outside would be in no window again."""
    pipeline = df.Pipeline(DirectRunner())
    seen: list[df.Change[Any]] = []
    (
        pipeline
        | df.Read(ScriptedSource([Batch(times_us, [5] * len(times_us), NOTHING_EMITTED_US)]))
        | df.Map(lambda at_us: ("k", at_us))
        | df.WindowInto(
            df.FixedWindows(microseconds(10)), accumulation_mode=mode, timestamp_combiner=combiner
        )
        | df.WithTimestamps(
            lambda pair: pair[1] / US_PER_SECOND, allowed_timestamp_skew=microseconds(30)
        )
        | df.GroupByKey()
        | df.ToChangelog()
        | df.Map(seen.append)
    )
    pipeline.run()
    chosen_us = CHOSEN[combiner](times_us)

    assert [min(max(chosen_us, 0), 9)] == [change.timestamp_us for change in seen]


class _Noted(Job):
    """Writes down the input watermark of its grouping, and the output watermark that those behind it know."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.input_watermark_us: list[int] = []
        self.output_watermark_us: list[int] = []

    def _advance(self) -> None:
        super()._advance()
        (name,) = self._groupings
        self.input_watermark_us.append(self._watermarks_us[name])
        self.output_watermark_us.append(self._output_watermark_us[name])


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
