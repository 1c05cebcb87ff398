"""Draft: steps that become one commit leave what they would have left one after the other."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from dataflow.io.table import TableSpec, TableWrite
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyRange
from runners.millwheel.model.production import CellWrite, Production, TimerWrite
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.worker.draft import Draft
from runners.millwheel.worker.owned_range import OwnedRange

JOB = "job"
READ, OTHER, SUM = RangeId("read", 0), RangeId("read", 1), RangeId("sum", 0)
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

    def draft_of(self, range_ids: Sequence[RangeId], number: int) -> Draft:
        """A step that does something of every kind; the next one does more of it, and some of it again."""
        draft = Draft(JOB)
        for range_id in range_ids:
            self._fill(draft, self.ranges[range_id], number)
        draft.when_committed(lambda: self.done.append(number))
        write = TableWrite(table=TABLE, upserts=[(number,), (0,)])
        draft.emit([write], [(SUM, b"%d" % number)], hold_us=number)
        draft.seal()
        return draft

    def _fill(self, draft: Draft, owned: OwnedRange, number: int) -> None:
        draft.touch(owned)
        draft.deliver(Channel(READ, owned.range_id), number)
        owned.watermark_us, owned.percentile_us = 10 * number, 20 * number
        owned.act_on_signals(SignalMark(number))
        draft.note(owned, 1, b"journal %d" % number)
        if owned.keys is None:
            ids = [(bytes([number, each]), each) for each in range(100)]
            draft.remember(owned, ids, 10 * number)
            draft.move(owned, b"%d" % number, is_finished=number == 2)
            return
        for name in (b"same", b"of %d" % number):
            draft.write(
                [CellWrite("sum", 1, name, b"%d" % number)],
                [TimerWrite("sum", 1, name, b"", "event", number)],
            )

    def commit(self, draft: Draft) -> Production:
        production = draft.production()
        assert self.store.commit(production) == Committed()
        draft.committed()
        return production

    @property
    def left(self) -> dict[str, Any]:
        """What is in the store, and in memory."""
        job = self.store._jobs[JOB]
        ours = self.ranges.values()
        return {
            **{name: getattr(job, name) for name in KEPT},
            "journal": {
                at: [each.payload for _, each in found] for at, found in job.journal.items()
            },
            "rows": {at: attrs.evolve(row, bundle=0, token=0) for at, row in job.ranges.items()},
            "table": self.store.read_table(TABLE),
            "done": self.done,
            "ours": [(each.delivered, each.signal_mark_committed) for each in ours],
        }


@pytest.mark.parametrize("first", [[READ], [OTHER], [SUM], [READ, SUM], [READ, OTHER, SUM]])
@pytest.mark.parametrize("second", [[READ], [OTHER], [SUM], [READ, OTHER, SUM]])
def test_one_commit_of_two_steps_says_what_two_commits_say(
    first: Sequence[RangeId], second: Sequence[RangeId]
) -> None:
    """Whatever the later one knows better, and whatever both have done; only there is one bundle less."""
    apart, together = Owner(), Owner()
    for number, range_ids in enumerate((first, second), start=1):
        apart.commit(apart.draft_of(range_ids, number))
    both = together.draft_of(first, 1)
    both.absorb(together.draft_of(second, 2))
    together.commit(both)

    assert together.left == apart.left


def test_a_step_that_waits_to_be_committed_says_how_far_it_had_come() -> None:
    """Later ones have gone further by then, and what they did is not durable: a new owner would leave it out."""
    owner = Owner()
    drafts = [owner.draft_of([READ], number) for number in (1, 2)]
    for number, draft in enumerate(drafts, start=1):
        production = owner.commit(draft)
        assert production.watermarks_us == {READ: 10 * number}
        assert production.percentiles_us == {READ: 20 * number}
        assert production.signal_marks == {READ: SignalMark(number)}


def test_a_signal_that_is_committed_is_not_committed_again() -> None:
    """Or a job that is asked now and then would write for ever."""
    owner = Owner()
    owner.commit(owner.draft_of([READ], 1))
    assert not owner.commit(owner.draft_of([READ], 1)).signal_marks


def test_a_step_that_is_a_commit_of_its_own_is_never_added_to_another() -> None:
    """What only one commit can say would be lost from it, and nobody would know."""
    owner = Owner()
    for first, second in (("plain", "alone"), ("alone", "plain")):
        drafts = {name: owner.draft_of([SUM], 1) for name in ("plain", "alone")}
        drafts["alone"].end_handover(owner.ranges[SUM])
        with pytest.raises(AssertionError, match="a commit of its own"):
            drafts[first].absorb(drafts[second])
