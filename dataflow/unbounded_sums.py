"""Sums from which infinity and NaN can be taken out again.

``inf - inf`` is NaN, and nothing takes NaN out of a sum of floats.  So a sum that contains one of them keeps the finite
part by itself, and how often it contains each of the others.  Sums of finite numbers are numbers, as ever.
"""

from collections.abc import Iterable
from math import inf, isfinite, nan
from typing import Any

import attrs


@attrs.frozen
class UnboundedSum:
    """A sum with infinities or NaN in it.

    Attributes:
        finite: the sum of everything else.
        plus, minus, nans: how often infinity, its negative and NaN are in it; below zero where one was retracted before
            it came.
    """

    finite: Any = 0
    plus: int = 0
    minus: int = 0
    nans: int = 0

    def __add__(self, other: Any) -> Any:
        return _joined(self, _apart(other), 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _joined(self, _apart(other), -1)

    def __rsub__(self, other: Any) -> Any:
        return _joined(_apart(other), self, -1)

    @property
    def value(self) -> Any:
        """The sum, as floats have it."""
        if self.nans > 0 or (self.plus > 0 and self.minus > 0):
            return nan
        if self.plus > 0:
            return inf
        return -inf if self.minus > 0 else self.finite


def total(values: Iterable[Any], start: Any) -> Any:
    """The sum of values and an accumulator: a number, or an `UnboundedSum`.

    Args:
        values: numbers, or accumulators.
        start: the accumulator.
    """
    several = values if isinstance(values, list | tuple) else list(values)
    found = sum(several, start)
    if not isinstance(found, float) or isfinite(found):
        return found
    return sum(map(_kept_apart, several), _kept_apart(start))


def less(accumulator: Any, value: Any) -> Any:
    """An accumulator without a value.

    Args:
        accumulator: a number, or an `UnboundedSum`.
        value: a number.
    """
    return _kept_apart(accumulator) - _kept_apart(value)


def value_of(accumulator: Any) -> Any:
    """The sum that an accumulator is.

    Args:
        accumulator: a number, or an `UnboundedSum`.
    """
    return accumulator.value if isinstance(accumulator, UnboundedSum) else accumulator


def _kept_apart(value: Any) -> Any:
    is_other = isinstance(value, float) and not isfinite(value)
    return _apart(value) if is_other else value


def _apart(value: Any) -> UnboundedSum:
    if isinstance(value, UnboundedSum):
        return value
    if not isinstance(value, float) or isfinite(value):
        return UnboundedSum(value)
    return UnboundedSum(plus=int(value == inf), minus=int(value == -inf), nans=int(value != value))  # noqa: PLR0124 - true of NaN alone


def _joined(one: UnboundedSum, other: UnboundedSum, sign: int) -> Any:
    found = UnboundedSum(
        one.finite + sign * other.finite if other.finite else one.finite,
        one.plus + sign * other.plus,
        one.minus + sign * other.minus,
        one.nans + sign * other.nans,
    )
    return found if found.plus or found.minus or found.nans else found.finite
