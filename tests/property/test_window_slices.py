"""Windows that are made of slices have what they have where each element is folded once for each of its windows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import IntColumn, Rows
from dataflow.testing.laws import check_window_fn
from runners.batch.spill.spilled_groups import SpilledGroups
from runners.core.columns import partials as column_partials
from runners.core.ground.bundle import Bundle
from runners.core.single_firing import window_slices
from runners.core.single_firing.window_slices import WindowSlices
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import ExecutionPlan, plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.direct import DirectRunner
from runners.stored.partials import encode_partials
from runners.testing.scripted_source import ScriptedSource
from tests.columnar import note_bundles
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window

BEGIN, END = MIN_TIMESTAMP_US, MAX_TIMESTAMP_US
DISCARDING = df.AccumulationMode.DISCARDING


class Event(NamedTuple):
    """A row."""

    user: int
    value: int


class Total(df.CombineFn):
    """How many, and how much; a function of somebody's own."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[int, int], value: int) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value

    def merge_accumulators(self, accumulators: Iterable[tuple[int, int]]) -> tuple[int, int]:
        counts, sums = zip(*accumulators, strict=True)
        return sum(counts), sum(sums)

    def extract_output(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator


def micros(count: int) -> float:
    return count / 1_000_000


SLIDING = st.builds(
    lambda size, period, offset: df.SlidingWindows(
        micros(size), period=micros(period), offset=micros(offset)
    ),
    st.integers(1, 24),
    st.integers(1, 12),
    st.integers(-30, 30),
)
#: Around 1970, and at both ends of time, where windows are cut short.
TIMES_US = st.one_of(
    st.integers(-40, 40),
    st.integers(-40, 40),
    st.integers(BEGIN + 1, BEGIN + 30),
    st.integers(END - 30, END - 1),
)
CHUNKS = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), TIMES_US), min_size=1, max_size=9),
    min_size=1,
    max_size=5,
)
GROUPINGS: dict[str, Any] = {
    "own": lambda: df.CombinePerKey(Total()),
    "sum": lambda: df.CombinePerKey(sum),
    "rows": lambda: (
        df.GroupBy("user")
        .aggregate_field("value", sum, "total")
        .aggregate_field("value", df.MeanCombineFn(), "mean")
        .aggregate_field("value", max, "most")
    ),
}


@given(SLIDING, st.lists(TIMES_US, max_size=12))
def test_all_instants_of_a_slice_are_in_the_same_windows(
    window_fn: df.SlidingWindows, times_us: list[int]
) -> None:
    """Also where the period is no part of the size, and where windows are cut short by the ends of time."""
    check_window_fn(window_fn, times_us)
    slices = window_fn.slice_fn()
    assert (slices is None) == (window_fn.size_us <= window_fn.period_us)
    if slices is None or not times_us:
        return
    check_window_fn(slices, times_us)
    columns = slices.assign_columns(np.array(times_us, np.int64))
    if columns is not None:
        pairs = zip(columns.starts_us.tolist(), columns.ends_us.tolist(), strict=True)
        assert [Window(*each) for each in pairs] == [
            window for (window,) in slices.assign_bundle(times_us, [None] * len(times_us))
        ]


@given(
    chunks=CHUNKS,
    window_fn=SLIDING,
    kind=st.sampled_from([*GROUPINGS]),
    as_columns=st.booleans(),
    spill_bytes=st.sampled_from([0, 300, 1 << 40]),
    column_partials_max=st.sampled_from([1, 5, 1 << 20]),
)
@example(
    chunks=[[(0, 1, -3), (0, 2, 4), (1, 3, 4)]],
    window_fn=df.SlidingWindows(micros(7), period=micros(3)),
    kind="own",
    as_columns=False,
    spill_bytes=0,
    column_partials_max=1,
)
def test_windows_made_of_slices_have_what_is_in_them(
    chunks: list[Any],
    window_fn: df.SlidingWindows,
    kind: str,
    *,
    as_columns: bool,
    spill_bytes: int,
    column_partials_max: int,
) -> None:
    """In memory and through files, as rows and as columns, whatever is emitted at once."""
    planned = plan(pipeline(window_fn, kind).graph(), slices=True)
    assert bool(planned.slices.groupings) == (window_fn.size_us > window_fn.period_us)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_slices, "COLUMN_PARTIALS", column_partials_max)
        sliced = emitted(planned, chunks, spill_bytes, as_columns=as_columns and kind == "rows")
    whole = emitted(plan(planned.graph), chunks, 1 << 40, as_columns=False)

    assert sliced == whole


def pipeline(window_fn: df.WindowFn, kind: str, **options: Any) -> df.Pipeline:
    p = df.Pipeline(DirectRunner())
    p | df.Read(ScriptedSource([])) | df.WindowInto(window_fn, **options) | GROUPINGS[kind]()
    return p


def emitted(
    planned: ExecutionPlan, chunks: list[Any], spill_bytes: int, *, as_columns: bool
) -> dict[Any, list[Any]]:
    """The values of each key and window, and of each key the windows in their order."""
    (stage,) = planned.groupings()
    grouping = GroupingStage(planned, stage, is_time_sorted=True)
    grouping.setup()
    bundles: list[Bundle] = []
    note_bundles(grouping.executor, bundles)
    groups = SpilledGroups(grouping, clock(BEGIN), clock(END), spill_bytes=spill_bytes)
    for _ in groups.steps(blobs(planned, chunks, as_columns=as_columns)):
        pass
    groups.close()
    grouping.teardown()
    found: dict[Any, list[Any]] = defaultdict(list)
    for bundle in bundles:
        windows, times_us = bundle.windows or [], bundle.timestamps_us
        for (key, result), window, at_us in zip(bundle.values, windows, times_us, strict=True):
            assert at_us == window.max_timestamp_us
            found[key].append((window.end_us, window.start_us, result))
    for each in found.values():
        ends_us = [end_us for end_us, _, _ in each]
        assert ends_us == sorted(ends_us)
        # Near the beginning of time several windows end together, in any order.
        each.sort()
    return found


def blobs(planned: ExecutionPlan, chunks: list[Any], *, as_columns: bool) -> Iterator[bytes]:
    (source,) = planned.sources()
    executor = StageExecutor(planned, source)
    executor.setup()
    for part in chunks:
        users, values, times_us = map(list, zip(*part, strict=True))
        rows: Sequence[Any] = list(zip(users, values, strict=True))
        times: Sequence[int] = times_us
        if planned.graph.transforms[-1].label.startswith("GroupBy"):
            rows = [Event(*each) for each in rows]
        if as_columns:
            rows = Rows.of(Event, Event._fields, [pa.array(users), pa.array(values)])
            times = IntColumn(np.array(times_us, np.int64))
        for partials in executor.process(Bundle(rows, times), clock(BEGIN)).groups.values():
            yield encode_partials(partials)
    executor.teardown()


def clock(at_us: int) -> StageClocks:
    return StageClocks(watermark_us=at_us, output_watermark_us=BEGIN, now_us=at_us)


def test_columns_stay_columns() -> None:
    """Or the law above would say nothing of them: nobody looks at their partials one by one."""
    planned = plan(pipeline(df.SlidingWindows(60, period=7), "rows").graph(), slices=True)
    chunks = [
        [(user, value, 1_000_000 * (3 * user + value)) for user in range(9) for value in range(9)]
    ]

    def refused(self: object) -> Any:
        raise AssertionError("partials were made one by one")

    given_blobs = list(blobs(planned, chunks, as_columns=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_partials.PartialColumns, "_make", refused)
        (stage,) = planned.groupings()
        grouping = GroupingStage(planned, stage, is_time_sorted=True)
        groups = SpilledGroups(grouping, clock(BEGIN), clock(END))
        with nullcontext():
            assert sum(1 for _ in groups.steps(given_blobs)) > 1


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 12), st.lists(st.integers(0, 9), max_size=2)),
        min_size=1,
        max_size=12,
        unique_by=lambda each: each[:2],
    )
)
def test_what_is_in_a_slice_is_not_changed_by_the_windows_made_of_it(
    given_slices: list[Any],
) -> None:
    """Merging may change its first accumulator, and take parts of the others over, which it changes later."""

    def merged(accumulators: Sequence[dict[str, list[int]]]) -> dict[str, list[int]]:
        first, *others = accumulators
        for each in others:
            for name, values in each.items():
                if name in first:
                    first[name] += values
                else:
                    first[name] = values
        return first

    partials = [
        (key, Window(at, at + 1), {"some": values} if values else {}, 1)
        for key, at, values in sorted(given_slices, key=lambda each: each[1])
    ]
    window_fn = df.SlidingWindows(micros(4), period=micros(1))
    for key, window, accumulator, count in WindowSlices(window_fn, merged).windows(partials):
        inside = [each for each in given_slices if each[0] == key and each[1] in window]
        values = [
            value for _, _, several in sorted(inside, key=lambda each: each[1]) for value in several
        ]
        assert (accumulator.get("some", []), count) == (values, len(inside))
        accumulator["some"] = ["changed by whoever has it"]


class Averse(df.SlidingWindows):
    """Leaves Mondays out, so the slices of its base are not its own."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        return super().assign_windows(timestamp_us, value)[1:]


@pytest.mark.parametrize(
    ("window_fn", "kind", "options"),
    [
        (df.FixedWindows(10), "sum", {}),
        (df.SlidingWindows(10, period=10), "sum", {}),
        (Averse(10, period=5), "sum", {}),
        (
            df.SlidingWindows(10, period=5),
            "sum",
            {
                "trigger": df.AfterWatermark(early=df.AfterCount(1)),
                "accumulation_mode": DISCARDING,
            },
        ),
        (
            df.SlidingWindows(10, period=5),
            "sum",
            {"timestamp_combiner": df.TimestampCombiner.EARLIEST},
        ),
    ],
    ids=["fixed", "no overlap", "own windows", "early", "event times"],
)
def test_not_every_grouping_is_of_slices(
    window_fn: df.WindowFn, kind: str, options: dict[str, Any]
) -> None:
    """Where nothing is gained, or a window needs more than what is in it."""
    assert not plan(pipeline(window_fn, kind, **options).graph(), slices=True).slices.assigned


def with_window(pair: Any, window: Any = df.DoFn.WindowParam) -> Any:
    return pair, window


@pytest.mark.parametrize(
    ("readers", "is_sliced"),
    [
        ([df.CombinePerKey(sum)], True),
        ([df.CombinePerKey(sum), df.CombinePerKey(max)], True),
        ([df.GroupByKey()], False),
        ([df.CombinePerKey(sum), df.GroupByKey()], False),
        ([df.CombinePerKey(sum), df.Map(with_window)], False),
        ([df.Map(lambda pair: pair)], False),
        ([df.GroupBy(user=lambda pair: pair[0]).aggregate_field(df.col("b"), sum, "c")], False),
        ([df.GroupBy(user=df.col("a")).aggregate_field(df.col("b"), sum, "c")], True),
        ([], False),
    ],
)
def test_whoever_reads_the_windows_must_take_slices(readers: list[Any], *, is_sliced: bool) -> None:
    """User code sees an element once for each of its windows, and so do what counts and what has the windows."""
    p = df.Pipeline(DirectRunner())
    windows = p | df.Read(ScriptedSource([])) | df.WindowInto(df.SlidingWindows(10, period=5))
    for number, each in enumerate(readers):
        windows | f"reader {number}" >> each
    graph = p.graph()
    assert bool(plan(graph, slices=True).slices.assigned) == is_sliced
    assert not plan(graph).slices.assigned
