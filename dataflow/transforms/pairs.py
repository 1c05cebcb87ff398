"""The error for an element that is no pair, of the transforms that take pairs apart before any grouping does."""

from typing import Any

from dataflow.canonical_keys import key_text
from dataflow.errors import TransformError


def not_a_pair(element: Any) -> TransformError:
    """The error to raise for an element that is no ``(key, value)`` pair; the engine says of which transform."""
    return TransformError(
        "it needs (key, value) pairs",
        detail=f"it was given {key_text(element)}",
        hint="make pairs before it, e.g. df.Map(lambda x: (key_of(x), x))",
    )
