"""What the store has of a backfill: begun, half, loaded, live; and what may be done with it then."""

from collections.abc import Iterator

import pytest

import dataflow as df
from runners.batch.backfill.backfill import check_continuable
from runners.batch.backfill.settings import backfill_settings
from runners.batch.range_task import RangeTask
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.errors import BackfillError, FencedError, UnrepeatableError
from runners.millwheel.control.backfill_progress import (
    BackfillState,
    backfill_state,
    begun,
    check_backfill_is_whole,
    check_may_be_loaded,
    go_live,
)
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobRow
from runners.stored.framing import kind_of
from runners.stored.runs import SENT
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.backfill_jobs import LocalBackfill

SCRIPT = [Batch([("a", number)], [number], number) for number in range(4)]


def graph_of(script: list[Batch]) -> df.Pipeline:
    p = df.Pipeline(DirectRunner())
    (
        p
        | "read" >> df.Read(ScriptedSource(script))
        | "windows" >> df.WindowInto(df.FixedWindows(60))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("sums", columns={"key": str, "total": int})
    )
    return p


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def opened(store: MemoryStore, script: list[Batch] = SCRIPT) -> JobRow:
    execution = plan(graph_of(script).graph())
    return store.open_job(
        job_spec("sim", "streaming", execution, splits_desired=2, ranges_per_grouping=3)
    )


def task(store: MemoryStore, script: list[Batch], range_id: RangeId, owner: str) -> RangeTask:
    execution = plan(graph_of(script).graph())
    job = opened(store, script)
    backfill = backfill_settings(execution, job, until_us=None, now_us=7, tries=None)
    return RangeTask(backfill, execution, range_id, lambda: store, owner)


def read_source(store: MemoryStore, script: list[Batch] = SCRIPT) -> JobRow:
    source = RangeId("read", 0)
    split = opened(store, script).ranges[source].split
    assert split is not None
    list(task(store, script, source, "reader").read_split(split))
    return opened(store, script)


def test_a_job_that_nobody_has_begun_may_be_loaded_and_may_be_run(store: MemoryStore) -> None:
    job = opened(store)

    assert backfill_state(job) is BackfillState.NONE
    check_may_be_loaded(job)
    check_backfill_is_whole(job)


def test_half_a_backfill_is_continued_and_not_run(store: MemoryStore) -> None:
    job = read_source(store)

    assert backfill_state(job) is BackfillState.HALF
    check_may_be_loaded(job)
    with pytest.raises(BackfillError, match=r"only in part.*\n.*1 of 4 ranges") as caught:
        check_backfill_is_whole(job)
    assert "fresh=True" in str(caught.value)
    mark = begun(job)
    assert mark is not None
    assert (mark.records, mark.now_us, mark.is_end) == (4, 7, True)


def test_it_does_not_go_live_before_it_is_whole(store: MemoryStore) -> None:
    job = read_source(store)

    with pytest.raises(BackfillError, match=r"not complete.*\n.*sum\[0\], sum\[1\], sum\[2\]"):
        go_live(store, "sim")
    assert opened(store).ranges == job.ranges


def test_what_is_loaded_is_run_and_not_loaded_again(store: MemoryStore) -> None:
    LocalBackfill(graph_of(SCRIPT).graph(), store, 1, until_us=None).run()
    job = opened(store)

    assert backfill_state(job) is BackfillState.LOADED
    check_backfill_is_whole(job)
    source = store.acquire("sim", [RangeId("read", 0)], "a worker")[RangeId("read", 0)].row
    job = opened(store)
    assert backfill_state(job) is BackfillState.LIVE
    with pytest.raises(BackfillError, match=r"has gone live.*\n.*read\[0\]"):
        check_may_be_loaded(job)
    assert source.is_finished


def test_a_stream_that_has_committed_is_live(store: MemoryStore) -> None:
    opened(store)
    row = store.acquire("sim", [RangeId("sum", 0)], "a worker")[RangeId("sum", 0)].row
    fence = Fence(range_id=row.range_id, token=row.token, bundle=1)
    store.commit(Production(job="sim", fences=[fence], watermarks_us={row.range_id: 3}))

    assert backfill_state(opened(store)) is BackfillState.LIVE


def test_an_attempt_that_comes_second_with_another_end_is_given_up(store: MemoryStore) -> None:
    """Whoever gets what it sent would have other records than those who got the first one's."""
    source = RangeId("read", 0)
    split = opened(store).ranges[source].split
    assert split is not None
    shorter = task(store, SCRIPT[:2], source, "second")
    # Its backfill is that of the same job, in which there was less to read then.
    attempt: Iterator[object] = shorter.read_split(split)
    sent = next(attempt)
    assert isinstance(sent, tuple)
    assert kind_of(sent[1]) == SENT
    read_source(store)

    with pytest.raises(UnrepeatableError, match="up to 2 records and to 4"):
        list(attempt)


def test_what_rolls_dice_is_not_continued(store: MemoryStore) -> None:
    @df.nondeterministic
    def rolled(value: int) -> int:
        return value

    p = graph_of(SCRIPT)
    p | "more" >> df.Create([1]) | "roll" >> df.Map(rolled)

    with pytest.raises(BackfillError, match=r"cannot be continued.*\n.*'roll'"):
        check_continuable(p.graph(), read_source(store))
    check_continuable(graph_of(SCRIPT).graph(), read_source(store))


def test_a_late_attempt_changes_nothing_of_a_job_that_is_loaded(store: MemoryStore) -> None:
    LocalBackfill(graph_of(SCRIPT).graph(), store, 1, until_us=None).run()
    before = opened(store)
    for range_id, row in before.ranges.items():
        late = task(store, SCRIPT, range_id, "late")
        if row.split is not None:
            with pytest.raises(FencedError, match="has gone live"):
                list(late.read_split(row.split))
        else:
            assert not list(late.group([]))
    after = opened(store)

    assert [(each.bundle, each.position) for each in before.ranges.values()] == [
        (each.bundle, each.position) for each in after.ranges.values()
    ]
