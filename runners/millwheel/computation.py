"""Computations: what a worker does with the ranges it owns, one step at a time.

A step takes what has come (records of a source, deliveries, due timers) and returns a `Draft`, which the worker commits
before anyone hears of it.  Two kinds: `SourceComputation` injects, `GroupingComputation` groups.

MillWheel, sections 4 and 5; the semantics are `runners.core`'s.
"""

from collections.abc import Mapping

from runners.core.plan import ExecutionPlan
from runners.millwheel.grouping_computation import GroupingComputation
from runners.millwheel.router import Router
from runners.millwheel.source_computation import SourceComputation

Computation = SourceComputation | GroupingComputation


def build_computations(
    job: str, plan: ExecutionPlan, range_counts: Mapping[str, int], *, tries: int | None = None
) -> dict[str, Computation]:
    """A computation for each stage of the plan, owning nothing yet; ``tries`` as for `StageExecutor`."""
    router = Router(plan, range_counts)
    computations: dict[str, Computation] = {}
    for name, stage in plan.stages.items():
        if stage.is_source:
            computations[name] = SourceComputation(job, plan, stage, router, tries=tries)
        else:
            computations[name] = GroupingComputation(
                job, plan, stage, router, range_counts[name], tries=tries
            )
    return computations
