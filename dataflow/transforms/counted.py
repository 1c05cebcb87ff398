"""How many elements a collection in the global window has had when it has ended; also where it has had none.

Elements are counted apart, whatever the trigger of the collection is: it sees no element that is not the user's.
"""

from __future__ import annotations

from typing import Any

from dataflow.combiners import SumCombineFn
from dataflow.graph import MAIN, Group, Read
from dataflow.impulse import ImpulseSource
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.flatten import Flatten
from dataflow.transforms.rewindowed import Rewindowed
from triggers.accumulation import AccumulationMode
from triggers.windowing_strategy import WindowingStrategy


def counted_at_the_end(pcoll: PCollection[Any]) -> PCollection[tuple[None, int]]:
    """``(None, number)``, once, at the end of time; for the `expand` of transforms.

    Where the input has no end that is when its job is drained, which is no mistake here, as it is where a user's
    grouping waits for it.

    Args:
        pcoll: any collection.
    """
    mode = AccumulationMode.DISCARDING
    if pcoll.node.retracted_by:
        mode = AccumulationMode.ACCUMULATING_AND_RETRACTING
    at_the_end = WindowingStrategy(accumulation_mode=mode)
    impulse = pcoll.pipeline | "impulse" >> _Impulse()
    counted = (
        pcoll | "ones" >> Rewindowed(_one, at_the_end),
        impulse | "zero" >> Rewindowed(_zero, at_the_end),
    ) | "both" >> Flatten()
    return counted | "count" >> _Count()


class _Count(PTransform[PCollection[Any], PCollection[Any]]):
    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        return pcoll.pipeline.add_operation(
            Group(SumCombineFn()),
            [pcoll],
            pcoll.node.strategy.frozen(),
            retracted_by=pcoll.pipeline.here() if pcoll.node.retracted_by else None,
        )[MAIN]


class _Impulse(PTransform[Any, PCollection[bytes]]):
    def expand(self, pcoll: Any) -> PCollection[bytes]:
        return pcoll.add_operation(Read(ImpulseSource()), [], WindowingStrategy())[MAIN]  # type: ignore[no-any-return]


def _one(_element: Any) -> tuple[None, int]:
    return None, 1


def _zero(_element: Any) -> tuple[None, int]:
    return None, 0
