"""Pieces and steps of a bounded size."""

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.inbox import Inbox
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.sizes import Pieces, StepSize
from runners.millwheel.worker.step_limits import StepLimits

PIECE_BYTES, VALUE_BYTES_MAX = 400, 1_000


STEPS = StepLimits(nbytes=PIECE_BYTES, piece_bytes=PIECE_BYTES, first=100)


def dumps(things: Sequence[bytes]) -> bytes:
    return pickle.dumps(list(things))


@given(several=st.lists(st.lists(st.integers(0, 900).map(bytes), max_size=30), max_size=4))
def test_pieces_are_all_things_in_order_and_none_is_too_large(several: list[list[bytes]]) -> None:
    """Whatever those before were like."""
    pieces = Pieces(VALUE_BYTES_MAX, repr, STEPS)
    for things in several:
        found = list(pieces.of(things, dumps))

        assert [each for piece, _ in found for each in piece] == things
        assert all(pickle.loads(blob) == list(piece) for piece, blob in found)
        assert all(len(blob) <= PIECE_BYTES or len(piece) == 1 for piece, blob in found)


@given(count=st.integers(1, 50), size=st.integers(0, 3))
def test_things_that_are_small_together_are_one_piece(count: int, size: int) -> None:
    """The very sequence that was given."""
    things = [bytes(size)] * count
    ((piece, _),) = Pieces(VALUE_BYTES_MAX, repr, STEPS).of(things, dumps)

    assert piece is things


def test_a_thing_that_is_too_large_is_refused() -> None:
    pieces = Pieces(VALUE_BYTES_MAX, lambda thing: f"a thing of {len(thing)}", STEPS)

    with pytest.raises(df.TransformError, match=r"^a thing of 2000: it has 2,0\d\d bytes, and may"):
        list(pieces.of([b"", bytes(2_000), b""], dumps))


def test_a_limit_below_the_size_of_a_piece_holds_for_each_thing() -> None:
    """And not for what many of them are together."""
    pieces = Pieces(PIECE_BYTES // 2, repr, STEPS)
    small = [bytes(10)] * 100

    assert [each for piece, _ in pieces.of(small, dumps) for each in piece] == small
    with pytest.raises(df.TransformError, match="and may have 200"):
        list(pieces.of([*small, bytes(PIECE_BYTES - 50)], dumps))


def test_a_step_takes_in_what_causes_as_much_as_it_should() -> None:
    """More only little by little, less at once, and one thing at least."""
    size = StepSize(STEPS)
    assert STEPS.first == size.allowed(10_000)
    size.caused(STEPS.first, 0)
    assert 8 * STEPS.first == size.allowed(10_000)
    size.caused(8 * STEPS.first, 8 * STEPS.first * PIECE_BYTES)
    assert [1, 1] == [size.allowed(10_000), size.allowed(1)]
    size.caused(1, PIECE_BYTES // 4)
    assert size.allowed(10_000) == 4
    size.caused(0, 1 << 40)
    assert size.allowed(10_000) == 4


def test_deliveries_are_taken_up_to_a_size() -> None:
    """At least one, and the rest later."""
    receiver = RangeId("sum", 0)
    channel = Channel(RangeId("read", 0), receiver)
    owned = OwnedRange(
        range_id=receiver, token=1, bundle=0, outbox=Outbox([], {}), delivered={}, watermark_us=0
    )
    inbox = Inbox({receiver: owned})
    # The first two together are as large as may be, a byte more is too much.
    exact = [PIECE_BYTES - 100, 100, PIECE_BYTES - 100, 101]
    for sequence, size in enumerate([*exact, 1_000, 1, 1], start=1):
        inbox.put(Deliver(channel, sequence, bytes(size), sequence == 1))
    taken: list[list[int]] = []
    while found := inbox.take("sum", 64, PIECE_BYTES):
        taken.append([each.sequence for each in found])

    assert taken == [[1, 2], [3], [4], [5], [6, 7]]
