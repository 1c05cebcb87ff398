"""Combine functions that choose some of the values: the greatest, a sample, the latest.

What is chosen is the same in whatever order the values come, also among equals: there a digest of the value decides
(`dataflow.element_digests`).  None of them can retract, since what was not chosen is not kept; so where values may be
retracted all of them are kept, and must be hashable.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

from dataflow.arg_columns import ArgExtremeColumns
from dataflow.column_combine_fn import ColumnCombineFn
from dataflow.combine_fn import CombineFn
from dataflow.element_digests import element_digest
from dataflow.errors import PipelineError, TransformError
from dataflow.top_columns import SIZE_MAX, TopColumns

#: An accumulator has room for so many values beyond those that it needs, so that it is seldom cut.
_SPARE = 64
_FIRST = itemgetter(0)


def check_size(what: str, size: object) -> None:
    """Check a number of values that is asked for.

    Args:
        what: names, in the error, who asks.
        size: what was given.

    Raises:
        PipelineError: it is no integer, or not positive.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise PipelineError(
            f"{what} needs a positive number of values, not {size!r}",
            hint="it is how many values a result has at most",
        )


def checked_rank(rank: Any, value: Any) -> Any:
    """What a value is compared by, checked.

    Args:
        rank: what it is compared by.
        value: the value, for the error.

    Raises:
        TransformError: it is NaN.
    """
    if isinstance(rank, float) and rank != rank:  # noqa: PLR0124 - true of NaN alone
        raise TransformError(
            "NaN has no place in an order",
            detail=f"it is the key of {value!r}",
            hint="leave such values out before, with df.Filter, or give a key that has a number for them",
        )
    return rank


class _SomeCombineFn(CombineFn):
    """Keeps the first ``size`` of an order; an accumulator is a list of places in it and values, cut when it grows."""

    def __init__(self, size: int) -> None:
        check_size(type(self).__name__, size)
        self.size = size

    def create_accumulator(self) -> list[tuple[Any, Any]]:
        """An empty list."""
        return []

    def add_input(self, accumulator: list[tuple[Any, Any]], value: Any) -> list[tuple[Any, Any]]:
        """Append, and cut what is too long."""
        accumulator.append((self._place(value), value))
        if len(accumulator) >= 2 * self.size + _SPARE:
            accumulator[:] = self._cut(accumulator)
        return accumulator

    def add_inputs(
        self, accumulator: list[tuple[Any, Any]], values: Iterable[Any]
    ) -> list[tuple[Any, Any]]:
        """Put all in their places, and keep the first."""
        return self._cut([*accumulator, *((self._place(value), value) for value in values)])

    def merge_accumulators(
        self, accumulators: Iterable[list[tuple[Any, Any]]]
    ) -> list[tuple[Any, Any]]:
        """Keep the first of all."""
        return self._cut([each for accumulator in accumulators for each in accumulator])

    def extract_output(self, accumulator: list[tuple[Any, Any]]) -> list[Any]:
        """The values, in order."""
        return [value for _, value in self._ordered(accumulator)[: self.size]]

    def _cut(self, placed: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return placed if len(placed) <= self.size else self._ordered(placed)[: self.size]

    @abstractmethod
    def _place(self, value: Any) -> Any: ...

    @abstractmethod
    def _ordered(self, placed: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]: ...


class TopCombineFn(_SomeCombineFn):
    """The greatest values, in a list, the greatest first; fewer where there are not so many.

    Of values with equal keys a digest of the value decides which are in the list, and where: it means nothing, but is
    the same in every run.  Beam's ``TopCombineFn``.

    Example::

        best = df.TopCombineFn(3, key=operator.itemgetter(1))
        bids | df.GroupBy("auction").aggregate_field(("bidder", "price"), best, "best")

    Args:
        size: how many.
        key: what values are compared by, as for ``sorted``; by themselves if not given.  In columns that is
            themselves, or a field of a tuple: ``operator.itemgetter(1)``.
        reverse: the least values, the least first.

    Raises:
        PipelineError: ``size`` is not a positive integer, or ``key`` no function.
    """

    def __init__(
        self, size: int, *, key: Callable[[Any], Any] | None = None, reverse: bool = False
    ) -> None:
        super().__init__(size)
        if key is not None and not callable(key):
            raise PipelineError(
                f"TopCombineFn needs a function as its key, not {key!r}",
                hint="e.g. key=operator.itemgetter(1)",
            )
        self.key, self.reverse = key, reverse

    def columns(self) -> ColumnCombineFn | None:
        """Columns of the first values; None of very many, and of values that are compared by a function."""
        place = None if self.key is None else _place_of(self.key)
        if self.size > SIZE_MAX or (self.key is not None and place is None):
            return None
        return TopColumns(self.size, is_greatest=not self.reverse, ranked_by=place)

    def _place(self, value: Any) -> Any:
        return checked_rank(value if self.key is None else self.key(value), value)

    def _ordered(self, placed: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        in_order = sorted(placed, key=_FIRST, reverse=not self.reverse)
        if self.key is None:
            return in_order
        found: list[tuple[Any, Any]] = []
        for _, group in groupby(in_order, key=_FIRST):
            if len(found) >= self.size:
                break
            equals = list(group)
            found += equals if len(equals) == 1 else sorted(equals, key=_digest)
        return found


class SampleCombineFn(_SomeCombineFn):
    """A sample of values, in a list; all of them where there are not more.

    It is no chance: those are chosen whose digests are the least, so a retry, another order of arrival and other
    bundles have the same sample.  Each *distinct* value has the same chance of being chosen; equal values are chosen
    together, as far as there is room.  `Sample` tells equal values apart by their event times.
    Beam's ``SampleCombineFn``.

    Args:
        size: how many values.
        seed: gives another sample.

    Raises:
        PipelineError: ``size`` is not a positive integer, or ``seed`` no integer of 64 bits.
    """

    def __init__(self, size: int, *, seed: int = 0) -> None:
        super().__init__(size)
        if not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
            raise PipelineError(
                f"SampleCombineFn needs an integer as its seed, not {seed!r}",
                hint="any number of 64 bits; the same one gives the same sample",
            )
        self.seed = seed

    def _place(self, value: Any) -> int:
        return element_digest(value, self.seed)

    def _ordered(self, placed: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return sorted(placed, key=_FIRST)


class ArgMaxCombineFn(CombineFn):
    """The value with the greatest rank, of values ``(value, rank)``: the value alone, None of none.

    Ranks are anything that can be compared.  Of several values of the same rank a digest of the value decides: it means
    nothing, but is the same in every run.  In SQL ``arg_max(value, rank)`` or ``max_by``; Beam has ``Top`` with a key.

    Example::

        bids | df.GroupBy("auction").aggregate_field(("bidder", "price"), df.ArgMaxCombineFn(), "winner")

    Raises:
        TransformError: a rank is NaN.
    """

    _is_greatest = True

    def create_accumulator(self) -> tuple[Any, Any] | None:
        """None."""
        return None

    def add_input(
        self, accumulator: tuple[Any, Any] | None, value: tuple[Any, Any]
    ) -> tuple[Any, Any]:
        """The better of both."""
        rank = checked_rank(value[1], value)
        if accumulator is None:
            return value
        if rank == accumulator[1]:
            return max(accumulator, value, key=_digest_of_first)
        return value if (rank > accumulator[1]) is self._is_greatest else accumulator

    def merge_accumulators(
        self, accumulators: Iterable[tuple[Any, Any] | None]
    ) -> tuple[Any, Any] | None:
        """The best of all."""
        best = self.create_accumulator()
        for each in accumulators:
            if each is not None:
                best = self.add_input(best, each)
        return best

    def extract_output(self, accumulator: tuple[Any, Any] | None) -> Any:
        """The value."""
        return None if accumulator is None else accumulator[0]

    def columns(self) -> ColumnCombineFn:
        """Columns of values and ranks."""
        return ArgExtremeColumns(self._is_greatest)


class ArgMinCombineFn(ArgMaxCombineFn):
    """The value with the least rank, of values ``(value, rank)``; else like `ArgMaxCombineFn`."""

    _is_greatest = False


class LatestCombineFn(ArgMaxCombineFn):
    """The latest of values ``(value, event time)``: the value alone, None of none.

    Event times are anything that can be compared.  Of several values of the same event time a digest of the value
    decides: it means nothing, but is the same in every run.  Beam's ``LatestCombineFn``.
    """


def _place_of(key: Callable[[Any], Any]) -> int | None:
    """The place that a function takes out of a tuple; None if it does anything else."""
    if type(key) is not itemgetter:
        return None
    places: Any = key.__reduce__()[1]
    is_place = len(places) == 1 and type(places[0]) is int and places[0] >= 0
    return places[0] if is_place else None


def _digest(placed: tuple[Any, Any]) -> int:
    return element_digest(placed[1])


def _digest_of_first(pair: tuple[Any, Any]) -> int:
    return element_digest(pair[0])
