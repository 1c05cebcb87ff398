"""Checks of cells, timers and progress: what a range keeps."""

from runners.millwheel.model.key_range import KEY_SPACE_END
from runners.millwheel.model.production import TimerWrite
from runners.millwheel.store.port import StoredTimer
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    RANGES,
    SPLIT,
    Owner,
    StoreFactory,
    cell,
    cells_of,
    expect_equal,
    opened,
    take_over,
)


def check_cells(connect: StoreFactory) -> None:
    """Cells are written blindly, overwritten, deleted, and found again by range."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    ends = [0, 1, RANGES[0].high - 1, RANGES[1].low, KEY_SPACE_END - 1]
    values = [b"", b"\x00\xff", b"x" * 100_000, b"d", b"e"]
    cells = [cell(b"k\x00", v, h) for h, v in zip(ends, values, strict=True)]
    owner.commit(cells=[*cells, cell(b"gone", b"1"), cell(b"twice", b"1"), cell(b"twice", b"2")])
    owner.commit(cells=[cell(b"gone", None), cell(b"never was", None), cell(b"k\x00", b"B", 1)])
    owner.commit(cells=[cell(b"again", b"1"), cell(b"again", None), cell(b"twice", b"3")])
    expected = {
        LOW: {
            (0, b"k\x00"): b"",
            (1, b"k\x00"): b"B",
            (ends[2], b"k\x00"): values[2],
            (7, b"twice"): b"3",
        },
        HIGH: {(ends[3], b"k\x00"): b"d", (ends[4], b"k\x00"): b"e"},
    }
    for range_id, cells_expected in expected.items():
        expect_equal(cells_of(store, range_id), cells_expected, f"cells of {range_id}")
    expect_equal(store.statistics(JOB)["cells"], 6, "number of cells")


def check_timers(connect: StoreFactory) -> None:
    """Timers are set, moved and deleted per cell, tag and domain."""
    store = opened(connect)
    owner = Owner(store, LOW)

    def timer(tag: bytes, fire_us: int | None, domain: str = "event") -> TimerWrite:
        return TimerWrite("count", 7, b"k", tag, domain, fire_us)

    owner.commit(timers=[timer(b"w1", 10), timer(b"w1", 11, "processing"), timer(b"w2", -5)])
    owner.commit(timers=[timer(b"w1", 12, "percentile")])
    owner.commit(timers=[timer(b"w1", 20), timer(b"w2", None), timer(b"w3", None)])
    owner.commit(timers=[timer(b"w4", 1), timer(b"w4", None), timer(b"w5", None), timer(b"w5", 2)])
    expected = [
        (b"w1", "event", 20),
        (b"w1", "percentile", 12),
        (b"w1", "processing", 11),
        (b"w5", "event", 2),
    ]
    timers = sorted(take_over(store).timers, key=lambda stored: (stored.tag, stored.domain))
    for stored, (tag, domain, fire_us) in zip(timers, expected, strict=True):
        wanted = StoredTimer(key_hash=7, cell_key=b"k", tag=tag, domain=domain, fire_us=fire_us)
        expect_equal(stored, wanted, "a timer")
    expect_equal(list(take_over(store, HIGH).timers), [], "timers of the other range")
    expect_equal(store.statistics(JOB)["timers"], 4, "number of timers")


def check_progress(connect: StoreFactory) -> None:
    """Positions are replaced, watermarks only advance, and finished stays finished."""
    store = opened(connect)
    owner = Owner(store, SPLIT, LOW)
    owner.commit(positions={SPLIT: b"1"}, watermarks_us={SPLIT: -50, LOW: 10})
    owner.commit(positions={SPLIT: b""}, watermarks_us={SPLIT: 60, LOW: 5})
    owner.commit(finished=frozenset({SPLIT}))
    owner.commit()
    job = connect().read_job(JOB)
    assert job is not None
    split, low = job.ranges[SPLIT], job.ranges[LOW]
    state = (split.position, split.watermark_us, split.is_finished, split.bundle)
    expect_equal(state, (b"", 60, True, 4), "the split")
    expect_equal((low.watermark_us, low.is_finished), (10, False), "the key range")
    expect_equal(take_over(store, SPLIT).row.position, b"", "position at takeover")
    expect_equal(store.statistics(JOB)["open_ranges"], 2, "ranges not finished")


def check_watermarks_of_firings(connect: StoreFactory) -> None:
    """The watermark by which a range is firing is kept beside the watermark, advances only, and is unknown at first."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    owner.commit(watermarks_us={LOW: 5, HIGH: 5})
    row = take_over(store, LOW).row
    expect_equal((row.firing_us, row.input_watermark_us), (None, 5), "before there is one")
    owner = Owner(store, LOW, HIGH)
    for firing_us, known_us in ((-3, -3), (20, 20), (0, 20)):
        owner.commit(firing_us={LOW: firing_us})
        job = store.read_job(JOB)
        assert job is not None
        expect_equal(job.ranges[LOW].firing_us, known_us, "the watermark of the firing")
    row = take_over(store, LOW).row
    expect_equal(
        (row.firing_us, row.watermark_us, row.input_watermark_us), (20, 5, 20), "at takeover"
    )
    expect_equal(take_over(store, HIGH).row.firing_us, None, "that of the other range")
    Owner(store, LOW).commit(watermarks_us={LOW: 30})
    expect_equal(take_over(store, LOW).row.input_watermark_us, 30, "when all has fired")


def check_percentile_watermarks(connect: StoreFactory) -> None:
    """A percentile watermark is kept beside the watermark, advances only, and is unknown at first."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    owner.commit(watermarks_us={LOW: 5, HIGH: 5})
    expect_equal(take_over(store, LOW).row.percentile_us, None, "before there is one")
    owner = Owner(store, LOW, HIGH)
    for output_watermark_us, known_us in ((-3, -3), (20, 20), (0, 20)):
        owner.commit(percentiles_us={LOW: output_watermark_us})
        job = store.read_job(JOB)
        assert job is not None
        expect_equal(job.ranges[LOW].percentile_us, known_us, "the percentile watermark")
    row = take_over(store, LOW).row
    expect_equal((row.percentile_us, row.watermark_us), (20, 5), "both at takeover")
    expect_equal(take_over(store, HIGH).row.percentile_us, None, "that of the other range")
