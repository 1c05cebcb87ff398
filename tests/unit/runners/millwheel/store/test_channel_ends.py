"""What contradicts what in the numbers and commits of a channel, and ranges that have gone back."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.errors import LostCommitsError
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.store.channel_ends import (
    ChannelEnds,
    check_channels,
    check_not_older,
    check_receivers,
)
from runners.millwheel.store.port import RangeRow, TakenRange

SENDER, RECEIVER = RangeId("read", 0), RangeId("count", 1)
MARK = CommitMark(7, 3)
numbers = st.integers(0, 3)
marks = st.none() | st.just(MARK)


@given(a=numbers, d=numbers, n=numbers, origin=marks, receipt=marks, is_remembered=st.booleans())
def test_only_what_was_durable_must_be_in_order(
    a: int,
    d: int,
    n: int,
    origin: CommitMark | None,
    receipt: CommitMark | None,
    is_remembered: bool,
) -> None:
    ends = ChannelEnds(
        channel=Channel(SENDER, RECEIVER),
        made=n,
        delivered=d,
        acknowledged=a,
        origin=origin,
        receipt=receipt and Receipt(receipt, is_remembered),
    )
    is_wrong = (origin is not None and d > n) or (receipt is not None and is_remembered and a > d)
    if is_wrong:
        with pytest.raises(LostCommitsError, match=r"read\[0\] -> count\[1\]"):
            check_channels("job", [ends], lambda *_: True)
    else:
        check_channels("job", [ends], lambda *_: True)
    if origin or receipt:
        with pytest.raises(LostCommitsError, match="bundle 3 under token 7, which is gone"):
            check_channels("job", [ends], lambda *_: False)


def taken(token: int, bundle: int) -> dict[RangeId, TakenRange]:
    row = RangeRow(
        range_id=SENDER, keys=None, split=b"", token=token, bundle=bundle, owner=None,
        position=None, watermark_us=None, is_finished=False,
    )  # fmt: skip
    empty = TakenRange(row=row, timers=(), delivered={}, sent={}, checkpoints=())
    return {SENDER: attrs.evolve(empty)}


def range_row(range_id: RangeId, keys: KeyRange | None, other: RangeId | None = None) -> RangeRow:
    return RangeRow(
        range_id=range_id, keys=keys, split=None, token=1, bundle=1, owner=None,
        position=None, watermark_us=None, is_finished=not keys and not other, handover_with=other,
    )  # fmt: skip


def test_nothing_is_on_its_way_to_a_range_that_is_no_more() -> None:
    """A range without keys takes in what is on its way to it for as long as it is in a handover."""
    keyed, in_handover, gone = (RangeId("count", index) for index in range(3))
    ranges = {
        keyed: range_row(keyed, KeyRange(0, 1 << 64)),
        in_handover: range_row(in_handover, None, keyed),
        gone: range_row(gone, None),
    }
    check_receivers("job", [(SENDER, keyed), (SENDER, in_handover)], ranges)
    for receiver, words in (
        (gone, r"read\[0\] -> count\[2\].*count\[2\] is retired"),
        (RangeId("count", 9), r"count\[9\] is not there"),
        (17, "range number 17 is not there"),
    ):
        with pytest.raises(LostCommitsError, match=words):
            check_receivers("job", [(SENDER, keyed), *[(SENDER, receiver)] * 20], ranges)


def test_a_range_that_was_further_is_not_taken() -> None:
    check_not_older("job", taken(8, 3), {SENDER: MARK, RECEIVER: MARK})
    check_not_older("job", taken(9, 5), {SENDER: MARK})
    for token, bundle in ((8, 2), (7, 3), (6, 3)):
        with pytest.raises(LostCommitsError, match="bundle 3 under token 7"):
            check_not_older("job", taken(token, bundle), {SENDER: MARK})
