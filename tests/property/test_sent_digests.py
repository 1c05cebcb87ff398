"""Digests of what a stage sends are the same however it is folded and in whatever order, and else are others."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from runners.batch import gather
from runners.batch.gather import Gatherer
from runners.batch.layout import Layout
from runners.core.ground.bundle import Bundle
from runners.core.partials import table as partial_table
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from tests.columnar import Event, EventSource, read
from windowing.timestamps import MIN_TIMESTAMP_US

RANGES = 3
SECOND_US = 1_000_000
#: User, second and value of a record.
Record = tuple[str, int, int]
RECORDS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(-20, 30), st.integers(-3, 3)),
    min_size=1,
    max_size=30,
)
WINDOWS = st.sampled_from(
    [
        df.GlobalWindows(),
        df.FixedWindows(10),
        df.SlidingWindows(20, period=5),
        df.Sessions(7),
        df.CalendarWindows.days(1, time_zone="UTC"),
    ]
)
COMBINED = st.sampled_from([sum, max, df.CountCombineFn(), tuple])
BOUNDS = st.sampled_from([1, 3, 1_000])


def digests(
    records: Sequence[Record],
    window_fn: df.WindowFn,
    combined: Any,
    *,
    seed: int,
    as_columns: bool,
    bound: int,
) -> Mapping[int, int]:
    """Of records in bundles by the seed; before the last ones are packed and after it."""
    batches = [
        ([(Event(user, True, 0, value, 0.0), at_s * SECOND_US) for user, at_s, value in some], 0)
        for some in divided(records, Random(seed))
    ]
    pipeline = df.Pipeline()
    source = EventSource(batches, as_columns=as_columns)
    grouping = df.GroupBy("user").aggregate_field("value", combined, "result")
    pipeline | df.Read(source) | df.WindowInto(window_fn) | grouping
    execution = plan(pipeline.graph())
    (root,), (group,) = execution.sources(), execution.groupings()
    layout = Layout(
        levels={root.name: 0, group.name: 1},
        offsets={group.name: 0},
        counts={group.name: RANGES},
        wanted={root.name: frozenset([0]), group.name: frozenset(range(RANGES))},
    )
    gatherer, executor = Gatherer(execution, root, layout), StageExecutor(execution, root)
    with bounds(bound):
        for batch in read(source):
            bundle = Bundle(batch.values, batch.timestamps_us)
            outputs = executor.process(
                bundle, StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
            )
            list(gatherer.add(outputs.groups))
        before = gatherer.digests()
        list(gatherer.flush())
    found = gatherer.digests()
    assert found is not None
    assert before == found
    return found


def divided(records: Sequence[Record], random: Random) -> Iterator[list[Record]]:
    left = random.sample(records, len(records))
    while left:
        size = random.randint(1, len(left))
        yield left[:size]
        left = left[size:]


@contextmanager
def bounds(bound: int) -> Iterator[None]:
    with (
        patch.object(gather, "RECORDS_FIRST", bound),
        patch.object(gather, "PACKED_BYTES", 100 * bound),
        patch.object(gather, "COLUMN_PARTIALS_MAX", bound),
        patch.object(partial_table, "WAITING_MAX", bound),
    ):
        yield


@given(RECORDS, WINDOWS, COMBINED, st.integers(), st.integers(), st.booleans(), BOUNDS)
def test_neither_order_nor_bundles_nor_columns_nor_memory_change_them(
    records: list[Record],
    window_fn: df.WindowFn,
    combined: Any,
    one: int,
    other: int,
    as_columns: bool,
    bound: int,
) -> None:
    assert digests(
        records, window_fn, combined, seed=one, as_columns=as_columns, bound=bound
    ) == digests(records, window_fn, combined, seed=other, as_columns=False, bound=1_000)


@given(RECORDS, WINDOWS, st.data(), st.booleans())
def test_another_key_or_window_changes_them(
    records: list[Record], window_fn: df.WindowFn, data: st.DataObject, as_columns: bool
) -> None:
    index = data.draw(st.integers(0, len(records) - 1))
    user, at_s, value = records[index]
    other = (data.draw(st.sampled_from("abcdefgh")), data.draw(st.integers(-20, 30)), value)
    is_merging = isinstance(window_fn, df.Sessions)
    homes = [
        set(window_fn.assign_bundle([each * SECOND_US], [None])[0]) for each in (at_s, other[1])
    ]
    assume(user != other[0] or (homes[0] != homes[1] and not is_merging))
    changed = [*records[:index], other, *records[index + 1 :]]

    before, after = (
        digests(each, window_fn, sum, seed=0, as_columns=as_columns, bound=3)
        for each in (records, changed)
    )

    assert before != after


@given(RECORDS, WINDOWS, st.data())
def test_a_record_less_or_twice_changes_them(
    records: list[Record], window_fn: df.WindowFn, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(records) - 1))
    times = data.draw(st.sampled_from([0, 2]))
    changed = [*records[:index], *[records[index]] * times, *records[index + 1 :]]
    assume(changed)

    before, after = (
        digests(each, window_fn, sum, seed=0, as_columns=False, bound=3)
        for each in (records, changed)
    )

    assert before != after


COUNT = df.CombiningValueStateSpec("count", df.CountCombineFn())


class Seen(df.DoFn):
    """Takes retractions as they come."""

    handles_retractions = True

    def process(
        self,
        element: Any,
        /,
        count: Any = df.DoFn.StateParam(COUNT),
    ) -> Any:
        count.add(1)
        yield element


#: Key, value, sign.
CHANGES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.sampled_from([1, -1])), max_size=12
)
RECEIVERS = st.sampled_from([df.GroupByKey(), df.CombinePerKey(sum), df.ParDo(Seen())])


def digests_of_changes(
    changes: Sequence[tuple[str, int, int]], receiver: Any, *, seed: int, bound: int
) -> Mapping[int, int]:
    """Of what a grouping has emitted and retracted for the next one, in bundles by the seed."""
    pipeline = df.Pipeline()
    retracting = df.WindowInto(
        df.FixedWindows(10), accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    )
    pairs = pipeline | df.Create([df.TimestampedValue(("k", 1), 1)])
    pairs | retracting | "first" >> df.GroupByKey() | "second" >> receiver
    execution = plan(pipeline.graph())
    (root,) = execution.sources()
    first, second = execution.stages["first"], execution.stages["second"]
    layout = Layout(
        levels={root.name: 0, first.name: 1, second.name: 2},
        offsets={first.name: 0, second.name: RANGES},
        counts={first.name: RANGES, second.name: RANGES},
        wanted=dict.fromkeys((first.name, second.name), frozenset(range(RANGES))),
    )
    gatherer, executor = Gatherer(execution, first, layout), StageExecutor(execution, first)
    clocks = StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
    with bounds(bound):
        for some in divided(changes, Random(seed)):
            bundle = Bundle(
                [(key, value) for key, value, _ in some],
                [1] * len(some),
                [df.Window(0, 10)] * len(some),
                signs=[sign for *_, sign in some],
            )
            list(gatherer.add(executor.process(bundle, clocks).groups))
        list(gatherer.flush())
    found = gatherer.digests()
    assert found is not None
    return found


@given(CHANGES, CHANGES, RECEIVERS, st.integers(), BOUNDS)
def test_what_is_emitted_and_retracted_again_does_not_count(
    changes: list[tuple[str, int, int]],
    passing: list[tuple[str, int, int]],
    receiver: Any,
    seed: int,
    bound: int,
) -> None:
    """In which steps a window comes to its result may differ from one attempt to the next; what it comes to may not."""
    undone = [(key, value, -sign) for key, value, sign in passing]
    before, after, twice = (
        digests_of_changes(each, receiver, seed=seed, bound=bound)
        for each in (changes, [*changes, *passing, *undone], [*changes, ("a", 1, 1)])
    )

    assert before == after
    assert before != twice
