"""What a backfill leaves to the stream, and how far event time has come for it."""

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.batch.backfill.end import SenderProgress, input_watermark_us
from runners.batch.backfill.left_state import LeftState
from runners.batch.backfill.writer import BackfillWriter
from runners.batch.range_writer import RangeWriter
from runners.core.ground.cells import WindowState
from runners.core.ground.key_codec import KeyCodec
from runners.core.stages.entries import Changes
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.errors import FencedError
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from windowing.time_domain import TimeDomain
from windowing.window import Window


def senders(is_finished: st.SearchStrategy[bool]) -> st.SearchStrategy[list[SenderProgress]]:
    progress = st.builds(SenderProgress, st.integers(0, 99), is_finished)
    return st.lists(progress, min_size=2, max_size=5)


@given(senders(st.just(True)) | senders(st.booleans()))
def test_event_time_waits_for_those_from_whom_more_will_come(
    progress: list[SenderProgress],
) -> None:
    """And where nothing will, it has come as far as it ever was."""
    found_us = input_watermark_us(progress)
    unfinished = [each.watermark_us for each in progress if not each.is_finished]

    if unfinished:
        assert found_us == min(unfinished)
    else:
        assert all(each.watermark_us <= found_us for each in progress)
        assert any(each.watermark_us == found_us for each in progress)


def test_what_was_taken_is_not_left_any_more() -> None:
    """Neither to be written again with the next commit, nor in its size, by which commits are divided."""
    left, window = LeftState("sums", KeyCodec("sums")), Window(0, 10)
    timer = (("a", window), window, TimeDomain.EVENT)
    for _ in range(2):
        left.add(Changes([(("a", window), WindowState())], [(timer, 10)]))
        size_bytes = left.size_bytes
        taken = left.take()

        assert size_bytes > left.size_bytes == 0
        assert [len(taken["cells"]), len(taken["timers"])] == [1, 1]
    assert left.take() == {"cells": [], "timers": []}


@pytest.mark.parametrize("is_live", [False, True])
def test_a_split_that_has_gone_live_is_not_taken_from_the_stream(*, is_live: bool) -> None:
    """An attempt at its backfill may begin when another one has been through for long."""
    store, pipeline = MemoryStore(), df.Pipeline(DirectRunner())
    pipeline | "read" >> df.Create([1]) | df.Map(str)
    (read,) = plan(pipeline.graph()).sources()
    spec = job_spec("job", "batch", plan(pipeline.graph()), splits_desired=1, ranges_per_grouping=1)
    store.open_job(spec)
    range_id = RangeId(read.name, 0)
    if is_live:
        # Committed by a writer that leaves no mark of a backfill, as a stream does.
        with RangeWriter(store, "job", range_id, "live") as writer:
            writer.commit(is_last=False)

    late = BackfillWriter(store, "job", range_id, "late")
    with pytest.raises(FencedError, match="has gone live") if is_live else nullcontext():
        late.__enter__()
