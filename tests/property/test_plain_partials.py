"""Partials that are handed on as they are: only what nobody can change, and a copy of it is the same."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.core.ground.cells import LateElement
from runners.core.partials.partial import LatePartial
from runners.core.partials.plain_partials import size_of_plain_inputs
from runners.stored.partials import decode_partials, encode_partials
from windowing.pane import NO_FIRING
from windowing.window import GLOBAL_WINDOW, Window

plain = (
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False)
)
keys = st.integers() | st.text() | st.binary()
values = plain | st.lists(plain).map(tuple)


class Number(int):
    """A number with room for more."""


@attrs.define
class Point:
    """Something that can be changed."""

    x: int = 0


def of_values(found: list[Any], key: Any = 1, window: Window = GLOBAL_WINDOW) -> list[Any]:
    return [(key, window, [(value, 5, NO_FIRING, +1) for value in found], len(found))]


@given(key=keys | st.lists(keys, min_size=1).map(tuple), found=st.lists(values, min_size=1))
def test_what_is_plain_is_what_its_copy_would_be(key: Any, found: list[Any]) -> None:
    partials = of_values(found, key)
    size = size_of_plain_inputs(partials)
    is_mixed = len({type(each) is tuple for each in found}) > 1
    assert (size is None) == is_mixed
    if size is not None:
        texts = (each for one in [key, *found] for each in (one if type(one) is tuple else [one]))
        assert size >= sum(len(each) for each in texts if isinstance(each, str | bytes))
        assert decode_partials(encode_partials(partials), None) == partials


@pytest.mark.parametrize(
    "value", [[], {}, set(), bytearray(), Point(), Number(1), ([1],), (Point(),), ((1, (2,)),)]
)
def test_what_can_be_changed_is_not(value: Any) -> None:
    """Nor what may have more to it than it shows, or is nested more deeply than anybody looks."""
    assert size_of_plain_inputs(of_values([1])) is not None
    assert size_of_plain_inputs(of_values([1, value])) is None
    assert size_of_plain_inputs(of_values([1, 2, value, 3])) is None
    assert size_of_plain_inputs([*of_values([1]), *of_values([value])]) is None
    assert size_of_plain_inputs(of_values([value])) is None


def test_keys_windows_and_late_partials_are_looked_at_too() -> None:
    class Shift(Window):
        """A window of a user's."""

    (partial,) = of_values([1])
    late = LatePartial.of(partial, LateElement([], 5, +1))
    assert size_of_plain_inputs(of_values([1], key=Point())) is None
    assert size_of_plain_inputs(of_values([1], window=Shift(0, 1))) is None
    assert size_of_plain_inputs([partial, late]) is None
    assert size_of_plain_inputs([]) is None
    assert size_of_plain_inputs(tuple(of_values([1]))) is None
