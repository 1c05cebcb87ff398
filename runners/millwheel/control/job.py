"""The specification of a job, with its ranges, from a pipeline's plan."""

from typing import Any

from dataflow.graph import Read
from runners.core.panes.signal_delivery import signals_of
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.store.port import JobSpec, RangeSpec
from runners.millwheel.versions.state_shape import state_shapes
from runners.stored.places import encode_split


def job_spec(
    job: str, mode: str, plan: ExecutionPlan, *, splits_desired: int, ranges_per_grouping: int
) -> JobSpec:
    """Specify a job as it is created: a range per split of each source, and even key ranges for each grouping.

    Args:
        job: its name.
        mode: ``batch`` or ``streaming``; the two do not share state.
        plan: the pipeline.
        splits_desired: per source; 1 keeps the order of the input.
        ranges_per_grouping: fixed when the job is created.
    """
    ranges: list[RangeSpec] = []
    for name, stage in plan.stages.items():
        operation: Any = stage.root.operation
        if isinstance(operation, Read):
            splits = operation.source.splits(splits_desired)
            ranges.extend(
                RangeSpec(range_id=RangeId(name, index), split=encode_split(split))
                for index, split in enumerate(splits)
            )
        else:
            ranges.extend(
                RangeSpec(range_id=RangeId(name, index), keys=keys)
                for index, keys in enumerate(even_ranges(ranges_per_grouping))
            )
    return JobSpec(
        job=job,
        mode=mode,
        fingerprint=plan.graph.fingerprint(),
        ranges=ranges,
        tables=plan.graph.tables(),
        signals=signals_of(plan.graph),
        computations={name: shape.encoded() for name, shape in state_shapes(plan).items()},
    )
