"""Laws of a split whose watermark goes on without records, as one by arrival does: few commits, never far behind."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.source import SplitStatus
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.source_computation import (
    WATERMARK_INTERVAL_MAX_US,
    SourceComputation,
)
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.effort import costly

RANGE = RangeId("read", 0)
BEGAN_US = 1_795_000_000_000_000
#: From one poll to the next in microseconds, and whether there is a record.
POLLS = st.lists(
    st.tuples(st.sampled_from([1, 50, 1_000, 5_000, 20_000, 300_000]), st.booleans()),
    min_size=1,
    max_size=60,
)


def taken(script: Sequence[Batch]) -> SourceComputation:
    """A source computation that has just taken over the split of a script."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Read(ScriptedSource(script))
        | df.WindowInto(df.FixedWindows(1))
        | "group" >> df.GroupByKey()
    )
    planned, store = plan(pipeline.graph()), MemoryStore()
    spec = job_spec("job", "streaming", planned, splits_desired=1, ranges_per_grouping=1)
    store.open_job(spec)
    router = Router(planned)
    keys = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
    router.follow(Routing(number=1, keys=keys))
    computation = SourceComputation(
        "job", planned, planned.stages["read"], router, store, tries=None
    )
    (found,) = store.acquire("job", [RANGE], "somebody").values()
    computation.take(found)
    return computation


def polled(times_us: Sequence[int], with_record: Sequence[bool]) -> list[tuple[int, bool]]:
    """Poll a split: for each poll by how much its watermark is behind the clock, in us, and whether it was a step.

    The watermark of the reader is the clock, and that of the split what is committed.
    """
    script = [
        Batch([("key", 1)] * has, [at_us] * has, at_us, SplitStatus.IDLE)
        for at_us, has in zip(times_us, with_record, strict=True)
    ]
    computation, found = taken(script), []
    (owned,) = computation.unfinished()
    for at_us in times_us:
        step, _ = computation.read(RANGE, 10, now_us=at_us)
        found.append((at_us - owned.watermark_us, step is not None))
    return found


@costly()
@given(polls=POLLS)
@example(polls=[(1, True), (8, False), (8, False)])
def test_it_is_behind_by_an_eighth_of_the_idle_time_at_most(polls: list[tuple[int, bool]]) -> None:
    """Also after an idle time of any length, and never by more than a limit; a record moves it at once."""
    times_us, at_us = list[int](), BEGAN_US
    for gap_us, _ in polls:
        at_us += gap_us
        times_us.append(at_us)
    read_us = None
    for at_us, (_, has_record), (behind_us, is_step) in zip(
        times_us, polls, polled(times_us, [has for _, has in polls]), strict=True
    ):
        read_us = at_us if has_record else read_us
        assert is_step or not has_record
        idle_us = WATERMARK_INTERVAL_MAX_US * 8 if read_us is None else at_us - read_us
        assert behind_us < max(1, min(WATERMARK_INTERVAL_MAX_US, idle_us // 8))
        assert is_step == (behind_us == 0)


@pytest.mark.slow
def test_an_idle_split_makes_few_steps() -> None:
    """Polled each millisecond for ten seconds: fifty steps a second, and some more at first."""
    polls = 10_000
    found = polled([BEGAN_US + 1_000 * n for n in range(polls)], [n == 0 for n in range(polls)])

    steps = sum(is_step for _, is_step in found)
    assert 450 <= steps <= 550


def test_it_goes_on_when_the_clock_is_put_back() -> None:
    """By the clock before it, the next step would be due in an hour."""
    hour_us = 3_600_000_000
    times_us = [BEGAN_US, BEGAN_US + hour_us, BEGAN_US + 1_000]
    script = [Batch([], [], BEGAN_US + number, SplitStatus.IDLE) for number in range(len(times_us))]
    computation = taken(script)

    assert all(computation.read(RANGE, 10, now_us=at_us)[0] for at_us in times_us)
