"""Pairs: what groupings and stateful DoFns take, and the errors for elements that are not pairs."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from dataflow.canonical_keys import PLAIN_TYPES
from dataflow.errors import TransformError
from dataflow.graph import TransformNode
from runners.core.ground.element_text import shown

_key = itemgetter(0)


def refuse_other_than_pairs(node: TransformNode, values: Sequence[Any]) -> None:
    """Check that all values are ``(key, value)`` pairs with hashable keys.

    Args:
        node: the transform that needs them; named in the error.
        values: the elements.

    Raises:
        TransformError: a value is not a pair, or its key cannot be hashed; names the first such value.
    """
    if _are_plain_pairs(values):
        return
    # A string, list or dict of length two could be unpacked as well, but is not meant as a pair.
    for value in values:
        if not isinstance(value, tuple) or len(value) != 2:
            raise TransformError(
                f"{node} needs (key, value) pairs",
                detail=f"it was given {shown(value)}",
                hint="make pairs before it, e.g. df.Map(lambda x: (key_of(x), x))",
            )
        try:
            hash(value[0])
        except TypeError:
            raise TransformError(
                f"{node} was given a key that cannot be hashed",
                detail=f"key {shown(value[0])} of type {type(value[0]).__name__}",
                hint="use a tuple instead of a list, a tuple of sorted items instead of a dict or set, and "
                "@dataclass(frozen=True) or @attrs.frozen for a class of fields",
            ) from None


def _are_plain_pairs(values: Sequence[Any]) -> bool:
    """Whether values are certainly pairs with keys that can be hashed, without a look at each; False: look closer."""
    return (
        set(map(type, values)) == {tuple}
        and set(map(len, values)) == {2}
        and set(map(type, map(_key, values))) <= PLAIN_TYPES
    )
