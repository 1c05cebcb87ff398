"""Fan-out: the elements of a hot key are combined in shards, and their accumulators then by the key.

The first level fires at the end of a window, and for each late record at once.  It emits what has come since, as
accumulators; the second level alone has the accumulation mode and the trigger of the user, so it counts nothing twice.
Where the input may be retracted the first level retracts the accumulators that it replaces.

An accumulator is emitted as its pickle, so that the retraction of one is found again by its value.

Beam's ``CombinePerKey.with_hot_key_fanout``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn, CompositeCombineFn
from dataflow.do_fn import DoFn
from dataflow.element_digests import element_digest
from dataflow.errors import PipelineError, TransformError
from dataflow.pipeline import PCollection
from dataflow.serialization import dumps, loads
from dataflow.transforms.rewindowed import Rewindowed
from triggers.accumulation import AccumulationMode
from triggers.after_watermark import AfterWatermark
from triggers.default_trigger import DefaultTrigger
from triggers.firing_behavior import FiringBehavior
from triggers.trigger import Trigger

#: The number of shards of a key, or a function from the key to it.
Fanout = int | Callable[[Any], int]


def check_fanout(fanout: object) -> None:
    """Check a number of shards, or a function to it.

    Raises:
        PipelineError: it is neither.
    """
    if not callable(fanout) and not _is_number_of_shards(fanout):
        raise PipelineError(
            f"a key cannot be divided into {fanout!r} shards",
            hint="give a positive integer, or a function from a key to one",
        )


def shards_of(fanout: Fanout, key: Any) -> int:
    """The number of shards of a key.

    Args:
        fanout: the number, or the user's function to it.
        key: the key.

    Raises:
        TransformError: the function returned something else.
        Exception: what it raised.
    """
    shards = fanout(key) if callable(fanout) else fanout
    if not _is_number_of_shards(shards):
        raise TransformError(
            f"the key {key!r} cannot be divided into {shards!r} shards",
            hint="the function given to with_hot_key_fanout returns a positive integer, 1 for a key that is not hot",
        )
    return shards


def divided(pcoll: PCollection[tuple[Any, Any]], fanout: Fanout) -> PCollection[Any]:
    """Pairs by key and shard, for a first level of grouping.

    Args:
        pcoll: ``(key, value)`` pairs.
        fanout: the number of shards.

    Raises:
        PipelineError: the windows merge, or the trigger fires by more than the end of the window.
    """
    here, strategy = pcoll.pipeline.here(), pcoll.node.strategy
    if strategy.is_merging:
        raise PipelineError(
            f"{here} divides keys into shards, in windows that may merge",
            detail=f"the windows are {strategy.window_fn!r}; each shard would merge those of its own elements",
            hint="leave the fan-out away: accumulators are built before the shuffle in any case; or use windows that "
            "do not merge",
        )
    if not _fires_at_the_end(strategy.trigger):
        raise PipelineError(
            f"{here} divides keys into shards, which its trigger would count in place of records",
            detail=f"the trigger is {strategy.trigger!r}",
            hint="use the default trigger, or df.AfterWatermark() without early and late; or leave the fan-out away: "
            "accumulators are built before the shuffle in any case",
        )
    mode = AccumulationMode.DISCARDING
    if pcoll.node.retracted_by:
        mode = AccumulationMode.ACCUMULATING_AND_RETRACTING
    first = attrs.evolve(
        strategy,
        trigger=DefaultTrigger(),
        accumulation_mode=mode,
        on_time_behavior=FiringBehavior.FIRE_IF_NON_EMPTY,
        closing_behavior=FiringBehavior.FIRE_IF_NON_EMPTY,
    )
    return pcoll | "divide" >> Rewindowed(_ToShard(fanout), first)


def rejoined(
    parts: PCollection[tuple[Any, Any]], pcoll: PCollection[tuple[Any, Any]]
) -> PCollection[Any]:
    """Accumulators by key, for the second level of grouping.

    Args:
        parts: what the first level has emitted.
        pcoll: what was divided, whose windowing strategy they get.
    """
    return parts | "rejoin" >> Rewindowed(_without_shard, pcoll.node.strategy.frozen())


class PartsCombineFn(CompositeCombineFn):
    """Combines as another function does, and has for its result the accumulator, as bytes.

    Args:
        *combine_fns: the other one.
    """

    def create_accumulator(self) -> Any:
        """Create one of the function."""
        return self.combine_fns[0].create_accumulator()

    def add_input(self, accumulator: Any, value: Any) -> Any:
        """Do what `add_input` of the function does."""
        return self.combine_fns[0].add_input(accumulator, value)

    def add_inputs(self, accumulator: Any, values: Iterable[Any]) -> Any:
        """Do what `add_inputs` of the function does."""
        return self.combine_fns[0].add_inputs(accumulator, values)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Do what `merge_accumulators` of the function does."""
        return self.combine_fns[0].merge_accumulators(accumulators)

    def retract_input(self, accumulator: Any, value: Any) -> Any:
        """Do what `retract_input` of the function does."""
        return self.combine_fns[0].retract_input(accumulator, value)

    def extract_output(self, accumulator: Any) -> bytes:
        """The accumulator."""
        return dumps(accumulator)


class WholeOfPartsCombineFn(CombineFn):
    """Combines what `PartsCombineFn` has emitted for the shards of a key.

    Args:
        combine_fn: the function that the parts were combined with.
    """

    def __init__(self, combine_fn: CombineFn) -> None:
        self._combine_fn = combine_fn

    def create_accumulator(self) -> Any:
        """Create one of the function."""
        return self._combine_fn.create_accumulator()

    def add_input(self, accumulator: Any, value: bytes) -> Any:
        """Merge a part."""
        return self._combine_fn.merge_accumulators([accumulator, loads(value)])

    def add_inputs(self, accumulator: Any, values: Iterable[bytes]) -> Any:
        """Merge all parts at once."""
        return self._combine_fn.merge_accumulators([accumulator, *map(loads, values)])

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Do what `merge_accumulators` of the function does."""
        return self._combine_fn.merge_accumulators(accumulators)

    def extract_output(self, accumulator: Any) -> Any:
        """Do what `extract_output` of the function does."""
        return self._combine_fn.extract_output(accumulator)


@attrs.frozen
class _ToShard:
    fanout: Fanout

    def __call__(
        self, element: tuple[Any, Any], /, timestamp: datetime = DoFn.TimestampParam
    ) -> tuple[tuple[Any, int], Any]:
        key, value = element
        shards = shards_of(self.fanout, key)
        return (key, element_digest((timestamp, value)) % shards if shards > 1 else 0), value


def _without_shard(element: tuple[tuple[Any, int], Any]) -> tuple[Any, Any]:
    (key, _), value = element
    return key, value


def _is_number_of_shards(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given > 0


def _fires_at_the_end(trigger: Trigger) -> bool:
    if isinstance(trigger, AfterWatermark):
        return trigger.early is None and trigger.late is None
    return isinstance(trigger, DefaultTrigger)
