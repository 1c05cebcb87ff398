"""GroupByKey and CombinePerKey: the one operation that needs windows.

Grouping is the paper's GroupByKeyAndWindow; `GroupByKey` is the combine whose accumulator is the list of values,
so both are one mechanism.  Dataflow Model, section 2.2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dataflow.combine_fn import CombineFn, ListCombineFn, as_combine_fn
from dataflow.errors import PipelineError
from dataflow.graph import MAIN, Group
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.serialization import dumps_code
from dataflow.strategy_checks import check_grouping


class CombinePerKey(PTransform[PCollection[tuple[Any, Any]], PCollection[tuple[Any, Any]]]):
    """``(key, value)`` pairs to ``(key, result)`` per window and firing.

    Args:
        fn: a `CombineFn`, or a function from a list of values, in any order, to a value.

    Accumulators are built before the shuffle, so a hot key costs its sender, not its owner.
    The one of a key and window must fit into memory.
    A function is called on all values of a group, which are its accumulator, and again for each pane; only ``sum``,
    ``min``, ``max``, ``any`` and ``all``, and what `dataflow.associative` declares, are called on parts of it and then
    on the results of these parts, for the price of one value.

    Raises:
        PipelineError: ``fn`` is neither.
    """

    def __init__(self, fn: CombineFn | Callable[[list[Any]], Any]) -> None:
        self._given = fn
        self._combine_fn = as_combine_fn(fn)

    def default_label(self) -> str:
        """``CombinePerKey(name)``."""
        name = getattr(self._given, "__name__", type(self._given).__name__)
        return f"CombinePerKey({name})"

    def expand(self, pcoll: PCollection[tuple[Any, Any]]) -> PCollection[tuple[Any, Any]]:
        """Add the primitive."""
        return _add(pcoll, self._combine_fn)


class GroupByKey(PTransform[PCollection[tuple[Any, Any]], PCollection[tuple[Any, Sequence[Any]]]]):
    """``(key, value)`` pairs to ``(key, values)`` per window and firing; the order of the values means nothing.

    The values are a list when they fit into memory.  In batch, with the default trigger, those that do not are another
    `collections.abc.Sequence`, which reads them from a temporary file: it can be iterated any number of times, knows
    its length, compares like a list, and cannot be changed.  It is there as long as the task; ``list(values)`` may be
    kept longer, and takes the memory, and so does sending it to another grouping, which gets a list.

    Keys are made of None, bool, int, float, str, bytes, date, datetime with a time zone, and tuples of these.  Equal
    ones are one key, and the same one of them is always emitted: ``1`` for ``True`` and ``1.0``, and moments in UTC,
    whatever zone they came in (``key.astimezone(zone)`` has it again).

    Raises, where the pipeline runs:
        KeyEncodingError: something else is a key; names the transform, with a hint how to make a key of it.
    """

    def expand(self, pcoll: PCollection[tuple[Any, Any]]) -> PCollection[tuple[Any, Sequence[Any]]]:
        """Add the primitive."""
        return _add(pcoll, ListCombineFn())


def _add(pcoll: PCollection[Any], combine_fn: CombineFn) -> PCollection[Any]:
    pipeline, strategy = pcoll.pipeline, pcoll.node.strategy
    dumps_code(combine_fn, pipeline.here())
    if pcoll.node.retracted_by and not strategy.is_retracting:
        raise PipelineError(
            f"{pipeline.here()} groups elements that may be retracted, but cannot retract what it emits itself",
            detail=f"{pcoll.node.retracted_by} accumulates and retracts; here the accumulation mode is "
            f"{strategy.accumulation_mode.name}",
            hint="pass accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING to the WindowInto before it, "
            "or put df.ToChangelog() before it to group the changes themselves",
        )
    check_grouping(pcoll)
    return pipeline.add_operation(
        Group(combine_fn),
        [pcoll],
        strategy.frozen(),
        retracted_by=pipeline.here() if strategy.is_retracting else None,
    )[MAIN]
