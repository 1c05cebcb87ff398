"""Laws of sources that retract records: what is left in the end is what the records that are left would leave."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import IntColumn
from dataflow.source import SplitStatus
from runners.core.ground.bundle import Bundle
from runners.core.stages import source_stage
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.effort import costly
from windowing.timestamps import MAX_TIMESTAMP_US, US_PER_SECOND

Record = tuple[tuple[str, int], int]
#: Record and sign.
Changes = list[tuple[Record, int]]

records = st.tuples(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), st.integers(0, 30))


@st.composite
def change_lists(draw: st.DrawFn) -> Changes:
    """Records, and retractions of some that stand."""
    changes: Changes = []
    standing: list[Record] = []
    for _ in range(draw(st.integers(0, 12))):
        is_retraction = draw(st.booleans())
        if standing and is_retraction:
            taken = standing.pop(draw(st.integers(0, len(standing) - 1)))
            changes.append((taken, -1))
        else:
            standing.append(draw(records))
            changes.append((standing[-1], +1))
    return changes


def left_of(changes: Changes) -> list[Record]:
    counts = Counter[Record]()
    for record, sign in changes:
        counts[record] += sign
    return list(counts.elements())


def script_of(changes: Changes, size: int, *, as_columns: bool) -> list[Batch]:
    """Batches of so many, behind a watermark that knows what is still to come."""
    script, soonest_us = [], MAX_TIMESTAMP_US
    parts = [changes[at : at + size] for at in range(0, len(changes), size)]
    for part in reversed(parts):
        values = [value for (value, _), _ in part]
        times_us = [at * US_PER_SECOND for (_, at), _ in part]
        signs: Sequence[int] = [sign for _, sign in part]
        if as_columns:
            signs = IntColumn(np.array(signs, np.int64))
        script.append(Batch(values, times_us, soonest_us, SplitStatus.ACTIVE, signs))
        soonest_us = min([soonest_us, *times_us])
    # Where nothing is retracted, the source still says that it may be.
    return [*script[::-1], Batch([], [], soonest_us, SplitStatus.ACTIVE, [])]


class _Seen(df.DoFn):
    """Emits how many of a key there are when its window is over."""

    handles_retractions = True
    count = df.CombiningValueStateSpec("count", df.SumCombineFn())
    end = df.TimerSpec("end", df.TimeDomain.EVENT)

    def process(
        self,
        element: tuple[str, int],
        /,
        sign: int = df.DoFn.SignParam,
        window: Any = df.DoFn.WindowParam,
        count: Any = df.DoFn.StateParam(count),
        end: Any = df.DoFn.TimerParam(end),
    ) -> None:
        count.add(sign)
        end.set(window.end)

    @df.on_timer(end)
    def on_end(self, key: Any = df.DoFn.KeyParam, count: Any = df.DoFn.StateParam(count)) -> Any:
        if count.read():
            yield key, count.read()


MINUTE = df.FixedWindows(10)
Build = Callable[[df.PCollection[Any]], df.PCollection[Any]]


def windowed(pcoll: df.PCollection[Any], window_fn: df.WindowFn, *, early: int = 2) -> Any:
    return pcoll | df.WindowInto(
        window_fn,
        trigger=df.AfterWatermark(early=df.AfterCount(early)),
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )


def in_its_window(element: Any, window: df.Window = df.DoFn.WindowParam) -> Any:
    return element, window.start_us, window.end_us


def shares(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    minutes = windowed(pcoll, MINUTE)
    total = minutes | df.Values() | df.CombineGlobally(sum).without_defaults()
    shared: df.PCollection[Any] = minutes | df.Map(
        lambda pair, total: (pair, total), df.AsSingleton(total, 0)
    )
    return shared


def with_counts(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    minutes = windowed(pcoll, MINUTE)
    counts = minutes | df.CombinePerKey(df.CountCombineFn())
    joined: df.PCollection[Any] = (minutes, counts) | df.Join()
    return joined


def seen(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    return pcoll | df.WindowInto(MINUTE) | df.ParDo(_Seen())


def groups(pcoll: df.PCollection[Any], window_fn: df.WindowFn) -> df.PCollection[Any]:
    grouped = windowed(pcoll, window_fn) | df.GroupByKey()
    listed: df.PCollection[Any] = grouped | df.MapTuple(lambda key, found: (key, sorted(found)))
    return listed


PROGRAMS: dict[str, Build] = {
    "the records themselves": lambda pcoll: pcoll | df.Map(lambda pair: pair),
    "sums that are folded": lambda pcoll: windowed(pcoll, MINUTE) | df.CombinePerKey(sum),
    "what cannot be subtracted": lambda pcoll: windowed(pcoll, MINUTE) | df.CombinePerKey(max),
    "sums of columns": lambda pcoll: (
        pcoll | df.WindowInto(MINUTE) | df.CombinePerKey(df.SumCombineFn())
    ),
    "sessions": lambda pcoll: groups(pcoll, df.Sessions(4)),
    "sliding windows": lambda pcoll: groups(pcoll, df.SlidingWindows(10, period=4)),
    "distinct": lambda pcoll: windowed(pcoll, MINUTE) | df.Distinct(),
    "side inputs": shares,
    "a join": with_counts,
    "state": seen,
    "two groupings": lambda pcoll: (
        windowed(pcoll, MINUTE)
        | df.CombinePerKey(sum)
        | df.MapTuple(lambda key, total: (total % 4, key))
        | "again" >> df.GroupByKey()
        | df.MapTuple(lambda odd, keys: (odd, sorted(keys)))
    ),
}


def outcome(source: df.PTransform[Any, Any], build: Build, bundle_records: int) -> Counter[str]:
    p = df.Pipeline()
    found = df.collect(
        build(p | "read" >> source) | "window" >> df.Map(in_its_window),
        DirectRunner(bundle_records=bundle_records),
    )
    return Counter(map(repr, found))


def check(build: Build, splits: Sequence[Changes], size: int, *, as_columns: bool) -> None:
    scripts = [script_of(each, size, as_columns=as_columns) for each in splits]
    left = [record for each in splits for record in left_of(each)]

    found = outcome(df.Read(ScriptedSource(*scripts)), build, size)

    values = [df.TimestampedValue(value, at) for value, at in left]
    assert found == outcome(df.Create(values), build, 1_000)


@pytest.mark.parametrize("name", PROGRAMS)
@costly(len(PROGRAMS))
@given(
    splits=st.lists(change_lists(), min_size=1, max_size=2),
    size=st.integers(1, 4),
    as_columns=st.booleans(),
)
def test_what_is_left_is_that_of_the_records_that_are_left(
    name: str, splits: list[Changes], size: int, as_columns: bool
) -> None:
    check(PROGRAMS[name], splits, size, as_columns=as_columns)


#: A record that comes, goes and comes again, and one that goes.
CHANGES: Changes = [
    ((("a", 1), 5), +1),
    ((("a", 2), 8), +1),
    ((("a", 1), 5), -1),
    ((("b", 3), 15), +1),
    ((("a", 1), 5), +1),
    ((("a", 2), 8), -1),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_signs_that_are_lost_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law would find a stage that forgets them."""
    check(PROGRAMS[name], [CHANGES], 2, as_columns=False)

    @attrs.define
    class Unsigned(Bundle):
        def __attrs_post_init__(self) -> None:
            self.signs = None

    monkeypatch.setattr(source_stage, "Bundle", Unsigned)
    with pytest.raises(AssertionError):
        check(PROGRAMS[name], [CHANGES], 2, as_columns=False)
