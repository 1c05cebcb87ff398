"""Whether an optional method may be called in place of others with the same results, although subclasses may override.

A subclass that overrides how single elements are treated does not agree with what its base does with columns of them.
"""

from functools import lru_cache
from typing import Any

#: The classes of functions of one process whose answer is remembered.
_CLASSES_MAX = 1 << 10


def stands_for(instance: Any, method: str, others: tuple[str, ...]) -> bool:
    """Whether a method was defined with, or after, others: by the same class, or by one that is derived from theirs.

    Args:
        instance: of the class.
        method: the name of the method that is to stand for the others.
        others: their names.
    """
    own = getattr(instance, "__dict__", None)
    if own and method not in own and not own.keys().isdisjoint(others):
        return False
    kind: Any = type(instance)
    return _stands_for(kind, method, others)


@lru_cache(_CLASSES_MAX)
def _stands_for(kind: type, method: str, others: tuple[str, ...]) -> bool:
    depth = _depth(kind, method)
    return all(depth <= _depth(kind, other) for other in others)


def _depth(kind: type, name: str) -> int:
    """How many classes up a name is defined."""
    return next(
        (at for at, each in enumerate(kind.__mro__) if name in vars(each)), len(kind.__mro__)
    )
