"""A row that is read back looks the same on every runner: as the store's columns have it, and not as it was emitted."""

import enum
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import TableRowError
from dataflow.table import ColumnType, TableSpec
from runners.core.tables.changelog import check_rows
from runners.core.tables.values import as_stored


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Blob(bytes):
    """A subclass."""


FLOATS = st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False).map(np.float64)
#: For each type of column values that it takes, of which not all are of that very type.
VALUES: dict[ColumnType, st.SearchStrategy[Any]] = {
    float: FLOATS | st.floats(allow_nan=False),
    int: st.none() | st.integers(-(2**63), 2**63 - 1) | st.just(Level.HIGH),
    str: st.none() | st.text("ab") | st.sampled_from([Colour.RED, np.str_("b")]),
    bytes: st.none() | st.binary(max_size=3) | st.just(Blob(b"x")),
    bool: st.none() | st.booleans() | st.integers(0, 1),
    datetime: st.none() | st.just(datetime(2013, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
}
COLUMNS = {kind.__name__: kind for kind in VALUES}


@given(rows=st.lists(st.tuples(*VALUES.values()), max_size=5))
def test_what_is_read_is_of_the_columns_types_and_equals_what_was_written(
    rows: list[tuple[Any, ...]],
) -> None:
    p = df.Pipeline()
    elements: Any = p | df.Create([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    elements | df.WriteToPostgres("t", columns=COLUMNS)
    result = p.run()

    read = [tuple(row.values()) for row in result.read_table("t")]
    assert rows == read
    for row in read:
        for value, kind in zip(row, VALUES, strict=True):
            assert value is None or type(value) is kind
            assert not isinstance(value, datetime) or value.tzinfo is UTC


def test_what_fits_no_column_is_left_to_be_refused() -> None:
    spec = TableSpec(name="t", columns={"x": float, "n": int, "s": str})
    odd: list[tuple[Any, ...]] = [(2**53 + 1, True, 7), (10**400, "1", b"x"), ("1", 1.0, None)]

    assert odd == list(as_stored(spec, odd))


#: Values that no column of their type takes, or only a column without a key.
ODD = st.sampled_from(
    [None, True, 2**63, 1.5, math.nan, "a\0", "\ud800", b"", datetime.fromisoformat("2013-01-01")]
)


def fits(kind: ColumnType, values: list[Any], *, is_key: bool) -> bool:
    """Whether a table takes these values as one column."""
    spec = TableSpec(name="t", columns={"c": kind}, key=("c",) if is_key else ())
    try:
        check_rows(spec, [(value,) for value in values])
    except TableRowError:
        return False
    return True


@given(kind=st.sampled_from(list(VALUES)), is_key=st.booleans(), data=st.data())
def test_a_column_fits_if_each_of_its_values_does(
    kind: ColumnType, *, is_key: bool, data: st.DataObject
) -> None:
    values = data.draw(st.lists(VALUES[kind] | ODD, max_size=4))

    together = fits(kind, values, is_key=is_key)

    assert together == all(fits(kind, [value], is_key=is_key) for value in values)
