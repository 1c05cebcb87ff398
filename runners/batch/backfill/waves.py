"""The waves of a backfill, as Spark runs them, and what its driver knows before."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from runners.batch.backfill.task import BackfillPlan, BackfillTask
from runners.batch.layout import ByStage, Layout, layout
from runners.batch.repeating import nondeterministic
from runners.batch.tasks import (
    Attempt,
    FailedInputError,
    GroupingWave,
    Shipment,
    SplitTask,
    Work,
    content_of,
)
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.control.backfill_progress import is_loaded
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import JobRow, RangeRow


def backfill_of(
    plan: ExecutionPlan, job: JobRow, *, until_us: int | None, now_us: int, tries: int | None
) -> BackfillPlan:
    """The settings of the tasks of a backfill; ranges that are loaded are left out where nothing needs their output.

    Args:
        plan: of the pipeline.
        job: the job as the store has it.
        until_us: the point, in microseconds of event time; None: as far as there is anything.
        now_us: processing time, in microseconds since 1970.
        tries: how often a record that makes user code fail is tried; see `StageExecutor`.
    """
    senders = {
        stage.name: frozenset(
            each for each in job.ranges if each.computation in plan.senders(stage.name)
        )
        for stage in plan.groupings()
    }
    return BackfillPlan(
        job=job.job,
        layout=backfill_layout(plan, job.ranges),
        senders=senders,
        until_us=until_us,
        now_us=now_us,
        tries=tries,
        nondeterministic=nondeterministic(plan.graph),
    )


def backfill_layout(plan: ExecutionPlan, ranges: Mapping[RangeId, RangeRow]) -> Layout:
    """The targets of a backfill: every range leaves something in the store, whether it writes tables or not."""

    def wanted(by_stage: ByStage) -> Mapping[str, frozenset[int]]:
        found: dict[str, frozenset[int]] = {}
        for stage in reversed(tuple(plan.stages.values())):
            needs_all = any(found[group.label] for group in stage.groups)
            found[stage.name] = frozenset(
                row.range_id.index
                for row in by_stage[stage.name]
                if needs_all or not is_loaded(row)
            )
        return found

    return layout(plan, ranges, wanted)


def backfill_waves(
    backfill: BackfillPlan,
) -> Callable[[Work, int], Callable[[int, Iterable[Any]], Iterator[Shipment]]]:
    """The functions that Spark runs on each level."""
    return partial(_wave, backfill)


def _wave(backfill: BackfillPlan, work: Work, level: int) -> "_SourceWave | _GroupingWave":
    return _GroupingWave(work, level, backfill) if level else _SourceWave(work, backfill)


@attrs.frozen
class _SourceWave:
    work: Work
    backfill: BackfillPlan

    def __call__(self, index: int, splits: Iterable[SplitTask]) -> Iterator[Shipment]:
        for task in splits:
            attempt = _BackfillAttempt(self.work, self.backfill, task.range_id)
            yield from attempt.run(attempt.read_backfill(task.split))


@attrs.frozen
class _GroupingWave(GroupingWave):
    backfill: BackfillPlan

    def _run(self, range_id: RangeId, shipments: Iterable[Shipment]) -> Iterator[Shipment]:
        attempt = _BackfillAttempt(self.work, self.backfill, range_id)
        return attempt.run(attempt.group_backfill(shipments))


class _BackfillAttempt(Attempt):
    def __init__(self, work: Work, backfill: BackfillPlan, range_id: RangeId) -> None:
        super().__init__(work, range_id)
        self._backfill = backfill

    def read_backfill(self, split: bytes) -> Iterator[Shipment]:
        yield from self._task().read_split(split)

    def group_backfill(self, shipments: Iterable[Shipment]) -> Iterator[Shipment]:
        try:
            yield from self._task().group(map(content_of, shipments))
        except FailedInputError as failed:
            yield from self._spread(failed.failure)

    def _task(self) -> BackfillTask:
        store = self._work.connect(self._work.dsn)
        return BackfillTask(
            self._backfill,
            self._plan,
            self._range_id,
            store,
            self._owner,
            self._work.spill_bytes,
            self._watch,
        )
