"""Beam's combiners as transforms: counts, sums, means, extremes, samples, containers, sketches.

Each is a family: ``Count.Globally()`` is a `CombineGlobally`, ``Count.PerKey()`` a `CombinePerKey`, or made of one, and
all that these do with windows, triggers, retractions and defaults holds for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, cast

from dataflow.combine_fn import CombineFn, CombinerFamily
from dataflow.combiners import CountCombineFn, MeanCombineFn, SumCombineFn
from dataflow.containers import ToDictCombineFn, ToListCombineFn, ToSetCombineFn
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform, changed
from dataflow.selections import LatestCombineFn, SampleCombineFn, TopCombineFn
from dataflow.sketches import ApproximateQuantilesCombineFn, ApproximateUniqueCombineFn
from dataflow.transforms.combine_globally import CombineGlobally
from dataflow.transforms.fanout import Fanout
from dataflow.transforms.group import CombinePerKey
from dataflow.transforms.par_do import Map
from dataflow.transforms.timed import timed, timed_value, untimed, untimed_values
from dataflow.type_vars import K, OfInputs, OfOutputs, T, V


class _LabelledByName:
    def default_label(self) -> str:
        """The name of the transform with that of its family, such as ``Count.Globally``."""
        return type(self).__qualname__


class Count(CombinerFamily):
    """How many elements; 0 of none.  Retractions are exact."""

    class Globally(_LabelledByName, CombineGlobally[Any, int, OfOutputs]):
        """Of all elements of each window; see `CombineGlobally`."""

        def __init__(self) -> None:
            super().__init__(CountCombineFn())

    class PerKey(_LabelledByName, CombinePerKey[Any, int, OfOutputs]):
        """Of the values of each key and window; see `CombinePerKey`."""

        def __init__(self) -> None:
            super().__init__(CountCombineFn())

    class PerElement(_LabelledByName, PTransform[Any, Any]):
        """``(element, how often it is there)`` for each distinct element and window; elements are keys."""

        def expand(self, pcoll: PCollection[T]) -> PCollection[tuple[T, int]]:
            """Make keys of elements, and count these."""
            return pcoll | "key" >> Map(_as_key) | "count" >> CombinePerKey(CountCombineFn())


class Sum(CombinerFamily):
    """The sum of numbers; 0 of none.  A retraction is exact where subtraction is: see `SumCombineFn`."""

    class Globally(_LabelledByName, CombineGlobally[Any, Any, OfInputs]):
        """Of all elements of each window; see `CombineGlobally`."""

        def __init__(self) -> None:
            super().__init__(cast(Any, SumCombineFn()))

    class PerKey(_LabelledByName, CombinePerKey[Any, Any, OfInputs]):
        """Of the values of each key and window; see `CombinePerKey`."""

        def __init__(self) -> None:
            super().__init__(cast(Any, SumCombineFn()))


class Mean(CombinerFamily):
    """The arithmetic mean of numbers; NaN of none.  A retraction is exact where subtraction is: see `SumCombineFn`."""

    class Globally(_LabelledByName, CombineGlobally[Any, float, OfOutputs]):
        """Of all elements of each window; see `CombineGlobally`."""

        def __init__(self) -> None:
            super().__init__(MeanCombineFn())

    class PerKey(_LabelledByName, CombinePerKey[Any, float, OfOutputs]):
        """Of the values of each key and window; see `CombinePerKey`."""

        def __init__(self) -> None:
            super().__init__(MeanCombineFn())


class Min(CombinerFamily):
    """The least element; nothing of none.  Where elements may be retracted, all are kept."""

    class Globally(_LabelledByName, CombineGlobally[Any, Any, OfInputs]):
        """Of all elements of each window; see `CombineGlobally`."""

        def __init__(self) -> None:
            super().__init__(min)

    class PerKey(_LabelledByName, CombinePerKey[Any, Any, OfInputs]):
        """Of the values of each key and window; see `CombinePerKey`."""

        def __init__(self) -> None:
            super().__init__(min)


class Max(CombinerFamily):
    """The greatest element; nothing of none.  Where elements may be retracted, all are kept."""

    class Globally(_LabelledByName, CombineGlobally[Any, Any, OfInputs]):
        """Of all elements of each window; see `CombineGlobally`."""

        def __init__(self) -> None:
            super().__init__(max)

    class PerKey(_LabelledByName, CombinePerKey[Any, Any, OfInputs]):
        """Of the values of each key and window; see `CombinePerKey`."""

        def __init__(self) -> None:
            super().__init__(max)


class ToList(CombinerFamily):
    """All elements in a list, whose order means nothing."""

    class Globally(_LabelledByName, CombineGlobally[V, list[V], OfOutputs]):
        """Of all elements of each window; see `CombineGlobally`."""

        def __init__(self) -> None:
            super().__init__(ToListCombineFn())

    class PerKey(_LabelledByName, CombinePerKey[V, list[V], OfOutputs]):
        """Of the values of each key and window; see `CombinePerKey`."""

        def __init__(self) -> None:
            super().__init__(ToListCombineFn())


class ToSet(CombinerFamily):
    """The distinct elements in a set; they must be hashable."""

    class Globally(_LabelledByName, CombineGlobally[V, set[V], OfOutputs]):
        """Of all elements of each window; see `CombineGlobally`."""

        def __init__(self) -> None:
            super().__init__(ToSetCombineFn())

    class PerKey(_LabelledByName, CombinePerKey[V, set[V], OfOutputs]):
        """Of the values of each key and window; see `CombinePerKey`."""

        def __init__(self) -> None:
            super().__init__(ToSetCombineFn())


class ToDict(CombinerFamily):
    """Elements ``(key, value)`` in a dict; of several values of one key see `ToDictCombineFn`."""

    class Globally(_LabelledByName, CombineGlobally[tuple[K, V], dict[K, V], OfOutputs]):
        """Of all elements of each window; see `CombineGlobally`."""

        def __init__(self) -> None:
            super().__init__(ToDictCombineFn())

    class PerKey(_LabelledByName, CombinePerKey[tuple[K, V], dict[K, V], OfOutputs]):
        """Of the values of each key and window; see `CombinePerKey`."""

        def __init__(self) -> None:
            super().__init__(ToDictCombineFn())


class ApproximateUnique(CombinerFamily):
    """About how many distinct elements; 0 of none.  Needs ``pip install "dataflow-model[sketches]"``."""

    class Globally(_LabelledByName, CombineGlobally[Any, int, OfOutputs]):
        """Of all elements of each window; see `CombineGlobally`, and for ``error`` `ApproximateUniqueCombineFn`."""

        def __init__(self, *, error: float = 0.05) -> None:
            super().__init__(ApproximateUniqueCombineFn(error=error))

    class PerKey(_LabelledByName, CombinePerKey[Any, int, OfOutputs]):
        """Of the values of each key and window; see `CombinePerKey`, and for ``error`` `ApproximateUniqueCombineFn`."""

        def __init__(self, *, error: float = 0.05) -> None:
            super().__init__(ApproximateUniqueCombineFn(error=error))


class ApproximateQuantiles(CombinerFamily):
    """About the numbers that divide all into equal parts.  Needs ``pip install "dataflow-model[sketches]"``."""

    class Globally(_LabelledByName, CombineGlobally[Any, list[float], OfOutputs]):
        """Of all elements of each window; see `CombineGlobally`, and `ApproximateQuantilesCombineFn`."""

        def __init__(self, num_quantiles: int) -> None:
            super().__init__(ApproximateQuantilesCombineFn(num_quantiles))

    class PerKey(_LabelledByName, CombinePerKey[Any, list[float], OfOutputs]):
        """Of the values of each key and window; see `CombinePerKey`, and `ApproximateQuantilesCombineFn`."""

        def __init__(self, num_quantiles: int) -> None:
            super().__init__(ApproximateQuantilesCombineFn(num_quantiles))


class Top(CombinerFamily):
    """The greatest elements, in a list, the greatest first; see `TopCombineFn` for what is done with equal ones."""

    class Of(_LabelledByName, CombineGlobally[V, list[V], OfOutputs]):
        """Of all elements of each window; see `CombineGlobally`.

        Args:
            n: how many.
            key: what they are compared by; by themselves if not given.
            reverse: the least ones, the least first.

        Raises:
            PipelineError: ``n`` is not a positive integer, or ``key`` no function.
        """

        def __init__(
            self, n: int, key: Callable[[V], Any] | None = None, *, reverse: bool = False
        ) -> None:
            super().__init__(TopCombineFn(n, key=key, reverse=reverse))

        def default_label(self) -> str:
            """``Top.Of(n)``."""
            return _sized(self, self._combine_fn)

    class PerKey(_LabelledByName, CombinePerKey[V, list[V], OfOutputs]):
        """Of the values of each key and window; see `CombinePerKey`.

        Args:
            n: how many.
            key: what they are compared by; by themselves if not given.
            reverse: the least ones, the least first.

        Raises:
            PipelineError: ``n`` is not a positive integer, or ``key`` no function.
        """

        def __init__(
            self, n: int, key: Callable[[V], Any] | None = None, *, reverse: bool = False
        ) -> None:
            super().__init__(TopCombineFn(n, key=key, reverse=reverse))

        def default_label(self) -> str:
            """``Top.PerKey(n)``."""
            return _sized(self, self._combine_fn)

    class Largest(Of[V]):
        """The ``n`` greatest of all elements of each window."""

        def __init__(self, n: int) -> None:
            super().__init__(n)

    class Smallest(Of[V]):
        """The ``n`` least of all elements of each window."""

        def __init__(self, n: int) -> None:
            super().__init__(n, reverse=True)

    class LargestPerKey(PerKey[V]):
        """The ``n`` greatest values of each key and window."""

        def __init__(self, n: int) -> None:
            super().__init__(n)

    class SmallestPerKey(PerKey[V]):
        """The ``n`` least values of each key and window."""

        def __init__(self, n: int) -> None:
            super().__init__(n, reverse=True)


class Sample(CombinerFamily):
    """A sample of elements, in a list; all of them where there are not more.

    The same elements with the same event times give the same sample in every run, after every retry, and in any order
    (`SampleCombineFn`); another ``seed`` gives another one.  Elements that are equal, at the same time too, are chosen
    together.
    """

    class FixedSizeGlobally(_LabelledByName, PTransform[Any, Any]):
        """Of all elements of each window; an empty list of none, as `CombineGlobally`.

        Args:
            n: how many.
            seed: gives another sample.

        Raises:
            PipelineError: ``n`` is not a positive integer, or ``seed`` no integer.
        """

        def __init__(self, n: int, *, seed: int = 0) -> None:
            self._combine = CombineGlobally(SampleCombineFn(n, seed=seed))

        def without_defaults(self) -> Self:
            """Emit nothing where there is no element; see `CombineGlobally.without_defaults`."""
            return changed(self, _combine=self._combine.without_defaults())

        def with_fanout(self, fanout: int) -> Self:
            """Choose in shards first, and then of what they have; see `CombineGlobally.with_fanout`."""
            return changed(self, _combine=self._combine.with_fanout(fanout))

        def expand(self, pcoll: PCollection[T]) -> PCollection[list[T]]:
            """Tell equal elements apart by their event times, and choose."""
            return (
                pcoll | "times" >> Map(timed) | "sample" >> self._combine | "values" >> Map(untimed)
            )

    class FixedSizePerKey(_LabelledByName, PTransform[Any, Any]):
        """Of the values of each key and window.

        Args:
            n: how many.
            seed: gives another sample.

        Raises:
            PipelineError: ``n`` is not a positive integer, or ``seed`` no integer.
        """

        def __init__(self, n: int, *, seed: int = 0) -> None:
            self._combine = CombinePerKey(SampleCombineFn(n, seed=seed))

        def with_hot_key_fanout(self, fanout: Fanout) -> Self:
            """Choose in shards of each key first, then of theirs; see `CombinePerKey.with_hot_key_fanout`."""
            return changed(self, _combine=self._combine.with_hot_key_fanout(fanout))

        def expand(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, list[V]]]:
            """Tell equal values apart by their event times, and choose."""
            return (
                pcoll
                | "times" >> Map(timed_value)
                | "sample" >> self._combine
                | "values" >> Map(untimed_values)
            )


class Latest(CombinerFamily):
    """The element with the latest event time; of several see `LatestCombineFn`."""

    class Globally(_LabelledByName, PTransform[Any, Any]):
        """Of all elements of each window; None of none, as `CombineGlobally`."""

        def __init__(self) -> None:
            self._combine = CombineGlobally(LatestCombineFn())

        def without_defaults(self) -> Self:
            """Emit nothing where there is no element; see `CombineGlobally.without_defaults`."""
            return changed(self, _combine=self._combine.without_defaults())

        def with_fanout(self, fanout: int) -> Self:
            """Choose in shards first, and then of what they have; see `CombineGlobally.with_fanout`."""
            return changed(self, _combine=self._combine.with_fanout(fanout))

        def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
            """Put the event times beside the elements, and choose."""
            return pcoll | "times" >> Map(timed) | "latest" >> self._combine

    class PerKey(_LabelledByName, PTransform[Any, Any]):
        """Of the values of each key and window."""

        def __init__(self) -> None:
            self._combine = CombinePerKey(LatestCombineFn())

        def with_hot_key_fanout(self, fanout: Fanout) -> Self:
            """Choose in shards of each key first, then of theirs; see `CombinePerKey.with_hot_key_fanout`."""
            return changed(self, _combine=self._combine.with_hot_key_fanout(fanout))

        def expand(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, V]]:
            """Put the event times beside the values, and choose."""
            return pcoll | "times" >> Map(timed_value) | "latest" >> self._combine


def _as_key(element: T) -> tuple[T, None]:
    return element, None


def _sized(transform: object, combine_fn: CombineFn) -> str:
    assert isinstance(combine_fn, TopCombineFn)
    return f"{type(transform).__qualname__}({combine_fn.size})"
