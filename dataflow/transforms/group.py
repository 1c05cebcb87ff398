"""GroupByKey and CombinePerKey: the one operation that needs windows.

Grouping is the paper's GroupByKeyAndWindow; `GroupByKey` is the combine whose accumulator is the list of values,
so both are one mechanism.  Dataflow Model, section 2.2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, overload

from dataflow.combine_fn import CombineFn, ListCombineFn, PassOnFn, as_combine_fn
from dataflow.errors import PipelineError
from dataflow.graph import MAIN, Group
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform, changed
from dataflow.serialization import dumps_code
from dataflow.strategy_checks import check_grouping
from dataflow.transforms.fanout import (
    Fanout,
    PartsCombineFn,
    WholeOfPartsCombineFn,
    check_fanout,
    divided,
    rejoined,
)
from dataflow.transforms.handled_combine import combine_handled
from dataflow.type_vars import (
    V2,
    K,
    OfInputs,
    OfOutputs,
    OutT,
    ResultT,
    SumOrExtreme,
    V,
)


class CombinePerKey(PTransform[Any, Any], Generic[V, OutT, ResultT]):
    """``(key, value)`` pairs to ``(key, result)`` per window and firing.

    Args:
        fn: a `CombineFn`, or a function from a list of values, in any order, to a value.

    Accumulators are built before the shuffle, so a hot key costs its sender, not its owner.
    Where it has so many senders that its owner cannot keep up, `with_hot_key_fanout` divides it.
    The one of a key and window must fit into memory.
    A function is called on all values of a group, which are its accumulator, and again for each pane; only ``sum``,
    ``min``, ``max``, ``any`` and ``all``, and what `dataflow.associative` declares, are called on parts of it and then
    on the results of these parts, for the price of one value.

    Raises:
        PipelineError: ``fn`` is neither.
    """

    @overload
    def __init__(self: CombinePerKey[V, OutT, OfOutputs], fn: CombineFn[V, Any, OutT]) -> None: ...
    @overload
    def __init__(self: CombinePerKey[Any, Any, OfInputs], fn: SumOrExtreme) -> None: ...
    @overload
    def __init__(
        self: CombinePerKey[V, OutT, OfOutputs], fn: Callable[[list[V]], OutT]
    ) -> None: ...
    def __init__(self, fn: CombineFn | Callable[..., Any]) -> None:
        self._given = fn
        self._combine_fn = as_combine_fn(fn)
        self._fanout: Fanout | None = None

    def default_label(self) -> str:
        """``CombinePerKey(name)``."""
        name = getattr(self._given, "__name__", type(self._given).__name__)
        return f"CombinePerKey({name})"

    def with_hot_key_fanout(self, fanout: Fanout) -> Self:
        """Combine each key in so many shards first, and then the accumulators of these; the answer is the same.

        An element's shard is chosen by a digest of its value and event time, so elements that are equal in both share
        one.  A pane waits for a second grouping, and where the input may be retracted, accumulators are retracted.

        Windows that merge are refused, since the shards of a key would not merge alike, and so are triggers that fire
        before the end of their window or by the number of what comes late, since they would count shards.

        Args:
            fanout: the number of shards of each key; or a function from the key to it, 1 for keys that are not hot.
                The function is deterministic; where exceptions are handled, those that it raises are, too.

        Raises:
            PipelineError: ``fanout`` is neither a positive integer nor a function; when applied, the windows or the
                trigger are refused.
        """
        check_fanout(fanout)
        return changed(self, _fanout=fanout)

    @overload
    def expand(
        self: CombinePerKey[Any, Any, OfInputs], pcoll: PCollection[tuple[K, V2]]
    ) -> PCollection[tuple[K, V2]]: ...
    @overload
    def expand(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, OutT]]: ...
    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Add the primitive, or the two of a fan-out; where exceptions are handled, with a step before and after."""
        handled = combine_handled(
            pcoll,
            self._combine_fn,
            lambda combine_fn: changed(self, _combine_fn=combine_fn, label=None),
            has_keys=True,
            fanout=1 if self._fanout is None else self._fanout,
        )
        if handled is not None:
            return handled
        if self._fanout is None:
            return _add(pcoll, self._combine_fn)
        dumps_code(self._combine_fn, pcoll.pipeline.here())
        parts = divided(pcoll, self._fanout) | "shards" >> CombinePerKey(
            PartsCombineFn(self._combine_fn)
        )
        return rejoined(parts, pcoll) | "whole" >> CombinePerKey(
            WholeOfPartsCombineFn(self._combine_fn)
        )


class GroupByKey(PTransform[Any, Any]):
    """``(key, value)`` pairs to ``(key, values)`` per window and firing; the order of the values means nothing.

    The values are a list when they fit into memory.  In batch, with the default trigger, those that do not are another
    `collections.abc.Sequence`, which reads them from a temporary file: it can be iterated any number of times, knows
    its length, compares like a list, and cannot be changed.  It is there as long as the task; ``list(values)`` may be
    kept longer, and takes the memory, and so does sending it to another grouping, which gets a list.

    Keys are made of None, bool, int, float, str, bytes, date, time, timedelta, datetime with a time zone, `Decimal`,
    `UUID`, scalars of numpy, windows, members of enums, and of named tuples, frozen dataclasses, frozen attrs classes
    and tuples of these.  Equal ones are one key, and the same one of them is always emitted: ``1`` for ``True`` and
    ``1.0``, and moments in UTC, whatever zone they came in (``key.astimezone(zone)`` has it again).

    A key of a class comes back as an instance of it, and is one key only with those of its class, whatever Python calls
    equal to it: ``Decimal(1)`` is one with ``Decimal("1.00")``, and another than ``1``; a named tuple is another key
    than a tuple, and a member of a `StrEnum` than its text.  One grouping should not be given both: where they are in
    one bundle, the text that came first takes the values of the member that equals it.  Classes are stored by their
    names, so a class that is renamed has other keys; members by their names, flags by their values.

    Raises, where the pipeline runs:
        KeyEncodingError: something else is a key; names the transform, with a hint how to make a key of it.
    """

    def expand(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, Sequence[V]]]:
        """Add the primitive."""
        return _add(pcoll, ListCombineFn())


class PassOn(PTransform[Any, Any]):
    """``(key, value)`` pairs to panes as those of `GroupByKey`, whose values go before them where they are many.

    It emits ``(key, ViewPart)`` as values come, and ``(key, (count, values))`` per window and firing: how many have
    gone before, and the others; none, where some have gone and later panes have them too.  Where values may be
    retracted, those that go on are a `SignedViewPart`.  Windows do not merge.
    """

    def expand(self, pcoll: PCollection[tuple[K, Any]]) -> PCollection[tuple[K, Any]]:
        """Add the primitive."""
        assert not pcoll.node.strategy.is_merging
        return _add(pcoll, PassOnFn())


def _add(pcoll: PCollection[Any], combine_fn: CombineFn) -> PCollection[Any]:
    pipeline, strategy = pcoll.pipeline, pcoll.node.strategy
    dumps_code(combine_fn, pipeline.here())
    if pcoll.node.retracted_by and not strategy.is_retracting:
        raise PipelineError(
            f"{pipeline.here()} groups elements that may be retracted, but cannot retract what it emits itself",
            detail=f"{pcoll.node.retracted_by} retracts what it has emitted; here the accumulation mode is "
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
