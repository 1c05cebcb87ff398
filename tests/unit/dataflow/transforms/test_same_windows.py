"""What is in the same windows can be put together, grouped or not; what is not is refused in few words."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.simulator import simulate
from tests.ids import shown

Mode = df.AccumulationMode
NOT_MERGING = [
    df.FixedWindows(10),
    df.SlidingWindows(10, period=4),
    df.GlobalWindows(),
    df.CalendarWindows.days(time_zone="Europe/Berlin"),
]
#: A repr of a thousand characters and more.
DEEP = df.Repeatedly(
    df.AfterAny(*[df.AfterEach(df.AfterCount(n), df.Never()) for n in range(1, 40)])
)


def timed(pipeline: df.Pipeline, times_s: list[int]) -> df.PCollection[Any]:
    return pipeline | "read" >> df.Create([df.TimestampedValue(("k", at), at) for at in times_s])


@given(
    window_fn=st.sampled_from(NOT_MERGING),
    times_s=st.lists(st.integers(0, 200_000) | st.integers(0, 40), min_size=1, max_size=8),
    is_grouped_first=st.booleans(),
)
def test_elements_meet_what_their_window_came_to(
    window_fn: df.WindowFn, times_s: list[int], *, is_grouped_first: bool
) -> None:
    """Each is joined with the largest of each of its own windows, and with that of no other."""
    found: dict[df.Window, Any] = {}

    def keep(group: Any, window: df.Window = df.DoFn.WindowParam) -> None:
        assert window not in found
        found[window] = {name: sorted(values) for name, values in group[1].items()}

    pipeline = df.Pipeline(DirectRunner())
    each = timed(pipeline, times_s) | df.WindowInto(window_fn)
    inputs = {"each": each, "largest": each | "max" >> df.CombinePerKey(max)}
    if is_grouped_first:
        inputs = dict(reversed(inputs.items()))
    inputs | df.CoGroupByKey() | df.Map(keep)
    pipeline.run()
    by_window: dict[df.Window, list[int]] = defaultdict(list)
    for at_s in times_s:
        for window in window_fn.assign_windows(at_s * 1_000_000, None):
            by_window[window].append(at_s)

    assert found == {
        window: {"each": sorted(times_s), "largest": [max(times_s)]}
        for window, times_s in by_window.items()
    }


@pytest.mark.parametrize("window_fn", NOT_MERGING, ids=shown)
def test_grouped_and_not_grouped_elements_flatten(window_fn: df.WindowFn) -> None:
    """They are one collection of the windows that they have, and can be grouped again."""
    pipeline = df.Pipeline(DirectRunner())
    each = timed(pipeline, [1, 3, 12]) | df.WindowInto(window_fn)
    both = (each | "sum" >> df.CombinePerKey(sum), each) | df.Flatten()
    twice: list[int] = []
    once: list[int] = []
    both | "both" >> df.CombinePerKey(sum) | df.Map(lambda pair: twice.append(pair[1]))
    each | "alone" >> df.CombinePerKey(sum) | "out" >> df.Map(lambda pair: once.append(pair[1]))
    pipeline.run()

    assert sorted(2 * value for value in once) == sorted(twice)


def joined(p: df.Pipeline) -> None:
    """Every value beside its window's sum, which may be retracted."""
    values = [df.TimestampedValue((at % 2, at), at) for at in range(40)]
    each = (
        p
        | df.Create(values)
        | df.WindowInto(
            df.SlidingWindows(10, period=5),
            trigger=df.AfterWatermark(early=df.AfterCount(2)),
            accumulation_mode=Mode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=10,
        )
    )
    sums = each | "sum" >> df.CombinePerKey(sum)
    (
        {"each": each, "sum": sums}
        | df.CoGroupByKey()
        | df.ParDo(_Row())
        | df.WriteToPostgres(
            "joined", columns={"key": int, "start": float, "text": str}, key=["key", "start"]
        )
    )


class _Row(df.DoFn):
    def process(self, element: Any, /, window: df.Window = df.DoFn.WindowParam) -> Any:
        key, group = element
        text = f"{sorted(group['each'])} {group['sum']}"
        yield {"key": key, "start": window.start.timestamp(), "text": text}


@pytest.mark.slow
def test_a_stream_joins_them_as_the_direct_runner_does() -> None:
    """Whatever dies."""
    simulate(joined, seeds=6)


def test_sessions_that_are_to_merge_are_not_joined_with_their_results() -> None:
    """The error says what is right."""
    pipeline = df.Pipeline(DirectRunner())
    each = timed(pipeline, [1]) | df.WindowInto(df.Sessions(10))
    largest = each | "max" >> df.CombinePerKey(max)
    with pytest.raises(df.PipelineError, match="windows that merge, of which some") as refused:
        {"each": each, "largest": largest} | df.CoGroupByKey()
    assert "grouped: 'largest'" in refused.value.detail
    assert "before they are grouped" in str(refused.value.hint)
    with pytest.raises(df.PipelineError, match="windows that merge, of which some"):
        (each, largest) | df.Flatten()


def test_results_of_the_same_sessions_are_joined() -> None:
    """Both sides have been grouped, so their windows are what they are."""
    found: list[Any] = []
    pipeline = df.Pipeline(DirectRunner())
    each = timed(pipeline, [1, 5, 30]) | df.WindowInto(df.Sessions(10))
    sides = {
        "max": each | "max" >> df.CombinePerKey(max),
        "sum": each | "sum" >> df.CombinePerKey(sum),
    }
    sides | df.CoGroupByKey() | df.Map(lambda group: found.append(group[1]))
    pipeline.run()

    assert [{"max": [5], "sum": [6]}, {"max": [30], "sum": [30]}] == found


def test_results_of_different_windows_can_be_flattened_and_not_joined() -> None:
    """No hour meets a day; but both can go into one table."""
    pipeline = df.Pipeline(DirectRunner())
    read = timed(pipeline, [1])
    hours, days = (
        read
        | f"into {size}" >> df.WindowInto(df.FixedWindows(size))
        | f"{size}" >> df.CombinePerKey(sum)
        for size in (3_600, 86_400)
    )
    with pytest.raises(df.PipelineError, match="windowed differently") as refused:
        {"hours": hours, "days": days} | df.CoGroupByKey()
    assert "FixedWindows(size_us=3600000000, offset_us=0) of 'hours'" in refused.value.detail
    (hours, days) | df.Flatten()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"trigger": df.Repeatedly(DEEP)}, "trigger: Repeatedly("),
        ({"allowed_lateness": 60}, "allowed_lateness: 0 seconds of 'left', 1 minute of 'right'"),
        ({"accumulation_mode": Mode.ACCUMULATING}, "accumulation_mode: DISCARDING of 'left'"),
    ],
)
def test_what_differs_is_named_in_few_words(changed: dict[str, Any], named: str) -> None:
    """And nothing of what does not, however long its repr is."""
    pipeline = df.Pipeline(DirectRunner())
    usual: dict[str, Any] = {
        "trigger": DEEP,
        "accumulation_mode": Mode.DISCARDING,
        "allowed_lateness": 0,
    }
    left, right = (
        timed_again | f"{name} windows" >> df.WindowInto(df.FixedWindows(10), **options)
        for name, timed_again, options in (
            ("left", pipeline | "a" >> df.Create([df.TimestampedValue(("k", 1), 1)]), usual),
            (
                "right",
                pipeline | "b" >> df.Create([df.TimestampedValue(("k", 1), 1)]),
                usual | changed,
            ),
        )
    )
    with pytest.raises(df.PipelineError, match="windowed differently") as refused:
        {"left": left, "right": right} | df.CoGroupByKey()
    assert named in refused.value.detail
    assert len(refused.value.detail) < 250
