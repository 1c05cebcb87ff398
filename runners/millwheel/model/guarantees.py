"""Guarantees: what a computation guarantees at a price, and may do without (MillWheel, sections 6.1.2 and 6.1.3)."""

from collections.abc import Mapping

import attrs

from dataflow.errors import PipelineError
from dataflow.graph import Read
from runners.core.stages.plan import ExecutionPlan


@attrs.frozen(kw_only=True)
class Guarantees:
    """Of one computation: a read, a grouping, or a stateful DoFn.

    Without either, records may count twice after a failure; none is lost in any case.  Between workers both cost
    latency, so they are worth giving up where the code is idempotent (a filter in front of a maximum, a set of what has
    been seen) and one worker cannot carry the job: one that can has both for next to nothing (ADR 0071, ADR 0112).
    All state of a grouping with weak productions stays in memory.

    Attributes:
        strong_productions: what the computation emits is durable before it is sent.  Otherwise it is sent at once, and
            the computation's own commit waits until it has arrived, at most for a second.
        exactly_once: which deliveries it has taken in is durable, so that none counts twice.
    """

    strong_productions: bool = True
    exactly_once: bool = True


BOTH = Guarantees()


def check_guarantees(plan: ExecutionPlan, guarantees: Mapping[str, Guarantees]) -> None:
    """Refuse guarantees for what is no computation of the plan, or that contradict it.

    Args:
        plan: of the pipeline.
        guarantees: by computation, as the user gave them.

    Raises:
        PipelineError: names the transform, or those that there are.
    """
    for name, each in guarantees.items():
        stage = plan.stages.get(name)
        if stage is None:
            raise PipelineError(
                f"there is no read or grouping {name!r} whose guarantees could be changed",
                detail=f"there are {', '.join(map(repr, plan.stages))}",
                hint="use the label of the transform",
            )
        operation = stage.root.operation
        if isinstance(operation, Read) and operation.record_ids and not each.strong_productions:
            raise PipelineError(
                f"{stage.root} deduplicates records, and would send them before their ids are durable",
                detail="the ids of records become durable in the same commit as their results",
                hint="leave out record_ids, or keep its strong productions",
            )
