"""Runs user code over a bundle: one loop for each shape of call, and no loop per element where a list suffices.

An exception becomes a `TransformError` that names the user's transform, line and element.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import compress, islice
from operator import length_hint
from types import GeneratorType
from typing import Any

from dataflow.column_fn import ColumnFunction
from dataflow.columns import picked
from dataflow.do_fn import (
    CallableDoFn,
    DoFn,
    DoFnParam,
    Shape,
    has_process_batch,
    requested_params,
)
from dataflow.errors import TransformError
from dataflow.exception_handling import FAILURES
from dataflow.graph import ParDo, TransformNode
from dataflow.metric_updates import RunningAs, running, uncounted
from dataflow.views import ViewArgument
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import EmittedPane
from runners.core.user_code.batch_do_fn import BatchDoFn
from runners.core.user_code.do_fn_outputs import DoFnOutputs, Emit, failure, naming_hook
from runners.core.user_code.handled import Handled, HandledAsyncCall, HandledCall
from runners.core.user_code.poison import halves
from runners.core.user_code.returned import BundleEnd, check_not_retracted, check_silent, outputs_of
from windowing.pane import NO_FIRING
from windowing.timestamps import to_datetime
from windowing.window import GLOBAL_WINDOW

#: The outputs of a FlatMap that are emitted at once; more of them would not stay in the processor's cache.
PART_OUTPUTS = 10_000


class DoFnInvoker:
    """Runs one ParDo; ``emit(tag, bundle)`` takes its outputs.

    Args:
        node: the ParDo, for messages.
        operation: with the user's `DoFn`.
        emit: takes the tag of an output (None: the main one), and a bundle.
    """

    def __init__(self, node: TransformNode, operation: ParDo, emit: Emit) -> None:
        self._node, self._operation = node, operation
        self._outputs = DoFnOutputs(node, operation, emit)
        self._is_nondeterministic = operation.is_remembered
        fn = operation.fn
        self._do_fn = fn if isinstance(fn, DoFn) else None
        call = fn.function if isinstance(fn, CallableDoFn) else fn.process
        self._call = operation.arguments.bound(call, str(node))
        self._batch = (
            BatchDoFn(node, fn) if isinstance(fn, DoFn) and has_process_batch(fn) else None
        )
        self._params = requested_params(self._call, str(node))
        self._has_views = operation.arguments.has(ViewArgument)
        self._shape = fn.shape if isinstance(fn, CallableDoFn) else Shape.FLAT_MAP
        name = getattr(self._call, "__name__", type(self._call).__name__)
        self._where = name if self._do_fn is None else "process"
        self._handled: Handled | None = None
        if operation.handling is not None:
            self._handled = Handled(node, operation.handling)
            handled = HandledCall(self._handled, self._call, self._shape, self._where)
            self._call, self._shape = handled, Shape.FLAT_MAP
            if operation.concurrent is not None:
                self._call = HandledAsyncCall(handled, operation.concurrent.sleep)
        self._run = {
            Shape.MAP: self._run_map,
            Shape.FLAT_MAP: self._run_flat_map,
            Shape.FILTER: self._run_filter,
        }[self._shape]

    def setup(self) -> None:
        """Call the DoFn's setup on this worker."""
        with RunningAs(self._node.label), uncounted():
            self._call_silent_hook("setup")

    def teardown(self) -> None:
        """Call the DoFn's teardown."""
        with RunningAs(self._node.label), uncounted():
            self._call_silent_hook("teardown")
        if self._operation.concurrent is not None:
            self._operation.concurrent.close()

    def process(self, bundle: Bundle) -> None:
        """Run user code over a bundle and emit its outputs."""
        with RunningAs(self._node.label):
            self._process(bundle)

    def _process(self, bundle: Bundle) -> None:
        self._call_silent_hook("start_bundle")
        if self._is_nondeterministic and bundle.emitted_panes is not None:
            self._run_remembering(bundle, bundle.emitted_panes)
        elif self._batch is not None and self._batch.takes(bundle.values):
            self._run_batch(bundle, self._batch)
        else:
            self._run(bundle)
        self._finish(bundle)

    def _run_batch(self, bundle: Bundle, batch: BatchDoFn) -> None:
        """Run ``process_batch``; where failures are handled, on halves of a bundle that has failed."""
        try:
            output = batch.run(bundle)
        except TransformError as error:
            cause, handled = error.__cause__ or error, self._handled
            if handled is None or not isinstance(cause, handled.handling.exc_class):
                raise
            if len(bundle) == 1:
                failure = handled.failure(bundle.values[0], cause)
                self._outputs.emit(FAILURES, bundle.with_values([failure]))
                return
            for part in halves(bundle):
                self._run_batch(part, batch)
            return
        if output is not None and len(output):
            self._outputs.emit(self._outputs.main, output)

    def _call_silent_hook(self, name: str) -> None:
        if self._do_fn is not None:
            with naming_hook(self._node, self._do_fn, name):
                returned = getattr(self._do_fn, name)()
                concurrent = self._operation.concurrent
                if concurrent is not None and isinstance(returned, Coroutine):
                    returned = concurrent.run(returned)
                check_silent(self._node, returned, name)

    def _finish(self, bundle: Bundle) -> None:
        if self._do_fn is None:
            return
        with naming_hook(self._node, self._do_fn, "finish_bundle"):
            returned = self._do_fn.finish_bundle()
            if returned is None:
                return
            check_not_retracted(self._node, bundle, returned)
            windows = {GLOBAL_WINDOW} if bundle.windows is None else set(bundle.windows)
            end = BundleEnd(self._node, self._operation, min(bundle.timestamps_us), windows)
            outputs = list(end.outputs(returned))
        self._outputs.emit_finished(outputs)

    def _run_map(self, bundle: Bundle) -> None:
        column = self._column(bundle)
        if column is not None:
            self._outputs.emit(self._outputs.main, bundle.with_values(column))
            return
        values = self._called(bundle)
        self._outputs.emit_outputs(bundle, None, values)

    def _column(self, bundle: Bundle) -> Sequence[Any] | None:
        """The outputs of a function that can take a whole column of elements, where it can take this one."""
        if isinstance(self._call, ColumnFunction):
            return self._call.on_columns(bundle.values, bundle.windows)
        return None

    def _run_filter(self, bundle: Bundle) -> None:
        keep = self._column(bundle)
        keep = self._called(bundle) if keep is None else keep
        if self._has_views:
            bundle = bundle.with_values([each.element for each in bundle.values])
        indexes = list(compress(range(len(bundle)), keep))
        if len(indexes) == len(bundle):
            self._outputs.emit(self._outputs.main, bundle)
        elif indexes:
            kept = bundle.take(indexes, picked(bundle.values, indexes))
            self._outputs.emit(self._outputs.main, kept)

    def _run_flat_map(self, bundle: Bundle) -> None:
        if len(bundle) == 1:
            self._run_flat_map_of_one(bundle)
            return
        for indexes, values in self._flat_mapped(bundle):
            self._outputs.emit_outputs(bundle, indexes, values)

    def _flat_mapped(self, bundle: Bundle) -> Iterator[tuple[list[int], list[Any]]]:
        """The outputs, in parts, each output with the index of its element."""
        values: list[Any] = []
        indexes: list[int] = []
        call = self._bound(bundle)
        index, elements = 0, iter(bundle.values)
        running().elements = elements, len(bundle)
        try:
            for index, element in enumerate(elements):
                outputs = call(element)
                if outputs is not None:
                    kind = type(outputs)
                    if kind is not list and kind is not GeneratorType:
                        outputs = outputs_of(self._node, outputs, self._where)
                    values.extend(outputs)
                    indexes.extend([index] * (len(values) - len(indexes)))
                if len(values) >= PART_OUTPUTS:
                    yield indexes, values
                    values, indexes = [], []
        except Exception as error:
            raise failure(self._node, error, bundle.values[index]) from error
        if values:
            yield indexes, values

    def _run_flat_map_of_one(self, bundle: Bundle) -> None:
        """Emit outputs in parts: a single element may be a group that is larger than memory (`Replayed`)."""
        (element,) = bundle.values
        for values in self._output_parts(element, self._bound(bundle)):
            self._outputs.emit_outputs(bundle, [0] * len(values), values)

    def _output_parts(self, element: Any, call: Callable[[Any], Any]) -> Iterator[list[Any]]:
        try:
            left = iter(outputs_of(self._node, call(element), self._where))
            while values := list(islice(left, PART_OUTPUTS)):
                yield values
        except Exception as error:
            raise failure(self._node, error, element) from error

    def _run_remembering(self, bundle: Bundle, emitted_panes: Sequence[EmittedPane]) -> None:
        """Run user code for emitted elements; for retracted ones, retract the outputs that it returned for them.

        It is not called for retractions, as it could return other outputs than when they were emitted.
        """
        signs = bundle.signs or [1] * len(bundle)
        is_emitted = [sign > 0 for sign in signs]
        emitted = list(compress(range(len(bundle)), is_emitted))
        fresh = self._outputs_each(
            bundle.take(emitted, [bundle.values[index] for index in emitted])
        )
        values: list[Any] = []
        indexes: list[int] = []
        for index, emitted_pane in enumerate(emitted_panes):
            if is_emitted[index]:
                outputs = next(fresh)
                emitted_pane.remember(self._node.label, outputs)
            else:
                outputs = emitted_pane.recall(self._node.label)
            values.extend(outputs)
            indexes.extend([index] * len(outputs))
        if values:
            self._outputs.emit_outputs(bundle, indexes, values)

    def _outputs_each(self, bundle: Bundle) -> Iterator[list[Any]]:
        """The outputs for each element, whatever the shape of the call."""
        if self._shape is Shape.FLAT_MAP:
            call = self._bound(bundle)
            for element in bundle.values:
                try:
                    yield list(outputs_of(self._node, call(element), self._where))
                except Exception as error:
                    raise failure(self._node, error, element) from error
        elif self._shape is Shape.FILTER:
            for element, keep in zip(bundle.values, self._called(bundle), strict=True):
                yield [element.element if self._has_views else element] if keep else []
        else:
            for output in self._called(bundle):
                yield [output]

    def _called(self, bundle: Bundle) -> list[Any]:
        """The call's result for each element."""
        elements = iter(bundle.values)
        running().elements = elements, len(bundle)
        try:
            results = list(map(self._bound(bundle), elements))
            if len(results) < len(bundle):
                # A StopIteration from the call would end the loop as if the bundle had ended.
                raise RuntimeError("it raised StopIteration")  # noqa: TRY301 - reported like any other exception of user code
        except Exception as error:
            failed = len(bundle) - length_hint(elements) - 1
            raise failure(self._node, error, bundle.values[failed]) from error
        return results

    def _bound(self, bundle: Bundle) -> Callable[[Any], Any]:
        """The call, with the requested parameters filled in for each element in turn.

        Asynchronous code has been called for all of them then, and each call has what became of that.
        """
        call = self._filled_in(bundle)
        if self._operation.concurrent is None:
            return call
        outcomes = iter(self._operation.concurrent.outcomes(call, bundle.values))

        def taken(_: Any) -> Any:
            returned, error = next(outcomes)
            if error is not None:
                raise error
            return returned

        return taken

    def _filled_in(self, bundle: Bundle) -> Callable[[Any], Any]:
        if not self._params:
            return self._call
        names, call = tuple(self._params), self._call
        columns = [_column(bundle, param) for param in self._params.values()]
        if len(names) == 1:
            (name,), column = names, iter(columns[0])
            return lambda element: call(element, **{name: next(column)})
        rows = zip(*columns, strict=True)
        return lambda element: call(element, **dict(zip(names, next(rows), strict=True)))


def _column(bundle: Bundle, param: DoFnParam) -> Sequence[Any]:
    if param is DoFnParam.WINDOW:
        return [GLOBAL_WINDOW] * len(bundle) if bundle.windows is None else bundle.windows
    if param is DoFnParam.PANE:
        return [NO_FIRING] * len(bundle) if bundle.panes is None else bundle.panes
    return [to_datetime(timestamp_us) for timestamp_us in bundle.timestamps_us]
