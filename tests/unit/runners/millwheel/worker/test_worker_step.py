"""WorkerStep: steps that become one commit leave what they would have left one after the other."""

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataflow.metric_updates import Metric, MetricKind, MetricOf
from dataflow.table import TableSpec, TableWrite
from runners.core.ground.cells import LateArrival
from runners.core.ground.lineage import LineageEntry, LineageKind
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyRange
from runners.millwheel.model.production import (
    CellWrite,
    JournalEntry,
    LateRecord,
    Production,
    Reshape,
    StoredDeadLetter,
    TimerWrite,
)
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.worker.handed_on import HandedOn
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.productions import note_durable, note_submitted, production_of
from runners.millwheel.worker.worker_step import _MERGES, WorkerStep, merged
from runners.stored.metrics import metrics_of
from windowing.window import GLOBAL_WINDOW

JOB = "job"
READ, OTHER, SUM = RangeId("read", 0), RangeId("read", 1), RangeId("sum", 0)
SEEN = MetricOf("read", Metric(MetricKind.COUNTER, "test", "seen"))
TABLE = TableSpec(name="rows", columns={"value": int}, key=("value",))
SPEC = JobSpec(
    job=JOB,
    mode="streaming",
    fingerprint="",
    ranges=[
        RangeSpec(range_id=READ, keys=None, split=b"0"),
        RangeSpec(range_id=OTHER, keys=None, split=b"1"),
        RangeSpec(range_id=SUM, keys=KeyRange(0, KEY_SPACE_END), split=None),
    ],
    tables=[TABLE],
)
PANE = LineageEntry(
    kind=LineageKind.PANE,
    transform="sum",
    key="1",
    key_hash=1,
    window_start_us=0,
    window_end_us=1,
    watermark_us=1,
    now_us=1,
)
#: Everything in a store that a production changes, but for the numbers of commits.
KEPT = (
    "cells",
    "timers",
    "checkpoints",
    "delivered",
    "acknowledged",
    "record_ids",
)


class Owner:
    """Whoever owns the ranges of a job, and what was done as soon as it was durable."""

    def __init__(self) -> None:
        self.store, self.done = MemoryStore(), list[int]()
        self.store.open_job(SPEC)
        taken = self.store.acquire(JOB, [READ, OTHER, SUM], "w")
        self.ranges = {each: OwnedRange.taken(found) for each, found in taken.items()}

    def step_of(self, range_ids: Sequence[RangeId], number: int) -> WorkerStep:
        """A step that does something of every kind; the next one does more of it, and some of it again."""
        parts = [self._part(self.ranges[range_id], number) for range_id in range_ids]
        write = TableWrite(table=TABLE, upserts=[(number,), (0,)])
        sender = self.ranges[min(range_ids)]
        last = WorkerStep(
            tables=(write,),
            checkpoints=sender.send([(SUM, b"%d" % number)], hold_us=number),
            handed_on=(HandedOn("sum", sender, number, number, [], ()),),
            takes_handed_on=True,
            metrics={SEEN: number},
            lineage=(attrs.evolve(PANE, index=number),),
            when_committed=(lambda: self.done.append(number),),
        )
        return merged([*parts, last]).seal()

    def _part(self, owned: OwnedRange, number: int) -> WorkerStep:
        owned.watermark_us, owned.percentile_us = 10 * number, 20 * number
        owned.act_on_signals(SignalMark(number))
        range_id, channel = owned.range_id, Channel(READ, owned.range_id)
        step = WorkerStep(
            ranges={range_id: owned},
            journal=(JournalEntry(range_id, 1, b"journal %d" % number),),
            taken_in={channel: number},
            delivered={channel: number},
            origins={channel: None},
        )
        if owned.keys is None:
            return attrs.evolve(
                step,
                record_ids={range_id: [(bytes([number, each]), each) for each in range(100)]},
                horizons_us={range_id: 10 * number},
                positions={range_id: b"%d" % number},
                finished=frozenset([range_id] if number == 2 else ()),
            )
        names = (b"same", b"of %d" % number)
        return attrs.evolve(
            step,
            cells=tuple(CellWrite("sum", 1, name, b"%d" % number) for name in names),
            timers=tuple(TimerWrite("sum", 1, name, b"", "event", number) for name in names),
        )

    def commit(self, step: WorkerStep) -> Production:
        production = production_of(JOB, step, self.ranges)
        assert self.store.commit(production) == Committed()
        note_submitted(step)
        note_durable(step)
        return production

    @property
    def left(self) -> dict[str, Any]:
        """What is in the store, and in memory."""
        job = self.store._jobs[JOB]
        ours = self.ranges.values()
        return {
            **{name: getattr(job, name) for name in KEPT},
            "cuts": {at: set(cut) for at, cut in job.cuts.items()},
            "journal": {
                at: [each.payload for _, each in found] for at, found in job.journal.items()
            },
            "rows": {at: attrs.evolve(row, bundle=0, token=0) for at, row in job.ranges.items()},
            "table": self.store.read_table(TABLE),
            "done": self.done,
            "lineage": [kept.row.entry for kept in job.lineage],
            "metrics": metrics_of(self.store.read_metrics(JOB)),
            "ours": [(each.delivered, each.signal_mark_committed) for each in ours],
        }


RANGES = st.lists(st.sampled_from([READ, OTHER, SUM]), min_size=1, unique=True)


def put_together(steps: Sequence[WorkerStep], cuts: Sequence[int]) -> WorkerStep:
    """The steps, merged in parts, and these merged in turn; some of the parts have nothing."""
    at = [0, *sorted(cut % (len(steps) + 1) for cut in cuts), len(steps)]
    return merged([merged(steps[begin:end]) for begin, end in itertools.pairwise(at)])


@given(
    touched=st.lists(RANGES, min_size=1, max_size=4), cuts=st.lists(st.integers(0, 9), max_size=4)
)
@example(touched=[[READ], [READ, OTHER, SUM]], cuts=[])
@example(touched=[[READ, OTHER, SUM], [SUM]], cuts=[1])
def test_one_commit_of_several_steps_leaves_what_their_own_commits_leave(
    touched: Sequence[Sequence[RangeId]], cuts: Sequence[int]
) -> None:
    """Whatever the later one knows better, and whatever both have done; only there are fewer bundles."""
    apart, together = Owner(), Owner()
    for number, range_ids in enumerate(touched, start=1):
        apart.commit(apart.step_of(range_ids, number))
    steps = [together.step_of(range_ids, number) for number, range_ids in enumerate(touched, 1)]
    together.commit(put_together(steps, cuts))

    assert together.left == apart.left


@given(touched=st.lists(RANGES, max_size=4), cuts=st.lists(st.integers(0, 9), max_size=4))
def test_merging_is_associative(touched: Sequence[Sequence[RangeId]], cuts: Sequence[int]) -> None:
    """So it does not matter which steps wait together, and which come as one."""
    owner = Owner()
    steps = [owner.step_of(range_ids, number) for number, range_ids in enumerate(touched, 1)]

    assert merged(steps) == put_together(steps, cuts)


def test_a_step_that_does_nothing_changes_nothing() -> None:
    """Before and behind a step of which nothing is left at its default: also of what a later version adds."""
    owner = Owner()
    step = attrs.evolve(
        owner.step_of([READ, SUM], 2),
        compacted={SUM: 1},
        reshape=Reshape(keys={SUM: None}, handover_with=SUM),
        ended_handovers=frozenset([SUM]),
        traces=(b"context",),
        late=(LateRecord.of("sum", LateArrival("k", GLOBAL_WINDOW, [1], 1, 10)),),
        dead=(
            StoredDeadLetter(
                stage="sum", error="E", traceback="", tries=1, timestamp_us=0, payload=b""
            ),
        ),
    )
    nothing = WorkerStep()
    names = [each.name for each in attrs.fields(WorkerStep)]

    assert [] == [name for name in names if getattr(step, name) == getattr(nothing, name)]
    assert merged([step, nothing]) == step == merged([nothing, step])


def test_bounds_are_changed_by_one_step() -> None:
    """Or one of the changes would be lost."""
    reshape = WorkerStep(reshape=Reshape(keys={SUM: None}, handover_with=SUM))
    with pytest.raises(ValueError, match="a commit of its own"):
        merged([reshape, reshape])


def test_a_step_that_waits_to_be_committed_reports_how_far_it_had_come() -> None:
    """Later ones have gone further by then, and what they did is not durable: a new owner would leave it out."""
    owner = Owner()
    steps = [owner.step_of([READ], number) for number in (1, 2)]
    for number, step in enumerate(steps, start=1):
        production = owner.commit(step)
        assert production.watermarks_us == {READ: 10 * number}
        assert production.percentiles_us == {READ: 20 * number}
        assert production.signal_marks == {READ: SignalMark(number)}


def test_a_signal_that_is_committed_is_not_committed_again() -> None:
    """Or a job that is asked now and then would write for ever."""
    owner = Owner()
    owner.commit(owner.step_of([READ], 1))
    assert not owner.commit(owner.step_of([READ], 1)).signal_marks


def test_each_field_of_a_step_is_merged() -> None:
    """One that is not would be lost where steps become one commit."""
    assert [each.name for each in attrs.fields(WorkerStep)] == [*_MERGES]
