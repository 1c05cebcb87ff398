"""Flatten: the union of several collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from dataflow.errors import PipelineError
from dataflow.graph import MAIN
from dataflow.graph import Flatten as FlattenOperation
from dataflow.pcollection import PCollection
from dataflow.ptransform import PTransform

T = TypeVar("T")


class Flatten(PTransform[Sequence[PCollection[Any]], PCollection[Any]]):
    """One collection with the elements of all: ``(a, b) | df.Flatten()``.

    Raises:
        PipelineError: no input, or inputs that are windowed differently.
    """

    def __ror__(self, pcolls: Sequence[PCollection[T]]) -> PCollection[T]:
        if not pcolls:
            raise PipelineError("Flatten needs at least one PCollection")
        return pcolls[0].pipeline.apply(self, pcolls)

    def expand(self, pcoll: Sequence[PCollection[Any]]) -> PCollection[Any]:
        """Add the primitive."""
        pipeline = pcoll[0].pipeline
        strategies = {each.node.strategy for each in pcoll}
        if len(strategies) > 1:
            raise PipelineError(
                f"{pipeline.here()} flattens collections that are windowed differently",
                detail=" and ".join(sorted(repr(strategy) for strategy in strategies)),
                hint="apply the same WindowInto to each input, or one WindowInto after the Flatten "
                "of unwindowed inputs",
            )
        return pipeline.add_operation(
            FlattenOperation(),
            pcoll,
            strategies.pop(),
            retracted_by=next((by for each in pcoll if (by := each.node.retracted_by)), None),
        )[MAIN]
