"""Combining whose exceptions are handled: what a combine function fails on is an output of two steps around it.

The first leaves out values on which it fails alone, and those of keys on which the function of a fan-out fails; the
second groups on which it fails.  Both are ordinary steps of the pipeline, so that of a failure everything holds that
holds for those of a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn
from dataflow.do_fn import CallableDoFn, Shape, TaggedOutput
from dataflow.exception_handling import FAILURES, BadElement
from dataflow.graph import MAIN, ParDo
from dataflow.handled_combining import Handled, HandledCombineFn
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.fanout import Fanout, shards_of


def combine_handled(
    pcoll: PCollection[Any],
    combine_fn: CombineFn,
    combine: Callable[[CombineFn], PTransform[Any, Any]],
    *,
    has_keys: bool,
    fanout: Fanout = 1,
) -> PCollection[Any] | None:
    """Combine with exceptions handled, where the transform that is being applied does so; None where it does not.

    Args:
        pcoll: the elements.
        combine_fn: the user's.
        combine: returns the transform that combines with another function in its place.
        has_keys: whether elements are pairs of a key and a value, and results pairs of a key and a result.
        fanout: the number of shards of a key, or the user's function to it, which may fail too.
    """
    pipeline = pcoll.pipeline
    if pipeline.handling is None:
        return None
    handled = HandledCombineFn(combine_fn, pipeline.handling, pipeline.path)
    checked = pcoll | "check" >> _Step(_Check(handled, has_keys, fanout), Shape.MAP)
    with pipeline.without_handling():
        results = checked | "combine" >> combine(handled)
    found: PCollection[Any] = results | "results" >> _Step(
        _of_pair if has_keys else _of_result, Shape.FLAT_MAP
    )
    return found


class _Step(PTransform[PCollection[Any], PCollection[Any]]):
    def __init__(self, fn: Callable[..., Any], shape: Shape) -> None:
        self._fn, self._shape = fn, shape

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        return pcoll.pipeline.add_operation(
            ParDo(CallableDoFn(self._fn, self._shape)),
            [pcoll],
            pcoll.node.strategy,
            retracted_by=pcoll.node.retracted_by,
        )[MAIN]


@attrs.frozen
class _Check:
    combine_fn: HandledCombineFn
    has_keys: bool
    fanout: Fanout

    def __call__(self, element: Any, /) -> Any:
        if self.has_keys:
            key, value = element
            if callable(self.fanout):
                # Keys that it fails on must not come to where they are divided, as nothing is handled there.
                shards_of(self.fanout, key)
        else:
            value = element
        self.combine_fn.check(value)
        return element


def _of_pair(element: tuple[Any, Handled]) -> list[Any]:
    key, (value, failure) = element
    if failure is None:
        return [(key, value)]
    return [TaggedOutput(FAILURES, BadElement((key, value), failure))]


def _of_result(element: Handled) -> list[Any]:
    value, failure = element
    if failure is None:
        return [value]
    return [TaggedOutput(FAILURES, BadElement(value, failure))]
