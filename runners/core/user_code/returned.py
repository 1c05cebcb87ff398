"""The values that user code returns: the outputs of a call, and those of ``finish_bundle``, which have no element.

A text, a mapping or a row is one value that happens to be iterable: its characters, keys or fields are not outputs.
The outputs of ``finish_bundle`` carry their own event time and window, and both are bounded by the bundle, as those of
an output of ``process`` are by its element; so the hold of the bundle on the watermark covers these outputs too.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from types import GeneratorType
from typing import Any

import attrs

from dataflow.do_fn import TaggedOutput, TimestampedValue, WindowedValue
from dataflow.errors import TransformError
from dataflow.graph import ParDo, StatefulParDo, TransformNode
from dataflow.times import in_words
from runners.core.ground.bundle import Bundle
from runners.core.ground.element_text import shown
from windowing.timestamps import format_timestamp
from windowing.window import GLOBAL_WINDOW, Window


def outputs_of(node: TransformNode, returned: Any, where: str) -> Iterable[Any]:
    """The value that a call has returned, as outputs to iterate; none for None.

    Args:
        node: the transform.
        returned: what user code returned.
        where: the method or function, as an error names it.

    Raises:
        TransformError: it is a single value.
    """
    kind = type(returned)
    if kind is list or kind is GeneratorType:
        outputs: Iterable[Any] = returned
        return outputs
    if returned is None:
        return ()
    is_row = isinstance(returned, tuple) and hasattr(kind, "_fields")
    if is_row or isinstance(returned, str | bytes | bytearray | dict):
        raise TransformError(
            f"{node} returned one value from {where}, of type {kind.__name__}, and not outputs",
            detail=f"it returned {shown(returned)}; its parts would become the outputs",
            hint="yield it, or return a list of outputs",
        )
    if not isinstance(returned, Iterable):
        raise TransformError(
            f"{node} returned something from {where}, of type {kind.__name__}, that cannot be iterated",
            detail=f"it returned {shown(returned)}",
            hint="yield it, or return a list of outputs",
        )
    return returned


def check_silent(node: TransformNode, returned: object, where: str) -> None:
    """Check that a hook which may not emit has returned nothing.

    Args:
        node: the transform.
        returned: what the hook returned.
        where: the hook, as an error names it.

    Raises:
        TransformError: it returned something.
    """
    if returned is not None:
        raise TransformError(
            f"{node} returned something from {where}, of type {type(returned).__name__}, where nothing is emitted",
            detail=f"it returned {shown(returned)}",
            hint="emit it from process, finish_bundle or the method of a timer, and return nothing here",
        )


def check_not_retracted(node: TransformNode, bundle: Bundle, returned: object) -> None:
    """Check that a bundle may end with outputs.

    Args:
        node: the transform.
        bundle: the elements.
        returned: what ``finish_bundle`` returned, for the error.

    Raises:
        TransformError: its elements may be retracted.
    """
    if bundle.signs is not None or bundle.emitted_panes is not None:
        raise TransformError(
            f"{node} emits from finish_bundle, and its input may be retracted",
            detail=f"it returned {shown(returned)}; what was made of a bundle could not be retracted with one of its "
            "elements",
            hint="emit from process; or put df.ToChangelog() before it",
        )


@attrs.frozen
class FinishBundleOutput:
    """An output of ``finish_bundle``.

    Attributes:
        tag: None for the main output.
    """

    tag: str | None
    value: Any
    timestamp_us: int
    window: Window


@attrs.frozen
class BundleEnd:
    """The end of a bundle, which checks the outputs that ``finish_bundle`` emits.

    Attributes:
        earliest_us, windows: the earliest event time, in microseconds, and the windows of the bundle's elements.
    """

    node: TransformNode
    operation: ParDo | StatefulParDo
    earliest_us: int
    windows: AbstractSet[Window]

    def outputs(self, returned: Any) -> Iterator[FinishBundleOutput]:
        """The outputs that ``finish_bundle`` returned, checked.

        Raises:
            TransformError: an output has no event time or window, or one that is not allowed.
        """
        for output in outputs_of(self.node, returned, "finish_bundle"):
            tag, value = None, output
            if type(value) is TaggedOutput:
                tag, value = value.tag, value.value
            if type(value) is TimestampedValue and self.windows == {GLOBAL_WINDOW}:
                yield self._checked(tag, value.value, value.timestamp_us, GLOBAL_WINDOW)
            elif type(value) is WindowedValue:
                yield self._checked(tag, value.value, value.timestamp_us, value.window)
            else:
                raise TransformError(
                    f"{self.node} emitted something from finish_bundle that has no event time",
                    detail=f"it emitted {shown(output)}; there is no element that it could have it from",
                    hint="yield df.WindowedValue(value, timestamp, window), with the event time and the window of an "
                    "element that it is made of",
                )

    def _checked(
        self, tag: str | None, value: Any, at_us: int, window: Window
    ) -> FinishBundleOutput:
        if at_us < self.earliest_us - self.operation.allowed_timestamp_skew_us:
            skew = in_words(self.operation.allowed_timestamp_skew_us)
            raise TransformError(
                f"{self.node} gave an output of finish_bundle an earlier event time than all elements have",
                detail=f"{format_timestamp(at_us)} < {format_timestamp(self.earliest_us)}, allowed by {skew}; "
                f"value: {shown(value)}",
                hint="the watermark may have passed it already; give it the event time of an element that it is made "
                "of, or allow it with allowed_timestamp_skew=...",
            )
        if window not in self.windows:
            raise TransformError(
                f"{self.node} emitted something from finish_bundle in a window that none of the elements is in",
                detail=f"window {window}; value: {shown(value)}",
                hint="ask for df.DoFn.WindowParam in process, and emit for each window what is made of its elements",
            )
        return FinishBundleOutput(tag, value, at_us, window)
