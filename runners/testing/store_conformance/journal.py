"""Checks of the journal: changes of state that are not in cells and timers yet."""

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import JournalEntry
from runners.millwheel.store.port import Fenced
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    Owner,
    StoreFactory,
    expect_equal,
    opened,
    take_over,
)

#: More than a page of a database, and bytes that a text would not survive.
LONG = bytes(range(256)) * 100


def entries(range_id: RangeId, *payloads: bytes) -> list[JournalEntry]:
    """Make an entry of two cells for each payload.

    Args:
        range_id: whose journal they are for.
        payloads: any bytes; the store does not read them.
    """
    return [JournalEntry(range_id, 2, payload) for payload in payloads]


def check_the_journal_is_in_order(connect: StoreFactory) -> None:
    """The next owner of a range has all of its entries, as they were committed, and none of another's."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    expect_equal(list(take_over(connect(), HIGH).journal), [], "the journal of a new range")
    owner = Owner(store, LOW, HIGH, name="next")
    owner.commit(journal=entries(LOW, b"z", b"", b"a"))
    owner.commit(journal=[*entries(HIGH, b"other"), *entries(LOW, LONG)])
    owner.commit(journal=entries(LOW, *[b"%d" % number for number in range(12)]))
    expected = [b"z", b"", b"a", LONG, *[b"%d" % number for number in range(12)]]
    expect_equal(list(take_over(connect()).journal), expected, "the journal")
    expect_equal(list(take_over(connect(), HIGH).journal), [b"other"], "that of another range")
    expect_equal(store.statistics(JOB)["journal"], 17, "number of entries")
    expect_equal(store.count_state(JOB).cells["count"], 34, "number of cells")


def check_the_journal_goes_when_it_is_compacted(connect: StoreFactory) -> None:
    """Compaction deletes entries up to a bundle, of one range; entries that come with it stay."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    for payload in (b"1", b"2", b"3"):
        owner.commit(journal=[*entries(LOW, payload), *entries(HIGH, payload)])
    bundles = owner.bundles[LOW], owner.bundles[HIGH]
    owner.commit(compacted={LOW: bundles[0] - 1}, journal=entries(LOW, b"4"))
    expect_equal(list(take_over(connect()).journal), [b"3", b"4"], "what is not compacted")
    expect_equal(
        list(take_over(connect(), HIGH).journal), [b"1", b"2", b"3"], "that of another range"
    )
    Owner(store, HIGH, name="next").commit(compacted={HIGH: bundles[1]})
    expect_equal(list(take_over(connect(), HIGH).journal), [], "a compacted journal")


def check_the_journal_is_behind_the_fence(connect: StoreFactory) -> None:
    """A former owner neither adds to it nor takes from it."""
    store = opened(connect)
    former = Owner(store, LOW, name="former")
    former.commit(journal=entries(LOW, b"kept"))
    take_over(connect())
    for late in (
        former.production(journal=entries(LOW, b"zombie")),
        former.production(compacted={LOW: former.bundles[LOW]}),
    ):
        expect_equal(store.commit(late), Fenced(LOW), "a former owner's commit")
    expect_equal(list(take_over(connect()).journal), [b"kept"], "the journal")
