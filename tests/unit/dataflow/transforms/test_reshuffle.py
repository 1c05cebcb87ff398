"""Reshuffle is the identity, of everything that an element has, and a stage begins behind it."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from runners.core.stages.plan import plan
from tests.unit.dataflow.test_refused_state import refused
from tests.unit.dataflow.test_user_state import retracting
from tests.unit.dataflow.transforms.test_retractions import changes

WINDOWINGS = [
    df.WindowInto(df.GlobalWindows()),
    df.WindowInto(df.SlidingWindows(10, period=5)),
    df.WindowInto(df.Sessions(10)),
]


def fields(change: df.Change[Any]) -> Any:
    return repr(change.value), change.timestamp_us, change.window, repr(change.pane), change.sign


@pytest.mark.parametrize("windowing", WINDOWINGS, ids=lambda each: each.default_label())
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=4), max_size=5
    )
)
@example([[("b", 47), ("b", 48)]])  # of one part
def test_it_changes_nothing(windowing: Any, batches: list[list[tuple[str, int]]]) -> None:
    """Also of what is late, and of panes."""
    found: list[list[Any]] = []
    for transforms in ([], [df.Reshuffle()]):
        p, stream = df.Pipeline(), TestStream()
        watermark = 0
        for batch in filter(None, batches):
            values = [df.TimestampedValue((key, at), at) for key, at in batch]
            watermark = max(watermark, *(at for _, at in batch))
            stream = stream.add_elements(values).advance_watermark_to(watermark)
        collection: Any = p | stream | windowing
        for transform in transforms:
            collection = collection | transform
        found.append(sorted(map(fields, changes(collection, p))))

    assert found[0] == found[1]


def test_panes_pass_through_it() -> None:
    p = df.Pipeline()
    always = df.WindowInto(
        df.FixedWindows(10),
        trigger=df.Always(),
        accumulation_mode=df.AccumulationMode.ACCUMULATING,
    )
    stream = TestStream().add_elements([df.TimestampedValue(("a", 1), 1)])
    stream = stream.add_elements([df.TimestampedValue(("a", 2), 2)])
    sums = p | stream | always | df.CombinePerKey(sum) | df.Reshuffle()
    seen = changes(sums, p)

    assert [0, 1] == [each.pane.index for each in seen][:2]
    assert [("a", 1), ("a", 3)] == [each.value for each in seen][:2]


def test_values_that_look_like_outputs_are_values() -> None:
    p = df.Pipeline()
    stamped = p | df.Create([1]) | df.Reify.Timestamp() | df.Reshuffle()
    (change,) = changes(stamped, p)

    assert isinstance(change.value, df.TimestampedValue)


def test_a_stage_begins_behind_it() -> None:
    p = df.Pipeline()
    p | df.Create([1]) | "shuffle" >> df.Reshuffle() | df.Map(repr)

    first, second = plan(p.graph()).stages.values()
    assert "shuffle/pass on" == second.name
    assert ["shuffle/divide"] == [node.label for node in first.nodes]


def test_grouping_behind_it_is_as_without_it() -> None:
    """Sessions merge, and nothing warns, also where lateness is allowed."""
    late = df.WindowInto(
        df.Sessions(10),
        allowed_lateness=60,
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )
    p = df.Pipeline()
    values = [df.TimestampedValue(("a", at), at) for at in (1, 5, 30)]
    sums = p | df.Create(values) | late | df.Reshuffle() | df.CombinePerKey(sum)
    again = sums | df.ToChangelog() | df.WindowInto(df.FixedWindows(60)) | df.Reshuffle()

    assert [("a", 6), ("a", 30)] == sorted(each.value.value for each in changes(again, p))


def test_input_that_may_be_retracted_is_refused() -> None:
    assert "may be retracted" in refused(df.Reshuffle(), *retracting()).fact
