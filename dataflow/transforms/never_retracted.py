"""The check of transforms whose input must not be retracted."""

from typing import Any

from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection


def check_never_retracted(pcoll: PCollection[Any], does: str, why: str, instead: str) -> None:
    """Check that the input of the transform that is being applied is never retracted.

    Args:
        pcoll: the input.
        does: what the transform does with its elements, for the error.
        why: what would be wrong.
        instead: what to do, as part of the hint.

    Raises:
        PipelineError: it may be retracted.
    """
    if pcoll.node.retracted_by:
        raise PipelineError(
            f"{pcoll.pipeline.here()} {does}, and its input may be retracted by {pcoll.node.retracted_by}",
            detail=why,
            hint=f"{instead}; or set that grouping's accumulation_mode to ACCUMULATING or DISCARDING",
        )
