"""What becomes of the failures of handled transforms: one output for all of them, and checks of their proportion.

Made of primitives, because every transform can be handled, and so this stands below all of them.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn
from dataflow.do_fn import CallableDoFn, DoFn, Shape
from dataflow.errors import TooManyFailuresError
from dataflow.exception_handling import ExceptionHandling
from dataflow.graph import MAIN, AssignWindows, Flatten, Group, Operation, ParDo, Read
from dataflow.upstream import windows_of
from triggers.accumulation import AccumulationMode
from triggers.windowing_strategy import WindowingStrategy
from windowing.window import GLOBAL_WINDOW
from windowing.window_fn import MergingWindowFn

#: `dataflow.pipeline` stands above this, and calls it.
Pipeline = Any
PCollection = Any


@attrs.frozen
class HandledOperation:
    """An operation whose failures have an output of their own.

    Attributes:
        name: of the transform, for errors.
        inputs: its inputs; of a read its elements.
        failures: the output of `BadElement`.
    """

    name: str
    operation: Operation
    inputs: Sequence[PCollection]
    failures: PCollection


def failures_of(pipeline: Pipeline, handled: Sequence[HandledOperation]) -> PCollection:
    """The failures of all operations of a transform; in the global window if they are in different windows.

    Args:
        pipeline: that is being built.
        handled: at least one.
    """
    found = [each.failures for each in handled]
    if len(found) == 1:
        return found[0]
    retracted_by = next((by for each in found if (by := each.node.retracted_by)), None)
    strategy = _common_strategy(pipeline, found)
    if strategy is None:
        strategy = WindowingStrategy()
        found = [
            _assigned(pipeline, each, strategy, f"{number}") for number, each in enumerate(found, 1)
        ]
    with pipeline.labelled("failures"):
        return pipeline.add_operation(Flatten(), found, strategy, retracted_by=retracted_by)[MAIN]


def _common_strategy(pipeline: Pipeline, pcolls: Sequence[PCollection]) -> WindowingStrategy | None:
    """The strategy of collections in the same windows, some grouped and some not; None if they are in others."""
    strategies = {each.node.strategy for each in pcolls}
    if len(strategies) == 1:
        return pcolls[0].node.strategy  # type: ignore[no-any-return]
    windows = {windows_of(pipeline.graph(), each.node) for each in pcolls}
    is_merging = any(isinstance(each, MergingWindowFn) for found in windows for each in found)
    frozen = {each.frozen() for each in strategies}
    return frozen.pop() if len(windows) == len(frozen) == 1 and not is_merging else None


def add_threshold(
    pipeline: Pipeline, handled: HandledOperation, handling: ExceptionHandling
) -> None:
    """Have the run fail in a window of which too many elements have failed.

    Args:
        pipeline: that is being built.
        handled: the operation.
        handling: has the threshold, and the windows.
    """
    failures = handled.failures
    given = handling.threshold_windowing
    is_read = isinstance(handled.operation, Read)
    marked = [
        _added(pipeline, each, CallableDoFn(mark, Shape.MAP), f"count {number}")
        for number, (each, mark) in enumerate(
            [
                *((each, _one_element) for each in handled.inputs),
                (failures, _one_failed_record if is_read else _one_failure),
            ],
            1,
        )
    ]
    window_fn = failures.node.strategy.window_fn if given is None else given
    retracted_by = failures.node.retracted_by
    strategy = WindowingStrategy(
        window_fn=window_fn,
        allowed_lateness_us=failures.node.strategy.allowed_lateness_us,
        accumulation_mode=AccumulationMode.ACCUMULATING_AND_RETRACTING
        if retracted_by
        else AccumulationMode.ACCUMULATING,
    )
    with pipeline.labelled("counts"):
        counts = pipeline.add_operation(Flatten(), marked, strategy, retracted_by=retracted_by)[
            MAIN
        ]
    if given is not None:
        counts = _assigned(pipeline, counts, strategy, "windows")
    with pipeline.labelled("proportion"):
        counted = pipeline.add_operation(
            Group(_SumsCombineFn()), [counts], strategy.frozen(), retracted_by=retracted_by
        )[MAIN]
    check = _Check(handled.name, handling.threshold)
    _added(pipeline, counted, CallableDoFn(check, Shape.FILTER), "check")


def _added(pipeline: Pipeline, pcoll: PCollection, fn: CallableDoFn, label: str) -> PCollection:
    with pipeline.labelled(label):
        return pipeline.add_operation(
            ParDo(fn), [pcoll], pcoll.node.strategy, retracted_by=pcoll.node.retracted_by
        )[MAIN]


def _assigned(
    pipeline: Pipeline, pcoll: PCollection, strategy: WindowingStrategy, label: str
) -> PCollection:
    with pipeline.labelled(label):
        return pipeline.add_operation(
            AssignWindows(strategy.window_fn),
            [pcoll],
            strategy,
            retracted_by=pcoll.node.retracted_by,
        )[MAIN]


def _one_element(_: Any) -> tuple[None, tuple[int, int]]:
    return None, (0, 1)


def _one_failure(_: Any) -> tuple[None, tuple[int, int]]:
    return None, (1, 0)


def _one_failed_record(_: Any) -> tuple[None, tuple[int, int]]:
    # It is not among the elements of the read.
    return None, (1, 1)


class _SumsCombineFn(CombineFn):
    """Failures and elements, each added up."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[int, int], element: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + element[0], accumulator[1] + element[1]

    def retract_input(
        self, accumulator: tuple[int, int], element: tuple[int, int]
    ) -> tuple[int, int]:
        return accumulator[0] - element[0], accumulator[1] - element[1]

    def merge_accumulators(self, accumulators: Any) -> tuple[int, int]:
        failures, elements = zip(*accumulators, strict=True)
        return sum(failures), sum(elements)

    def extract_output(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator


@attrs.frozen
class _Check:
    """Fails where the proportion of failures in a window is above a threshold."""

    name: str
    threshold: float

    def __call__(
        self, counted: tuple[None, tuple[int, int]], window: Any = DoFn.WindowParam
    ) -> bool:
        failures, elements = counted[1]
        if failures > self.threshold * elements:
            where = "" if window == GLOBAL_WINDOW else f" in the window {window}"
            raise TooManyFailuresError(
                f"{self.name} failed on {failures} of {elements} elements{where}, which is above its threshold of "
                f"{self.threshold:g}",
                hint="look at the output of failures; correct the code or the input, or raise the threshold",
            )
        return True
