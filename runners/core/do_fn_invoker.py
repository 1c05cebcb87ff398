"""Running user code over a bundle: one loop per shape of call, none per element that a list could save.

An exception becomes a `TransformError` that names the user's transform, line and element.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import length_hint
from typing import Any

from dataflow.do_fn import (
    CallableDoFn,
    DoFn,
    DoFnParam,
    Shape,
    TaggedOutput,
    TimestampedValue,
    requested_params,
)
from dataflow.errors import TransformError
from dataflow.graph import MAIN, ParDo, TransformNode
from runners.core.bundle import Bundle
from windowing.timestamps import format_timestamp, to_datetime

Emit = Callable[[str, Bundle], None]

_ELEMENT_CHARACTERS_MAX = 500
_WRAPPERS = frozenset((TimestampedValue, TaggedOutput))


class DoFnInvoker:
    """Runs one ParDo; ``emit(tag, bundle)`` takes its outputs."""

    def __init__(self, node: TransformNode, operation: ParDo, emit: Emit) -> None:
        self._node, self._emit = node, emit
        self._tags = frozenset(operation.tags)
        self._main = operation.tags[0] if operation.tags else MAIN
        fn = operation.fn
        self._do_fn = fn if isinstance(fn, DoFn) else None
        self._call: Callable[..., Any] = fn.function if isinstance(fn, CallableDoFn) else fn.process
        self._params = requested_params(self._call, str(node))
        shape = fn.shape if isinstance(fn, CallableDoFn) else Shape.FLAT_MAP
        self._run = {
            Shape.MAP: self._run_map,
            Shape.FLAT_MAP: self._run_flat_map,
            Shape.FILTER: self._run_filter,
        }[shape]

    def setup(self) -> None:
        """Start the DoFn's life on this worker."""
        self._call_hook("setup")

    def teardown(self) -> None:
        """End it."""
        self._call_hook("teardown")

    def process(self, bundle: Bundle) -> None:
        """Run the bundle through and emit what comes out."""
        self._call_hook("start_bundle")
        self._run(bundle)
        self._call_hook("finish_bundle")

    def _call_hook(self, name: str) -> None:
        if self._do_fn is None:
            return
        try:
            getattr(self._do_fn, name)()
        except Exception as error:
            raise TransformError(
                f"{self._node} raised {type(error).__name__}: {error}",
                detail=f"in {type(self._do_fn).__name__}.{name}",
                hint="correct the DoFn",
            ) from error

    def _run_map(self, bundle: Bundle) -> None:
        values = self._called(bundle)
        self._emit_outputs(bundle, None, values)

    def _run_filter(self, bundle: Bundle) -> None:
        keep = self._called(bundle)
        indexes = list(compress(range(len(bundle)), keep))
        if len(indexes) == len(bundle):
            self._emit(self._main, bundle)
        elif indexes:
            self._emit(
                self._main, bundle.take(indexes, [bundle.values[index] for index in indexes])
            )

    def _run_flat_map(self, bundle: Bundle) -> None:
        values: list[Any] = []
        indexes: list[int] = []
        call, extend = self._bound(bundle), values.extend
        index = 0
        try:
            for index, element in enumerate(bundle.values):
                outputs: Iterable[Any] | None = call(element)
                if outputs is not None:
                    extend(outputs)
                    indexes.extend([index] * (len(values) - len(indexes)))
        except Exception as error:
            raise self._failure(error, bundle.values[index]) from error
        if values:
            self._emit_outputs(bundle, indexes, values)

    def _called(self, bundle: Bundle) -> list[Any]:
        """The call's result for each element."""
        elements = iter(bundle.values)
        try:
            results = list(map(self._bound(bundle), elements))
            if len(results) < len(bundle):
                # A StopIteration from the call would end the loop as if the bundle had ended.
                raise RuntimeError("it raised StopIteration")  # noqa: TRY301
        except Exception as error:
            failed = len(bundle) - length_hint(elements) - 1
            raise self._failure(error, bundle.values[failed]) from error
        return results

    def _bound(self, bundle: Bundle) -> Callable[[Any], Any]:
        """The call with the requested columns filled in as it moves from element to element."""
        if not self._params:
            return self._call
        columns = {name: _column(bundle, param) for name, param in self._params.items()}
        call, position = self._call, iter(range(len(bundle)))

        def bound(element: Any) -> Any:
            index = next(position)
            return call(element, **{name: column[index] for name, column in columns.items()})

        return bound

    def _emit_outputs(
        self, bundle: Bundle, indexes: Sequence[int] | None, values: Sequence[Any]
    ) -> None:
        if _WRAPPERS.isdisjoint(map(type, values)):
            plain = bundle.with_values(values) if indexes is None else bundle.take(indexes, values)
            self._emit(self._main, plain)
            return
        by_tag: dict[str, tuple[list[int], list[Any], list[int]]] = {}
        for index, output in zip(indexes or range(len(values)), values, strict=True):
            tag, value = self._main, output
            if type(value) is TaggedOutput:
                tag, value = value.tag, value.value
            timestamp_us = bundle.timestamps_us[index]
            if type(value) is TimestampedValue:
                self._check_timestamp(value.timestamp_us, timestamp_us, bundle.values[index])
                timestamp_us, value = value.timestamp_us, value.value
            if tag not in self._tags:
                raise self._unknown_tag(tag)
            columns = by_tag.setdefault(tag, ([], [], []))
            columns[0].append(index)
            columns[1].append(value)
            columns[2].append(timestamp_us)
        for tag, (tag_indexes, tag_values, timestamps_us) in by_tag.items():
            self._emit(tag, bundle.take(tag_indexes, tag_values, timestamps_us=timestamps_us))

    def _check_timestamp(self, output_us: int, input_us: int, element: Any) -> None:
        if output_us < input_us:
            raise TransformError(
                f"{self._node} gave an output an earlier event time than its element has",
                detail=f"{format_timestamp(output_us)} < {format_timestamp(input_us)}; element: {_shown(element)}",
                hint="the watermark may have passed it already; set event times where the source is "
                "read (event_time=...)",
            )

    def _unknown_tag(self, tag: str) -> TransformError:
        return TransformError(
            f"{self._node} yielded to the output {tag!r}, which it does not have",
            detail=f"outputs: {sorted(self._tags)}",
            hint=f"name it when applying: df.ParDo(...).with_outputs({tag!r})",
        )

    def _failure(self, error: Exception, element: Any) -> Exception:
        if isinstance(error, TransformError):
            return error
        return TransformError(
            f"{self._node} raised {type(error).__name__}: {error}",
            detail=f"element: {_shown(element)}",
            hint="correct the function, or yield bad elements to an output of their own (ParDo.with_outputs)",
        )


def _column(bundle: Bundle, param: DoFnParam) -> Sequence[Any]:
    size = range(len(bundle))
    if param is DoFnParam.WINDOW:
        return [bundle.window_at(index) for index in size]
    if param is DoFnParam.PANE:
        return [bundle.pane_at(index) for index in size]
    return [to_datetime(timestamp_us) for timestamp_us in bundle.timestamps_us]


def _shown(element: Any) -> str:
    text = repr(element)
    if len(text) > _ELEMENT_CHARACTERS_MAX:
        return f"{text[:_ELEMENT_CHARACTERS_MAX]}... ({len(text)} characters)"
    return text
