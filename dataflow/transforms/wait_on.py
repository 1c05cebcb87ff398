"""WaitOn: elements go on when other collections are complete in their window."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs

from dataflow.combiners import CountCombineFn
from dataflow.do_fn import DoFn, TaggedOutput, TimestampedValue, WindowedValue
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.combine_globally import CombineGlobally
from dataflow.transforms.par_do import Map
from dataflow.transforms.rewindowed import Rewindowed
from dataflow.transforms.side_inputs import AsList, beside
from dataflow.type_vars import T
from triggers.accumulation import AccumulationMode
from triggers.default_trigger import DefaultTrigger

#: Elements of these types are values here, and would be unwrapped as outputs.
_WRAPPERS = frozenset((TimestampedValue, TaggedOutput, WindowedValue))


class WaitOn(PTransform[Any, Any]):
    """The input itself, each element when the window of every signal that belongs to its window has ended.

    ``rows | df.WaitOn(schema_written) | ...``: what is in the signals is not looked at, only that all of it that is on
    time has gone by.  Windows belong to each other as for side inputs (`AsSingleton`): the signal's window that
    contains the last instant of the element's.  While an element waits, it holds the watermark.

    Beam's ``WaitOn``.

    Args:
        *signals: the collections that are waited for.

    Raises:
        PipelineError: there is none, or one is no PCollection; when applied, as for side inputs.
    """

    def __init__(self, *signals: PCollection[Any]) -> None:
        if not signals:
            raise PipelineError("WaitOn needs at least one PCollection to wait for")
        for each in signals:
            if not isinstance(each, PCollection):
                raise PipelineError(
                    f"WaitOn needs PCollections to wait for, not {each!r}",
                    hint="e.g. rows | df.WaitOn(written), where written is what a transform has returned",
                )
        self._signals = signals

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Count each signal at the end of its windows, and take the counts as side inputs that nobody sees."""
        ends = [
            AsList(each | f"end of {number}" >> _Count(), retracts=False)
            for number, each in enumerate(self._signals, 1)
        ]
        return beside(pcoll, ends) | "go on" >> Map(_element)


class _Count(PTransform[PCollection[Any], PCollection[int]]):
    """The number of elements, when a window ends."""

    def expand(self, pcoll: PCollection[Any]) -> PCollection[int]:
        strategy, is_retracted = pcoll.node.strategy, pcoll.node.retracted_by is not None
        mode = AccumulationMode.DISCARDING
        if is_retracted:
            mode = AccumulationMode.ACCUMULATING_AND_RETRACTING
        at_the_end = attrs.evolve(strategy, trigger=DefaultTrigger(), accumulation_mode=mode)
        numbers: PCollection[int] = (
            pcoll
            | "nothing of it" >> Rewindowed(_nothing, at_the_end)
            | "count" >> CombineGlobally(CountCombineFn()).without_defaults()
        )
        return numbers


def _nothing(_element: Any) -> None:
    return None


def _element(given: Any, /, at: datetime = DoFn.TimestampParam) -> Any:
    element = given.element
    return TimestampedValue(element, at) if type(element) in _WRAPPERS else element
