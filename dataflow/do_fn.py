"""DoFn: user code for one element at a time, and what it may ask to see.

A DoFn is shipped to workers, so it is pickled once per run.  ``setup`` and ``teardown`` frame its life on a worker,
``start_bundle`` and ``finish_bundle`` frame a bundle.  A bundle may run more than once before it commits; its
*effects on the pipeline* count once, its effects on the outside world do not.

Dataflow Model, section 2.1 (ParDo).
"""

import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import attrs

from dataflow.errors import PipelineError
from windowing.timestamps import TimestampLike, to_timestamp_us


class DoFnParam(Enum):
    """What ``process`` can ask for, by making it the default value of a parameter."""

    WINDOW = "window"
    TIMESTAMP = "timestamp"
    PANE = "pane"


class DoFn:
    """Override `process`; the rest is optional.  Elements are shared: do not change one in place.

    Example::

        class Label(df.DoFn):
            def process(self, element, window=df.DoFn.WindowParam):
                yield {"start": window.start, "value": element}
    """

    #: The element's `Window`.
    WindowParam: Any = DoFnParam.WINDOW
    #: The element's event time, a datetime in UTC.
    TimestampParam: Any = DoFnParam.TIMESTAMP
    #: The `PaneInfo` of the firing that the element came from.
    PaneParam: Any = DoFnParam.PANE

    def setup(self) -> None:
        """Once on a worker before anything else: open connections, load models."""

    def start_bundle(self) -> None:
        """Before the first element of a bundle."""

    def process(self, element: Any, /) -> Iterable[Any] | None:
        """Outputs for one element: values, `TimestampedValue` or `TaggedOutput`; None for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, element)")

    def finish_bundle(self) -> None:
        """After the last element of a bundle."""

    def teardown(self) -> None:
        """Once on a worker when it stops in good order."""


@attrs.frozen(init=False)
class TimestampedValue:
    """An output with an event time of its own; it may not be earlier than the element it comes from."""

    value: Any
    timestamp_us: int

    def __init__(self, value: Any, timestamp: TimestampLike) -> None:
        self.__attrs_init__(value, to_timestamp_us(timestamp))


@attrs.frozen
class TaggedOutput:
    """An output for one of the extra outputs that `ParDo.with_outputs` named."""

    tag: str
    value: Any


class Shape(Enum):
    """What a call returns, so that the hot path can loop over a list without asking each time."""

    #: One value per element.
    MAP = "map"
    #: An iterable of values per element, or None.
    FLAT_MAP = "flat_map"
    #: A truth value: keep the element or not.
    FILTER = "filter"


@attrs.frozen
class CallableDoFn:
    """A plain function used as user code; see `dataflow.transforms.par_do`."""

    function: Callable[..., Any]
    shape: Shape


def requested_params(call: Callable[..., Any], what: str) -> dict[str, DoFnParam]:
    """The `DoFnParam` defaults in the signature of ``call``, by parameter name.

    Args:
        call: ``process`` of a DoFn, or a plain function.
        what: how to name it in an error.

    Raises:
        PipelineError: the call cannot take one element as its first argument.
    """
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return {}  # built-ins such as ``str.upper``: no signature, so nothing requested
    try:
        signature.bind(object())
    except TypeError as error:
        raise PipelineError(
            f"{what} cannot be called with one element",
            detail=f"its signature is {signature}: {error}",
            hint="the element is the first argument; give every further parameter a default, "
            "such as window=df.DoFn.WindowParam",
        ) from None
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.default, DoFnParam)
    }
