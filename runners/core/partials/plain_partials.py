"""Partials of plain values, which nobody can change: passed on as they are, they mean what a copy of them would."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from runners.core.partials.partial import Partial
from windowing.window import Window

_NUMBERS = frozenset((int, float, bool, type(None)))
_TEXTS = frozenset((str, bytes))
#: Values of exactly these types; an instance of a subclass may have more to it.
_PLAIN = _NUMBERS | _TEXTS
#: About what one value takes, beside the contents of a text.
_VALUE_BYTES = 32


def size_of_plain_inputs(partials: Sequence[Partial]) -> int | None:
    """About how many bytes partials have; None if something in them can be changed, or is not known to be plain.

    Args:
        partials: as `StatefulInputs` makes them: their lists of elements belong to nobody else.
    """
    if type(partials) is not list or set(map(type, partials)) != {tuple}:
        return None
    keys, windows, inputs, _ = zip(*partials, strict=True)
    if set(map(type, windows)) != {Window}:
        return None
    of_keys = _size_of(keys)
    of_values = _size_of([each[0] for each in chain.from_iterable(inputs)])
    return None if of_keys is None or of_values is None else of_keys + of_values


def _size_of(values: Sequence[Any]) -> int | None:
    """About how many bytes values have; None if they are neither plain nor tuples of plain values."""
    kinds = set(map(type, values))
    if kinds == {tuple}:
        values = list(chain.from_iterable(values))
        kinds = set(map(type, values))
    if not kinds <= _PLAIN:
        return None
    size = _VALUE_BYTES * len(values)
    if not kinds <= _NUMBERS:
        size += sum(len(each) for each in values if type(each) in _TEXTS)
    return size
