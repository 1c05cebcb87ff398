"""Laws of records of CSV: the csv module reads what was in an element, of whatever kind the element is."""

import csv
import io
from collections import namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import InputError
from dataflow.files.formats import csv_line


class Colour(Enum):
    RED = "red, or so"


class Number(int):
    def __str__(self) -> str:
        return f"number {int(self)}"


COLUMNS = ("one", "two", "three")
#: Values with the texts that they have in a file.
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: (text, text)),
    st.integers().map(lambda number: (number, str(number))),
    st.floats(allow_nan=False).map(lambda number: (number, repr(number))),
    st.decimals(allow_nan=False).map(lambda number: (number, str(number))),
    st.booleans().map(lambda value: (value, "true" if value else "false")),
    st.uuids().map(lambda value: (value, str(value))),
    st.datetimes(timezones=st.just(UTC)).map(lambda at: (at, at.isoformat())),
    st.dates().map(lambda day: (day, day.isoformat())),
    st.sampled_from([(None, ""), (Colour.RED, "red, or so"), (Number(7), "number 7")]),
)
ROWS = st.tuples(VALUES, VALUES, VALUES)
ORDERS = st.permutations((*COLUMNS, "other"))


def row_of(**values: Any) -> Any:
    """A named tuple with these fields, in this order."""
    return namedtuple("Row", list(values))(**values)  # noqa: PYI024 - fields are drawn


def read(line: bytes) -> list[str]:
    (found,) = csv.reader(io.StringIO(line.decode(), newline=""), strict=True)
    return found


@given(ROWS, ORDERS)
def test_mappings_and_named_tuples_have_the_same_record(
    row: tuple[tuple[Any, str], ...], order: list[str]
) -> None:
    """Whatever else they have, and in any order."""
    values = dict(zip(COLUMNS, [value for value, _ in row], strict=True)) | {"other": object()}
    named = row_of(**{name: values[name] for name in order})

    line = csv_line(COLUMNS, values)

    assert line == csv_line(COLUMNS, named) == csv_line(list(COLUMNS), named)
    assert [text for _, text in row] == read(line)


@example(("\r", "\r"))
@example(("one\ntwo", "one\ntwo"))
@example(("one\r\n", "one\r\n"))
@example(('a "quote", and more', 'a "quote", and more'))
@given(VALUES)
def test_a_record_of_one_column_is_a_record(value: tuple[Any, str]) -> None:
    """An empty field too: a line without anything is none."""
    line = csv_line(("one",), {"one": value[0]})

    assert line
    assert [value[1]] == read(line)


@pytest.mark.parametrize(
    ("element", "missing"),
    [
        ({"one": 1}, "'two', 'three'"),
        (row_of(two=2, three=3), "'one'"),
        (row_of(two=2, one=1), "'three'"),
    ],
)
def test_an_element_without_a_column_is_refused(element: Any, missing: str) -> None:
    with pytest.raises(InputError, match=f"an element has no {missing}"):
        csv_line(COLUMNS, element)


def test_methods_of_a_named_tuple_are_no_columns() -> None:
    with pytest.raises(InputError, match="an element has no 'count'"):
        csv_line(("one", "count"), row_of(one=1))


def test_fields_make_no_row_of_what_is_no_tuple() -> None:
    with pytest.raises(InputError, match="a SimpleNamespace has no columns"):
        csv_line(("one",), SimpleNamespace(_fields=("one",), one=1))


@pytest.mark.parametrize("value", [[1], b"bytes", {"a": 1}, object()])
def test_a_value_without_a_text_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="cannot be a field of CSV"):
        csv_line(("one", "two"), {"one": value, "two": 2})


def test_numbers_and_times_as_they_are_read() -> None:
    at = datetime(2026, 11, 26, 7, 30, tzinfo=UTC)
    values = {"a": Decimal("1.50"), "b": UUID(int=7), "c": at, "d": 1e16, "e": None}

    expected = f"1.50,{UUID(int=7)},2026-11-26T07:30:00+00:00,1e+16,"
    assert expected.encode() == csv_line(tuple(values), values)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Ends of lines, quotes and commas in texts too."""
    texts = ["plain", "two\nlines", "\r", "a\r\nb", 'say "yes", or', "", " ", "ü"]
    rows = [{"number": str(number), "text": text} for number, text in enumerate(texts)]
    with df.Pipeline() as p:
        p | df.Create(rows) | df.WriteToCsv(tmp_path, columns=["number", "text"])

    read = df.collect(df.Pipeline() | df.ReadFromCsv(f"{tmp_path}/*.csv"))
    assert sorted(read, key=lambda row: row["number"]) == rows
