"""Checks of `Store.resolve`: what became of a commit whose answer was lost."""

from runners.millwheel.store.port import Committed, Fenced
from runners.testing.store_conformance.world import (
    HIGH,
    LOW,
    Owner,
    StoreFactory,
    cell,
    cells_of,
    expect,
    expect_equal,
    opened,
)


def check_resolve_a_commit_that_landed(connect: StoreFactory) -> None:
    """Whatever comes after it, a commit that landed is Committed."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    first = owner.commit(cells=[cell(b"k", b"1")])
    resolver = connect()
    expect_equal(resolver.resolve(first), Committed(), "at once")
    second = owner.commit()
    expect_equal(resolver.resolve(first), Committed(), "after the next bundle")
    successor = Owner(connect(), LOW)
    expect_equal(resolver.resolve(second), Committed(), "after a takeover")
    successor.commit()
    successor.commit()
    Owner(connect(), LOW, HIGH).commit()
    for production in (first, second):
        expect_equal(resolver.resolve(production), Committed(), "two owners later")
    expect_equal(cells_of(store), {(7, b"k"): b"1"}, "state, unchanged by resolving")


def check_resolve_does_not_disturb_the_owner(connect: StoreFactory) -> None:
    """Resolving what landed moves no token."""
    store = opened(connect)
    owner = Owner(store, LOW)
    production = owner.commit()
    connect().resolve(production)
    owner.commit()


def check_resolve_a_commit_that_did_not_land(connect: StoreFactory) -> None:
    """It is Fenced, and from then on it really cannot land any more."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    lost = owner.production(cells=[cell(b"k", b"lost")])
    resolver = connect()
    expect(isinstance(resolver.resolve(lost), Fenced), "a commit that was never sent")
    expect(isinstance(store.commit(lost), Fenced), "it arrives after it was given up")
    expect(isinstance(resolver.resolve(lost), Fenced), "resolved once more")
    again = Owner(store, LOW, HIGH)
    expect_equal(again.cells(), {}, "state after it was given up")
    again.commit(cells=[cell(b"k", b"repeated")])
    expect(isinstance(resolver.resolve(lost), Fenced), "after the work was repeated")
    expect_equal(cells_of(store), {(7, b"k"): b"repeated"}, "state after the repetition")


def check_resolve_after_a_takeover_before_the_commit(connect: StoreFactory) -> None:
    """A successor that reached the same bundle number does not make the lost commit look landed."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    owner.commit()
    lost = owner.production(cells=[cell(b"k", b"lost")])
    successor = Owner(connect(), HIGH, name="successor")
    successor.commit()
    successor.commit()
    expect(isinstance(connect().resolve(lost), Fenced), "the successor's bundle is not ours")
    successor.commit()
    Owner(connect(), LOW, HIGH).commit()
    expect(isinstance(connect().resolve(lost), Fenced), "nor is the one after")
    expect_equal(cells_of(store), {}, "state")
