"""Columns come to what single rows come to: of functions shipped and users' own; the law sees what does not."""

import math
from collections.abc import Sequence
from itertools import permutations
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.column_combine_fn import Accumulators, ColumnGroups
from dataflow.columns import Rows, tuples_of
from dataflow.combine_fn import CallableCombineFn, columns_of
from dataflow.combiner_columns import ExtremeColumns
from dataflow.combiners import TupleCombineFn, columns_by_place
from dataflow.testing import strategies as our
from dataflow.testing.laws import check_combine_columns, check_window_columns
from tests.caught import caught
from tests.columnar import SECOND_US, Shifts, Spread, SpreadColumns, Tally, TallyColumns, TwoSizes
from windowing.checks import checked_columns
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import windows_of
from windowing.window_columns import Int64s
from windowing.window_fn import assigns_columns

WINDOW_FNS = st.one_of(
    our.window_fns(keyed=False).filter(assigns_columns), st.sampled_from([Shifts(), TwoSizes()])
)
TIMES_US = st.lists(st.integers(-40, 40).map(lambda halves: halves * SECOND_US // 2), min_size=1)
ENDS_US = st.sampled_from([MIN_TIMESTAMP_US, MIN_TIMESTAMP_US + 1, MAX_TIMESTAMP_US - 1])
COMBINE_FNS = st.sampled_from(
    [
        df.SumCombineFn(),
        df.CountCombineFn(),
        df.MeanCombineFn(),
        CallableCombineFn(sum),
        CallableCombineFn(min),
        CallableCombineFn(max),
        Spread(),
        Tally(),
    ]
)
INTEGERS = st.lists(st.integers(-9, 9), min_size=1, max_size=8)
LARGE = st.integers(-5, 5) | st.sampled_from([2**53, 2**62, 2**63 - 1, -(2**63)])
FLOATS = st.integers(-64, 64).map(lambda eighths: eighths / 8) | st.sampled_from([-0.0, 2.0**40])


def test_all_functions_that_declare_columns_have_them() -> None:
    """Or the laws below would hold for want of examples."""
    shipped = [
        df.FixedWindows(1),
        df.SlidingWindows(2, period=1),
        df.Sessions(1),
        df.GlobalWindows(),
    ]

    assert all(map(assigns_columns, [*shipped, Shifts(), TwoSizes()]))
    assert not assigns_columns(df.PhaseShiftedWindows(1))


@given(WINDOW_FNS, TIMES_US)
def test_window_fns_assign_columns_what_they_assign_one_by_one(
    window_fn: df.WindowFn, times_us: list[int]
) -> None:
    is_own_gap = isinstance(window_fn, df.Sessions) and window_fn.gap_us is None
    check_window_columns(window_fn, times_us, may_decline=is_own_gap)


@given(WINDOW_FNS, st.lists(our.timestamps_us(anywhere=True) | ENDS_US, min_size=1))
def test_window_fns_assign_columns_so_at_the_ends_of_time(
    window_fn: df.WindowFn, times_us: list[int]
) -> None:
    check_window_columns(window_fn, times_us, may_decline=True)


GAPS = st.floats(1e-7, 1e10) | st.integers(1, 1 << 34) | st.sampled_from([0.5, 1.0000005, 2.5e-6])


class Visit(NamedTuple):
    gap_s: Any


@given(st.lists(st.tuples(our.timestamps_us(anywhere=True), GAPS), min_size=1, max_size=8))
def test_gaps_that_are_an_expression_are_assigned_in_columns_as_one_by_one(
    timed: list[tuple[int, float]],
) -> None:
    """Or not at all, where one of them is refused, or too long for a column."""
    window_fn = df.Sessions(df.col("gap_s"))
    times_us, gaps = zip(*timed, strict=True)
    seconds = gaps if all(type(each) is int for each in gaps) else tuple(map(float, gaps))
    rows = Rows.of(Visit, Visit._fields, [pa.array(seconds)])
    found = checked_columns(window_fn, np.array(times_us), rows)

    if found is None:
        assert any(round(each * 1e6) <= 0 or each > 1 << 32 for each in seconds)
        return
    alone = [
        window_fn.assign_windows(at, Visit(gap)) for at, gap in zip(times_us, seconds, strict=True)
    ]
    windows = windows_of(found.starts_us.tolist(), found.ends_us.tolist())
    assert alone == [(window,) for window in windows]


class OneSecond(df.Sessions):
    """Overrides what the gaps of its base, in columns, stand for."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        return [df.Window(timestamp_us, timestamp_us + SECOND_US)]


def test_who_overrides_windows_is_not_assigned_the_gaps_of_the_base() -> None:
    rows = Rows.of(Visit, Visit._fields, [pa.array([5.0])])
    times_us = np.array([0])

    assert checked_columns(df.Sessions(df.col("gap_s")), times_us, rows) is not None
    assert checked_columns(OneSecond(df.col("gap_s")), times_us, rows) is None


@given(COMBINE_FNS, INTEGERS)
def test_combine_fns_fold_columns_as_they_fold_one_by_one(
    combine_fn: df.CombineFn, values: list[int]
) -> None:
    check_combine_columns(combine_fn, values)


@given(COMBINE_FNS, st.lists(LARGE, min_size=1, max_size=6))
def test_combine_fns_fold_columns_so_beyond_64_bits(
    combine_fn: df.CombineFn, values: list[int]
) -> None:
    check_combine_columns(combine_fn, values, may_decline=True)


@given(COMBINE_FNS.filter(lambda each: not isinstance(each, Spread)), st.lists(FLOATS, min_size=1))
def test_combine_fns_fold_columns_of_floats_so(
    combine_fn: df.CombineFn, values: list[float]
) -> None:
    check_combine_columns(combine_fn, values, may_decline=True)


@given(
    st.sampled_from([df.ArgMaxCombineFn(), df.ArgMinCombineFn()]),
    st.lists(st.tuples(LARGE | st.booleans(), st.integers(-2, 2)), min_size=1, max_size=8),
    st.booleans(),
)
def test_values_are_chosen_by_rank_in_columns_as_one_by_one(
    combine_fn: df.CombineFn, ranked: list[tuple[int, int]], is_halves: bool
) -> None:
    """Among equal ranks, too."""
    values, ranks = zip(*ranked, strict=True)
    ranks = tuple(rank / 2 for rank in ranks) if is_halves else ranks
    inputs = tuples_of([pa.array(list(map(int, values)), pa.int64()), pa.array(ranks)])
    check_combine_columns(combine_fn, inputs)


@given(
    st.builds(df.TopCombineFn, st.integers(1, 3), reverse=st.booleans()),
    st.lists(LARGE, min_size=1, max_size=9)
    | st.lists(st.booleans(), min_size=1)
    | st.lists(FLOATS.filter(bool), min_size=1),
)
def test_the_first_of_an_order_are_chosen_in_columns_as_one_by_one(
    combine_fn: df.CombineFn, values: list[Any]
) -> None:
    check_combine_columns(combine_fn, values, by=repr)


@given(
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 1),
    st.lists(st.tuples(st.integers(-2, 2), LARGE, st.booleans()), min_size=1, max_size=9),
    st.booleans(),
)
def test_tuples_are_chosen_by_a_field_in_columns_as_one_by_one(
    size: int, reverse: bool, place: int, inputs: list[tuple[int, int, bool]], is_halves: bool
) -> None:
    """Among equals, too."""
    first, second, third = zip(*inputs, strict=True)
    halves = [each / 2 for each in first] if is_halves else first
    columns = tuples_of([pa.array(halves), pa.array(second, pa.int64()), pa.array(third)])
    combine_fn = df.TopCombineFn(size, key=itemgetter(place), reverse=reverse)
    check_combine_columns(combine_fn, columns, by=repr)


def test_accumulators_of_rows_become_columns_that_give_them_back() -> None:
    numbers, pairs = df.TopCombineFn(2), df.TopCombineFn(2, key=itemgetter(1))
    of_numbers, of_pairs = (columns_of(each) for each in (numbers, pairs))
    assert of_numbers is not None
    assert of_pairs is not None
    two = ColumnGroups(np.arange(3), np.array([0, 2]))
    like = of_numbers.lift(pa.array([1, 2, 3]), two)
    like_pairs = of_pairs.lift(tuples_of([pa.array([1, 2, 3]), pa.array([0.5, 1.0, 2.0])]), two)
    assert like is not None
    assert like_pairs is not None

    known: Accumulators
    rows: list[Any]
    for columns, known, rows in (
        (of_numbers, like, [[(3, 3), (-1, -1)], [], [(7, 7)]]),
        (of_numbers, like, [[]]),
        (of_pairs, like_pairs, [[(2.5, (1, 2.5)), (0.5, (9, 0.5))], []]),
        (of_pairs, like_pairs, [[]]),
    ):
        found = columns.from_rows(rows, known)
        assert found is not None
        assert list(columns.rows(found)) == rows
    for columns, known, rows in (
        # Not in order, too long, of another type, beyond 64 bits, of another shape, one that depends on the order.
        (of_numbers, like, [[(-1, -1), (3, 3)]]),
        (of_numbers, like, [[(3, 3), (2, 2), (1, 1)]]),
        (of_numbers, like, [[(3.0, 3.0)]]),
        (of_numbers, like, [[(1 << 63, 1 << 63)]]),
        (of_pairs, like_pairs, [[(2.5, 2.5)]]),
        (of_pairs, like_pairs, [[(2.5, (1, 2.5, 3))]]),
        (of_pairs, like_pairs, [[(-0.0, (1, -0.0))]]),
    ):
        assert columns.from_rows(rows, known) is None


@pytest.mark.parametrize(
    "combine_fn",
    [
        df.TopCombineFn(33),
        df.TopCombineFn(2, key=abs),
        df.TopCombineFn(2, key=itemgetter(-1)),
        df.TopCombineFn(2, key=itemgetter(0, 1)),
        df.TopCombineFn(2, key=itemgetter("price")),
    ],
)
def test_very_many_and_what_a_function_compares_are_chosen_one_by_one(
    combine_fn: df.CombineFn,
) -> None:
    assert columns_of(combine_fn) is None


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0.5, math.nan]),
        pa.array([0.0, -0.0]),
        pa.array([1, None]),
        pa.array(["a", "b"]),
        tuples_of([pa.array([1, 2])]),
    ],
)
def test_what_has_no_certain_order_is_not_chosen_in_columns(values: pa.Array) -> None:
    groups = ColumnGroups(np.arange(2), np.array([0]))
    for combine_fn in (df.TopCombineFn(2), df.TopCombineFn(2, key=itemgetter(1))):
        columns = columns_of(combine_fn)
        assert columns is not None
        assert columns.lift(values, groups) is None


def test_a_rank_that_is_no_number_is_refused_and_not_looked_for_in_columns() -> None:
    inputs = tuples_of([pa.array([1, 2]), pa.array([0.5, math.nan])])
    groups = ColumnGroups(np.arange(2), np.array([0]))
    columns = columns_of(df.ArgMaxCombineFn())
    assert columns is not None
    assert columns.lift(inputs, groups) is None
    with pytest.raises(df.TransformError, match="NaN has no place in an order"):
        df.ArgMaxCombineFn().add_inputs(None, [(1, 0.5), (2, math.nan)])


@pytest.mark.parametrize(("chosen", "is_greatest"), [(min, False), (max, True)])
@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan]), min_size=1, max_size=4))
def test_an_extreme_that_depends_on_the_order_is_not_looked_for_in_columns(
    chosen: Any, is_greatest: bool, values: list[float]
) -> None:
    """Of NaN, and of zeros of both signs, the first that came is the extreme, and columns are in another order."""
    groups = ColumnGroups(np.arange(len(values)), np.array([0]))
    found = ExtremeColumns(is_greatest).merge((np.array(values),), groups)
    possible = {repr(chosen(order)) for order in permutations(values)}

    if found is None:
        assert any(math.isnan(value) or str(value) == "-0.0" for value in values)
    else:
        assert possible == {repr(found[0].tolist()[0])}


class LateNoon(Shifts):
    """Noon belongs to the morning in columns."""

    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
        found = super().assign_columns(timestamps_us - 1)
        assert found is not None
        return found


class OneLength(Shifts):
    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
        found = super().assign_columns(timestamps_us)
        assert found is not None
        return df.WindowColumns(found.starts_us, found.ends_us, size_us=self.morning_us)


class Longer(Shifts):
    """Windows that contain their elements, and are others."""

    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
        found = super().assign_columns(timestamps_us)
        assert found is not None
        return df.WindowColumns(found.starts_us, found.ends_us + 1)


class OneForEach(TwoSizes):
    """Forgets that a record may be in none."""

    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
        starts_us = timestamps_us // SECOND_US * SECOND_US
        return df.WindowColumns(starts_us, starts_us + SECOND_US)


class LargeFirst(TwoSizes):
    """Assigns the right windows in another order."""

    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
        found = super().assign_columns(timestamps_us)
        assert found is not None
        at = np.arange(len(found.starts_us)).reshape(-1, 2)[:, ::-1].ravel()
        return df.WindowColumns(found.starts_us[at], found.ends_us[at], elements=found.elements)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (LateNoon(), "assigns a window that does not contain the element"),
        (OneLength(), "assigns windows of another length than it says"),
        (Longer(), "does not say what assign_windows says"),
        (OneForEach(), "does not say what assign_windows says"),
        (LargeFirst(), "does not say what assign_windows says"),
    ],
)
def test_wrong_columns_of_windows_are_seen(wrong: df.WindowFn, message: str) -> None:
    found = caught(lambda times_us: check_window_columns(wrong, times_us), TIMES_US)

    assert f"{type(wrong).__name__}" in found
    assert message in found


class Lists(TallyColumns):
    """Forgets what an accumulator of a row looks like."""

    def rows(self, accumulators: Accumulators) -> Sequence[Any]:
        return [{"count": count, "of": count} for count in accumulators[0].tolist()][:-1]


class CountsParts(TallyColumns):
    """Counts accumulators instead of adding them up."""

    def merge(self, accumulators: Accumulators, groups: df.ColumnGroups) -> Accumulators:
        return (groups.counts,)


class CountsAll(TallyColumns):
    """Ignores the groups."""

    def lift(self, values: pa.Array, groups: df.ColumnGroups) -> Accumulators:
        return (np.full(len(groups), len(values)),)


class Numbers(TallyColumns):
    """Results of another type."""

    def results(self, accumulators: Accumulators) -> pa.Array:
        return pa.array(accumulators[0])


class StartsAnew(TallyColumns):
    """Takes accumulators of rows for empty ones."""

    def from_rows(self, rows: Sequence[Any], like: Accumulators) -> Accumulators:
        return (np.zeros(len(rows), np.int64),)


class NeverFolds(TallyColumns):
    def lift(self, values: pa.Array, groups: df.ColumnGroups) -> Accumulators:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Lists(), "rows for"),
        (CountsParts(), "merged from the first"),
        (CountsAll(), "folded at once"),
        (Numbers(), "the result"),
        (StartsAnew(), "made of accumulators of single values"),
        (NeverFolds(), "declines"),
    ],
)
def test_wrong_columns_of_accumulators_are_seen(wrong: df.ColumnCombineFn, message: str) -> None:
    class Wrong(Tally):
        def columns(self) -> df.ColumnCombineFn:
            return wrong

    found = caught(lambda values: check_combine_columns(Wrong(), values), INTEGERS)

    assert "Wrong.columns" in found
    assert message in found


class OfTheDayBefore(df.FixedWindows):
    """Overrides the row method alone."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        (window,) = super().assign_windows(timestamp_us, value)
        return [df.Window(window.start_us - self.size_us, window.end_us)]

    def assign_bundle(
        self, timestamps_us: Sequence[int], values: Sequence[Any]
    ) -> Sequence[Sequence[df.Window]]:
        return [self.assign_windows(at_us, None) for at_us in timestamps_us]


class OnlyBundles(df.FixedWindows):
    def assign_bundle(
        self, timestamps_us: Sequence[int], values: Sequence[Any]
    ) -> Sequence[Sequence[df.Window]]:
        return [()] * len(timestamps_us)


class RowsFirst:
    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        raise NotImplementedError


class Mixed(RowsFirst, df.FixedWindows):
    """Has the row method of a class that stands before the one with columns."""


class Renamed(df.FixedWindows):
    """Changes nothing."""


class Both(OfTheDayBefore):
    """Overrides the columns below the rows again."""

    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
        return None


@pytest.mark.parametrize(
    ("window_fn", "has_columns"),
    [
        (OfTheDayBefore(10), False),
        (OnlyBundles(10), False),
        (Mixed(10), False),
        (Renamed(10), True),
        (Both(10), True),
    ],
)
def test_columns_of_a_base_do_not_stand_for_rows_of_a_subclass(
    window_fn: df.WindowFn, has_columns: bool
) -> None:
    assert has_columns is assigns_columns(window_fn)
    if not has_columns:
        with pytest.raises(df.PipelineError, match="has no columns whose law could be checked"):
            check_window_columns(window_fn, [0])


class TwiceTheSum(df.SumCombineFn):
    def extract_output(self, accumulator: Any) -> Any:
        return 2 * accumulator


class TheSum(df.SumCombineFn):
    """Changes nothing."""


def test_columns_of_a_base_do_not_stand_for_combining_of_a_subclass() -> None:
    patched = df.SumCombineFn()
    patched.add_inputs = lambda accumulator, values: 0  # type: ignore[method-assign]

    assert columns_of(TwiceTheSum()) is None
    assert columns_of(patched) is None
    assert columns_of(TheSum()) is not None
    assert columns_by_place(TupleCombineFn(TheSum(), TwiceTheSum())) is None
    with pytest.raises(df.PipelineError, match="has no columns whose law could be checked"):
        check_combine_columns(TwiceTheSum(), [1])


def test_columns_of_a_tuple_do_not_stand_for_combining_of_a_subclass() -> None:
    plain = TupleCombineFn(df.SumCombineFn())

    class Sorted(type(plain)):  # type: ignore[misc]
        def extract_output(self, accumulator: Any) -> Any:
            return sorted(super().extract_output(accumulator))

    assert columns_by_place(plain) is not None
    assert columns_by_place(Sorted(df.SumCombineFn())) is None


def test_accumulators_of_rows_become_columns_only_if_they_come_back() -> None:
    like = (np.array([1]), np.array([2]))

    assert SpreadColumns().from_rows([(1, 2)], like) is not None
    for other in ((1, 2.0), (1, True), (1,), [1, 2], (1, 1 << 70)):
        assert SpreadColumns().from_rows([other], like) is None
