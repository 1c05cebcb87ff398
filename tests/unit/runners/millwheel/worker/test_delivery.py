"""Outbox: sequence numbers, acknowledgements and the hold on the watermark."""

from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.worker.outbox import Outbox, Trail

A = Channel(RangeId("read", 0), RangeId("sum", 0))
B = Channel(RangeId("read", 0), RangeId("sum", 1))


def test_sequences_are_gap_free_per_channel_and_go_on_after_a_restart() -> None:
    """A new owner continues from the highest number ever given out, even where nothing is open."""
    outbox = Outbox([Checkpoint(A, 7, 100, b"x")], {A: 7, B: 3})

    assert [8, 4, 9] == [outbox.create(channel, 200, b"y").sequence for channel in (A, B, A)]


def test_the_oldest_open_entry_holds_the_watermark() -> None:
    """Acknowledging is cumulative; what is acknowledged holds nothing any more and waits to be deleted."""
    outbox = Outbox([], {})
    for hold_us in (10, 20, 30):
        outbox.create(A, hold_us, b"a")
    outbox.create(B, 15, b"bb")

    assert (10, 5) == (outbox.hold_us, outbox.open_bytes)
    outbox.acknowledge(A, 2)
    assert (15, 3) == (outbox.hold_us, outbox.open_bytes)
    assert {A: 2} == outbox.take_acknowledged()
    assert {} == outbox.take_acknowledged()
    outbox.acknowledge(A, 2)
    assert not outbox.has_acknowledged
    outbox.acknowledge(A, 3)
    outbox.acknowledge(B, 1)
    assert outbox.hold_us is None
    assert not outbox.is_empty
    assert {A: 3, B: 1} == outbox.take_acknowledged()
    assert outbox.is_empty


def test_a_new_owner_is_sent_what_is_open_in_order() -> None:
    """Only entries to the ranges that changed hands, each channel from its oldest entry on."""
    outbox = Outbox([Checkpoint(A, 2, 0, b"2"), Checkpoint(A, 1, 0, b"1")], {A: 2})
    outbox.create(B, 0, b"b")
    outbox.create(A, 0, b"3")

    assert [b"1", b"2", b"3"] == [each.payload for each in outbox.for_receivers({A.receiver})]


def test_what_is_deleted_is_so_whatever_has_been_acknowledged_since() -> None:
    """Whoever looks now and then only would otherwise never see it, on a channel that is always busy."""
    outbox = Outbox([], {})
    first, second = (outbox.create(A, 0, b"") for _ in range(2))
    outbox.acknowledge(A, first.sequence)
    assert not outbox.is_deleted({A: first.sequence})
    outbox.take_acknowledged()
    outbox.acknowledge(A, second.sequence)

    assert outbox.is_deleted({A: first.sequence})
    assert not outbox.is_deleted({A: second.sequence})


@given(
    acts=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.sampled_from([A, B])),
            st.tuples(st.just("acknowledge"), st.integers(0, 50)),
            st.tuples(st.sampled_from(["commit", "note"]), st.none()),
        ),
        max_size=50,
    )
)
def test_news_never_overtake_what_they_follow(acts: list[tuple[str, Channel | int | None]]) -> None:
    """Of what was sent before a value that is passed on nothing is unacknowledged, or none of it in the store.

    Nor do they wait for what was sent after them.
    """
    outbox = Outbox([], {})
    acknowledged, deleted = Trail(outbox, 0), Trail(outbox, 0, is_kept=True)
    #: Each production with the value that was the last when it was sent.
    unacknowledged: dict[tuple[Channel, int], int] = {}
    stored: dict[tuple[Channel, int], int] = {}
    value = 0
    for act, what in acts:
        if act == "send":
            sequence = outbox.create(what, 0, b"").sequence  # type: ignore[arg-type]
            unacknowledged[what, sequence] = stored[what, sequence] = value  # type: ignore[index]
        elif act == "acknowledge" and unacknowledged:
            assert isinstance(what, int)
            channel, up_to = list(unacknowledged)[what % len(unacknowledged)]
            outbox.acknowledge(channel, up_to)
            for place in [each for each in unacknowledged if each <= (channel, up_to)]:
                if place[0] == channel:
                    del unacknowledged[place]
        elif act == "commit":
            outbox.take_acknowledged()
            stored = {place: stored[place] for place in unacknowledged}
        elif act == "note":
            value += 1
            acknowledged.note(value)
            deleted.note(value)
        for trail, kept in ((acknowledged, unacknowledged), (deleted, stored)):
            before = [sent_at for sent_at in kept.values() if sent_at < value]
            assert (min(before) if before else value) == trail.passed()
