"""The outputs of user code: sorted by tag and checked; errors name the transform, line and element."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dataflow.do_fn import DoFn, TaggedOutput, TimestampedValue, WindowedValue
from dataflow.errors import TransformError
from dataflow.exception_handling import FAILURES
from dataflow.graph import MAIN, ParDo, StatefulParDo, TransformNode
from dataflow.times import in_words
from runners.core.ground.bundle import Bundle
from runners.core.ground.element_text import shown
from runners.core.user_code.returned import FinishBundleOutput
from windowing.errors import what_was_raised
from windowing.timestamps import format_timestamp

Emit = Callable[[str, Bundle], None]

_WRAPPERS = frozenset((TimestampedValue, TaggedOutput, WindowedValue))


class DoFnOutputs:
    """Unwraps the outputs of one ParDo; ``emit(tag, bundle)`` takes them.

    Args:
        node: the ParDo, for messages.
        operation: with the user's `DoFn`.
        emit: takes the tag of an output (None: the main one), and a bundle.
    """

    def __init__(self, node: TransformNode, operation: ParDo | StatefulParDo, emit: Emit) -> None:
        self._node, self.emit = node, emit
        self._tags = frozenset(operation.tags)
        if operation.handling is not None:
            self._tags |= {FAILURES}
        self.main = operation.tags[0] if operation.tags else MAIN
        self._skew_us = operation.allowed_timestamp_skew_us

    def emit_outputs(
        self, bundle: Bundle, indexes: Sequence[int] | None, values: Sequence[Any]
    ) -> None:
        """Emit outputs, each with the columns of its element.

        Args:
            bundle: the elements.
            indexes: for each output the index of its element; None: one output for each element, in order.
            values: the outputs.

        Raises:
            TransformError: a tag is unknown, or a timestamp too early.
        """
        plain = bundle.with_values(values) if indexes is None else bundle.take(indexes, values)
        if _WRAPPERS.isdisjoint(plain.kinds):
            self.emit(self.main, plain)
            return
        by_tag: dict[str, tuple[list[int], list[Any], list[int]]] = {}
        for index, output in zip(indexes or range(len(values)), values, strict=True):
            tag, value = self.main, output
            if type(value) is TaggedOutput:
                tag, value = value.tag, value.value
            timestamp_us = bundle.timestamps_us[index]
            if type(value) is WindowedValue:
                raise self._windowed(value)
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
            self.emit(tag, bundle.take(tag_indexes, tag_values, timestamps_us=timestamps_us))

    def emit_finished(self, outputs: Iterable[FinishBundleOutput]) -> None:
        """Emit outputs of the end of a bundle, which belong to no element.

        Raises:
            TransformError: a tag is unknown.
        """
        by_tag: dict[str, list[FinishBundleOutput]] = {}
        for output in outputs:
            tag = self.main if output.tag is None else output.tag
            if tag not in self._tags:
                raise self._unknown_tag(tag)
            by_tag.setdefault(tag, []).append(output)
        for tag, some in by_tag.items():
            values = [each.value for each in some]
            times_us = [each.timestamp_us for each in some]
            self.emit(tag, Bundle(values, times_us, [each.window for each in some]))

    def _check_timestamp(self, output_us: int, input_us: int, element: Any) -> None:
        if output_us < input_us - self._skew_us:
            allowed = f", by more than {in_words(self._skew_us)}" * bool(self._skew_us)
            raise TransformError(
                f"{self._node} gave an output an earlier event time than its element has{allowed}",
                detail=f"{format_timestamp(output_us)} < {format_timestamp(input_us)}; element: {shown(element)}",
                hint="the watermark may have passed it already; set event times where the source is "
                "read (event_time=...), or allow it with allowed_timestamp_skew=...",
            )

    def _windowed(self, value: WindowedValue) -> TransformError:
        return TransformError(
            f"{self._node} emitted a WindowedValue for an element",
            detail=f"{shown(value)}; an output for an element is in the windows of the element",
            hint="yield the value, or df.TimestampedValue(value, timestamp); a WindowedValue is for finish_bundle; "
            "windows are given with df.WindowInto",
        )

    def _unknown_tag(self, tag: str) -> TransformError:
        return TransformError(
            f"{self._node} yielded to the output {tag!r}, which it does not have",
            detail=f"outputs: {sorted(self._tags)}",
            hint=f"name it when applying the transform: .with_outputs({tag!r})",
        )


def failure(node: TransformNode, error: Exception, element: Any) -> Exception:
    """The error to show for an exception that user code raised for an element.

    Args:
        node: the transform.
        error: the exception.
        element: the element.
    """
    if isinstance(error, TransformError):
        # What transforms of the SDK raise about an element does not know where it is raised.
        return error if str(node) in error.fact else error.located(str(node))
    return TransformError(
        f"{node} raised {what_was_raised(error)}",
        detail=f"element: {shown(element)}",
        hint="correct the function, or yield bad elements to an output of their own (ParDo.with_outputs)",
    )


def hook_failure(node: TransformNode, error: Exception, where: str) -> TransformError:
    """The error to show for an exception of user code that does not concern an element.

    Args:
        node: the transform.
        error: the exception.
        where: the method, as the error names it.
    """
    return TransformError(
        f"{node} raised {what_was_raised(error)}",
        detail=f"in {where}",
        hint="correct the DoFn",
    )


@contextmanager
def naming_hook(node: TransformNode, fn: DoFn, name: str) -> Iterator[None]:
    """Turn exceptions of a DoFn's hook into a `TransformError` that names the hook.

    Args:
        node: the transform.
        fn: its DoFn.
        name: of the hook.
    """
    try:
        yield
    except TransformError:
        raise
    except Exception as error:
        raise hook_failure(node, error, f"{type(fn).__name__}.{name}") from error
