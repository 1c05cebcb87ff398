"""Distinct: each element once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from dataflow.combiners import CountCombineFn
from dataflow.do_fn import DoFn
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.group import CombinePerKey
from dataflow.transforms.par_do import FlatMap, Map
from dataflow.type_vars import T
from windowing.pane import PaneInfo


class Distinct(PTransform[Any, Any]):
    """Each element once in each of its windows.

    The element is the key of a grouping, and as for `GroupByKey` equal ones are one, of which the same is always
    emitted: ``1`` for ``True`` and ``1.0``.  Other types than those of keys are refused; make the element a text or a
    tuple first, or use `DeduplicatePerKey` with a key of its own.

    A window that fires several times emits an element with the first firing that has it.  Where the accumulation mode
    is retracting, each firing that changes how often it came retracts it and emits it again; one that came and was
    retracted as often is not there any more.
    Nothing but the number of times that an element came is kept, until its window expires.

    Raises:
        PipelineError: when applied: as for `CombinePerKey`.

    Raises, where the pipeline runs:
        KeyEncodingError: an element cannot be a key.
    """

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Count each element, and emit those that are there."""
        with pcoll.pipeline.without_handling():
            counts: PCollection[tuple[T, int]] = (
                pcoll | "key" >> Map(_as_key) | "count" >> CombinePerKey(CountCombineFn())
            )
            is_retracting = counts.node.strategy.is_retracting
            return counts | "present" >> FlatMap(_Present(is_retracting))


def _as_key(element: T) -> tuple[T, None]:
    return element, None


@attrs.frozen
class _Present:
    is_retracting: bool

    def __call__(
        self, counted: tuple[Any, int], /, pane: PaneInfo = DoFn.PaneParam
    ) -> Iterator[Any]:
        element, count = counted
        # Without retractions, later panes of the window have it again.
        if count > 0 and (self.is_retracting or pane.is_first):
            yield element
