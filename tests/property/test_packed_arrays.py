"""Arrays of numbers are packed as their numbers are, however many there are."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.store.postgres.arrays import (
    BoolArray,
    Float8Array,
    Int4Array,
    Int8Array,
    PackedArray,
)

#: A length in four bytes, then the number: as Postgres writes an element (`array_send`).
ELEMENTS = {BoolArray: "!i?", Float8Array: "!id", Int4Array: "!ii", Int8Array: "!iq"}
NUMBERS: dict[type[PackedArray], st.SearchStrategy[float]] = {
    BoolArray: st.booleans(),
    Float8Array: st.floats(allow_nan=False) | st.integers(-100, 100),
    Int4Array: st.integers(-(1 << 31), (1 << 31) - 1),
    Int8Array: st.integers(-(1 << 63), (1 << 63) - 1),
}


@pytest.mark.parametrize("kind", ELEMENTS)
@given(data=st.data())
def test_few_and_many_numbers_are_packed_alike(
    kind: type[PackedArray], data: st.DataObject
) -> None:
    numbers = data.draw(st.lists(NUMBERS[kind], max_size=40))
    element = struct.Struct(ELEMENTS[kind])

    expected = b"".join(element.pack(element.size - 4, number) for number in numbers)
    assert kind.pack(numbers) == expected


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize(("kind", "number"), [(Int4Array, 1 << 31), (Int8Array, -1 << 64)])
def test_a_number_that_is_out_of_range_is_refused(
    kind: type[PackedArray], number: int, count: int
) -> None:
    with pytest.raises(OverflowError):
        kind.pack([number] * count)
