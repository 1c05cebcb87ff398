"""Accumulation: how one grouping folds its records, derived once from CombineFn, strategy and input.

It has layers: the user's `CombineFn`; around it signs, where records may be retracted; around that event times, where
the strategy wants those of the records.  A trigger that reads values gets them unfolded: partials then are lists of
records, and folding waits until they are grouped.

Where panes retract what was emitted, and a result consists of many values (`ChangingCombineFn`), a window emits what
has changed.  Then the accumulator of its state has only what has come since it last fired, and what it has emitted is
kept as an accumulator too.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from dataflow.co_group_fn import CoGroupFn
from dataflow.column_combine_fn import ColumnCombineFn
from dataflow.combine_fn import (
    ChangingCombineFn,
    CombineFn,
    ListCombineFn,
    PassingCombineFn,
    can_retract_input,
)
from dataflow.combiners import columns_by_place
from dataflow.graph import Group, KeyedOperation, ParDo, PipelineGraph, TransformNode
from dataflow.join_fn import JoinFn
from dataflow.views import ViewPart
from runners.core.ground.bundle import Bundle
from runners.core.partials.signed_combine import (
    MultisetCombineFn,
    RetractingCombineFn,
    SignedCombineFn,
    SignedPassOnFn,
)
from runners.core.partials.signed_groups import SignedCoGroupFn, SignedJoinFn
from triggers.timestamp_combiner import TimestampCombiner
from triggers.windowing_strategy import WindowingStrategy
from windowing.window import Window

_IMMUTABLE = frozenset((int, float, str, bytes, bool, type(None)))


class Accumulation:
    """The way in which one grouping folds its records.

    Args:
        combine_fn: the user's.
        strategy: the windows, trigger and accumulation mode of the grouping.
        is_retracted: whether records may be retracted.
        is_remembered: whether code behind the grouping keeps what it returned for each result, to retract it later.
    """

    def __init__(
        self,
        combine_fn: CombineFn,
        strategy: WindowingStrategy,
        *,
        is_retracted: bool = False,
        is_remembered: bool = False,
    ) -> None:
        self.strategy, self.is_retracted = strategy, is_retracted
        self._user_fn, self._is_remembered = combine_fn, is_remembered
        #: Whether windows emit what has changed, and not all of it again.  For a window that can be split it is not
        #: known what each part of it has emitted; and what is remembered belongs to the whole of a result.
        self.emits_changes = (
            isinstance(combine_fn, ChangingCombineFn)
            and strategy.is_retracting
            and not (is_retracted and strategy.is_merging)
            and not is_remembered
        )
        #: Whether values go on as they come.
        self.passes_on = isinstance(combine_fn, PassingCombineFn)
        assert not (self.passes_on and strategy.is_merging)
        #: Whether the trigger reads the values.
        self.reads_values = strategy.trigger.reads_values
        self._is_stamped = strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        self._choose: Callable[[Iterable[int]], int] = (
            min if strategy.timestamp_combiner is TimestampCombiner.EARLIEST else max
        )
        self._result_fn: Any = combine_fn
        if is_retracted:
            self._result_fn = _signed(combine_fn, can_split=strategy.is_merging)
        #: The function with which cells are folded.
        self.combine_fn: CombineFn = self._result_fn
        if self._is_stamped:
            self.combine_fn = _StampedCombineFn(self._result_fn, self._choose)
        #: The same function where accumulators can shrink, for `size` and `is_void`; otherwise None.
        self.shrinking: Any = self.combine_fn if is_retracted else None
        #: Whether an accumulator is the list of the values, and is its own result.
        self.is_list = type(self.combine_fn) is ListCombineFn
        #: The function with which partials are folded.
        self.partial_fn: CombineFn = ListCombineFn() if self.reads_values else self.combine_fn
        #: The functions that fold columns of inputs, if nothing but the result of the fold is needed; otherwise None.
        self.column_combiners: tuple[ColumnCombineFn, ...] | None = None
        if self.partial_fn is combine_fn:
            self.column_combiners = columns_by_place(combine_fn)

    @classmethod
    def of(cls, graph: PipelineGraph, node: TransformNode) -> "Accumulation":
        """The accumulation of a grouping of the graph.

        Args:
            graph: of the pipeline.
            node: the grouping.
        """
        operation, pcollection = node.operation, graph.pcollections[node.inputs[0]]
        assert isinstance(operation, Group)
        return cls(
            operation.combine_fn,
            pcollection.strategy,
            is_retracted=pcollection.retracted_by is not None,
            is_remembered=is_remembered(graph, node),
        )

    def pairs(self, bundle: Bundle) -> Sequence[tuple[Any, Any]]:
        """The ``(key, value)`` pairs of a bundle as keys and inputs of `combine_fn`.

        Raises:
            TypeError, ValueError: an element is not a pair.
        """
        pairs = bundle.values
        if self.is_retracted:
            signs = bundle.signs or [1] * len(bundle)
            pairs = [(key, (value, sign)) for (key, value), sign in zip(pairs, signs, strict=True)]
        if self._is_stamped:
            times_us = bundle.timestamps_us
            pairs = [(key, (value, at)) for (key, value), at in zip(pairs, times_us, strict=True)]
        return pairs

    @property
    def sign_of(self) -> Callable[[Any], int] | None:
        """A function that returns the sign of an input of `combine_fn`; None where records are never retracted."""
        if not self.is_retracted:
            return None
        return _stamped_sign if self._is_stamped else _sign

    def folded(self, inputs: Iterable[Any]) -> Any:
        """An accumulator of the inputs in a partial that was not folded."""
        return self.combine_fn.add_inputs(self.combine_fn.create_accumulator(), inputs)

    def values(self, inputs: Iterable[Any]) -> list[Any]:
        """The values in a partial that was not folded, without retracted ones."""
        if self._is_stamped:
            inputs = [value for value, _ in inputs]
        if self.is_retracted:
            return [value for value, sign in inputs if sign > 0]
        return list(inputs)

    def result(self, accumulator: Any) -> Any:
        """The result of an accumulator; it does not change when the accumulator changes later."""
        inner = accumulator[0] if self._is_stamped else accumulator
        output = self._result_fn.extract_output(inner)
        if output is inner and not is_immutable(output):
            return copy.deepcopy(output)
        return output

    def last_results(self, accumulators: Sequence[Any]) -> Sequence[Any]:
        """The results of accumulators that will not change any more, and may be gone afterwards."""
        if self.is_list:
            return accumulators
        if self._is_stamped:
            accumulators = [each[0] for each in accumulators]
        extract = self._result_fn.extract_output
        return [extract(each) for each in accumulators]

    def passed_on(self, accumulator: Any) -> tuple[ViewPart, Any]:
        """The values of an accumulator that go on now, and the accumulator when they have; see `PassingCombineFn`."""
        if not self._is_stamped:
            return self._passing.passed_on(accumulator)
        part, left = self._passing.passed_on(accumulator[0])
        return part, (left, accumulator[1])

    def gone(self, accumulator: Any) -> int:
        """How many values of an accumulator have gone on."""
        return self._passing.gone(accumulator[0] if self._is_stamped else accumulator)

    @property
    def _passing(self) -> PassingCombineFn:
        assert isinstance(self._result_fn, PassingCombineFn)
        return self._result_fn

    def changes(self, accumulator: Any, more: Any) -> tuple[Any, Any]:
        """The values that more input removes from the result of an accumulator, and those that it adds.

        See `emits_changes`.

        Args:
            accumulator: what was emitted.
            more: an accumulator of what has come since.
        """
        if self._is_stamped:
            accumulator, more = accumulator[0], more[0]
        gone, come = self._result_fn.changes(accumulator, more)
        return gone, come

    def of_plain_input(self) -> "Accumulation":
        """The accumulation of the same grouping where records are never retracted."""
        return Accumulation(
            self._user_fn, self.strategy, is_retracted=False, is_remembered=self._is_remembered
        )

    def unsigned(self, accumulator: Any) -> Any:
        """An accumulator of `of_plain_input`, with the records that are there in one whose records may be retracted."""
        if self._is_stamped:
            return self._result_fn.unsigned(accumulator[0]), accumulator[1]
        return self._result_fn.unsigned(accumulator)

    @property
    def is_stamped(self) -> bool:
        """Whether accumulators have an event time, that of a record in them."""
        return self._is_stamped

    def stamp_us(self, accumulator: Any, window: Window) -> int | None:
        """The event time chosen for a pane of a window from its records, in microseconds; None if all were late.

        Args:
            accumulator: of the pane.
            window: bounds the event time.
        """
        if not self._is_stamped or accumulator[1] is None:
            return None
        return int(min(max(accumulator[1], window.start_us), window.max_timestamp_us))

    def stamp_of_all_us(self, accumulators: Iterable[Any], window: Window) -> int | None:
        """The event time in microseconds that was chosen for a pane of several accumulators together, as `stamp_us`.

        Args:
            accumulators: of the pane.
            window: bounds the event time.
        """
        if not self._is_stamped:
            return None
        stamps_us = [each[1] for each in accumulators if each[1] is not None]
        return self.stamp_us((None, self._choose(stamps_us)), window) if stamps_us else None

    def timestamp_us(self, accumulator: Any, window: Window) -> int:
        """The event time of a pane of the window, in microseconds.

        Args:
            accumulator: of the pane.
            window: the window; its last instant is the event time where none was chosen.
        """
        stamp_us = self.stamp_us(accumulator, window)
        return window.max_timestamp_us if stamp_us is None else stamp_us

    def unstamped(self, accumulator: Any) -> Any:
        """An accumulator without the event time that was chosen, if there is one."""
        return (accumulator[0], None) if self._is_stamped else accumulator


def combiners_of(graph: PipelineGraph, node: TransformNode) -> tuple[ColumnCombineFn, ...] | None:
    """The functions that fold columns of inputs of a transform; None if it has none.

    Args:
        graph: of the pipeline.
        node: a grouping, or a stateful DoFn, which has none.
    """
    if not isinstance(node.operation, Group):
        return None
    return Accumulation.of(graph, node).column_combiners


def _signed(combine_fn: CombineFn, *, can_split: bool) -> SignedCombineFn:
    """The combine function for inputs that may be retracted.

    Args:
        combine_fn: the user's.
        can_split: whether windows merge, and so may have to be split again: the contents of each part must be known
            exactly then.
    """
    if isinstance(combine_fn, JoinFn):
        return SignedJoinFn(combine_fn)
    if isinstance(combine_fn, CoGroupFn):
        return SignedCoGroupFn(combine_fn)
    if isinstance(combine_fn, PassingCombineFn):
        return SignedPassOnFn(combine_fn)
    if can_retract_input(combine_fn) and not can_split:
        return RetractingCombineFn(combine_fn)
    return MultisetCombineFn(combine_fn)


def is_remembered(graph: PipelineGraph, node: TransformNode) -> bool:
    """Whether there is nondeterministic code behind a grouping, before the next one.

    Args:
        graph: of the pipeline.
        node: the grouping.
    """
    reached = set(node.outputs.values())
    for each in graph.transforms:
        if reached.isdisjoint(each.inputs) or isinstance(each.operation, KeyedOperation):
            continue
        if isinstance(each.operation, ParDo) and each.operation.is_remembered:
            return True
        reached.update(each.outputs.values())
    return False


def _sign(value: tuple[Any, int]) -> int:
    return value[1]


def _stamped_sign(value: tuple[tuple[Any, int], int]) -> int:
    return value[0][1]


def is_immutable(value: Any) -> bool:
    """Whether a value is known never to change: a number, a text, or tuples of these.

    Args:
        value: a result, or an accumulator.
    """
    if type(value) is tuple:
        return all(type(each) in _IMMUTABLE or is_immutable(each) for each in value)
    return type(value) in _IMMUTABLE


@attrs.frozen
class _StampedCombineFn(CombineFn):
    """Combines inputs ``(input, event time)``; an accumulator is one of ``combine_fn``, and the chosen event time.

    A retracted input leaves its event time behind.
    """

    combine_fn: Any
    choose: Any

    def create_accumulator(self) -> tuple[Any, int | None]:
        return self.combine_fn.create_accumulator(), None

    def add_input(self, accumulator: tuple[Any, int | None], value: Any) -> tuple[Any, int | None]:
        return self.add_inputs(accumulator, (value,))

    def add_inputs(
        self, accumulator: tuple[Any, int | None], values: Iterable[Any]
    ) -> tuple[Any, int | None]:
        inputs, times_us = [], []
        for each, at_us in values:
            inputs.append(each)
            times_us.append(at_us)
        inner = self.combine_fn.add_inputs(accumulator[0], inputs)
        return inner, self._chosen([accumulator[1], *times_us])

    def merge_accumulators(
        self, accumulators: Iterable[tuple[Any, int | None]]
    ) -> tuple[Any, int | None]:
        inner, times_us = zip(*accumulators, strict=True)
        return self.combine_fn.merge_accumulators(inner), self._chosen(times_us)

    def extract_output(self, accumulator: tuple[Any, int | None]) -> Any:
        return self.combine_fn.extract_output(accumulator[0])

    def size(self, accumulator: tuple[Any, int | None]) -> int:
        return int(self.combine_fn.size(accumulator[0]))

    def is_void(self, accumulator: tuple[Any, int | None]) -> bool:
        return bool(self.combine_fn.is_void(accumulator[0]))

    def _chosen(self, times_us: Iterable[int | None]) -> int | None:
        known_us = [at_us for at_us in times_us if at_us is not None]
        return int(self.choose(known_us)) if known_us else None
