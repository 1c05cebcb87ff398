"""A table write means one thing, whoever applies it, and refuses what a real table would."""

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pendulum
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataflow.errors import TableConflictError, TableRowError
from dataflow.table import ColumnType, Row, TableSpec, TableWrite
from runners.core.tables.changelog import (
    CheckedRows,
    Rows,
    apply_table_write,
    check_rows,
    check_write,
    checked,
)

SCORES = TableSpec(name="scores", columns={"team": str, "total": int}, key=("team",))
LOG = TableSpec(name="log", columns={"team": str, "points": int})
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def test_upserts_replace() -> None:
    rows: Rows = {("red",): ("red", 1), ("blue",): ("blue", 2)}

    apply_table_write(rows, TableWrite(table=SCORES, upserts=[("red", 9), ("new", 3)]))

    assert rows == {("red",): ("red", 9), ("blue",): ("blue", 2), ("new",): ("new", 3)}


def test_changes_replace_remove_and_add() -> None:
    rows: Rows = {("red",): ("red", 1), ("blue",): ("blue", 2)}
    changes = [(("red", 1), ("red", 9)), (("blue", 2), None), (None, ("new", 3))]

    apply_table_write(rows, TableWrite(table=SCORES, changes=changes))

    assert rows == {("red",): ("red", 9), ("new",): ("new", 3)}


def test_retracting_what_is_not_there_is_no_error() -> None:
    rows: Rows = {("red",): ("red", 1)}

    write = TableWrite(table=SCORES, changes=[(("nobody", 1), None), (("red", 2), None)])
    apply_table_write(rows, write)

    assert rows == {("red",): ("red", 1)}


@pytest.mark.parametrize("before", [None, ("red", 2)])
def test_a_row_beside_another_one_of_its_key_is_refused(before: Row | None) -> None:
    rows: Rows = {("red",): ("red", 1)}
    changes = [(None, ("new", 3)), (before, ("red", 9))]

    with pytest.raises(TableConflictError, match=r"two results(.|\n)*'red', 1(.|\n)*'red', 9"):
        apply_table_write(rows, TableWrite(table=SCORES, changes=changes))

    assert rows == {("red",): ("red", 1)}


def test_what_is_no_number_is_found_again() -> None:
    table = TableSpec(name="t", columns={"k": str, "v": float}, key=("k",))
    rows: Rows = {("a",): ("a", math.nan)}

    apply_table_write(rows, TableWrite(table=table, changes=[(("a", float("nan")), None)]))

    assert rows == {}


def test_inserts_are_added_in_order() -> None:
    rows: Rows = {}

    for inserts in ([("red", 1), ("red", 1)], [("blue", 2)]):
        apply_table_write(rows, TableWrite(table=LOG, inserts=inserts))

    assert rows == {0: ("red", 1), 1: ("red", 1), 2: ("blue", 2)}


def test_key_may_be_any_columns_in_any_order() -> None:
    table = TableSpec(name="t", columns={"a": int, "b": int, "c": int}, key=("c", "a"))
    rows: Rows = {}

    apply_table_write(rows, TableWrite(table=table, upserts=[(1, 2, 3)]))

    assert rows == {(3, 1): (1, 2, 3)}


def test_refused_write_changes_nothing() -> None:
    rows: Rows = {("red",): ("red", 1)}
    changes = [(None, ("new", 1)), (None, ("bad", "x")), (("red", 1), None)]
    write = TableWrite(table=SCORES, changes=changes)

    with pytest.raises(TableRowError):
        apply_table_write(rows, write)

    assert rows == {("red",): ("red", 1)}


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 9), min_size=1),
        max_size=8,
    )
)
def test_net_effects_add_up_to_the_last_word(bundles: list[dict[str, int | None]]) -> None:
    rows: Rows = {}
    expected: dict[str, int] = {}

    for bundle in bundles:
        changes = [
            (
                (key, expected[key]) if key in expected else None,
                None if value is None else (key, value),
            )
            for key, value in bundle.items()
        ]
        apply_table_write(rows, TableWrite(table=SCORES, changes=changes))
        expected |= {key: value for key, value in bundle.items() if value is not None}
        for key in [key for key, value in bundle.items() if value is None]:
            expected.pop(key, None)

    assert sorted(rows.values()) == sorted(expected.items())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (int, [-(1 << 63), (1 << 63) - 1, 0, None]),
        (float, [math.inf, -math.inf, math.nan, 0.1, 3, 1 << 60, None]),
        (str, ["", "naïve \U0001f600\n\t", None]),
        (bool, [True, False, None]),
        (bytes, [b"", b"\0\xff", None]),
        (
            datetime,
            [
                NOON,
                pendulum.datetime(2024, 1, 1, tz="Europe/Paris"),
                datetime.min.replace(tzinfo=UTC),
                datetime.max.replace(tzinfo=UTC),
                None,
            ],
        ),
    ],
)
def test_value_fits(kind: ColumnType, values: list[Any]) -> None:
    table = TableSpec(name="t", columns={"c": kind})

    check_rows(table, [(value,) for value in values])
    for value in values:
        check_rows(table, [(value,)])


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (int, "1", "a str"),
        (int, 1.0, "a float"),
        (int, True, "a bool"),
        (int, 1 << 63, "not a 64-bit integer"),
        (int, -(1 << 63) - 1, "not a 64-bit integer"),
        (float, "1", "a str"),
        (float, True, "a bool"),
        (float, (1 << 53) + 1, "cannot hold exactly"),
        (float, 10**400, "no float can hold"),
        (str, b"x", "a bytes"),
        (str, "a\0b", "NUL"),
        (str, "\ud800", "lone surrogate"),
        (bool, 1, "a int"),
        (bytes, "x", "a str"),
        (bytes, bytearray(b"x"), "a bytearray"),
        (datetime, datetime(2024, 1, 1), "no time zone"),  # noqa: DTZ001 - without a time zone, as the test says
        (datetime, datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "years 1 to 9999"),
        (datetime, datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "years 1 to 9999"),
        (datetime, 0, "a int"),
    ],
)
def test_misfit_names_table_column_and_value(kind: ColumnType, value: Any, reason: str) -> None:
    table = TableSpec(name="things", columns={"id": int, "col": kind}, key=("id",))
    good = (1, None)

    with pytest.raises(TableRowError) as caught:
        check_rows(table, [good, (2, value)])

    message = str(caught.value)
    assert "table things" in message
    assert "column col" in message
    assert reason in message
    assert ascii(value)[:100] in message
    assert "what to do" in message


@pytest.mark.parametrize(("kind", "value"), [(int, None), (float, math.nan), (str, None)])
def test_key_needs_a_value_that_equals_itself(kind: ColumnType, value: Any) -> None:
    table = TableSpec(name="t", columns={"k": kind}, key=("k",))

    for write in (
        TableWrite(table=table, upserts=[(value,)]),
        TableWrite(table=table, changes=[((value,), None)]),
        TableWrite(table=table, changes=[(None, (value,))]),
    ):
        with pytest.raises(TableRowError, match="column k"):
            check_write(write)


def test_rows_that_fit_one_table_are_looked_at_for_another_one() -> None:
    rows = CheckedRows(LOG, checked(LOG, [("red", 1)]))
    other = TableSpec(name="other", columns={"points": int, "team": str})

    check_write(TableWrite(table=LOG, inserts=rows))
    with pytest.raises(TableRowError, match="column points"):
        check_write(TableWrite(table=other, inserts=rows))


@pytest.mark.parametrize(
    "write",
    [
        TableWrite(table=SCORES, upserts=[("red",)]),
        TableWrite(table=SCORES, upserts=[("red", 1, 2)]),
        TableWrite(table=SCORES, changes=[(("red",), None)]),
        TableWrite(table=SCORES, inserts=[("red", 1)]),
        TableWrite(table=SCORES, upserts=[("red", 1), ("red", 2)]),
        TableWrite(table=SCORES, changes=[(None, ("red", 1)), (None, ("red", 2))]),
        TableWrite(table=SCORES, upserts=[("red", 1)], changes=[(("red", 2), None)]),
        TableWrite(table=LOG, upserts=[("red", 1)]),
        TableWrite(table=LOG, changes=[(("red", 1), None)]),
    ],
    ids=str,
)
def test_write_that_does_not_suit_its_table(write: TableWrite) -> None:
    with pytest.raises(TableRowError):
        check_write(write)


def test_message_stays_short_and_printable() -> None:
    with pytest.raises(TableRowError) as caught:
        check_rows(LOG, [("\ud800" * 10_000, 1)])

    message = str(caught.value)
    assert message.isprintable() or "\n" in message
    assert len(message) < 500
    message.encode()


@given(st.lists(st.tuples(st.text(), st.integers())))
def test_fast_check_agrees_with_the_slow_one(rows: list[Row]) -> None:
    """A column is first looked at as a whole; rows alone must be taken the same."""

    def refusal(some: list[Row]) -> bool:
        try:
            check_rows(LOG, some)
        except TableRowError:
            return True
        return False

    assert refusal(rows) == any(refusal([row]) for row in rows)


KEYED = TableSpec(
    name="keyed", columns={"a": str, "n": int, "b": bytes, "c": str}, key=("b", "n", "a")
)


@given(
    st.lists(
        st.tuples(st.integers(0, 1_500), st.integers(0, 1_500), st.sampled_from(["x", "é", "水"])),
        max_size=4,
    )
)
@example([(1_000, 1_000, "x")])
@example([(500, 1_000, "é"), (501, 999, "é")])
def test_a_key_that_no_index_could_hold_is_refused(sizes: list[tuple[int, int, str]]) -> None:
    """By the bytes of all its columns together; other columns may be as long as they like."""
    rows = [(letter * a, 1, b"-" * b, "z" * 9_000) for a, b, letter in sizes]
    are_too_long = [len(a.encode()) + len(b) > 2_000 for a, _, b, _ in rows]
    if not any(are_too_long):
        check_rows(KEYED, rows)
        return
    with pytest.raises(TableRowError, match="may have 2,000"):
        check_rows(KEYED, rows)
