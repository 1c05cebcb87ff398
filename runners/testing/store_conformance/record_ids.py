"""Checks of record ids: by which a range knows what it has read before."""

from functools import partial

import attrs

from runners.errors import StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import Fenced
from runners.testing.store_conformance.world import (
    JOB,
    LOW,
    SPLIT,
    Owner,
    StoreFactory,
    expect_equal,
    expect_error,
    job_spec,
    opened,
)

#: Digests in their order, with bytes that a text or a signed number would not survive.
IDS = [bytes([first]) + bytes(14) + bytes([255]) for first in (0, 1, 127, 128, 200, 255)]


def check_record_ids(connect: StoreFactory) -> None:
    """Ids that were committed are known, to every reader and after a takeover; others are not."""
    store = opened(connect)
    owner = Owner(store, SPLIT)
    expect_equal(set(store.known_record_ids(JOB, SPLIT, IDS)), set(), "ids of a new range")
    owner.commit(record_ids={SPLIT: [(IDS[0], 5), (IDS[3], -5)]}, positions={SPLIT: b"1"})
    owner.commit(record_ids={SPLIT: [(IDS[5], 1 << 50)]})
    for reader in (store, connect()):
        known = set(reader.known_record_ids(JOB, SPLIT, IDS))
        expect_equal(known, {IDS[0], IDS[3], IDS[5]}, "known ids")
        expect_equal(set(reader.known_record_ids(JOB, SPLIT, IDS[1:3])), set(), "unknown ids")
    Owner(connect(), SPLIT, name="next")
    expect_equal(set(store.known_record_ids(JOB, SPLIT, IDS[:2])), {IDS[0]}, "after a takeover")
    expect_equal(store.statistics(JOB)["record_ids"], 3, "number of record ids")


def check_record_ids_in_pages(connect: StoreFactory) -> None:
    """They come in the order of their digests, each once, with their times."""
    store = opened(connect)
    owner = Owner(store, SPLIT)
    expect_equal(list(store.read_record_ids(JOB, SPLIT, b"", 2)), [], "no ids")
    ids = [(digest, at_us) for at_us, digest in enumerate(IDS, -2)]
    owner.commit(record_ids={SPLIT: ids[::-1]})
    for size in (1, 2, 4, 6, 100):
        found: list[tuple[bytes, int]] = []
        while page := store.read_record_ids(JOB, SPLIT, found[-1][0] if found else b"", size):
            expect_equal(len(page), min(size, len(ids) - len(found)), "size of a page")
            found += page
        expect_equal(found, ids, f"ids in pages of {size}")


def check_record_ids_behind_the_horizon(connect: StoreFactory) -> None:
    """Ids with an earlier time go, those at the horizon stay; also those of the same commit."""
    store = opened(connect)
    owner = Owner(store, SPLIT, LOW)
    owner.commit(record_ids={SPLIT: list(zip(IDS, range(6), strict=True)), LOW: [(IDS[0], 0)]})
    owner.commit(record_id_horizons_us={SPLIT: 2})
    expect_equal(set(store.known_record_ids(JOB, SPLIT, IDS)), set(IDS[2:]), "after a horizon")
    owner.commit(record_ids={SPLIT: [(IDS[0], 3), (IDS[1], 9)]}, record_id_horizons_us={SPLIT: 4})
    kept = {IDS[1], IDS[4], IDS[5]}
    expect_equal(set(store.known_record_ids(JOB, SPLIT, IDS)), kept, "ids of the same commit")
    owner.commit(record_id_horizons_us={SPLIT: -7})
    expect_equal(store.statistics(JOB)["record_ids"], 4, "after a horizon that went back")
    expect_equal(set(store.known_record_ids(JOB, LOW, IDS)), {IDS[0]}, "ids of another range")
    owner.commit(record_id_horizons_us={SPLIT: 1 << 60})
    expect_equal(list(store.read_record_ids(JOB, SPLIT, b"", 9)), [], "after the end")


def check_record_ids_of_zombies(connect: StoreFactory) -> None:
    """An owner that has lost a range neither adds ids nor deletes any."""
    store = opened(connect)
    owner = Owner(store, SPLIT)
    owner.commit(record_ids={SPLIT: [(IDS[0], 0)]})
    Owner(connect(), SPLIT, name="thief").commit()
    for parts in ({"record_ids": {SPLIT: [(IDS[1], 1)]}}, {"record_id_horizons_us": {SPLIT: 9}}):
        expect_equal(store.commit(owner.production(**parts)), Fenced(SPLIT), "a zombie's commit")
    expect_equal(set(store.known_record_ids(JOB, SPLIT, IDS)), {IDS[0]}, "ids after a zombie")
    stranger = Owner(store, LOW)
    for parts in ({"record_ids": {SPLIT: [(IDS[1], 1)]}}, {"record_id_horizons_us": {SPLIT: 9}}):
        production = stranger.production(**parts)
        expect_error(StoreError, partial(store.commit, production), "ids outside of the fences")


def check_record_ids_are_forgotten_with_their_job(connect: StoreFactory) -> None:
    """There are no ids of another job, of an unknown one, or of one that was reset; also for former readers."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("second"), tables=[]))
    Owner(store, SPLIT).commit(record_ids={SPLIT: [(IDS[0], 0)]})
    for job, range_id in (("second", SPLIT), ("nobody", SPLIT), (JOB, RangeId("read", 9))):
        expect_equal(set(store.known_record_ids(job, range_id, IDS)), set(), f"{range_id} of {job}")
        expect_equal(list(store.read_record_ids(job, range_id, b"", 9)), [], f"page of {job}")
    connect().reset_job(JOB)
    expect_equal(set(store.known_record_ids(JOB, SPLIT, IDS)), set(), "after a reset")
    expect_equal(list(store.read_record_ids(JOB, SPLIT, b"", 9)), [], "a page after a reset")
    store.open_job(job_spec())
    expect_equal(store.statistics(JOB)["record_ids"], 0, "of the new job")
    Owner(store, SPLIT).commit(record_ids={SPLIT: [(IDS[1], 0)]})
    expect_equal(set(store.known_record_ids(JOB, SPLIT, IDS)), {IDS[1]}, "of the new job")
