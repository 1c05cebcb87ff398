"""signature_of: what `inspect` says of a callable, and None where it says nothing."""

import gc
import inspect
import weakref
from typing import Any

import pytest

from dataflow.signatures import signature_of


class Doubling:
    """Something that can be called."""

    def __call__(self, number: int) -> int:
        return 2 * number


class Growing(list[int]):
    """A list of which there are weak references."""


CALLS: list[Any] = [sum, max, len, str.upper, dict.get, [].append, int, Doubling, Doubling(), 3]


@pytest.mark.parametrize("call", [*CALLS, lambda a, *b, c=1: (a, b, c)])
def test_it_is_that_of_inspect(call: Any) -> None:
    try:
        expected = inspect.signature(call)
    except (TypeError, ValueError):
        expected = None

    for _ in range(2):
        assert signature_of(call) == expected


def test_some_built_ins_have_none() -> None:
    assert signature_of(max) is None


def test_a_function_may_change() -> None:
    def function(a: int) -> None: ...

    assert str(signature_of(function)) == "(a: int) -> None"
    function.__defaults__ = (1,)
    assert str(signature_of(function)) == "(a: int = 1) -> None"


def test_an_object_whose_method_was_looked_at_is_let_go(frozen_heap: None) -> None:
    growing = Growing()
    known = weakref.ref(growing)
    signature_of(growing.append)
    del growing
    gc.collect()

    assert known() is None
