"""A task's input is whole, or an error; wherever it breaks off."""

import io
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.serializers import CPickleSerializer, SpecialLengths

from runners.spark.whole_input import BrokenInputError, WholeStream

BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=9)), max_size=3))


def stream_of(batches: list[list[tuple[int, bytes]]]) -> bytes:
    """What Spark's Java process writes, with its mark at the end."""
    written = io.BytesIO()
    CPickleSerializer().dump_stream(batches, written)  # type: ignore[no-untyped-call]
    return written.getvalue() + struct.pack("!i", SpecialLengths.END_OF_DATA_SECTION)


@given(batches=BATCHES, behind=st.binary(max_size=9))
def test_what_is_whole_is_read_to_its_mark(
    batches: list[list[tuple[int, bytes]]], behind: bytes
) -> None:
    stream = io.BytesIO(stream_of(batches) + behind)

    assert [*WholeStream().load_stream(stream)] == batches
    assert stream.read() == behind


@given(batches=BATCHES, data=st.data())
def test_what_is_broken_off_is_an_error(
    batches: list[list[tuple[int, bytes]]], data: st.DataObject
) -> None:
    whole = stream_of(batches)
    part = whole[: data.draw(st.integers(0, len(whole) - 1), "bytes")]
    objects = WholeStream().load_stream(io.BytesIO(part))

    found: list[object] = []
    with pytest.raises(BrokenInputError, match="broken off"):
        found.extend(each for each in objects)
    assert found == batches[: len(found)]


def test_another_mark_is_no_end() -> None:
    stream = io.BytesIO(struct.pack("!i", SpecialLengths.NULL) + pickle.dumps([]))

    with pytest.raises(BrokenInputError, match=str(SpecialLengths.NULL)):
        next(WholeStream().load_stream(stream))
