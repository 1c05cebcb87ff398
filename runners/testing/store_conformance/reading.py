"""Checks of how an owner reads cells beside its commits."""

import threading

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END
from runners.millwheel.model.production import JournalEntry, TimerWrite
from runners.millwheel.store.port import JOURNAL_PAGE, PAGE_MARK, CellKey, Fenced
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    RANGES,
    SPLIT,
    Owner,
    StoreFactory,
    at_once,
    cell,
    expect,
    expect_equal,
    job_spec,
    opened,
)
from windowing.time_domain import TimeDomain

_HIGH_KEYS = RANGES[1]
#: Far more than any store answers before a takeover that is already under way.
_READS_MAX = 20_000


def check_cells_are_read_by_their_keys(connect: StoreFactory) -> None:
    """Cells that exist are read, of several ranges at once, as the last commit has left them."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    ends = [0, RANGES[0].high - 1, _HIGH_KEYS.low, KEY_SPACE_END - 1]
    large = b"x" * 100_000
    owner.commit(cells=[*(cell(b"k", large, each) for each in ends), cell(b"gone", b"1", 0)])
    owner.commit(cells=[cell(b"k", b"", 0), cell(b"gone", None, 0), cell(b"k\x00", b"0", 0)])
    tokens = {range_id: taken.row.token for range_id, taken in owner.taken.items()}

    def read(*keys: CellKey, computation: str = "count") -> object:
        return store.read_cells(JOB, computation, tokens, keys)

    expect_equal(read(), {}, "no cells")
    expect_equal(read((0, b"gone"), (1, b"k"), (0, b"")), {}, "cells that are not there")
    expected = {(0, b"k"): b"", (0, b"k\x00"): b"0"} | {(each, b"k"): large for each in ends[1:]}
    expect_equal(read(*expected, (5, b"k"), (0, b"k")), expected, "cells that are there")
    expect_equal(read((0, b"k"), computation="read"), {}, "the cell of another computation")


def check_pages_are_all_cells_in_order(connect: StoreFactory) -> None:
    """Pages have the cells of one range, by hash from any hash on; the cells of one hash are on one page."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH, SPLIT)
    low, high = _HIGH_KEYS.low, KEY_SPACE_END - 1
    hashes = [low, low, low + 1, low + 7, low + 7, low + 7, high, high]
    cells = [cell(b"%d" % index, b"v", each) for index, each in enumerate(hashes)]
    owner.commit(cells=[*reversed(cells), cell(b"below", b"v", low - 1)])
    tokens = {range_id: taken.row.token for range_id, taken in owner.taken.items()}
    for first_hash, count, expected in (
        (0, 100, range(8)),
        (0, 1, range(2)),
        (low, 2, range(2)),
        (low, 3, range(3)),
        (low + 1, 2, range(2, 6)),
        (low + 2, 1, range(3, 6)),
        (low + 8, 1, range(6, 8)),
        (high, 1, range(6, 8)),
    ):
        page = store.read_cell_page(JOB, HIGH, tokens[HIGH], first_hash, count)
        expect(not isinstance(page, Fenced), "the owner cannot read")
        found = [] if isinstance(page, Fenced) else list(page)
        wanted = [(hashes[index], b"%d" % index) for index in expected]
        expect_equal(sorted(found), wanted, f"a page of {count} from {first_hash:#x}")
        expect_equal([key[0] for key in found], [key[0] for key in wanted], "its order")
    empty = store.read_cell_page(JOB, LOW, tokens[LOW], low, 10)
    expect_equal(empty, {}, "a page of a range that ends before")
    empty = store.read_cell_page(JOB, SPLIT, tokens[SPLIT], 0, 10)
    expect_equal(empty, {}, "a page of a source split")


def check_pages_of_state_are_read_by_their_keys_alone(connect: StoreFactory) -> None:
    """There may be any number of pages for one hash, so they are no part of what is read by hash; keys find them."""
    store = opened(connect)
    owner = Owner(store, LOW)
    pages = {(hashed, PAGE_MARK + b"%d" % number): b"p" for hashed in (7, 8) for number in (1, 2)}
    # Windows before 1970 have keys that begin with 255.
    others = {(7, b"k"): b"v", (7, b"\xff" + PAGE_MARK): b"w", (9, b"k"): b"v"}
    owner.commit(cells=[cell(key, value, at) for (at, key), value in (pages | others).items()])
    tokens = {LOW: owner.taken[LOW].row.token}
    for first_hash, count, expected in ((0, 10, {7, 9}), (7, 1, {7}), (8, 1, {9})):
        page = store.read_cell_page(JOB, LOW, tokens[LOW], first_hash, count)
        wanted = {key: value for key, value in others.items() if key[0] in expected}
        expect_equal(page, wanted, f"cells from hash {first_hash} on")
    found = store.read_cells(JOB, "count", tokens, [*pages, (7, PAGE_MARK + b"3")])
    expect_equal(found, pages, "pages that were asked for")
    expect_equal(store.statistics(JOB)["cells"], len(pages) + len(others), "number of cells")
    owner.commit(cells=[cell(key, None, at) for at, key in pages])
    expect_equal(store.statistics(JOB)["cells"], len(others), "number of cells without pages")


def check_a_former_owner_reads_nothing(connect: StoreFactory) -> None:
    """A former owner of one of its ranges sees nothing that the new owner has written, nor anything of a new job."""
    store = opened(connect)
    zombie = Owner(store, LOW, HIGH)
    zombie.commit(cells=[cell(b"k", b"old"), cell(b"k", b"old", _HIGH_KEYS.low)])
    tokens = {range_id: taken.row.token for range_id, taken in zombie.taken.items()}
    successor = Owner(connect(), LOW)

    def expect_fenced(when: str) -> None:
        keys = [(_HIGH_KEYS.low, b"k"), (7, b"k")]
        found = store.read_cells(JOB, "count", tokens, keys)
        expect(isinstance(found, Fenced), f"a former owner reads {found!r} {when}")
        page = store.read_cell_page(JOB, LOW, tokens[LOW], 0, 10)
        expect_equal(page, Fenced(LOW), f"a page for a former owner {when}")

    expect_fenced("before its successor has committed")
    successor.commit(cells=[cell(b"k", b"new")])
    expect_fenced("afterwards")
    expect_equal(zombie.cells(HIGH), {(_HIGH_KEYS.low, b"k"): b"old"}, "what it still owns")
    connect().reset_job(JOB)
    expect_fenced("of a job that is not there")
    connect().open_job(job_spec())
    expect_fenced("of a new job")


def check_owners_that_change_while_one_reads(connect: StoreFactory) -> None:
    """Tokens and cells are as of one instant: what is answered at all is older than the new owner's first commit."""
    reader, writer = opened(connect), connect()
    for number in range(8):
        owner = Owner(reader, LOW)
        owner.commit(cells=[cell(b"k", b"%d" % number)])
        tokens = {LOW: owner.taken[LOW].row.token}
        is_busy = threading.Event()

        def read(
            tokens: dict[RangeId, int] = tokens, is_busy: threading.Event = is_busy
        ) -> set[bytes]:
            seen: set[bytes] = set()
            for _ in range(_READS_MAX):
                found = reader.read_cells(JOB, "count", tokens, [(7, b"k")])
                is_busy.set()
                if isinstance(found, Fenced):
                    break
                seen.update(found.values())
            return seen

        def take(is_busy: threading.Event = is_busy) -> None:
            is_busy.wait(10)
            Owner(writer, LOW).commit(cells=[cell(b"k", b"new")])

        seen, _ = at_once([read, take])
        expect_equal(seen, {b"%d" % number}, "what the former owner has read")


def check_a_key_is_read_by_anybody(connect: StoreFactory) -> None:
    """Cells and timers of one hash and the journal of its range, without a token, and nobody is fenced by it."""
    store = opened(connect)
    owner = Owner(store, LOW)
    entries = [JournalEntry(LOW, 1, b"%d" % number) for number in range(3)]
    timers = [
        TimerWrite("count", 7, b"k", b"tag", TimeDomain.EVENT, 5),
        TimerWrite("count", 8, b"k", b"tag", TimeDomain.EVENT, 6),
    ]
    owner.commit(
        cells=[cell(b"k", b"v"), cell(PAGE_MARK, b"page"), cell(b"other", b"w", 8)],
        timers=timers,
        journal=entries[:2],
        watermarks_us={LOW: 4},
    )
    owner.commit(journal=entries[2:])
    found = connect().read_key(JOB, "count", 7)
    assert found is not None
    expect_equal((found.range_id, found.watermark_us), (LOW, 4), "the range, and where it is")
    expect_equal(dict(found.cells), {b"k": b"v"}, "cells of the hash")
    shown = [(each.cell_key, each.tag, each.domain, each.fire_us) for each in found.timers]
    expect_equal(shown, [(b"k", b"tag", "event", 5)], "timers of the hash")
    read = [payload for _, payload in connect().read_journal(JOB, LOW)]
    expect_equal(read, [each.payload for each in entries], "the journal")
    expect_equal(list(store.read_journal(JOB, HIGH)), [], "a journal without entries")
    expect_equal(list(store.read_journal("nobody", LOW)), [], "the journal of no job")
    empty = store.read_key(JOB, "count", _HIGH_KEYS.low)
    assert empty is not None
    expect_equal((empty.range_id, dict(empty.cells)), (HIGH, {}), "a key that nobody has")
    expect(store.read_key(JOB, "nobody", 7) is None, "a computation that is not there")
    expect(store.read_key("nobody", "count", 7) is None, "a job that is not there")
    sizes = store.state_sizes(JOB)
    expect_equal(dict(store.state_sizes("nobody")), {}, "the state of no job")
    # Of cells keys and values, pages among them, and of the journal all entries.
    expect_equal(dict(sizes), {LOW: 2 + 5 + 6 + 3, HIGH: 0}, "bytes of state")
    owner.commit(cells=[cell(b"k", None)])


def check_a_journal_is_read_in_pages(connect: StoreFactory) -> None:
    """Each entry once and in order, however many there are and in however many commits, and none that was compacted."""
    store = opened(connect)
    owner = Owner(store, LOW)
    payloads = [b"%d" % number for number in range(2 * JOURNAL_PAGE + 7)]
    for first in (0, 3, JOURNAL_PAGE - 1):
        last = {0: 3, 3: JOURNAL_PAGE - 1}.get(first, len(payloads))
        owner.commit(journal=[JournalEntry(LOW, 1, each) for each in payloads[first:last]])
    found: list[bytes] = []
    page = store.read_journal(JOB, LOW)
    while page and len(found) <= len(payloads):
        expect(len(page) <= JOURNAL_PAGE, f"a page of {len(page)} entries")
        found += [payload for _, payload in page]
        page = store.read_journal(JOB, LOW, page[-1][0])
    expect_equal(found, payloads, "all pages together")


def check_one_moment_is_read(connect: StoreFactory) -> None:
    """What is read together is of one instant, and may be read as usual afterwards."""
    store = opened(connect)
    owner = Owner(store, LOW)
    owner.commit(cells=[cell(b"k", b"1")])
    with store.at_one_moment():
        before = store.read_key(JOB, "count", 7)
        pending, late = store.read_pending(JOB), store.read_late_counts(JOB)
        job = store.read_job(JOB)
        again = store.read_key(JOB, "count", 7)
        expect_equal(list(store.blocked_sessions()), [], "sessions that wait")
        expect(bool(store.version()), "the store does not say what it is")
    expect_equal((dict(pending), dict(late)), ({}, {}), "what is not there")
    expect(job is not None, "the job is not there")
    expect_equal(before, again, "the second look")
    owner.commit(cells=[cell(b"k", b"2")])
    after = store.read_key(JOB, "count", 7)
    assert after is not None
    expect_equal(dict(after.cells), {b"k": b"2"}, "afterwards")
