"""Flatten and FlattenWith: the union of several collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dataflow.errors import PipelineError
from dataflow.graph import MAIN
from dataflow.graph import Flatten as FlattenOperation
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.same_windows import check_several, common_strategy
from dataflow.type_vars import T


class Flatten(PTransform[Sequence[PCollection[Any]], PCollection[Any]]):
    """One collection with the elements of all: ``(a, b) | df.Flatten()``.

    They are windowed alike.  Elements that have been grouped, and elements that have not, can be put together in the
    same windows, unless these merge.

    Raises:
        PipelineError: no input, or inputs that are windowed differently.
    """

    def __ror__(self, pcolls: Sequence[PCollection[T]]) -> PCollection[T]:
        if not pcolls:
            raise PipelineError("Flatten needs at least one PCollection")
        return pcolls[0].pipeline.apply(self, pcolls)

    def expand(self, pcoll: Sequence[PCollection[Any]]) -> PCollection[Any]:
        """Add the primitive.

        Raises:
            PipelineError: it is applied to one collection, or to several that are windowed differently.
        """
        check_several(pcoll, "(a, b) | df.Flatten(), or a | df.FlattenWith(b)")
        pipeline = pcoll[0].pipeline
        strategy = common_strategy(_by_number(pcoll), "flattens")
        return pipeline.add_operation(
            FlattenOperation(),
            pcoll,
            strategy,
            retracted_by=next((by for each in pcoll if (by := each.node.retracted_by)), None),
        )[MAIN]


class FlattenWith(PTransform[PCollection[Any], PCollection[Any]]):
    """One collection with the elements of the input and of others: ``a | df.Map(f) | df.FlattenWith(b, c)``.

    `Flatten` in the middle of a chain; it asks the same of its inputs.  Apache Beam's ``FlattenWith``.

    Args:
        *others: collections.

    Raises:
        PipelineError: one of them is none; when applied, they are windowed differently.
    """

    def __init__(self, *others: PCollection[Any]) -> None:
        for each in others:
            if not isinstance(each, PCollection):
                raise PipelineError(f"FlattenWith needs collections, not {each!r}")
        self._others = others

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Flatten all."""
        return (pcoll, *self._others) | "all" >> Flatten()


def _by_number(pcolls: Sequence[PCollection[Any]]) -> dict[str, PCollection[Any]]:
    return {f"input {number}": each for number, each in enumerate(pcolls, 1)}
