"""Users' own functions over columns: what is wrong is refused by name, and used nowhere else than where it may be."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as df
from dataflow.column_combine_fn import Accumulators
from dataflow.combine_fn import as_combine_fn
from dataflow.combiner_columns import CountColumns, ListedColumns, MeanColumns, SumColumns
from runners.core.columns.partials import PartialColumns
from runners.core.ground.bundle import Bundle
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.errors import StoredFormatError
from runners.stored.partials import decode_partials, encode_partials
from tests.columnar import (
    SECOND_US,
    Event,
    EventSource,
    Recorder,
    Shifts,
    Spread,
    SpreadColumns,
    read,
    replayed,
)
from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window_columns import Int64s

ROWS = [
    (Event("a", is_test=True, shard=0, value=value, price=0.5), second * SECOND_US)
    for second, value in enumerate([1, 5, 3, 9, 2, 4])
]
SOURCE = EventSource([(ROWS[:3], MIN_TIMESTAMP_US), (ROWS[3:], MIN_TIMESTAMP_US)], as_columns=True)


def spread(
    window_fn: df.WindowFn, combine_fn: df.CombineFn
) -> Callable[[df.PCollection[Any]], df.PCollection[Any]]:
    return lambda rows: (
        rows
        | "windows" >> df.WindowInto(window_fn)
        | df.GroupBy("user").aggregate_field("value", combine_fn, "spread")
    )


def lifted(window_fn: df.WindowFn, combine_fn: df.CombineFn) -> Sequence[Any]:
    """The partials of the first batch."""
    pipeline = df.Pipeline()
    spread(window_fn, combine_fn)(pipeline | df.Read(SOURCE))
    execution = plan(pipeline.graph())
    (root,) = execution.sources()
    batch = next(read(SOURCE))
    bundle = Bundle(batch.values, batch.timestamps_us)
    clocks = StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
    outputs = StageExecutor(execution, root).process(bundle, clocks)
    (partials,) = outputs.groups.values()
    return partials


def with_columns(window_fn: Callable[[Int64s], Any]) -> df.WindowFn:
    class Mine(Shifts):
        def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
            found: df.WindowColumns | None = window_fn(timestamps_us)
            return found

    return Mine()


def fails(_: Any) -> Any:
    raise ValueError("no")


def in_place(times_us: Int64s) -> Any:
    times_us -= times_us % SECOND_US
    return df.WindowColumns(times_us, times_us + SECOND_US)


@pytest.mark.parametrize(
    ("assign", "message"),
    [
        (fails, r"Mine raised ValueError: no"),
        (in_place, r"read-only"),
        (lambda times_us: times_us, r"has to assign columns"),
        (lambda times_us: df.WindowColumns(times_us / 1, times_us + 1), r"64-bit integers"),
        (lambda times_us: df.WindowColumns([0, 0, 0], times_us + 1), r"64-bit integers"),  # type: ignore[arg-type]
        (lambda times_us: df.WindowColumns(times_us[1:], times_us + 1), r"different lengths"),
        (
            lambda times_us: df.WindowColumns(times_us, times_us + 1, elements=np.array([0])),
            r"different lengths",
        ),
        (
            lambda times_us: df.WindowColumns(times_us, times_us + 1, elements=np.array([0, 1, 3])),
            r"elements that are not there, or not in order",
        ),
        (
            lambda times_us: df.WindowColumns(
                times_us[::-1], times_us[::-1] + 1, elements=np.array([2, 1, 0])
            ),
            r"elements that are not there, or not in order",
        ),
        (lambda times_us: df.WindowColumns(times_us + 1, times_us + 2), r"does not contain"),
        (lambda times_us: df.WindowColumns(times_us, times_us), r"a window with nothing in it"),
        (
            lambda times_us: df.WindowColumns(times_us - 10**18, times_us + 1),
            r"outside the years 1 to 9999",
        ),
        (
            lambda times_us: df.WindowColumns(times_us, times_us + 1, size_us=2),
            r"another length than it says",
        ),
        (
            lambda times_us: df.WindowColumns(
                times_us[[0, 1, 1]], times_us[[0, 1, 1]] + 1, elements=np.array([0, 1, 1])
            ),
            r"the same window twice",
        ),
    ],
)
def test_wrong_columns_of_windows_are_refused(assign: Any, message: str) -> None:
    with pytest.raises(df.WindowError, match=message) as raised:
        lifted(with_columns(assign), Spread())
    assert "'windows' (tests/unit/runners/core/test_column_functions.py:" in str(raised.value)


def test_windows_may_be_declined() -> None:
    partials = lifted(with_columns(lambda _: None), Spread())

    assert not isinstance(partials, PartialColumns)
    assert [window.end_us for _, window, _, _ in partials] == [4 * SECOND_US]


class Changed(SpreadColumns):
    def __init__(self, **methods: Any) -> None:
        for name, method in methods.items():
            setattr(self, name, method)


def of(**methods: Any) -> df.CombineFn:
    class Mine(Spread):
        def columns(self) -> df.ColumnCombineFn:
            return Changed(**methods)

    return Mine()


def three(_: Any, groups: df.ColumnGroups) -> Accumulators:
    return (groups.counts, groups.counts, groups.counts)


@pytest.mark.parametrize(
    ("combine_fn", "message"),
    [
        (of(lift=lambda *_: fails(0)), r"raised ValueError: no"),
        (of(lift=lambda *_: [np.array([1])]), r"Changed.lift returns no columns"),
        (of(lift=lambda *_: ()), r"Changed.lift returns no columns"),
        (of(lift=lambda *_: ([1],)), r"an array is of list"),
        (of(lift=lambda *_: (np.array([1], np.int32),)), r"an array is of int32"),
        (of(lift=lambda *_: (np.array([1, 2, 3]),)), r"shape \(3,\), for 1 groups"),
        (of(merge=lambda *_: fails(0), lift=three), r"raised ValueError: no"),
        (of(merge=lambda _, groups: (groups.counts,), lift=three), r"Changed.merge returns no"),
        (of(results=fails), r"raised ValueError: no"),
        (of(results=lambda found: found[0]), r"Changed.results returns no column of results"),
        (of(results=lambda _: pa.array([1, 2, 3])), r"Array of 3 for 2 accumulators"),
    ],
)
def test_wrong_columns_of_accumulators_are_refused(combine_fn: df.CombineFn, message: str) -> None:
    with pytest.raises(df.TransformError, match=message) as raised:
        replayed(spread(Shifts(), combine_fn), SOURCE)
    assert "/core/test_column_functions.py:" in str(raised.value)


@pytest.mark.parametrize(
    ("combine_fn", "columns"),
    [
        (df.SumCombineFn(), SumColumns),
        (df.CountCombineFn(), CountColumns),
        (df.MeanCombineFn(), MeanColumns),
        (as_combine_fn(max), ListedColumns),
    ],
)
@pytest.mark.parametrize("method", ["lift", "merge", "results"])
def test_no_function_is_exempt_because_it_is_shipped(
    combine_fn: df.CombineFn, columns: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, method, lambda *_: ())

    with pytest.raises(df.TransformError, match=rf"{columns.__name__}.{method} returns no column"):
        replayed(spread(Shifts(), combine_fn), SOURCE)


def test_a_run_that_stays_in_columns_calls_no_method_for_rows() -> None:
    class OnlyColumns(Spread):
        add_input = add_inputs = merge_accumulators = extract_output = fails  # type: ignore[assignment]

        def columns(self) -> df.ColumnCombineFn:
            return SpreadColumns()

    class OnlyColumnsOfWindows(Shifts):
        assign_windows = assign_bundle = fails  # type: ignore[assignment]

        def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
            return super().assign_columns(timestamps_us)

    run = replayed(spread(OnlyColumnsOfWindows(), OnlyColumns()), SOURCE)

    assert run.in_columns
    assert [text for text, *_ in run.emitted] == [
        "Row(user='a', spread=2)",
        "Row(user='a', spread=8)",
    ]


@pytest.mark.parametrize("is_window", [True, False])
def test_a_subclass_that_overrides_rows_alone_is_asked_for_rows(is_window: bool) -> None:
    """In a whole run; the columns of its base would make something else."""

    class All(df.FixedWindows):
        def assign_bundle(
            self, timestamps_us: Sequence[int], values: Sequence[Any]
        ) -> Sequence[Sequence[df.Window]]:
            return [[df.Window(0, 100 * SECOND_US)]] * len(values)

    class Last(Spread):
        def extract_output(self, accumulator: tuple[int, ...]) -> int:
            return accumulator[1]

    window_fn, combine_fn = (All(2), Spread()) if is_window else (df.GlobalWindows(), Last())
    recorder, pipeline = Recorder(), df.Pipeline()
    spread(window_fn, combine_fn)(pipeline | df.Read(SOURCE)) | df.ParDo(recorder)
    pipeline.run()

    (text,) = [text for text, *_ in recorder.seen]
    assert text == f"Row(user='a', spread={8 if is_window else 9})"
    run = replayed(spread(window_fn, combine_fn), SOURCE)
    assert [text] == [text for text, *_ in run.emitted]


def test_columns_of_a_users_own_are_read_by_those_of_the_grouping() -> None:
    partials = lifted(Shifts(), Spread())
    assert isinstance(partials, PartialColumns)
    blob = encode_partials(partials)
    own = SpreadColumns()

    found = decode_partials(blob, (own,))

    assert isinstance(found, PartialColumns)
    assert found.combiners == (own,)
    assert found == partials
    for other in (None, (own, own)):
        with pytest.raises(StoredFormatError, match="does not fold columns any more"):
            decode_partials(blob, other)
