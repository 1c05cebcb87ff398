"""Exception handling of a transform: what user code raises for an element becomes an element of another output.

Beam's ``with_exception_handling``; `dataflow.ptransform.PTransform.with_exception_handling` describes it to users.

**Invariant:** what is made of a failure depends on the element, the exception and the user's own frames alone, so that
the failure of a retracted element is equal to the failure that is retracted.
"""

import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypedDict

import attrs

from dataflow.errors import PipelineError
from dataflow.set_aside import Origin, SetAside
from windowing.errors import DataflowError, error_text
from windowing.location import user_location
from windowing.timestamps import DurationLike, to_duration_us
from windowing.user_frames import user_traceback
from windowing.window_fn import WindowFn

#: The tag of the output of failures, in the graph.
FAILURES = "failures"

ExceptionClasses = type[Exception] | tuple[type[Exception], ...]


class Failure(NamedTuple):
    """Why a transform has failed on an element.

    Attributes:
        exception: the name of the exception's class.
        message: its text.
        traceback: as Python prints it, with the frames of user code alone.
        transform: the label of the transform.
        origin: where the element is in its file, if a source has failed on it.
    """

    exception: str
    message: str
    traceback: tuple[str, ...]
    transform: str
    origin: Origin | None = None


class BadElement(NamedTuple):
    """An element that a transform has failed on, as `PTransform.with_exception_handling` emits it.

    Attributes:
        element: as it came to the transform; of a source the record, or its text if it could not be read.
        failure: why.
    """

    element: Any
    failure: Failure


class HandlingOptions(TypedDict, total=False):
    """The arguments of `PTransform.with_exception_handling` behind the tags, which describes them."""

    exc_class: ExceptionClasses
    partial: bool
    threshold: float
    threshold_windowing: WindowFn | None
    retries: int
    retry_delay: DurationLike
    on_failure_callback: Callable[[BaseException, Any], object] | None


@attrs.frozen(kw_only=True)
class ExceptionHandling:
    """How a transform handles what user code raises; the fields are the arguments of `with_exception_handling`."""

    exc_class: ExceptionClasses = Exception
    partial: bool = False
    threshold: float = 1.0
    threshold_windowing: WindowFn | None = None
    retries: int = 0
    retry_delay_us: int = 0
    on_failure_callback: Callable[[BaseException, Any], object] | None = None

    def wait(self, attempt: int) -> None:
        """Wait before an element is tried again.

        Args:
            attempt: 1 for the first time that it is tried again.
        """
        time.sleep(self.delay_s(attempt))

    def delay_s(self, attempt: int) -> float:
        """How long to wait before an element is tried again, in seconds: twice as long each time.

        Args:
            attempt: 1 for the first time that it is tried again.
        """
        return float(self.retry_delay_us << (attempt - 1)) / 1_000_000

    def bad(self, element: Any, error: BaseException, transform: str) -> BadElement:
        """An element that has failed for the last time; tells the callback of it.

        Args:
            element: as it came to the transform.
            error: what was raised.
            transform: the label.
        """
        if self.on_failure_callback is not None:
            self.on_failure_callback(error, element)
        return BadElement(element, failure_of(error, transform))

    def bad_record(self, aside: SetAside, transform: str) -> BadElement | None:
        """A record that a reader has set aside; None if the class of its exception is not handled.

        Args:
            aside: as the reader returned it.
            transform: the label of the read.
        """
        error = aside.error if aside.cause is None else aside.cause
        if not isinstance(error, self.exc_class) and not isinstance(aside.error, self.exc_class):
            return None
        origin, element = aside.origin, aside.element
        if element is None and origin is not None:
            element = origin.raw.decode("utf-8", "backslashreplace").rstrip("\r\n")
        found = self.bad(element, error, transform)
        message = f"{aside.error.fact}\n{aside.error.detail}".strip()
        return BadElement(element, found.failure._replace(message=message, origin=origin))


def failure_of(error: BaseException, transform: str) -> Failure:
    """An exception as it is kept of an element.

    Args:
        error: what user code has raised.
        transform: the label of its transform.
    """
    frames = user_traceback(error.__traceback__)
    lines = traceback.format_exception(type(error), error, frames, chain=False)
    return Failure(type(error).__qualname__, error_text(error), _lines(lines), transform)


def _lines(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple("".join(parts).rstrip("\n").split("\n"))


def exception_handling(
    *,
    exc_class: ExceptionClasses,
    partial: bool,
    threshold: float,
    threshold_windowing: WindowFn | None,
    retries: int,
    retry_delay: DurationLike,
    on_failure_callback: Callable[[BaseException, Any], object] | None,
) -> ExceptionHandling:
    """The checked arguments of `PTransform.with_exception_handling`, which describes them.

    Args:
        exc_class: which exceptions are handled.
        partial: whether what a call has emitted before it failed is kept.
        threshold: the proportion of failures above which the run fails, from 0 to 1.
        threshold_windowing: where it is counted; None: in the windows of the elements.
        retries: how often an element is tried again.
        retry_delay: before the first time.
        on_failure_callback: of the exception and the element; None: there is none.

    Raises:
        PipelineError: one of them is something else.
    """
    classes = exc_class if isinstance(exc_class, tuple) else (exc_class,)
    if not all(isinstance(each, type) and issubclass(each, Exception) for each in classes):
        raise _refused("exc_class", exc_class, "a class of exceptions, or a tuple of them")
    if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise _refused("threshold", threshold, "a proportion from 0 to 1, such as 0.01")
    if threshold_windowing is not None and not isinstance(threshold_windowing, WindowFn):
        raise _refused("threshold_windowing", threshold_windowing, "windows: df.FixedWindows(60)")
    if not isinstance(retries, int) or retries < 0:
        raise _refused("retries", retries, "how often an element is tried again: 0 or more")
    if on_failure_callback is not None and not callable(on_failure_callback):
        raise _refused("on_failure_callback", on_failure_callback, "a function of (error, element)")
    try:
        delay_us = to_duration_us(retry_delay)
    except DataflowError:
        delay_us = -1
    if delay_us < 0:
        raise _refused("retry_delay", retry_delay, 'a length of time: "1 second", or seconds')
    return ExceptionHandling(
        exc_class=exc_class,
        partial=partial,
        threshold=threshold,
        threshold_windowing=threshold_windowing,
        retries=retries,
        retry_delay_us=delay_us,
        on_failure_callback=on_failure_callback,
    )


def _refused(name: str, given: object, hint: str) -> PipelineError:
    return PipelineError(
        f"with_exception_handling cannot have {name}={given!r:.200} ({user_location()})",
        hint=f"give {hint}",
    )
