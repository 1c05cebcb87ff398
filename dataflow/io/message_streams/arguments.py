"""Arguments that the readers of message streams have in common."""

from dataflow.errors import PipelineError
from windowing.timestamps import DurationLike, to_duration_us


def disorder_us(name: str, max_disorder: DurationLike | None) -> int:
    """How far the watermark stays behind, in microseconds.

    Args:
        name: of the transform, for messages.
        max_disorder: as the user gave it.

    Raises:
        PipelineError: it is negative.
    """
    found_us = 0 if max_disorder is None else to_duration_us(max_disorder)
    if found_us < 0:
        raise PipelineError(
            f"{name} was given a negative max_disorder, {max_disorder!r}",
            hint="it is how far messages may be behind the newest one: zero or more",
        )
    return found_us


def is_until_now(name: str, until: str | None) -> bool:
    """Whether the input ends.

    Args:
        name: of the transform, for messages.
        until: as the user gave it.

    Raises:
        PipelineError: it is something else than "now".
    """
    if until not in {None, "now"}:
        raise PipelineError(
            f"{name} was given until={until!r}",
            hint="give 'now' for what is there when the run begins, or leave it out",
        )
    return until is not None


def skips_missing(name: str, missing: str) -> bool:
    """Whether messages that were removed before they were read are passed over.

    Args:
        name: of the transform, for messages.
        missing: as the user gave it.

    Raises:
        PipelineError: it is something else than "error" or "skip".
    """
    if missing not in {"error", "skip"}:
        raise PipelineError(
            f"{name} was given missing={missing!r}",
            hint="give 'error', or 'skip' to log what is missing and go on",
        )
    return missing == "skip"
