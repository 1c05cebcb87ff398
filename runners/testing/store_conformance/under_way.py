"""Checks of `Store.submit`: commits that are under way while their sender does something else."""

from runners.millwheel.store.port import Committed, Fenced
from runners.testing.store_conformance.world import (
    LOW,
    Owner,
    StoreFactory,
    cell,
    cells_of,
    expect_equal,
    opened,
)


class _NotReadyError(Exception):
    """Raised by a sender that has learnt that it must not send."""


def check_what_is_asked_after_a_commit_is_answered_after_it(connect: StoreFactory) -> None:
    """Nobody has waited for its outcome, and the same connection reads what it has written."""
    store = opened(connect)
    owner = Owner(store, LOW)
    under_way = store.submit(owner.production(cells=[cell(b"k", b"1")]))
    expect_equal(cells_of(store), {(7, b"k"): b"1"}, "state, read on the same connection")
    expect_equal(under_way.outcome(), Committed(), "the outcome, afterwards")
    expect_equal(under_way.outcome(), Committed(), "the outcome, once more")


def check_commits_under_way_take_effect_in_their_order(connect: StoreFactory) -> None:
    """The next one is sent before the outcome of the first is looked at."""
    store = opened(connect)
    owner = Owner(store, LOW)
    under_way = []
    for number in range(3):
        under_way.append(store.submit(owner.production(cells=[cell(b"k", b"%d" % number)])))
        owner.bundles[LOW] += 1
    expect_equal([each.outcome() for each in under_way], [Committed()] * 3, "the outcomes")
    expect_equal(cells_of(connect()), {(7, b"k"): b"2"}, "state, as of the last of them")


def check_a_fenced_commit_under_way_has_done_nothing(connect: StoreFactory) -> None:
    """Its range was taken over before it was sent; whoever asks learns that, each time."""
    store = opened(connect)
    owner = Owner(store, LOW)
    late = owner.production(cells=[cell(b"k", b"late")])
    Owner(connect(), LOW)
    under_way = store.submit(late)
    expect_equal(cells_of(store), {}, "state")
    expect_equal([under_way.outcome(), under_way.outcome()], [Fenced(LOW)] * 2, "the outcomes")


def check_nothing_is_sent_by_who_is_not_ready(connect: StoreFactory) -> None:
    """The sender has learnt at the last moment that the commit ahead did not happen."""
    store = opened(connect)
    owner = Owner(store, LOW)

    def refuse() -> None:
        raise _NotReadyError

    try:
        store.submit(owner.production(cells=[cell(b"k", b"1")]), refuse)
    except _NotReadyError:
        pass
    else:
        expect_equal("it was not", "raised", "what ready raises")
    owner.commit(cells=[cell(b"k", b"2")])
    expect_equal(cells_of(store), {(7, b"k"): b"2"}, "state")
