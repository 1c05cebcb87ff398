"""Partition: one collection as several, each element in one of them."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, Concatenate, Generic, overload

import attrs

from dataflow.do_fn import TaggedOutput
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import Map
from dataflow.transforms.wrapped import Wrapped, check_function, check_runs_once
from dataflow.type_vars import P, T


class Partition(PTransform[PCollection[T], tuple[PCollection[T], ...]], Generic[T]):
    """Several collections that together have the elements of one: ``small, large = p | df.Partition(fn, 2)``.

    A function that is not deterministic is marked as such (`nondeterministic`) where elements may be retracted, so that
    each is retracted where it was emitted.

    Args:
        fn: called with the element, the number of collections, and the further arguments; returns the number of the
            collection that the element goes to, from 0.
        partitions: how many collections there are; positive.
        *args: given to the function, each time; no PCollection.
        **kwargs: likewise, by name.

    Raises:
        PipelineError: ``fn`` is no function, or ``partitions`` no positive integer.

    Raises, where the pipeline runs:
        TransformError: the function returned something that is not the number of a collection.
    """

    @overload
    def __init__(self, fn: Callable[[T, int], int], partitions: int, /) -> None: ...
    @overload
    def __init__(
        self,
        fn: Callable[Concatenate[T, int, P], int],
        partitions: int,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> None: ...
    def __init__(
        self, fn: Callable[..., int], partitions: int, /, *args: Any, **kwargs: Any
    ) -> None:
        check_function(fn, self)
        if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
            raise PipelineError(
                f"Partition needs a positive number of collections, not {partitions!r}",
                hint="e.g. df.Partition(lambda element, n: element % n, 3)",
            )
        self._fn, self._partitions = fn, partitions
        self._args, self._kwargs = args, kwargs

    def expand(self, pcoll: PCollection[T]) -> tuple[PCollection[T], ...]:
        """An output for each."""
        check_runs_once(self._fn, pcoll.pipeline.here())
        main, *others = map(str, range(self._partitions))
        called = _Placed(self._fn, self._partitions)
        mapped = Map(called, self._partitions, *self._args, **self._kwargs)
        parts = pcoll | "part" >> mapped.with_outputs(*others, main=main)
        return tuple([part.of_type(pcoll.element_type, pcoll.made_by) for part in parts])


@attrs.frozen
class _Placed(Wrapped):
    partitions: int

    def __call__(self, element: Any, /, *args: Any, **kwargs: Any) -> TaggedOutput:
        found = index(self.function(element, *args, **kwargs))
        if not 0 <= found < self.partitions:
            raise ValueError(
                f"the function returned {found}, and the collections are 0 to {self.partitions - 1}"
            )
        return TaggedOutput(str(found), element)
