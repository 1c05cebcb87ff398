"""Expressions of rows: for columns what they are for each row, to the last bit; or the rows are asked one by one."""

import math
import operator
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import ARROW_TYPES, Rows

WHOLE = st.one_of(
    st.integers(-3, 3),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([1 << 53, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)]),
)
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, float(1 << 53), math.nan]))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(  # noqa: DTZ001 - bounds of naive ones
    # In UTC no time comes twice, so a fold would say nothing, and columns do not keep it.
    lambda at: at.replace(tzinfo=UTC, fold=0)
)


class Row(NamedTuple):
    whole: int
    other: int
    part: float
    text: str
    flag: bool
    at: datetime
    perhaps: int | None


KINDS = (int, int, float, str, bool, datetime, int)
ROWS = st.lists(
    st.builds(Row, WHOLE, WHOLE, FLOATS, TEXTS, st.booleans(), TIMES, st.none() | WHOLE),
    min_size=1,
    max_size=5,
)
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.and_,
    operator.or_,
)


def _applied(op: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if op is operator.mod and isinstance(left, str):
        # Python formats the text, and no expression comes of it.
        return right % left
    return op(left, right)


def _combined(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    literals = st.one_of(WHOLE, FLOATS, TEXTS, st.booleans(), TIMES)
    return st.one_of(
        st.builds(_applied, st.sampled_from(BINARY), parts, parts),
        st.builds(_applied, st.sampled_from(BINARY), parts, literals),
        st.builds(_applied, st.sampled_from(BINARY), literals, parts),
        st.builds(operator.invert, parts),
        st.builds(operator.neg, parts),
        st.builds(lambda part: part.is_null(), parts),
        st.builds(lambda part, values: part.is_in(values), parts, st.lists(st.integers(-3, 3))),
    )


EXPRESSIONS = st.recursive(st.sampled_from(Row._fields).map(df.col), _combined, max_leaves=6)


def columns(rows: list[Row]) -> Rows:
    arrays = [
        pa.array([row[index] for row in rows], ARROW_TYPES[kind])
        for index, kind in enumerate(KINDS)
    ]
    return Rows.of(Row, Row._fields, arrays)


@given(EXPRESSIONS, ROWS)
def test_columns_give_what_each_row_gives(expression: df.RowExpression, rows: list[Row]) -> None:
    found = expression.on_columns(columns(rows), None)
    if found is None:
        return
    # As texts, because 1 == 1.0 == True, and no NaN equals itself.
    assert list(map(repr, found)) == [repr(expression(row)) for row in rows]


@given(EXPRESSIONS, ROWS)
def test_an_expression_survives_pickling(expression: df.RowExpression, rows: list[Row]) -> None:
    again = pickle.loads(pickle.dumps(expression))
    assert repr(again) == repr(expression)
    assert repr(again.on_columns(columns(rows), None)) == repr(
        expression.on_columns(columns(rows), None)
    )


PLAIN = [
    Row(6, 4, 0.5, "a", True, datetime(2020, 1, 1, tzinfo=UTC), 3),
    Row(7, 2, 2.0, "b", False, datetime(2021, 1, 1, tzinfo=UTC), 4),
]
c = df.col


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        (c("whole") + c("other"), [10, 9]),
        (10 - c("whole"), [4, 3]),
        (c("whole") * c("part"), [3.0, 14.0]),
        (c("whole") / c("other"), [1.5, 3.5]),
        (c("whole") // 4, [1, 1]),
        (-c("whole") % 4, [2, 1]),
        (c("text") + "!", ["a!", "b!"]),
        ((c("whole") > 6) | c("flag"), [True, True]),
        ((c("whole") > 6) & ~c("flag"), [False, True]),
        (c("at") < datetime(2020, 6, 1, tzinfo=UTC), [True, False]),
        (c("text").is_in(["a", "z"]), [True, False]),
        (c("perhaps").is_null(), [False, False]),
        (c("text") != "a", [False, True]),
    ],
)
def test_ordinary_expressions_are_computed_in_columns(
    expression: df.RowExpression, values: list[Any]
) -> None:
    assert list(expression.on_columns(columns(PLAIN), None) or ()) == values
    assert [expression(row) for row in PLAIN] == values
    assert [expression(row._asdict()) for row in PLAIN] == values


def test_what_columns_could_not_keep_is_asked_row_by_row() -> None:
    rows = columns([Row((1 << 63) - 1, 0, 0.0, "", False, datetime(2020, 1, 1, tzinfo=UTC), None)])
    for expression in (
        c("whole") + 1,
        c("whole") / c("other"),
        c("whole") % c("other"),
        c("perhaps") + 1,
    ):
        assert expression.on_columns(rows, None) is None
    assert (c("whole") + 1)(rows[0]) == 1 << 63
    with pytest.raises(ZeroDivisionError):
        (c("whole") / c("other"))(rows[0])


def test_the_right_side_is_not_asked_where_the_left_one_decides() -> None:
    fine = (c("other") != 0) & (c("whole") / c("other") > 1)
    assert fine({"whole": 1, "other": 0}) is False
    either = (c("other") == 0) | (c("whole") / c("other") > 1)
    assert either({"whole": 1, "other": 0}) is True


def test_an_expression_is_no_truth() -> None:
    with pytest.raises(
        df.PipelineError, match=r"\(col\('a'\) > 1\) is true or false only for an element"
    ):
        1 < c("a") < 3  # noqa: B015 - the mistake
    with pytest.raises(df.PipelineError, match="combine expressions with"):
        bool(c("a"))


@pytest.mark.parametrize("given", ["", 3, None])
def test_a_column_has_a_name(given: Any) -> None:
    with pytest.raises(df.PipelineError, match="col needs the name of a field"):
        df.col(given)


def test_is_in_needs_several_values() -> None:
    with pytest.raises(df.PipelineError, match="is_in needs a list or a set, not 'abc'"):
        c("a").is_in("abc")
    with pytest.raises(df.PipelineError, match="is_in needs values that are hashable"):
        c("a").is_in([[1]])
