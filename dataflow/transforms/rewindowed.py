"""A function on each element that also changes how the next grouping treats them, for transforms made of several.

The windows that elements are in stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.do_fn import CallableDoFn, Shape
from dataflow.graph import MAIN
from dataflow.graph import ParDo as ParDoOperation
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from triggers.windowing_strategy import WindowingStrategy


class Rewindowed(PTransform[PCollection[Any], PCollection[Any]]):
    """One output per element, ``fn(element)``, with another windowing strategy.

    Args:
        fn: called with each element.
        strategy: of the outputs; its window function would give them the windows that they are in, or is frozen.
    """

    def __init__(self, fn: Callable[..., Any], strategy: WindowingStrategy) -> None:
        self._fn, self._strategy = fn, strategy

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Add the primitive."""
        return pcoll.pipeline.add_operation(
            ParDoOperation(CallableDoFn(self._fn, Shape.MAP)),
            [pcoll],
            self._strategy,
            retracted_by=pcoll.node.retracted_by,
        )[MAIN]
