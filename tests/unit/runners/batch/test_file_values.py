"""A group in a file is a list to everybody who reads it."""

import copy
import gc
import os
import pickle
import weakref
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import TransformError
from dataflow.serialization import dumps
from runners.batch.spill.file_values import FileValues, Stored
from runners.batch.spill.run_file import RunFile
from runners.stored.runs import encode_run_frame
from windowing.window import GLOBAL_WINDOW, Window

PIECES = st.lists(st.lists(st.integers() | st.text(max_size=5), min_size=1, max_size=5), max_size=8)


class Named(Window):
    """A window of a user, whose pickle is long."""


def stored(pieces: Sequence[list[Any]], window: Window = GLOBAL_WINDOW) -> Stored:
    file = RunFile()
    found: Stored | None = None
    for piece in pieces:
        # What belongs to others is in the same file.
        file.append([encode_run_frame(Named(1, 2), 1, dumps(["other"]))] * (len(piece) % 2))
        stretch = file.append([encode_run_frame(window, len(piece), dumps(piece))])
        part = Stored(file, [stretch], len(piece), stretch[1] - stretch[0])
        found = part if found is None else found.join(part)
    return found or Stored(file, [], 0, 0)


def in_file(pieces: Sequence[list[Any]]) -> tuple[FileValues, list[Any]]:
    return FileValues(stored(pieces)), [each for piece in pieces for each in piece]


@given(pieces=PIECES, data=st.data())
def test_it_reads_like_a_list(pieces: list[list[Any]], data: st.DataObject) -> None:
    values, expected = in_file(pieces)

    assert list(values) == expected
    assert [*values] == expected
    assert len(values) == len(expected)
    assert bool(values) is bool(expected)
    assert list(reversed(values)) == expected[::-1]
    assert [values[each] for each in range(-len(expected), len(expected))] == expected * 2
    part = data.draw(st.slices(len(expected)))
    assert values[part] == expected[part]
    for each in {*expected, "never there..."}:
        assert (each in values) is (each in expected)
        assert values.count(each) == expected.count(each)


@given(pieces=PIECES, others=PIECES)
def test_it_compares_like_a_list(pieces: list[list[Any]], others: list[list[Any]]) -> None:
    values, expected = in_file(pieces)
    other_values, other = in_file(others)

    assert (values == other) is (other == values) is (values == other_values) is (expected == other)
    assert values == expected
    assert values != (*expected,)
    with pytest.raises(TypeError, match="unhashable"):
        hash(values)


@given(pieces=PIECES)
def test_it_is_a_list_wherever_it_goes(pieces: list[list[Any]]) -> None:
    values, expected = in_file(pieces)

    for sent in (pickle.loads(dumps(values)), copy.copy(values), copy.deepcopy(values)):
        assert type(sent) is list
        assert sent == expected


def test_readers_do_not_disturb_each_other() -> None:
    values, expected = in_file([[1, 2], [3], [4, 5, 6]])

    first, second = iter(values), iter(values)
    found = [*islice(first, 2)]
    assert values[5] == 6
    assert list(second) == expected
    assert found + list(first) == expected


@pytest.mark.parametrize("at", [3, -4])
def test_there_is_nothing_beyond_its_ends(at: int) -> None:
    values, _ = in_file([[1, 2], [3]])

    with pytest.raises(IndexError):
        values[at]


def test_it_shows_its_beginning() -> None:
    assert repr(in_file([[1, "a"]])[0]) == "[1, 'a']"
    assert repr(in_file([[1, 2], [3, 4], [5]])[0]) == "[1, 2, 3, ... 2 more]"


def test_long_windows_are_no_obstacle() -> None:
    window = type("W" * 400, (Window,), {})
    globals()[window.__qualname__] = window
    window.__module__ = __name__
    found = stored([[1], [2, 3]], window(3, 4))

    assert list(FileValues(found)) == [1, 2, 3]
    assert {type(head.window) for head in found.heads()} == {window}
    assert {head.window for head in found.heads()} == {window(3, 4)}


def test_after_its_time_reading_is_an_error_with_the_reason() -> None:
    found = stored([[1], [2], [3]])
    values = FileValues(found)
    assert values[0] == 1
    under_way = iter(values)
    next(under_way)
    found.file.close()

    for read in (lambda: list(values), lambda: values[2], lambda: dumps(values)):
        with pytest.raises(TransformError, match="after the task that grouped them had ended"):
            read()
    with pytest.raises(TransformError, match="list"):
        next(under_way)
    assert len(values) == 3
    assert repr(values) == "<3 values that are gone>"


@pytest.mark.usefixtures("frozen_heap")
def test_its_file_goes_with_its_last_reader() -> None:
    values, _ = in_file([[1, 2], [3]])
    file = weakref.ref(values._stored.file)
    number = values._stored.file._file.fileno()
    under_way = iter(values)
    next(under_way)
    del values

    gc.collect()
    assert file() is not None
    assert list(under_way) == [2, 3]
    del under_way
    gc.collect()
    assert file() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
