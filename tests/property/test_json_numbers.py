"""Lines that differ in their numbers alone: what is made of all at once is what JSON makes of each, or nothing."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.io import json_numbers
from dataflow.io.json_numbers import number_columns

TYPES = {"at": pa.int64(), "size": pa.float64()}
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(-1e15, 1e15).filter(lambda number: "e" not in repr(number))
#: A line with places for the numbers; blanks are where JSON has them.
FORMS = st.sampled_from(
    [
        '{"at":%s,"size":%s}',
        '{"at": %s, "size": %s}',
        '{ "at" : %s , "size" : %s } ',
        '{"size":%s,"at":%s}',
    ]
)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse even a few lines in several pieces."""
    monkeypatch.setattr(json_numbers, "_PIECE_BYTES", 60)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    form, end = draw(FORMS), draw(st.sampled_from(["\n", ""]))
    rows = draw(st.lists(st.tuples(INTS, FLOATS | st.integers(-(10**9), 10**9)), min_size=1))
    names = ["size", "at"] if form.startswith('{"size"') else ["at", "size"]
    found = [dict(zip(names, row if names[0] == "at" else row[::-1], strict=True)) for row in rows]
    return "\n".join(form % tuple(map(repr, row.values())) for row in found) + end, found


def by_json(block: str) -> list[dict[str, Any]] | None:
    """The rows of a block as a parser of JSON has them; None if a line is no such row."""
    rows = []
    for line in block.removesuffix("\n").split("\n"):
        try:
            row = json.loads(line)
        except ValueError:
            return None
        if type(row) is not dict or row.keys() != TYPES.keys() or type(row["at"]) is not int:
            return None
        if not -(2**63) <= row["at"] < 2**63 or type(row["size"]) not in (int, float):
            return None
        rows.append({"at": row["at"], "size": float(row["size"])})
    return rows


def rows_of(table: pa.Table | None) -> list[dict[str, Any]] | None:
    return None if table is None else table.select(["at", "size"]).to_pylist()


@given(blocks())
def test_lines_that_differ_in_their_numbers_are_taken(block: tuple[str, Sequence[Any]]) -> None:
    text, rows = block
    wanted = [{"at": row["at"], "size": float(row["size"])} for row in rows]
    assert repr(rows_of(number_columns(text.encode(), TYPES))) == repr(wanted)


@given(
    block=blocks(),
    edits=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.integers(0, 2),
            st.text(st.sampled_from('0123456789-.,:{}" \n\tae'), max_size=2),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_whatever_is_taken_is_what_a_parser_of_json_finds(
    block: tuple[str, Sequence[Any]], edits: Sequence[tuple[float, int, str]]
) -> None:
    text, _ = block
    for where, removed, added in edits:
        at = int(where * len(text))
        text = text[:at] + added + text[at + removed :]
    found = rows_of(number_columns(text.encode(), TYPES)) if text else None
    assert found is None or repr(found) == repr(by_json(text))


#: Of every length that an integer can have; digits are looked at eight at a time.
LONG_INTS = [
    sign * number
    for size in range(1, 20)
    for number in (10 ** (size - 1), min(10**size, 2**63) - 1, int("1234567890123456789"[:size]))
    for sign in (1, -1)
]
LONG_FLOATS = [
    f"{sign}{digits[:point]}.{digits[point:]}"
    for size in range(2, 26)
    for digits in ("1234567890123456789012345"[:size], "9" * size, "0" + "5" * (size - 1))
    for point in ({1} if digits[0] == "0" else {1, size // 2, size - 1})
    for sign in ("", "-")
]


@pytest.mark.parametrize("size", [60, 1 << 20])
def test_numbers_of_every_length_are_those_that_are_written(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_numbers, "_PIECE_BYTES", size)
    rows = [*zip(itertools.cycle(LONG_INTS), LONG_FLOATS, strict=False)]
    assert len(rows) > len(LONG_INTS)
    block = "".join(f'{{"at":{at},"size":{written}}}\n' for at, written in rows)
    wanted = [{"at": at, "size": float(written)} for at, written in rows]
    assert rows_of(number_columns(block.encode(), TYPES)) == wanted


@pytest.mark.parametrize(
    "name", ["a", "at", "an_hour", "a_minute", "half_an_hour", "a_minute_and_a_half"]
)
def test_names_of_every_length_are_compared_in_full(name: str) -> None:
    """Text between two numbers is compared sixteen bytes at a time, so lengths around that are tried."""
    line = f'{{"{name}":1,"{name}_too":2}}\n'
    types = {name: pa.int64(), f"{name}_too": pa.int64()}
    assert number_columns((line * 3).encode(), types) is not None
    for at, character in enumerate(line.removesuffix("\n")):
        if not character.isdigit():
            for other in ("x", "X", "1"):
                odd = line[:at] + other + line[at + 1 :]
                assert odd == line or number_columns((line + odd + line).encode(), types) is None


ODD_LINES = [
    '{"at":,"size":2}',
    '{"at7":,"size":2}',
    '{"at":1,"size":}2',
    '{7"at":,"size":2}',
    '{"at":1,"5size":}',
    '{"at":1,"size":2}3',
    '{"at":01,"size":2}',
    '{"at":-01,"size":2}',
    '{"at":1,"size":.5}',
    '{"at":1,"size":5.}',
    '{"at":1,"size":-.5}',
    '{"at":1,"size":1.2.3}',
    '{"at":1-2,"size":2}',
    '{"at":-,"size":2}',
    '{"at":1.0,"size":2}',
    '{"at":9223372036854775808,"size":2}',
    '{"at":-9223372036854775809,"size":2}',
    '{"at":10000000000000000000,"size":2}',
    '{"at":1000000000000000000000000,"size":2}',
    '{"at":00,"size":2}',
    '{"at":-0,"size":2}',
    '{"at":1/2,"size":2}',
    '{"at":1,"size":-0}',
    '{"at":1,"size":--12345678901234567890}',
    '{"at":1,"size":1234567890.12345.67890}',
    '{"at":1,"size":012345678901234567890}',
    '{"at":1,"size":2e3}',
    '{"at":1,"size":0:10000000000000}',
    '{"at":1,"at":2}',
    '{"at":1}',
    '{"at":1,"size":2,"more":3}',
    '["at":1,"size":2]',
    "",
]


@pytest.mark.parametrize("line", ODD_LINES)
@pytest.mark.parametrize("before", [0, 1, 5])
def test_an_odd_line_is_left_to_json(line: str, before: int) -> None:
    block = '{"at":1,"size":2}\n' * before + line + "\n"
    assert number_columns(block.encode(), TYPES) is None


def test_a_number_in_two_parts_is_left_to_json() -> None:
    block = '{"at": 1, "size": 2}\n{"at":1 2, "size": 2}\n'
    assert number_columns(block.encode(), TYPES) is None


@pytest.mark.parametrize("fraction", ["5" * 20, "5"])
def test_a_line_that_is_cut_is_left_to_json(fraction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is looked at for as many bytes as the longest number needs, which the last one may not have."""
    monkeypatch.setattr(json_numbers, "_PIECE_BYTES", 1 << 10)
    line = f'{{"at":1,"size":2.{fraction}}}\n'
    for end in range(1, len(line) - 1):
        assert number_columns((line * 2 + line[:end]).encode(), TYPES) is None
        short = '{"at":1,"size":2}'[:end]
        assert number_columns((line * 2 + short).encode(), TYPES) is None or short.endswith("}")
