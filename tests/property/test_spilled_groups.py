"""A key range that is worked off bucket by bucket, through files, emits what it emits in memory."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.batch.spill.spilled_groups import CELL_BYTES, SpilledGroups
from runners.core.ground.bundle import Bundle
from runners.core.stages import stage_executor
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import ExecutionPlan, plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.core.tables.changelog import apply_table_write
from runners.direct import DirectRunner
from runners.stored.partials import encode_partials
from tests.columnar import kept_in_cells, note_bundles
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window_fn import MergingWindowFn

US = 1_000_000
BAG = df.BagStateSpec("bag")
AT_END = df.TimerSpec("end", df.TimeDomain.EVENT)

#: Key, value, and seconds of event time; in chunks, as blobs bring them.
RECORDS = st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, 300))
CHUNKS = st.lists(st.lists(RECORDS, min_size=1, max_size=12), min_size=1, max_size=12)
WINDOWS = st.sampled_from(
    [df.GlobalWindows(), df.FixedWindows(60), df.SlidingWindows(60, period=30), df.Sessions(20)]
)
TRIGGERS = st.sampled_from([None, df.AfterWatermark(early=df.AfterCount(2))])
KINDS = st.sampled_from(["sum", "list", "stateful"])


class Bagging(df.DoFn):
    """Keeps the values of a key, and emits them when the last of its times has come."""

    def process(
        self,
        element: tuple[int, int],
        at: Any = df.DoFn.TimestampParam,
        bag: Any = df.DoFn.StateParam(BAG),
        end: Any = df.DoFn.TimerParam(AT_END),
    ) -> Iterator[Any]:
        bag.add(element[1])
        end.set(at)
        return iter(())

    @df.on_timer(AT_END)
    def emitted(
        self, key: Any = df.DoFn.KeyParam, bag: Any = df.DoFn.StateParam(BAG)
    ) -> Iterator[tuple[Any, list[int]]]:
        yield key, sorted(bag.read())


def row(pair: tuple[int, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    emitted = sorted(pair[1]) if isinstance(pair[1], Sequence) else pair[1]
    return {"key": pair[0], "end": window.end_us, "emitted": str(emitted)}


def pipeline(
    chunks: Sequence[Sequence[tuple[int, int, int]]],
    kind: str,
    window_fn: df.WindowFn,
    trigger: df.Trigger | None,
) -> df.Pipeline:
    p = df.Pipeline(DirectRunner(bundle_records=3))
    records = [df.TimestampedValue((key, value), at) for part in chunks for key, value, at in part]
    mode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING if trigger else None
    windows = df.WindowInto(window_fn, trigger=trigger, accumulation_mode=mode)
    grouped = {
        "sum": df.CombinePerKey(sum),
        "list": df.GroupByKey(),
        "stateful": df.ParDo(Bagging()),
    }[kind]
    columns = {"key": int, "end": int, "emitted": str}
    (
        p
        | df.Create(records)
        | windows
        | "group" >> grouped
        | df.Map(row)
        | df.WriteToPostgres("rows", columns=columns, key=["key", "end"])
    )
    return p


def clock(at_us: int) -> StageClocks:
    return StageClocks(watermark_us=at_us, output_watermark_us=MIN_TIMESTAMP_US, now_us=at_us)


def blobs(
    planned: ExecutionPlan, chunks: Sequence[Sequence[tuple[int, int, int]]]
) -> Iterator[bytes]:
    (source,) = planned.sources()
    executor = StageExecutor(planned, source)
    executor.setup()
    for part in chunks:
        values = [(key, value) for key, value, _ in part]
        outputs = executor.process(
            Bundle(values, [at * US for _, _, at in part]),
            StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=MIN_TIMESTAMP_US),
        )
        yield encode_partials(next(iter(outputs.groups.values())))
    executor.teardown()


def plain(value: Any, window_fn: df.WindowFn) -> Any:
    """A value that can be compared: sequences as lists, where windows merge without their order."""
    if isinstance(value, Sequence):
        return sorted(value) if isinstance(window_fn, MergingWindowFn) else list(value)
    return value


def run(
    p: df.Pipeline,
    chunks: Sequence[Sequence[tuple[int, int, int]]],
    spill_bytes: int,
    *,
    by_machine: bool = False,
) -> tuple[dict[Any, list[Any]], dict[Any, Any], int]:
    """What was emitted for each key and window, in order; the rows of the table; how often files were needed."""
    planned = plan(p.graph())
    (stage,) = planned.groupings()
    window_fn = planned.graph.pcollections[stage.root.inputs[0]].strategy.window_fn
    grouping = GroupingStage(planned, stage, is_time_sorted=True)
    grouping.setup()
    groups = SpilledGroups(
        grouping, clock(MIN_TIMESTAMP_US), clock(MAX_TIMESTAMP_US), spill_bytes=spill_bytes
    )
    rows: dict[Any, Any] = {}
    bundles: list[Bundle] = []
    note_bundles(grouping.executor, bundles)
    with kept_in_cells() if by_machine else nullcontext():
        for step in groups.steps(blobs(planned, chunks)):
            for write in step.outputs.tables:
                apply_table_write(rows, write)
    grouping.teardown()
    emitted: dict[Any, list[Any]] = defaultdict(list)
    for bundle in bundles:
        signs = bundle.signs or [1] * len(bundle)
        for value, window, sign in zip(bundle.values, bundle.windows or [], signs, strict=True):
            emitted[value[0], window].append((plain(value[1], window_fn), sign))
    return dict(emitted), rows, groups.spills


@given(
    chunks=CHUNKS,
    kind=KINDS,
    window_fn=WINDOWS,
    trigger=TRIGGERS,
    spill_bytes=st.integers(0, 4_000),
)
def test_what_is_emitted_does_not_depend_on_memory(
    chunks: list[list[tuple[int, int, int]]],
    kind: str,
    window_fn: df.WindowFn,
    trigger: df.Trigger | None,
    spill_bytes: int,
) -> None:
    if kind == "stateful":
        trigger = None  # it has none
    p = pipeline(chunks, kind, window_fn, trigger)
    in_memory, rows, spills = run(p, chunks, spill_bytes=1 << 40)
    by_machine, machine_rows, _ = run(p, chunks, spill_bytes=1 << 40, by_machine=True)
    spilled, same_rows, _ = run(p, chunks, spill_bytes=spill_bytes)

    assert spills == 0
    assert by_machine == in_memory == spilled
    assert machine_rows == rows == same_rows
    expected = p.run().read_table("rows")
    assert {(row["key"], row["end"]): tuple(row.values()) for row in expected} == rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sum", "list", "stateful"])
def test_buckets_that_are_too_large_are_divided_again(kind: str) -> None:
    chunks = [[(key, 1, key % 300) for key in range(at, at + 100)] for at in range(0, 3_000, 100)]
    p = pipeline(chunks, kind, df.FixedWindows(60), None)

    in_memory, _, _ = run(p, chunks, spill_bytes=1 << 40)
    spilled, _, spills = run(p, chunks, spill_bytes=10 * CELL_BYTES)

    assert in_memory == spilled
    assert spills > 16


@pytest.mark.slow
def test_what_folds_into_little_stays_in_memory() -> None:
    chunks = [[(key % 10, 1, 0) for key in range(100)] for _ in range(500)]
    p = pipeline(chunks, "sum", df.FixedWindows(60), None)

    _, _, spills = run(p, chunks, spill_bytes=40 * (CELL_BYTES + 100))

    assert spills == 0


def own_gap(pair: tuple[int, int]) -> int:
    return 5 + pair[1]


@given(CHUNKS, KINDS, st.sampled_from([df.Sessions(20), df.Sessions(own_gap)]))
def test_sessions_of_many_elements_are_those_of_few(
    chunks: list[Any], kind: str, window_fn: df.WindowFn
) -> None:
    """Sessions of many are assigned as arrays, where not each element has a gap of its own."""
    p = pipeline(chunks, kind, window_fn, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_executor, "COLUMN_WINDOWS_MIN", 1)
        of_many = run(p, chunks, 1 << 40)

    assert of_many == run(p, chunks, 1 << 40)
