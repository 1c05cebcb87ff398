"""Outbox: what is unacknowledged holds the output watermark, whatever the order in which it was sent."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.worker.outbox import Outbox

OTHERS = Channel(RangeId("sum", 0), RangeId("count", 0))
CHANNELS = [Channel(RangeId("sum", 0), RangeId("list", index)) for index in range(2)]


@given(
    acts=st.lists(
        st.tuples(st.sampled_from(CHANNELS), st.booleans(), st.integers(0, 5)),
        min_size=4,
        max_size=30,
    )
)
def test_the_lowest_of_all_that_is_unacknowledged_holds(
    acts: Sequence[tuple[Channel, bool, int]],
) -> None:
    """The next can be lower, also for a later owner: its range was joined by one that was behind it."""
    outbox = Outbox([], {})
    for channel, is_sent, number in acts:
        if is_sent:
            outbox.create(channel, number, b"")
        else:
            outbox.acknowledge(channel, number)
        entries = [*outbox.for_receivers({each.receiver for each in CHANNELS})]

        lowest_us = min((each.min_timestamp_us for each in entries), default=None)
        assert outbox.hold_us == lowest_us
        assert Outbox(entries, {}).hold_us == lowest_us


@given(
    sent=st.lists(st.tuples(st.sampled_from([*CHANNELS, OTHERS]), st.integers(0, 5)), max_size=20),
    acknowledged=st.dictionaries(st.sampled_from(CHANNELS), st.integers(0, 5)),
    accepted=st.dictionaries(st.sampled_from(CHANNELS), st.integers(0, 10)),
)
def test_what_one_computation_has_not_taken_in_holds_for_it(
    sent: Sequence[tuple[Channel, int]],
    acknowledged: Mapping[Channel, int],
    accepted: Mapping[Channel, int],
) -> None:
    """Whether it is acknowledged or not, and whatever is on its way to others."""
    outbox = Outbox([], {})
    for channel, hold_us in sent:
        outbox.create(channel, hold_us, b"")
    for channel, sequence in acknowledged.items():
        outbox.acknowledge(channel, sequence)
    entries = outbox.for_receivers({each.receiver for each in CHANNELS})

    lowest_us = min(
        (
            each.min_timestamp_us
            for each in entries
            if each.sequence > accepted.get(each.channel, 0)
        ),
        default=None,
    )
    assert outbox.hold_of("list", lambda channel: accepted.get(channel, 0)) == lowest_us
