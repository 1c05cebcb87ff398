"""Digests of dead letters: whether an attempt that is run again leaves out the records that were left out before.

A number would not do: code that fails on one record in one attempt, and in the next on another one of the same key
and window, would leave the first in a result and in a letter, and the second in neither.  So a digest is a sum over
the records that were left out, of a hash of what is known of each.

What is known of a record must be the same in every attempt.  Of one that was read, all of it is: the type and content
of whatever it is made of, but not how it is pickled, which depends on the identity of objects.  Of a group it is key
and window, because its value depends on the order in which the shuffle delivers.  An element of a stateful DoFn is in
between: it may have come out of a group, so sums of floats and lists in it do not count.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from hashlib import blake2b
from numbers import Integral, Number
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, Self

import attrs
import numpy as np

from dataflow.graph import Group, Operation, Read
from runners.core.ground.dead_letters import DeadLetter

_MASK = (1 << 64) - 1
#: What is nested more deeply counts by its type alone.
_DEPTH_MAX = 20
_EXACT = (NoneType, bool, str, bytes)


class Repeated(Enum):
    """What of a record is the same in every attempt."""

    ALL = "of a source"
    PLAIN = "of a stateful DoFn"
    KEY = "of a grouping"

    @classmethod
    def by(cls, operation: Operation) -> Self:
        """What it is for the records that enter a stage with this operation at its root."""
        if isinstance(operation, Read):
            return cls.ALL
        return cls.KEY if isinstance(operation, Group) else cls.PLAIN


@attrs.frozen
class Letters:
    """Several dead letters: how many, and the digest of them; None: it is not known."""

    count: int = 0
    digest: int | None = 0

    @classmethod
    def of(cls, letters: Iterable[DeadLetter], repeated: Repeated) -> Self:
        """The digest of these letters.

        Args:
            letters: dead letters.
            repeated: what of a record is the same when its task is run again.
        """
        hashes = [_hash_of(each, repeated) for each in letters]
        return cls(len(hashes), sum(hashes) & _MASK)

    def __add__(self, other: "Letters") -> "Letters":
        digest = None
        if self.digest is not None and other.digest is not None:
            digest = (self.digest + other.digest) & _MASK
        return Letters(self.count + other.count, digest)

    def differ(self, other: "Letters") -> bool:
        """Whether they are of other records, as far as that is known."""
        is_known = self.digest is not None and other.digest is not None
        return self.count != other.count or (is_known and self.digest != other.digest)


def _hash_of(letter: DeadLetter, repeated: Repeated) -> int:
    element, at_us = letter.element, letter.timestamp_us
    known: tuple[Any, ...]
    match repeated:
        case Repeated.ALL:
            # One that could not be read is known by its place; a split may have several files.
            found = letter.origin
            origin = None if found is None else (found.path, found.start_bytes)
            known = (at_us, origin, _content(element, exact=True))
        case Repeated.PLAIN:
            key, value = element
            known = (at_us, _content(key, exact=True), _content(value, exact=False))
        case Repeated.KEY:
            # The event time of a pane may be that of the last record so far.
            known = (_content(element[0], exact=True),)
    window = (letter.window.start_us, letter.window.end_us)
    return int.from_bytes(_hashed((letter.stage, window, letter.sign, *known)), "big")


def _hashed(plain: Any) -> bytes:
    return blake2b(ascii(plain).encode(), digest_size=8).digest()


def _content(value: Any, *, exact: bool, depth: int = 0) -> bytes:
    """The hash of a value's types and content.

    Args:
        value: anything.
        exact: whether numbers that are not whole, and sequences, count.
        depth: how deep it is in the record.
    """
    kind = type(value)
    if kind is int:
        # Python writes no decimal text of very large numbers.
        return _hashed(hex(value))
    if kind in _EXACT:
        return _hashed((kind.__name__, value))
    if depth > _DEPTH_MAX:
        return _hashed(kind.__qualname__)
    if not exact and _depends_on_order(value):
        return _hashed("made of several records")

    def inner(part: Any) -> bytes:
        return _content(part, exact=exact, depth=depth + 1)

    if kind in (float, complex):
        return _hashed((kind.__name__, value))
    if kind in (tuple, list):
        return _hashed((kind.__name__, [inner(part) for part in value]))
    if kind in (set, frozenset, dict):
        parts = value.items() if kind is dict else value
        return _hashed((kind.__name__, sorted(inner(part) for part in parts)))
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return _hashed(value.__qualname__)
    return _hashed((kind.__qualname__, _parts_of(value, inner)))


def _depends_on_order(value: Any) -> bool:
    """Whether a value may be another one if the records that it was made of come in another order."""
    if isinstance(value, Number):
        return not isinstance(value, Integral)
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, tuple)


def _parts_of(value: Any, inner: Callable[[Any], bytes]) -> list[bytes]:
    """The hashes of what pickle would write of an object; none where it cannot."""
    try:
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return [inner(reduced)]
        made_by, args, state, items, pairs = (*reduced, None, None, None)[:5]
        return [
            *map(inner, (made_by, args, state)),
            *map(inner, items or ()),
            *sorted(map(inner, pairs or ())),
        ]
    except Exception:  # noqa: BLE001 - a user's own class may do anything here
        return []
