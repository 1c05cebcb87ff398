"""What is dropped as too late is kept as it came, and the same transforms make of it what is missing."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.evaluator import Arrivals, Windowing, evaluate
from tests.oracle.laws import microseconds, window_fn, windowed
from tests.strategies import NOTHING_EMITTED_US, streams, triggers, windowings

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

#: Windows that do not depend on what else is there.
APART = windowings().filter(lambda each: each.kind in ("fixed", "sliding"))
#: Where values are grouped, or combined before it is known what is late; and what is emitted, as a sum.
GROUPINGS: list[tuple[Callable[[], Any], Callable[[Any], int]]] = [
    (df.GroupByKey, sum),
    (lambda: df.CombinePerKey(sum), int),
    (lambda: df.CombinePerKey(Values()), sum),
]


class Values(df.CombineFn):
    """The values in order; accumulators look like nothing that a user would know."""

    def create_accumulator(self) -> Counter[Any]:
        return Counter()

    def add_input(self, accumulator: Counter[Any], value: Any) -> Counter[Any]:
        return accumulator + Counter([value])

    def merge_accumulators(self, accumulators: Any) -> Counter[Any]:
        return sum(accumulators, Counter())

    def extract_output(self, accumulator: Counter[Any]) -> list[Any]:
        return sorted(accumulator.elements())


def emitted_by(
    pipeline: df.Pipeline, pairs: df.PCollection[Any], windows: df.WindowInto, grouping: int
) -> tuple[Counter[Any], Any]:
    """What discarding panes add up to, by key and window, and the result of the run."""
    emitted: Counter[Any] = Counter()
    group, total = GROUPINGS[grouping]

    def count(pair: Any, window: df.Window = df.DoFn.WindowParam) -> None:
        emitted[pair[0], window] += total(pair[1])

    pairs | windows | "group" >> group() | df.Map(count)
    return emitted, pipeline.run()


@given(
    windowing=APART,
    arrivals=streams(),
    trigger=st.none() | triggers(),
    combiner=st.sampled_from(df.TimestampCombiner),
    grouping=st.integers(0, len(GROUPINGS) - 1),
)
def test_answers_and_late_records_are_everything(
    windowing: Windowing,
    arrivals: list[Arrivals],
    trigger: df.Trigger | None,
    combiner: df.TimestampCombiner,
    grouping: int,
) -> None:
    """Whatever the strategy: a row is one record and the window that it missed; replayed, it is what is missing."""
    windows = df.WindowInto(
        window_fn(windowing),
        trigger=trigger,
        accumulation_mode=df.AccumulationMode.DISCARDING,
        timestamp_combiner=combiner,
        allowed_lateness=microseconds(windowing.lateness_us),
    )
    script = [
        Batch(
            [(record.key, record.value) for record in arrival.records],
            [record.timestamp_us for record in arrival.records],
            arrival.watermark_us,
        )
        for arrival in arrivals
    ]
    pipeline = df.Pipeline(DirectRunner())
    emitted, result = emitted_by(
        pipeline, pipeline | df.Read(ScriptedSource(script)), windows, grouping
    )
    late = result.late_records()
    missed: Counter[Any] = Counter()
    for row in late:
        key, value = row["element"].value
        missed[key, df.Window(row["window_start_us"], row["window_end_us"])] += value
    whole = [Arrivals(each.records, NOTHING_EMITTED_US) for each in arrivals]
    expected = {
        (group.key, df.Window(group.start_us, group.end_us)): sum(group.values)
        for group in evaluate(windowing, whole).groups
    }

    assert expected == dict(emitted + missed)
    assert Counter(row["transform"] for row in late) == result.late_counts()
    if windowing.kind == "fixed":
        replay = df.Pipeline(DirectRunner())
        again, _ = emitted_by(
            replay, replay | df.Create([row["element"] for row in late]), windows, grouping
        )
        assert missed == again


@pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
@given(windowing=APART, arrivals=streams())
def test_corrections_that_come_too_late_name_what_they_retract(
    windowing: Windowing, arrivals: list[Arrivals]
) -> None:
    """Sums that change too late for a second grouping: what it keeps and drops is all that came, sign by sign."""
    pipeline = df.Pipeline(DirectRunner())
    windows = windowed(
        pipeline, windowing, arrivals, df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    )
    first = windows | df.CombinePerKey(sum) | df.Map(lambda pair: ("all", pair))
    regrouped = first | "less" >> df.WindowInto(
        window_fn(windowing),
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )
    kept: Counter[Any] = Counter()
    came: Counter[Any] = Counter()

    def come(change: Any) -> None:
        came[change.value[1]] += change.sign

    def keep(change: Any) -> None:
        for value in change.value[1]:
            kept[value] += change.sign

    regrouped | "came" >> df.ToChangelog() | df.Map(come)
    regrouped | df.GroupByKey() | "kept" >> df.ToChangelog() | "keep" >> df.Map(keep)
    result = pipeline.run()
    for row in result.late_records():
        if row["transform"] == "GroupByKey":
            kept[row["element"].value[1]] += row["sign"]

    assert {value: n for value, n in came.items() if n} == {
        value: n for value, n in kept.items() if n
    }
