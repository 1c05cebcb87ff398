"""Join: the pairs of two collections that have the same key and window.  Dataflow Model, sections 2.1 and 2.3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dataflow.errors import PipelineError
from dataflow.join_fn import LEFT, RIGHT, JoinFn, JoinType, Pairs
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.same_windows import check_several
from dataflow.times import in_words
from dataflow.transforms.co_group import parts_of_pairs, together
from dataflow.transforms.group import CombinePerKey
from dataflow.transforms.par_do import FlatMap
from dataflow.type_hints import pair_type, union_of
from dataflow.type_vars import K
from triggers.accumulation import AccumulationMode
from triggers.trigger import EarlyFirings

_TWO = 2


class Join(PTransform[Any, Any]):
    """``(orders, cities) | df.Join()``: ``(key, (order, city))`` for each order and city of the same key and window.

    It emits what `CoGroupByKey` and a function from its groups to pairs would emit.  But where the accumulation mode is
    retracting, a firing retracts the pairs that are gone and emits those that have come, and not all pairs again.  So a
    value that comes on one side costs one pair for each value that it meets, however many pairs there are already.
    Both inputs are collections of ``(key, value)`` pairs, windowed alike, as for `CoGroupByKey`.  Where one of them
    retracts a value, the pairs of that value are retracted; values must be hashable then.  Pairs can be joined again.

    All pairs of a key and window are retracted and emitted again where they get another event time, by a
    ``timestamp_combiner``, or another window, as in sessions that grow; where sessions are joined of what may be
    retracted; and before code that is marked `nondeterministic`, whose outputs for each element are kept.
    Where the mode is retracting, the `PaneInfo` of a pair is that of an element which no grouping has produced.

    A function behind it that fails is run again with the same pairs; state is changed once.

    Args:
        join_type: what is emitted for a value that meets none of the other side.

    Raises:
        PipelineError: ``join_type`` is none; when applied, something else than two collections, which are windowed
            alike, or a window that may fire more than once and discards: pairs of values in different panes would be
            lost.
    """

    def __init__(self, join_type: JoinType = JoinType.INNER) -> None:
        if not isinstance(join_type, JoinType):
            raise PipelineError(
                f"Join needs a JoinType, not {join_type!r}",
                hint=f"one of {', '.join(map(str, JoinType))}",
            )
        self._join_type = join_type

    def default_label(self) -> str:
        """``Join(inner)``."""
        return f"Join({self._join_type.value})"

    def __ror__(
        self, pcolls: tuple[PCollection[tuple[K, Any]], PCollection[tuple[K, Any]]]
    ) -> PCollection[tuple[K, tuple[Any, Any]]]:
        is_pair = isinstance(pcolls, tuple | list) and len(pcolls) == _TWO
        if not is_pair or not all(isinstance(each, PCollection) for each in pcolls):
            raise PipelineError(
                f"Join needs two PCollections, not {pcolls!r}",
                hint="e.g. (orders, cities) | df.Join(); more than two are joined one after the other",
            )
        found: PCollection[Any] = pcolls[0].pipeline.apply(self, pcolls)
        return found

    def expand(self, pcoll: tuple[PCollection[Any], PCollection[Any]]) -> PCollection[Any]:
        """Tag, flatten, group, and emit each pair by itself.

        Raises:
            PipelineError: it is applied to one collection.
        """
        check_several(pcoll, "(orders, cities) | df.Join()")
        both = together(dict(zip((LEFT, RIGHT), pcoll, strict=True)))
        _check_that_pairs_meet(both)
        with both.pipeline.without_handling():
            joined = both | "join" >> CombinePerKey(JoinFn.of(self._join_type))
            return (joined | "pairs" >> FlatMap(_pairs)).of_type(self._type_of_pairs(pcoll))

    def _type_of_pairs(self, pcoll: Iterable[PCollection[Any]]) -> Any:
        key, (left, right) = parts_of_pairs(pcoll)
        pair = pair_type(
            union_of([left, None]) if self._join_type.keeps_right else left,
            union_of([right, None]) if self._join_type.keeps_left else right,
        )
        return pair_type(key, pair)


def _pairs(group: tuple[Any, Pairs]) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    key, pairs = group
    return ((key, pair) for pair in pairs)


def _check_that_pairs_meet(pcoll: PCollection[Any]) -> None:
    strategy = pcoll.node.strategy
    fires_once = (
        strategy.trigger.early_firings is EarlyFirings.NEVER
        and not strategy.allowed_lateness_us
        and not strategy.follows_percentile
    )
    if fires_once or strategy.accumulation_mode is not AccumulationMode.DISCARDING:
        return
    raise PipelineError(
        f"{pcoll.pipeline.here()} would lose pairs: its windows may fire more than once, and discard what they have "
        "emitted",
        detail=f"a value would not meet what came to the other side before the last pane; the trigger is "
        f"{strategy.trigger!r}, the allowed lateness {in_words(strategy.allowed_lateness_us)}",
        hint="pass accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING to the WindowInto before it; or "
        "use df.CoGroupByKey() if panes are to be joined by themselves",
    )
