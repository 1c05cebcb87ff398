"""Errors of users' code where records are lifted and partials are merged; each names the transform."""

from collections.abc import Sequence
from typing import Any

from dataflow.errors import DataflowError, KeyEncodingError, TransformError
from dataflow.graph import TransformNode
from runners.core.ground.element_text import shown
from runners.core.ground.pairs import refuse_other_than_pairs
from windowing.errors import what_was_raised


def not_folded(node: TransformNode, values: Sequence[Any], error: Exception) -> DataflowError:
    """The error to raise where values could not be folded.

    Args:
        node: the grouping.
        values: at least one.
        error: what the user's code raised.
    """
    if isinstance(error, DataflowError):
        return error.located(str(node))
    return TransformError(
        f"{node} raised {what_was_raised(error)}",
        detail=f"while combining {len(values)} value{'s' * (len(values) > 1)}, the first {shown(values[0])}",
        hint="correct the CombineFn, or sort such values out before the grouping",
    )


def not_merged(node: TransformNode, error: Exception) -> DataflowError:
    """The error to raise where accumulators could not be merged.

    Args:
        node: the grouping.
        error: what the user's code raised.
    """
    if isinstance(error, DataflowError):
        return error.located(str(node))
    return TransformError(
        f"{node} raised {what_was_raised(error)}",
        detail="while merging accumulators",
        hint="correct how the CombineFn merges accumulators",
    )


def refused(node: TransformNode, elements: Sequence[Any], error: Exception) -> DataflowError:
    """The error to raise for elements that are not pairs, or whose key cannot be one.

    Args:
        node: the grouping.
        elements: what was looked at.
        error: what looking at them raised: the error to raise names the first element that is no pair, if there is one.
    """
    if isinstance(error, KeyEncodingError):
        return error.located(str(node))
    try:
        refuse_other_than_pairs(node, elements)
    except TransformError as refusal:
        return refusal
    return TransformError(f"{node} raised {what_was_raised(error)}")
