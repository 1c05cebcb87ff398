"""The warning of a grouping whose input may be late by design: it has the longest delay of any graph before it."""

import cProfile
import pstats
import warnings
from itertools import count
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.times import in_words
from runners.direct import DirectRunner
from windowing.timestamps import US_PER_SECOND

COUNT = df.CombiningValueStateSpec("count", df.CountCombineFn())

#: A step: what it is, the collections that it takes (by their numbers, the newest is 0), and seconds.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["skew", "group", "group as it is", "state", "flatten"]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    max_size=8,
)


class Counting(df.DoFn):
    """Passes elements on, each at its own event time."""

    def process(self, element: Any, /, seen: Any = df.DoFn.StateParam(COUNT)) -> Any:
        seen.add(1)
        yield element


def minutes(label: str, lateness: int = 0) -> df.WindowInto:
    return label >> df.WindowInto(
        df.FixedWindows(60),
        allowed_lateness=lateness,
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )


def applied(step: tuple[str, int, int, int], number: int, known: list[Any]) -> Any:
    """The collection that a step makes of collections that are there."""
    kind, one, other, seconds = step
    first, second = known[-1 - one % len(known)], known[-1 - other % len(known)]
    windows = minutes(f"windows {number}", seconds)
    if kind == "skew":
        made = first | f"skew {number}" >> df.Map(lambda e: e, allowed_timestamp_skew=seconds)
    elif kind == "group":
        made = first | windows | f"group {number}" >> df.GroupByKey()
    elif kind == "group as it is":
        made = first | f"group {number}" >> df.GroupByKey()
    elif kind == "state":
        made = first | windows | f"state {number}" >> df.ParDo(Counting())
    else:
        made = (first, second) | f"flatten {number}" >> df.Flatten()
    return made | f"any {number}" >> df.Map(lambda e: e) | minutes(f"minutes {number}")


def expected(step: tuple[str, int, int, int], known: list[int]) -> int:
    """Seconds that what a step makes may be late, by those of what it takes."""
    kind, one, other, seconds = step
    first, second = known[-1 - one % len(known)], known[-1 - other % len(known)]
    return {
        "skew": first + seconds,
        "group": seconds,
        "group as it is": 0,
        "state": max(first, seconds),
        "flatten": max(first, second),
    }[kind]


@given(STEPS)
# What a grouping emits is not later for what it takes, also where something beside it takes that too.
@example([("skew", 0, 0, 9), ("group as it is", 0, 0, 0), ("skew", 0, 0, 5), ("flatten", 0, 2, 0)])
def test_a_grouping_is_warned_of_the_most_that_its_input_may_be_late(
    steps: list[tuple[str, int, int, int]],
) -> None:
    pipeline = df.Pipeline(DirectRunner())
    made: list[Any] = [
        pipeline | df.Create([df.TimestampedValue(("k", 1), 1)]) | minutes("minutes")
    ]
    late_s = [0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, step in enumerate(steps):
            made.append(applied(step, number, made))
            late_s.append(expected(step, late_s))
        caught.clear()
        made[-1] | "last" >> df.GroupByKey()
    found = [str(each.message) for each in caught if each.category is df.DataLossWarning]
    assert len(found) == (late_s[-1] > 0), found
    for message in found:
        assert f"less than {in_words(late_s[-1] * US_PER_SECOND)}: " in message


def calls_of(groupings: int) -> int:
    """How many functions are called to build a pipeline of so many groupings, one behind the other."""
    profile, numbers = cProfile.Profile(), count()
    profile.enable()
    made: Any = df.Pipeline(DirectRunner()) | df.Create([df.TimestampedValue(("k", 1), 1)])
    for number in range(groupings):
        made = made | minutes(f"minutes {number}") | f"group {number}" >> df.GroupByKey()
        made = made | f"pairs {number}" >> df.Map(lambda pair: (pair[0], next(numbers)))
    profile.disable()
    found: Any = pstats.Stats(profile)
    return int(found.total_calls)


def test_a_grouping_is_checked_as_quickly_behind_many_as_behind_few() -> None:
    calls_of(1)
    assert calls_of(80) < 2.5 * calls_of(40)
