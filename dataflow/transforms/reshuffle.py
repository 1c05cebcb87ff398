"""Reshuffle: elements as they are, on other workers.

What is fused runs where its input is: ten files that each make a million elements make them on ten workers at most, and
a file's batch in one transaction.  Behind a shuffle the elements are divided anew, and what comes before it is not run
again when something behind it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import attrs

from dataflow.do_fn import (
    CallableDoFn,
    DoFn,
    Shape,
    TaggedOutput,
    TimestampedValue,
    WindowedValue,
)
from dataflow.element_digests import element_digest
from dataflow.graph import MAIN, ParDo, StatefulParDo
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.never_retracted import check_never_retracted
from dataflow.type_vars import T
from dataflow.user_state import ReadModifyWriteStateSpec
from triggers.windowing_strategy import WindowingStrategy
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window
from windowing.window_fn import FrozenWindows

#: How many parts the elements are divided into: more than there are key ranges, so that these get about as many each.
_PARTS = 1024
#: Never written: with it a DoFn is run where keys are, and keeps nothing there.
_NOTHING = ReadModifyWriteStateSpec("nothing")
#: Elements of these types are values here, and would be unwrapped as outputs.
_WRAPPERS = frozenset((TimestampedValue, TaggedOutput, WindowedValue))


class Reshuffle(PTransform[Any, Any]):
    """Divides the elements anew among workers; they keep their event times, windows and panes.

    Nothing is grouped and nothing waits: an element goes on as soon as it has arrived, in batch when all input is
    there, and none is late here, whatever its window.  Where an element goes is computed from its value and its event
    time, and no chance is involved, so that a task that is run again sends the same elements to the same places;
    equal elements of one instant therefore go to one worker.

    Raises:
        PipelineError: when applied: the input may be retracted.
    """

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Pairs with the number of a part as key, and a DoFn where the part is."""
        check_never_retracted(
            pcoll,
            "divides elements anew",
            "an element and its retraction, or what replaces it, could change their order on the way",
            "put it before that grouping, or put df.ToChangelog() before it",
        )
        with pcoll.pipeline.without_handling():
            return pcoll | "divide" >> _Divided() | "pass on" >> _PassedOn(pcoll.node.strategy)


@attrs.frozen(kw_only=True)
class _WithoutExpiry(WindowingStrategy):
    """The windowing of elements that are on their way: no window has expired before the end of time."""

    def expiry_us(self, window: Window) -> int:
        return MAX_TIMESTAMP_US


class _Divided(PTransform[PCollection[Any], PCollection[Any]]):
    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        # Elements of one part have nothing to do with each other, so their windows do not merge on the way.
        strategy = _WithoutExpiry(window_fn=FrozenWindows())
        operation = ParDo(CallableDoFn(_with_part, Shape.MAP))
        return pcoll.pipeline.add_operation(operation, [pcoll], strategy)[MAIN]


class _PassedOn(PTransform[PCollection[Any], PCollection[Any]]):
    def __init__(self, strategy: WindowingStrategy) -> None:
        self._strategy = strategy

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        operation = StatefulParDo(_PassOn())
        return pcoll.pipeline.add_operation(operation, [pcoll], self._strategy)[MAIN]


def _with_part(element: Any, at: datetime = DoFn.TimestampParam) -> tuple[int, Any]:
    return element_digest((at, element)) % _PARTS, element


class _PassOn(DoFn):
    def process(
        self,
        element: tuple[int, Any],
        /,
        at: datetime = DoFn.TimestampParam,
        nothing: Any = DoFn.StateParam(_NOTHING),
    ) -> Iterator[Any]:
        _, value = element
        yield TimestampedValue(value, at) if type(value) in _WRAPPERS else value
