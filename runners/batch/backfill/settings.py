"""What the driver of a backfill knows before its tasks run: which ranges are wanted, and how they end."""

from collections.abc import Mapping

from runners.batch.backfill.end import BackfillEnd
from runners.batch.layout import ByStage, Layout, layout
from runners.batch.range_task import TaskSettings
from runners.batch.repeating import nondeterministic
from runners.batch.spill.spilled_groups import SPILL_BYTES
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.control.backfill_progress import is_loaded
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import JobRow, RangeRow


def backfill_settings(
    plan: ExecutionPlan,
    job: JobRow,
    *,
    until_us: int | None,
    now_us: int,
    tries: int | None,
    spill_bytes: int = SPILL_BYTES,
) -> TaskSettings:
    """The settings of the tasks of a backfill; ranges that are loaded are left out where nothing needs their output.

    Args:
        plan: of the pipeline.
        job: the job as the store has it.
        until_us: the point, in microseconds of event time; None: as far as there is anything.
        now_us: processing time, in microseconds since 1970.
        tries: how often a record that makes user code fail is tried; see `StageExecutor`.
        spill_bytes: how much of a key range a task keeps in memory, in bytes of pickles.
    """
    senders = {
        stage.name: frozenset(
            each for each in job.ranges if each.computation in plan.senders(stage.name)
        )
        for stage in plan.groupings()
    }
    return TaskSettings(
        job=job.job,
        layout=backfill_layout(plan, job.ranges),
        end=BackfillEnd(senders=senders, until_us=until_us, now_us=now_us),
        tries=tries,
        nondeterministic=nondeterministic(plan.graph),
        spill_bytes=spill_bytes,
    )


def backfill_layout(plan: ExecutionPlan, ranges: Mapping[RangeId, RangeRow]) -> Layout:
    """The targets of a backfill: every range leaves something in the store, whether it writes tables or not.

    Args:
        plan: of the pipeline.
        ranges: the job's, as the store has them.
    """

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
