"""Laws of a split that a worker reads: what a step of it is, and what is left of the ids of its records.

However many of its steps become one commit, and however often it is released and taken over.
"""

from collections.abc import Sequence
from itertools import pairwise

import attrs
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.record_ids import record_digest
from dataflow.source import SplitStatus
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed
from runners.millwheel.worker.dedup.seen_ids import COLLECT_PARTS
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.productions import note_durable, note_submitted, production_of
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.source_computation import SourceComputation
from runners.millwheel.worker.worker_step import WorkerStep, merged
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.effort import costly
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, US_PER_SECOND

JOB, RANGE = "job", RangeId("read", 0)
SLACK_S = 16
#: Ids are deleted when the horizon has moved by so much.
COLLECTED_US = SLACK_S * US_PER_SECOND // COLLECT_PARTS


@attrs.frozen
class Turn:
    """A batch of (id, seconds) and the watermark behind it in seconds; and what happens when it has been read."""

    records: Sequence[tuple[int, int]]
    watermark_s: int
    is_idle: bool = False
    is_committed: bool = True
    is_taken_over: bool = False

    def batch(self) -> Batch:
        return Batch(
            list(self.records),
            [at * US_PER_SECOND for _, at in self.records],
            self.watermark_s * US_PER_SECOND,
            SplitStatus.IDLE if self.is_idle else SplitStatus.ACTIVE,
        )


TURNS = st.lists(
    st.builds(
        Turn,
        records=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=4),
        watermark_s=st.integers(0, 60),
        is_idle=st.booleans(),
        is_committed=st.booleans(),
        is_taken_over=st.booleans(),
    ),
    max_size=8,
)


class Split:
    """A split of a script, the worker that reads it, and the store."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        pipeline = df.Pipeline(DirectRunner())
        record_ids = df.RecordIds(of=lambda record: record[0], slack=SLACK_S, expected_ids=2)
        source = ScriptedSource([turn.batch() for turn in turns])
        (
            pipeline
            | "read" >> df.Read(source, record_ids=record_ids)
            | df.WindowInto(df.FixedWindows(60), accumulation_mode=df.AccumulationMode.DISCARDING)
            | "group" >> df.GroupByKey()
        )
        self._plan, self.store = plan(pipeline.graph()), MemoryStore()
        spec = job_spec(JOB, "streaming", self._plan, splits_desired=1, ranges_per_grouping=1)
        self.store.open_job(spec)
        keys = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
        self._router = Router(self._plan)
        self._router.follow(Routing(number=1, keys=keys))
        self._waiting = list[WorkerStep]()
        self.horizons_us = list[int]()
        self.take()

    def take(self) -> None:
        """What a worker does that has read nothing of it."""
        stage = self._plan.stages["read"]
        self.computation = SourceComputation(
            JOB, self._plan, stage, self._router, self.store, tries=None
        )
        (taken,) = self.store.acquire(JOB, [RANGE], "somebody").values()
        self.owned: OwnedRange = self.computation.take(taken)
        self.horizons_us.clear()

    def release(self) -> None:
        self.computation.release(RANGE)
        assert self.computation.id_counts.kept == 0, "a filter of what is another worker's"

    def add(self, step: WorkerStep) -> None:
        self._waiting.append(step.seal())
        self.horizons_us += step.horizons_us.values()

    def commit(self) -> None:
        if self._waiting:
            step = merged(self._waiting)
            assert self.store.commit(production_of(JOB, step, {})) == Committed()
            note_submitted(step)
            note_durable(step)
            self._waiting.clear()

    @property
    def ids(self) -> dict[bytes, int]:
        """The ids that the store has, with their times."""
        return dict(self.store.read_record_ids(JOB, RANGE, b"", 1_000))

    @property
    def ids_in_memory_alone(self) -> int:
        seen = self.computation._splits[RANGE].seen
        assert seen is not None
        return len(seen._uncommitted)


def check_what_is_kept(split: Split, seen_us: dict[int, int]) -> None:
    """Of all ids that have counted those that a record may still have, and none for much longer."""
    ids, watermark_us = split.ids, split.owned.watermark_us
    horizon_us = watermark_us - SLACK_S * US_PER_SECOND
    needed = {record_digest(each): at for each, at in seen_us.items() if at >= horizon_us}
    assert needed.items() <= ids.items()
    assert all(at >= horizon_us - COLLECTED_US for at in ids.values())
    steps_us = [after - before for before, after in pairwise(split.horizons_us)]
    assert all(each >= COLLECTED_US for each in steps_us), "ids are deleted some at a time"
    assert split.ids_in_memory_alone == 0


@costly()
@given(turns=TURNS, is_ended=st.booleans())
@example(turns=[Turn([], 5), Turn([], 5), Turn([], 6)], is_ended=False)
@example(turns=[Turn([(1, 0)], 1), Turn([(2, 50)], 50)], is_ended=True)
@example(turns=[Turn([(1, 0)], 1, is_idle=True)], is_ended=True)
def test_what_a_split_has_read_and_keeps_agrees_with_its_watermark(
    turns: list[Turn], is_ended: bool
) -> None:
    """Read to its end, or ended where it is: nothing is left of it then but its position."""
    split = Split(turns)
    seen_us: dict[int, int] = {}
    watermark_us = MIN_TIMESTAMP_US
    for turn in turns:
        before_us = watermark_us
        watermark_us = max(watermark_us, turn.watermark_s * US_PER_SECOND)
        step, count = split.computation.read(RANGE, 10, now_us=0)

        assert (step is not None) == bool(turn.records or watermark_us > before_us)
        assert count == len(turn.records)
        assert split.owned.is_idle is turn.is_idle
        assert split.owned.watermark_us == watermark_us
        horizon_us = before_us - SLACK_S * US_PER_SECOND
        for record_id, at_s in turn.records:
            at_us = at_s * US_PER_SECOND
            if at_us >= horizon_us:
                first_us = seen_us.setdefault(record_id, at_us)
                if first_us < horizon_us:
                    # Its id may be deleted, or not yet: from here on nobody asks for it.
                    seen_us[record_id] = MIN_TIMESTAMP_US
        if step is not None:
            split.add(step)
        # A batch without any news has no position: the next owner would read it again.
        is_taken_over = turn.is_taken_over and step is not None
        if turn.is_committed or is_taken_over:
            split.commit()
            check_what_is_kept(split, seen_us)
        if is_taken_over:
            split.release()
            split.take()
    if is_ended:
        last = split.computation.end(RANGE)
    else:
        read, _ = split.computation.read(RANGE, 10, now_us=0)
        assert read is not None
        last = read
    split.add(last)
    split.commit()

    assert (MAX_TIMESTAMP_US, False) == (split.owned.watermark_us, split.owned.is_idle)
    assert last.finished == {RANGE}
    assert not split.computation.unfinished()
    assert not split.ids
    assert split.ids_in_memory_alone == split.computation.id_counts.kept == 0
    split.release()
    split.take()
    assert not split.computation.unfinished(), "whoever takes it over reads nothing of it again"
    assert split.owned.watermark_us == MAX_TIMESTAMP_US
