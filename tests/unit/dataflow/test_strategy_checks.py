"""Groupings that would emit nothing are refused, and those that could lose something are warned of, by name."""

import warnings
from inspect import currentframe
from typing import Any

import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.scripted_source import ScriptedSource
from tests.ids import shown

Mode = df.AccumulationMode
DISCARDING = Mode.DISCARDING


class Endless(ScriptedSource):
    """Declares that it does not end."""

    is_bounded = False


def line(offset: int = 0) -> int:
    """The caller's line."""
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno + offset


@pytest.fixture
def pipeline() -> df.Pipeline:
    return df.Pipeline(DirectRunner())


@pytest.fixture
def endless(pipeline: df.Pipeline) -> df.PCollection[Any]:
    return pipeline | "endless" >> df.Read(Endless([]))


def windowed(
    trigger: df.Trigger, window_fn: df.WindowFn | None = None, label: str = "windows"
) -> df.WindowInto:
    return label >> df.WindowInto(
        window_fn or df.GlobalWindows(), trigger=trigger, accumulation_mode=DISCARDING
    )


def test_what_comes_of_an_endless_source_is_endless(
    pipeline: df.Pipeline, endless: df.PCollection[Any]
) -> None:
    """Through every operation; a union is bounded if all of it is."""
    bounded = pipeline | df.Create([1])
    grouped = endless | df.WindowInto(df.FixedWindows(60)) | df.Map(abs) | df.GroupByKey()

    assert (True, False, False) == (bounded.is_bounded, endless.is_bounded, grouped.is_bounded)
    assert (bounded, bounded) | "both bounded" >> df.Flatten() | df.Map(bool)
    assert ((bounded, bounded) | df.Flatten()).is_bounded
    assert not ((bounded, endless) | df.Flatten()).is_bounded
    assert repr(grouped).startswith("unbounded PCollection of transform 'GroupByKey'")


WAITING = [
    df.DefaultTrigger(),
    df.AfterWatermark(),
    df.AfterWatermark(late=df.AfterCount(1)),
    df.Never(),
    df.Repeatedly(df.AfterAll(df.AfterCount(1), df.AfterWatermark())),
    df.OrFinally(df.Never(), df.AfterWatermark()),
    df.AfterEach(df.AfterWatermark(), df.AfterCount(1)),
]
STOPPING = [
    df.AfterCount(10),
    df.AfterProcessingTime(60),
    df.AfterAny(df.AfterCount(10), df.AfterWatermark()),
    df.OrFinally(df.Always(), df.AfterCount(10)),
    df.AfterEach(df.AfterCount(1), df.AfterWatermark()),
]
ENDURING = [
    df.Repeatedly(df.AfterCount(10)),
    df.AfterWatermark(early=df.AfterCount(10)),
    df.Always(),
    df.AfterEach(df.AfterCount(1), df.Repeatedly(df.AfterCount(10))),
]


@pytest.mark.parametrize("trigger", WAITING, ids=shown)
def test_waiting_for_the_end_of_an_endless_window_is_refused(
    endless: df.PCollection[Any], trigger: df.Trigger
) -> None:
    with pytest.raises(df.PipelineError, match="would never emit anything") as refused:
        endless | windowed(trigger) | "sums" >> df.CombinePerKey(sum)

    assert refused.value.fact.startswith("transform 'sums' (tests")
    assert repr(trigger) in refused.value.detail
    assert "transform 'windows' (tests" in refused.value.detail
    assert "df.FixedWindows(60)" in refused.value.hint


def test_without_windows_the_read_is_named(endless: df.PCollection[Any]) -> None:
    with pytest.raises(df.PipelineError, match="would never emit anything") as refused:
        endless | df.Map(abs) | df.GroupByKey()

    assert "no WindowInto comes after transform 'endless' (tests" in refused.value.detail


@pytest.mark.parametrize("trigger", ENDURING, ids=shown)
def test_triggers_that_go_on_are_fine(endless: df.PCollection[Any], trigger: df.Trigger) -> None:
    """After a grouping as well, whose windows are frozen and still without an end."""
    (
        endless
        | windowed(trigger)
        | df.GroupByKey()
        | df.Map(repr)
        | df.Map(lambda x: (x, x))
        | df.GroupByKey()
    )


@pytest.mark.parametrize("trigger", WAITING + STOPPING, ids=shown)
def test_windows_that_end_are_fine(endless: df.PCollection[Any], trigger: df.Trigger) -> None:
    endless | windowed(trigger, df.Sessions(60)) | df.GroupByKey() | "again" >> df.GroupByKey()


@pytest.mark.parametrize("trigger", WAITING + STOPPING, ids=shown)
def test_input_that_ends_is_fine(pipeline: df.Pipeline, trigger: df.Trigger) -> None:
    (
        pipeline
        | df.Create([df.TimestampedValue(("k", 1), 1)])
        | windowed(trigger)
        | df.GroupByKey()
        | "2" >> df.GroupByKey()
    )


@pytest.mark.parametrize("trigger", STOPPING, ids=shown)
def test_triggers_that_stop_in_an_endless_window_are_warned_of(
    endless: df.PCollection[Any], trigger: df.Trigger
) -> None:
    """On the user's line."""
    with pytest.warns(df.DataLossWarning, match="emits nothing any more") as caught:
        endless | windowed(trigger) | "sums" >> df.CombinePerKey(sum)
    expected = line(-1)

    (warning,) = caught
    assert (__file__, expected) == (warning.filename, warning.lineno)
    assert f"transform 'sums' (tests/unit/dataflow/test_strategy_checks.py:{expected})" in str(
        warning.message
    )
    assert "transform 'windows' (tests" in str(warning.message)


def test_frozen_windows_without_end_are_still_without_end(endless: df.PCollection[Any]) -> None:
    """The second grouping is in the windows of the first."""
    with pytest.warns(df.DataLossWarning) as caught:
        endless | windowed(df.AfterCount(3)) | "1" >> df.GroupByKey() | "2" >> df.GroupByKey()

    assert ["'1'", "'2'"] == [str(each.message).split()[1] for each in caught]


def test_warnings_are_silenced_by_pythons_own_filters(endless: df.PCollection[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", df.DataLossWarning)
        endless | windowed(df.AfterCount(3)) | df.GroupByKey()


def test_warnings_can_be_errors_with_fact_detail_and_hint(endless: df.PCollection[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", df.DataLossWarning)
        with pytest.raises(df.DataLossWarning) as caught:
            endless | windowed(df.AfterCount(3)) | df.GroupByKey()

    assert caught.value.fact
    assert caught.value.detail
    assert "df.Repeatedly" in caught.value.hint


class Custom(df.Trigger):
    """Declares nothing of when it fires."""

    def on_elements(self, state: Any, window: Any, elements: Any, clocks: df.Clocks) -> Any:
        return state

    def should_fire(self, state: Any, window: Any, clocks: df.Clocks) -> bool:
        return True

    def on_fire(self, state: Any, window: Any, clocks: df.Clocks) -> df.Progress:
        return df.Progress(state)

    def next_timers(self, state: Any, window: Any, clocks: df.Clocks) -> df.TriggerTimers:
        return df.TriggerTimers()


class Patient(Custom):
    """Waits for the watermark."""

    early_firings = df.EarlyFirings.NEVER


def test_users_triggers_are_trusted_to_fire(endless: df.PCollection[Any]) -> None:
    """Unless they declare otherwise, alone or inside another."""
    endless | windowed(Custom()) | df.GroupByKey()
    for number, trigger in enumerate((Patient(), df.Repeatedly(Patient()))):
        with pytest.raises(df.PipelineError, match="would never emit anything"):
            endless | windowed(trigger, label=f"patient {number}") | df.GroupByKey()


def late(size: int, lateness: int, label: str) -> df.WindowInto:
    return label >> df.WindowInto(
        df.FixedWindows(size), allowed_lateness=lateness, accumulation_mode=DISCARDING
    )


def lossy(
    pairs: df.PCollection[Any], then: df.WindowInto, skew: int = 0, *, lateness: int = 600
) -> list[str]:
    """What is warned of when late results of minutes are grouped again."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (
            pairs
            | late(60, lateness, "minutes")
            | "first" >> df.GroupByKey()
            | "between" >> df.Map(lambda pair: pair, allowed_timestamp_skew=skew)
            | then
            | df.Filter(bool)
            | "second" >> df.GroupByKey()
        )
    return [str(each.message) for each in caught]


def test_less_lateness_than_the_grouping_before_is_warned_of(pipeline: df.Pipeline) -> None:
    """By default there is none: a WindowInto begins again."""
    pairs = pipeline | df.Create([df.TimestampedValue(("k", 1), 1)])
    (message,) = lossy(pairs, "hours" >> df.WindowInto(df.FixedWindows(3600)))

    assert message.startswith("transform 'second' (tests")
    assert "transform 'hours' (tests" in message
    assert "lateness of 0 seconds, less than 10 minutes: transform 'first' (tests" in message
    assert 'allowed_lateness="PT10M"' in message


@pytest.mark.parametrize(
    ("then", "skew", "is_fine"),
    [
        (late(3600, 600, "hours"), 0, True),
        (late(3600, 599, "hours"), 0, False),
        (late(3600, 600, "hours"), 1, False),
        (late(3600, 601, "hours"), 1, True),
        (df.WindowInto(df.GlobalWindows()), 1, True),
        (df.WindowInto(df.Sessions(601)), 0, True),
        (df.WindowInto(df.Sessions(600)), 0, False),
        (df.WindowInto(df.Sessions(lambda pair: 601)), 0, False),
    ],
)
def test_enough_lateness_is_that_of_the_panes_and_what_sets_them_back(
    pipeline: df.Pipeline, then: df.WindowInto, skew: int, is_fine: bool
) -> None:
    """A session that begins with a pane ends a gap later, so it is open for as long."""
    pairs = pipeline | df.Create([df.TimestampedValue(("k", 1), 1)])

    assert is_fine == (not lossy(pairs, then, skew))


def test_grouping_again_in_the_same_windows_is_fine(pipeline: df.Pipeline) -> None:
    grouped = (
        pipeline
        | df.Create([df.TimestampedValue(("k", 1), 1)])
        | late(60, 600, "minutes")
        | df.GroupByKey()
    )
    grouped | df.Map(lambda pair: pair) | "again" >> df.GroupByKey()


def test_times_that_may_be_set_back_need_lateness(pipeline: df.Pipeline) -> None:
    """Unless their windows were assigned before."""
    pairs = pipeline | df.Create([df.TimestampedValue(("k", 1), 1)])
    skewed: Any = pairs | "back" >> df.WithTimestamps(lambda pair: 0, allowed_timestamp_skew=5)
    with pytest.warns(df.DataLossWarning, match=r"'back' .* may set times back by 5 seconds"):
        skewed | late(60, 4, "four") | "4" >> df.GroupByKey()
    skewed | late(60, 5, "five") | "5" >> df.GroupByKey()
    windowed_before = pairs | late(60, 0, "none")
    (
        windowed_before
        | "later" >> df.WithTimestamps(lambda pair: 0, allowed_timestamp_skew=5)
        | "0" >> df.GroupByKey()
    )


def test_the_worst_of_several_inputs_counts(pipeline: df.Pipeline) -> None:
    pairs = pipeline | df.Create([df.TimestampedValue(("k", 1), 1)])
    skewed = pairs | df.Map(lambda pair: pair, allowed_timestamp_skew=5)
    with pytest.warns(df.DataLossWarning, match="less than 5 seconds"):
        (pairs, skewed) | df.Flatten() | late(60, 1, "one") | df.GroupByKey()


COUNT = df.CombiningValueStateSpec("count", df.CountCombineFn())


class Counting(df.DoFn):
    """Passes elements on, each at its own event time."""

    def process(
        self,
        element: Any,
        /,
        count: Any = df.DoFn.StateParam(COUNT),
    ) -> Any:
        count.add(1)
        yield element


def test_what_a_stateful_do_fn_passes_on_is_as_late_as_it_was(pipeline: df.Pipeline) -> None:
    """Its own window may be open for much longer than the lateness that it allows."""
    pairs = pipeline | df.Create([df.TimestampedValue(("k", 1), 1)])
    results = pairs | late(60, 600, "minutes") | "first" >> df.GroupByKey()
    passed_on = results | "all" >> df.WindowInto(df.GlobalWindows()) | df.ParDo(Counting())
    with pytest.warns(df.DataLossWarning, match=r"less than 10 minutes: transform 'first'"):
        passed_on | late(60, 599, "less") | "less lateness" >> df.GroupByKey()
    passed_on | late(60, 600, "enough") | "enough lateness" >> df.GroupByKey()


def test_lateness_of_zero_is_not_warned_of(tmp_path: Any) -> None:
    """The most ordinary pipeline there is: what is dropped is counted when it happens."""
    path = tmp_path / "a.jsonl"
    path.write_text("1\n")
    pipeline = df.Pipeline(DirectRunner())
    rows = pipeline | df.ReadFromJsonLines(path, event_time=float, max_disorder=5)
    rows | df.WindowInto(df.FixedWindows(60)) | df.Map(lambda n: (n, n)) | df.GroupByKey()


@pytest.mark.parametrize("mode", [Mode.ACCUMULATING_AND_RETRACTING, Mode.ACCUMULATING, DISCARDING])
@pytest.mark.parametrize("combiner", df.TimestampCombiner)
def test_a_watermark_with_a_hold_for_ever_is_refused_where_somebody_waits_for_it(
    endless: df.PCollection[Any], mode: df.AccumulationMode, combiner: df.TimestampCombiner
) -> None:
    """Behind a grouping over all of time that may retract what it emitted at the event time of a record."""
    totals = (
        endless
        | "all of time"
        >> df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=mode,
            timestamp_combiner=combiner,
        )
        | "totals" >> df.CombinePerKey(df.SumCombineFn())
    )
    has_hold = mode is Mode.ACCUMULATING_AND_RETRACTING and combiner is not (
        df.TimestampCombiner.END_OF_WINDOW
    )
    by_minute = totals | "minutes" >> df.WindowInto(df.FixedWindows(60))
    if not has_hold:
        by_minute | "waits" >> df.GroupByKey()
        return
    with pytest.raises(df.PipelineError, match="the watermark never reaches it") as refused:
        by_minute | "waits" >> df.GroupByKey()
    assert "'totals'" in str(refused.value.detail)
    with pytest.warns(df.DataLossWarning, match="the watermark never reaches it"):
        (
            totals
            | "first"
            >> df.WindowInto(df.FixedWindows(60), trigger=df.AfterCount(1), accumulation_mode=mode)
            | "fires once" >> df.GroupByKey()
        )
    (
        totals
        | "always"
        >> df.WindowInto(df.FixedWindows(60), trigger=df.Always(), accumulation_mode=mode)
        | "fires" >> df.GroupByKey()
    )
