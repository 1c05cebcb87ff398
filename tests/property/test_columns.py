"""Columns emit what single rows emit: whatever the rows, the windows, the bundles and the aggregates."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import (
    IntColumn,
    PairColumns,
    Rows,
    WindowColumn,
    column_values,
    picked,
    tuples_of,
)
from dataflow.graph import TransformNode, WriteTable
from dataflow.serialization import dumps, loads
from dataflow.table import TableSpec
from runners.batch.spill.spilled_groups import SpilledGroups
from runners.core.columns.partials import PartialColumns, grouped
from runners.core.columns.windows import assigned
from runners.core.ground.bundle import Bundle
from runners.core.tables.changelog import apply_table_write
from runners.core.tables.columns import TableColumns
from runners.core.tables.rows import table_write
from runners.direct import DirectRunner
from tests.columnar import (
    Batch,
    Collection,
    Event,
    EventSource,
    Recorder,
    Shifts,
    Spread,
    Tally,
    TwoSizes,
    columns_of,
    replayed,
)
from windowing import column_order
from windowing.merging import chains
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window_fn import WindowFn

SECOND_US = 1_000_000
#: Fractions that floats add up exactly in any order, and sometimes what no float does well.
PRICES = st.integers(-64, 64).map(lambda eighths: eighths / 8) | st.sampled_from([-0.0, 1e300])
VALUES = st.integers(-5, 5) | st.sampled_from([2**62, 2**63 - 1, -(2**63)])
EVENTS = st.builds(
    Event, st.sampled_from(["a", "b", "é"]), st.booleans(), st.integers(0, 2), VALUES, PRICES
)
TIMES_US = st.integers(-40, 40).map(lambda halves: halves * SECOND_US // 2)
BATCHES: st.SearchStrategy[list[Batch]] = st.lists(
    st.tuples(st.lists(st.tuples(EVENTS, TIMES_US), max_size=8), TIMES_US), max_size=4
)
WINDOW_FNS = st.sampled_from(
    [
        df.GlobalWindows(),
        df.FixedWindows(10),
        df.FixedWindows(7, offset=3),
        df.SlidingWindows(10, period=5),
        df.SlidingWindows(10, period=4, offset=1),
        df.SlidingWindows(2, period=5),
        df.Sessions(3),
        df.Sessions(0.5),
        df.CalendarWindows.days(1, time_zone="UTC"),
        Shifts(),
        TwoSizes(),
    ]
)
KEYS = st.lists(st.sampled_from(["user", "is_test", "shard"]), min_size=1, max_size=3, unique=True)
AGGREGATES: Sequence[tuple[Any, Any]] = [
    ("value", sum),
    ("value", df.SumCombineFn()),
    ("value", df.CountCombineFn()),
    ("value", df.MeanCombineFn()),
    ("value", min),
    ("price", sum),
    ("price", max),
    ("price", min),
    ("price", df.MeanCombineFn()),
    ("is_test", sum),
    ("is_test", max),
    ("user", df.CountCombineFn()),
    ("user", max),
    ("value", Spread()),
    ("user", Tally()),
    ("value", tuple),
    ("value", df.TopCombineFn(2)),
    ("is_test", df.TopCombineFn(3, reverse=True)),
    (("price", "shard"), df.TopCombineFn(2, key=itemgetter(1))),
]
CHOSEN = st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=4)


def aggregation(
    window_fn: WindowFn, keys: Sequence[str], aggregates: Sequence[tuple[Any, Any]], **options: Any
) -> Callable[[Collection], Collection]:
    """The pipeline between the source and what looks at its results."""
    grouping = df.GroupBy(*keys)
    for number, (field, given_fn) in enumerate(aggregates):
        combine_fn = _Sorted() if given_fn is tuple else given_fn
        grouping = grouping.aggregate_field(field, combine_fn, f"result{number}")
    return lambda rows: (
        rows | df.WindowInto(window_fn, **options) | grouping | df.WindowStart("starts")
    )


class _Sorted(df.CombineFn):
    """One that no column knows."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        return [*accumulator, value]

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        return [each for several in accumulators for each in several]

    def extract_output(self, accumulator: list[int]) -> list[int]:
        return sorted(accumulator)


def is_exact(batches: Sequence[Batch]) -> bool:
    """Whether the order of additions makes no difference."""
    return all(event.price != 1e300 for rows, _ in batches for event, _ in rows)


def with_values(*values: int) -> Batch:
    """One user's events of one instant."""
    return [(Event("a", is_test=True, shard=0, value=each, price=0.0), 0) for each in values], 0


def at_seconds(*seconds: int) -> Batch:
    """One user's events."""
    event = Event("a", is_test=True, shard=0, value=1, price=-0.0)
    return [(event, second * SECOND_US) for second in seconds], 0


@given(batches=BATCHES, window_fn=WINDOW_FNS, keys=KEYS, aggregates=CHOSEN)
# A session of one bundle covers several of another, which do not touch each other.
@example(
    batches=[at_seconds(*range(0, 20, 2)), at_seconds(1, 5, 9)],
    window_fn=df.Sessions(3),
    keys=["user"],
    aggregates=[("value", sum)],
)
# Exactly one gap apart.
@example(
    batches=[at_seconds(0, 3, 6)],
    window_fn=df.Sessions(3),
    keys=["user"],
    aggregates=[("price", sum)],
)
# A sum that needs more than 64 bits, in one of two bundles.
@example(
    batches=[with_values(2**62, 2**62), with_values(1)],
    window_fn=df.FixedWindows(10),
    keys=["user"],
    aggregates=[("value", sum)],
)
# A sum that no float holds.
@example(
    batches=[with_values(2**53 - 1, 1, 1)],
    window_fn=df.FixedWindows(10),
    keys=["user"],
    aggregates=[("value", df.MeanCombineFn())],
)
def test_a_replay_emits_the_same_in_columns(
    batches: list[Batch],
    window_fn: WindowFn,
    keys: list[str],
    aggregates: list[tuple[Any, Any]],
) -> None:
    if not is_exact(batches):
        aggregates = [each for each in aggregates if each[0] != "price"] or [("value", sum)]
    transform = aggregation(window_fn, keys, aggregates)

    in_columns = replayed(transform, EventSource(batches, as_columns=True))
    one_by_one = replayed(transform, EventSource(batches, as_columns=False))
    by_machine = replayed(transform, EventSource(batches, as_columns=False), by_machine=True)

    assert in_columns.emitted == by_machine.emitted
    assert one_by_one.emitted == by_machine.emitted
    assert one_by_one.in_columns == by_machine.in_columns == 0
    # Where the last word for a key of a table counts, it is that of the last window.
    assert in_columns.is_in_order
    assert one_by_one.is_in_order
    assert by_machine.is_in_order


@given(
    batches=BATCHES,
    window_fn=WINDOW_FNS,
    keys=KEYS,
    aggregates=CHOSEN,
    spill_bytes=st.integers(0, 3_000),
)
def test_columns_for_which_there_is_no_room_emit_the_same(
    batches: list[Batch],
    window_fn: WindowFn,
    keys: list[str],
    aggregates: list[tuple[Any, Any]],
    spill_bytes: int,
) -> None:
    if not is_exact(batches):
        aggregates = [each for each in aggregates if each[0] != "price"] or [("value", sum)]
    transform = aggregation(window_fn, keys, aggregates)

    spilled = replayed(transform, EventSource(batches, as_columns=True), spill_bytes=spill_bytes)
    in_memory = replayed(transform, EventSource(batches, as_columns=False))

    assert spilled.emitted == in_memory.emitted


def test_columns_for_which_there_is_no_room_are_divided_as_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A range of two and a half million windows took fourteen times as long where they were taken apart for it."""
    events = [Event("a", is_test=True, shard=shard, value=shard, price=0.0) for shard in range(400)]
    batch = [(event, 0) for event in events], 0
    transform = aggregation(df.FixedWindows(10), ["shard"], [("value", sum)])
    divided, divide = list[int](), SpilledGroups._divide

    def noting(groups: SpilledGroups, *given: Any) -> None:
        divided.append(groups.spills)
        divide(groups, *given)

    in_memory = replayed(transform, EventSource([batch, batch], as_columns=True))
    monkeypatch.setattr(SpilledGroups, "_divide", noting)
    monkeypatch.setattr(PartialColumns, "_make", _never_made)
    spilled = replayed(transform, EventSource([batch, batch], as_columns=True), spill_bytes=4_000)

    assert divided
    assert spilled.emitted == in_memory.emitted
    assert len(spilled.emitted) == len(events)


def _never_made(columns: PartialColumns) -> Any:
    raise AssertionError(f"{columns!r} are taken apart")


@given(batches=BATCHES, window_fn=WINDOW_FNS, keys=KEYS)
def test_what_fits_into_columns_stays_there(
    batches: list[Batch], window_fn: WindowFn, keys: list[str]
) -> None:
    """Or the law above would hold because nothing ever is a column."""
    small = [
        ([(event._replace(value=1), at_us) for event, at_us in rows], watermark_us)
        for rows, watermark_us in batches
    ]
    aggregates: list[tuple[Any, Any]] = [
        ("value", sum),
        ("value", df.MeanCombineFn()),
        ("value", Spread()),
        ("user", Tally()),
        ("value", df.TopCombineFn(2)),
        (("value", "shard"), df.TopCombineFn(2, key=itemgetter(1))),
    ]
    transform = aggregation(window_fn, keys, aggregates)

    run = replayed(transform, EventSource(small, as_columns=True))

    is_columnar = bool(run.emitted) and not isinstance(window_fn, df.CalendarWindows)
    assert bool(run.in_columns) is is_columnar


@given(
    batches=BATCHES,
    window_fn=WINDOW_FNS,
    keys=KEYS,
    aggregates=CHOSEN,
    mode=st.sampled_from(df.AccumulationMode),
    lateness=st.sampled_from([0, 5]),
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_a_stream_with_late_records_emits_the_same_from_columns(
    batches: list[Batch],
    window_fn: WindowFn,
    keys: list[str],
    aggregates: list[tuple[Any, Any]],
    mode: df.AccumulationMode,
    lateness: int,
    combiner: df.TimestampCombiner,
) -> None:
    aggregates = [each for each in aggregates if each[0] != "price"] or [("value", sum)]
    transform = aggregation(
        window_fn,
        keys,
        aggregates,
        trigger=df.AfterWatermark(early=df.AfterCount(3), late=df.AfterCount(1)),
        accumulation_mode=mode,
        allowed_lateness=lateness,
        timestamp_combiner=combiner,
    )

    runs = []
    for as_columns in (True, False):
        recorder, pipeline = Recorder(), df.Pipeline(DirectRunner())
        source = EventSource(batches, as_columns=as_columns)
        transform(pipeline | df.Read(source)) | df.ParDo(recorder)
        result = pipeline.run()
        runs.append((sorted(recorder.seen, key=repr), result.late_counts()))

    assert runs[0] == runs[1]


@given(
    window_fn=WINDOW_FNS,
    times_us=st.lists(
        TIMES_US | st.sampled_from([MIN_TIMESTAMP_US, MIN_TIMESTAMP_US + 1, MAX_TIMESTAMP_US - 1]),
        min_size=1,
    ),
)
@example(window_fn=df.FixedWindows(10**13), times_us=[0])
def test_windows_assigned_as_columns_are_those_of_the_function(
    window_fn: WindowFn, times_us: list[int]
) -> None:
    found = assigned(window_fn, IntColumn(np.array(times_us)))

    each = [window_fn.assign_windows(at_us, None) for at_us in times_us]
    is_near_the_end = not all(abs(at_us) < 10**9 for at_us in times_us)
    if found is None:
        is_unknown = isinstance(window_fn, df.CalendarWindows)
        assert is_near_the_end or is_unknown or window_fn == df.FixedWindows(10**13)
        return
    indexes, windows = found
    wanted = [(index, window) for index, several in enumerate(each) for window in several]
    at = range(len(times_us)) if indexes is None else indexes.tolist()
    assert list(zip(at, windows, strict=True)) == wanted
    assert all(type(window.start_us) is int for window in windows)


@given(events=st.lists(EVENTS, min_size=1), data=st.data())
def test_a_column_is_the_list_of_its_elements(events: list[Event], data: st.DataObject) -> None:
    rows = columns_of(events)
    pairs = PairColumns((rows.batch.column(2),), tuple(rows.batch.columns), is_single=True)
    start, stop = data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9))
    step = data.draw(st.sampled_from([None, 1, 2, -1]))
    indexes = data.draw(st.lists(st.integers(0, len(events) - 1)))

    plain = [(event.shard, tuple(event)) for event in events]
    for column, listed in ((rows, events), (pairs, plain)):
        assert column == listed
        assert column[start:stop:step] == listed[start:stop:step]
        assert picked(column, indexes) == picked(listed, indexes)
        assert loads(dumps(column[start:stop])) == listed[start:stop]
        assert repr(column[-1]) == repr(listed[-1])


@given(
    keys=st.lists(st.sampled_from([0, 1, 2**31]), min_size=1, max_size=9),
    steps=st.lists(st.integers(0, 5), min_size=9, max_size=9),
    step_us=st.sampled_from([1, 7, SECOND_US, 2**33]),
    size_us=st.none() | st.sampled_from([1, 3 * SECOND_US]),
    is_merging=st.booleans(),
    sample=st.sampled_from([2, 64]),
)
# Every start but one is a multiple of the step of the first ones.
# Keys and starts that are too large for one number.
@example(keys=[0, 2**31, 0], steps=[0, 2, 3], step_us=2**33, size_us=1, is_merging=False, sample=2)
@example(keys=[0] * 4, steps=[0, 2, 4, 3], step_us=7, size_us=1, is_merging=False, sample=2)
def test_rows_are_grouped_by_key_and_window(
    keys: list[int],
    steps: list[int],
    step_us: int,
    size_us: int | None,
    is_merging: bool,
    sample: int,
) -> None:
    """In the order of keys and windows, each group in the order in which its rows came."""
    starts_us = np.array(steps[: len(keys)], np.int64) * step_us - 3
    ends_us = starts_us + (np.arange(len(keys)) % 2 + 1 if size_us is None else size_us)
    windows = WindowColumn(starts_us, ends_us, size_us)

    with patch.object(column_order, "_STEP_SAMPLE", sample):
        found = grouped((pa.array(keys),), windows, is_merging=is_merging)

    assert found is not None
    groups = [each.tolist() for each in np.split(found.order, found.bounds[1:])]
    by_key = [keys[group[0]] for group in groups]
    assert by_key == sorted(by_key)
    if is_merging:
        ours = list(chains(keys, list(windows), range(len(keys))))
        assert sorted(map(sorted, groups)) == sorted(sorted(items) for _, _, items in ours)
        return
    expected: dict[Any, list[int]] = {}
    for row, (key, window) in enumerate(zip(keys, windows, strict=True)):
        expected.setdefault((key, tuple(window)), []).append(row)
    assert groups == [expected[each] for each in sorted(expected)]


LISTS = st.lists(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), max_size=3) | st.none())


@given(lists=LISTS, start=st.integers(0, 3))
def test_lists_of_tuples_are_taken_out_of_a_column(
    lists: list[list[tuple[int, bool]] | None], start: int
) -> None:
    kind = pa.list_(tuples_of([pa.array([0]), pa.array([True])]).type)
    named = [
        None if each is None else [{"0": first, "1": second} for first, second in each]
        for each in lists
    ]

    array = pa.array(named, kind)[start:]

    assert repr(column_values(array)) == repr(lists[start:])


TABLES = st.sampled_from(
    [
        TableSpec(name="t", columns={"shard": int, "price": float, "user": str}, key=("shard",)),
        TableSpec(name="t", columns={"user": str, "is_test": bool, "value": int}, key=("user",)),
        TableSpec(name="t", columns={"value": int, "user": str}, key=("user", "value")),
        TableSpec(name="t", columns={"price": float, "value": int}, key=("price",)),
        TableSpec(name="t", columns={"value": int}),
    ]
)


@given(bundles=st.lists(st.lists(EVENTS, min_size=1), min_size=1), table=TABLES)
def test_rows_of_a_table_are_the_same_from_columns(
    bundles: list[list[Event]], table: TableSpec
) -> None:
    node = TransformNode(
        label="write", location="here.py:1", operation=WriteTable(table), inputs=(0,), outputs={}
    )
    by_row: dict[Any, Any] = {}
    by_column: dict[Any, Any] = {}
    together: dict[Any, Any] = {}
    parts = []
    for events in bundles:
        times_us = [0] * len(events)
        apply_table_write(by_row, table_write(node, table, Bundle(events, times_us)))
        write = table_write(node, table, Bundle(columns_of(events), times_us))
        apply_table_write(by_column, write)
        parts.append(write.upserts or write.inserts)

    assert sorted(map(repr, by_column.items())) == sorted(map(repr, by_row.items()))
    if all(isinstance(each, TableColumns) for each in parts):
        whole = TableColumns.together(parts)  # type: ignore[arg-type]
        for row in whole.in_key_order() if table.key else whole:
            key = tuple(row[index] for index in table.key_indexes) or len(together)
            assert key not in together
            together[key] = row
        assert sorted(map(repr, together.values())) == sorted(map(repr, by_row.values()))
    else:
        assert table.key == ("price",)


class Doubled(df.DoFn):
    """Keeps positive values, doubled, with their sign left out of the row; the same in both ways."""

    def __init__(self, *, filters: bool) -> None:
        self.filters = filters

    def process_batch(self, batch: pa.RecordBatch) -> Any:
        price = batch.column("price").to_numpy()
        kept = np.flatnonzero(price > 0) if self.filters else np.arange(len(price))
        out = pa.RecordBatch.from_arrays(
            [batch.column("user").take(pa.array(kept)), pa.array(price[kept] * 2)],
            names=["user", "double"],
        )
        return (out, kept) if self.filters else out


@given(batches=BATCHES, filters=st.booleans())
def test_a_batch_function_sees_columns_and_lists_alike(batches: list[Batch], filters: bool) -> None:
    runs = []
    for as_columns in (True, False):
        recorder, pipeline = Recorder(), df.Pipeline()
        (
            pipeline
            | df.Read(EventSource(batches, as_columns=as_columns))
            | df.WindowInto(df.FixedWindows(10))
            | df.ParDo(Doubled(filters=filters))
            | df.ParDo(recorder)
        )
        pipeline.run()
        runs.append(recorder.seen)

    wanted = [
        (f"Row(user={event.user!r}, double={event.price * 2})", at_us)
        for rows, _ in batches
        for event, at_us in rows
        if event.price > 0 or not filters
    ]
    assert runs[0] == runs[1]
    assert [text for text, *_ in runs[0]] == [text for text, _ in wanted]


@pytest.mark.parametrize("as_columns", [True, False])
def test_a_wrong_answer_of_a_batch_function_is_refused(as_columns: bool) -> None:
    class Shorter(df.DoFn):
        def process_batch(self, batch: pa.RecordBatch) -> Any:
            return batch.slice(1)

    rows = [(Event("a", is_test=True, shard=1, value=1, price=1.0), 0)] * 3
    pipeline = df.Pipeline()
    source = EventSource([(rows, 0)], as_columns=as_columns)
    pipeline | df.Read(source) | df.ParDo(Shorter())

    with pytest.raises(df.TransformError, match="ParDo\\(Shorter\\)") as raised:
        pipeline.run()
    assert "it has 2 rows for 3" in str(raised.value)


def test_rows_keep_their_type() -> None:
    rows = columns_of([Event("a", is_test=True, shard=1, value=2, price=3.0)])

    assert isinstance(rows, Rows)
    assert type(rows[0]) is Event
