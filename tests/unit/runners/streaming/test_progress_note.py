"""What the progress bar of a stream shows beside its count."""

import attrs

import dataflow as df
from runners.millwheel.master.slots import MasterStatistics
from runners.millwheel.model.counts import CacheCounts, IdCounts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.troubles import Trouble, TroubleKind
from runners.streaming.job_thread import _note
from windowing.timestamps import MIN_TIMESTAMP_US

NOW_US = 1_700_000_000_000_000


def statistics() -> MasterStatistics:
    """The statistics of a job that has not begun."""
    return MasterStatistics(
        records_read=0,
        records_late=0,
        records_dead=0,
        stragglers=0,
        record_ids=IdCounts(),
        cell_cache=CacheCounts(),
        loads={},
        workers_ready=0,
        workers_replaced=0,
        watermark_us=MIN_TIMESTAMP_US,
    )


def test_workers_that_are_not_there_are_missed() -> None:
    """A stream that asked for more workers than there are cores waits, and shows for what."""
    none = statistics()

    assert _note(none, 2, now_us=NOW_US) == "workers are starting"
    assert _note(attrs.evolve(none, workers_ready=1), 2, now_us=NOW_US) == "1 of 2 workers"
    assert _note(attrs.evolve(none, workers_ready=2), 2, now_us=NOW_US) == ""


def test_how_far_the_watermark_is_behind_the_clock() -> None:
    running = attrs.evolve(statistics(), workers_ready=2, watermark_us=NOW_US - 200_000_000)

    assert _note(running, 2, now_us=NOW_US) == ("watermark 2023-11-14 22:10, 3 minutes behind")


def test_what_is_still_to_be_read_is_added_up() -> None:
    """Over the splits that know it; nothing is shown where nothing is left, or nobody knows."""

    def note(*backlogs: df.Backlog | None) -> str:
        splits = {
            RangeId("read", index): SplitPoll(polled_us=NOW_US, backlog=backlog)
            for index, backlog in enumerate(backlogs)
        }
        return _note(attrs.evolve(statistics(), workers_ready=2, splits=splits), 2, now_us=NOW_US)

    assert note(None, df.Backlog(records=0, size_bytes=0, age_us=5)) == ""
    assert note(df.Backlog(records=999), None, df.Backlog(records=1)) == (
        "1,000 records still to read"
    )
    assert note(df.Backlog(size_bytes=1), df.Backlog(records=7), df.Backlog(size_bytes=2_000)) == (
        "7 records and 3 kB still to read"
    )


def test_the_last_reason_for_which_a_worker_ended_or_waits_is_in_the_line() -> None:
    """Its first line, not too much of it, and how often there has been such a one."""
    trouble = Trouble(
        kind=TroubleKind.DEATH, place="sum[0]", reason="x" * 500 + "\nthe rest", count=3
    )
    note = _note(statistics(), 2, trouble, now_us=NOW_US)

    assert "last death at sum[0]: " in note
    assert note.endswith("xxx... (3 times)")
    assert "the rest" not in note
    assert len(note) < 250
