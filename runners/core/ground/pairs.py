"""Pairs: what groupings and stateful DoFns take, and what is said to whoever gives them something else."""

from collections.abc import Sequence
from typing import Any

from dataflow.errors import TransformError
from dataflow.graph import TransformNode


def refuse_other_than_pairs(node: TransformNode, values: Sequence[Any]) -> None:
    """Raise a `TransformError` that names the first of ``values`` that is no ``(key, value)`` pair, if there is one."""
    # Text of two letters, a list or a dict of two would unpack as well, and not as meant.
    for value in values:
        if not isinstance(value, tuple) or len(value) != 2:
            raise TransformError(
                f"{node} needs (key, value) pairs",
                detail=f"it was given {value!r}",
                hint="make pairs before it, e.g. df.Map(lambda x: (key_of(x), x))",
            )
        try:
            hash(value[0])
        except TypeError:
            raise TransformError(
                f"{node} was given a key that cannot be hashed",
                detail=f"key {value[0]!r} of type {type(value[0]).__name__}",
                hint="use a tuple instead of a list, or a tuple of sorted items instead of a "
                "dict or set",
            ) from None
