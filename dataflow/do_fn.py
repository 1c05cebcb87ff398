"""DoFn: user code for one element at a time, and the parameters that it may ask for.

A DoFn is shipped to workers, so it is pickled once per run.  ``setup`` and ``teardown`` frame its life on a worker,
``start_bundle`` and ``finish_bundle`` frame a bundle.  A bundle may run more than once before it commits; its
*effects on the pipeline* count once, its effects on the outside world do not.

Dataflow Model, section 2.1 (ParDo).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, get_args, overload

import attrs
import pyarrow as pa

from dataflow import user_state
from dataflow.errors import PipelineError
from dataflow.signatures import signature_of
from dataflow.type_hints import text_of
from dataflow.type_vars import InT_contra, OutT_co, T
from windowing.location import user_location
from windowing.timestamps import DurationLike, TimestampLike, to_datetime, to_timestamp_us
from windowing.window import Window


class DoFnParam(Enum):
    """What ``process`` can ask for, by making it the default value of a parameter."""

    ELEMENT = "element"
    WINDOW = "window"
    TIMESTAMP = "timestamp"
    PANE = "pane"
    KEY = "key"
    SIGN = "sign"
    WATERMARK = "watermark"
    FIRE_TIMESTAMP = "fire timestamp"
    TIMER_TAG = "timer tag"


class DoFn(Generic[InT_contra, OutT_co]):
    """Override `process`; the rest is optional.  Elements are shared: do not change one in place.

    ``class Split(df.DoFn[str, str])`` names the types of elements and outputs for type checkers; ``df.DoFn`` has any.

    Example::

        class Label(df.DoFn):
            def process(self, element, window=df.DoFn.WindowParam):
                yield {"start": window.start, "value": element}

    Attributes:
        ElementParam: the element; of the first parameter, which has it in any case.
        WindowParam: the element's `Window`.
        TimestampParam: the element's event time, a datetime in UTC.
        PaneInfoParam, PaneParam: the `PaneInfo` of the firing that the element came from.
        StateParam: ``StateParam(SPEC)``: that state of the element's key and window; see `dataflow.user_state`.
        TimerParam: ``TimerParam(SPEC)``: that timer of the element's key and window.
        KeyParam: the key that the state is of; only for a stateful DoFn.
        SignParam: +1 for an element that is emitted, -1 for its retraction; only with `handles_retractions`.
        WatermarkParam: the input watermark of this key's state, a datetime in UTC: elements before it are late.  Only
            for a stateful DoFn.  It differs from run to run, and in batch, where the input is replayed, it is at the
            element.
        FireTimestampParam: the instant that a timer was set for, a datetime in UTC; only for its method.
        DynamicTimerTagParam: the tag of the timer; only for the method of a family of timers.
        allowed_timestamp_skew: how much earlier than its element a `TimestampedValue` may be.  The watermark does not
            wait for it: what is behind the watermark then is late data, and too late once its window has expired.
        handles_retractions: whether a stateful DoFn can deal with input that may be retracted.  ``process`` is then
            called for retractions too (`SignParam`), and everything that it returns is an ordinary element, which is
            never retracted.
        has_retractable_outputs: whether all that a stateful DoFn emits for a key and window is kept in its state until
            the window expires, so that an update of the job that removes or changes the DoFn can retract it
            (``retract_removed``).  What is behind it is built as behind a grouping that retracts.  It costs a copy of
            each output in the state; of keys in the global window, for as long as the job lives.  It has to be set
            when the job is first run.
        requires_time_sorted_input: whether a stateful DoFn is given the elements of a key and window in the order of
            their event times: each when the watermark has passed it, with the timers in between (`dataflow.stateful`).
            Late ones come when they come.  False: in the order of arrival, which differs from run to run.  None, the
            default: in the order of event times if the input ends by itself, else in that of arrival, with a warning if
            there are timers of event time.  In batch it is always the order of event times.
        is_made_for_arrival_order: whether the class documents that it sees elements as they arrive, so that no warning
            is needed.
        max_concurrency: how many calls of an asynchronous ``process`` are awaited together, at most.
        output_rows: the row type of what `process_batch` returns; None: the input's, or a generated one for other
            columns.
    """

    ElementParam: Any = DoFnParam.ELEMENT
    WindowParam: Any = DoFnParam.WINDOW
    TimestampParam: Any = DoFnParam.TIMESTAMP
    PaneInfoParam: Any = DoFnParam.PANE
    PaneParam: Any = DoFnParam.PANE
    StateParam: Any = user_state.StateParam
    TimerParam: Any = user_state.TimerParam
    KeyParam: Any = DoFnParam.KEY
    SignParam: Any = DoFnParam.SIGN
    WatermarkParam: Any = DoFnParam.WATERMARK
    FireTimestampParam: Any = DoFnParam.FIRE_TIMESTAMP
    DynamicTimerTagParam: Any = DoFnParam.TIMER_TAG

    allowed_timestamp_skew: DurationLike = 0

    handles_retractions: bool = False

    has_retractable_outputs: bool = False

    requires_time_sorted_input: bool | None = None

    is_made_for_arrival_order: bool = False

    max_concurrency: int = 64

    output_rows: type | None = None

    def setup(self) -> Awaitable[None] | None:
        """Once on a worker before anything else: open connections, load models."""
        return None

    def start_bundle(self) -> None:
        """Before the first element of a bundle.

        A bundle that fails is not finished, and may come again: all that it has left in ``self`` is to be cleared here.
        """

    def process(
        self, element: InT_contra, /, *args: Any, **kwargs: Any
    ) -> (
        Iterable[OutT_co | TimestampedValue[OutT_co] | TaggedOutput]
        | Awaitable[Iterable[OutT_co | TimestampedValue[OutT_co] | TaggedOutput] | None]
        | AsyncIterable[OutT_co | TimestampedValue[OutT_co] | TaggedOutput]
        | None
    ):
        """Outputs for one element: values, `TimestampedValue` or `TaggedOutput`; None for none.

        It may be ``async``, with ``return`` or with ``yield``: then it is called for many elements of a bundle, at most
        ``max_concurrency`` of them at a time, and the bundle waits for all of them.  Outputs are in the order of the
        elements.  When it raises, the calls for elements behind that one are cancelled, and the error names it.
        ``setup`` and ``teardown`` may be ``async`` then, too.

        One value is no outputs, even if it could be iterated: a text, bytes, a dict or a named tuple is refused.

        Args:
            element: one element; not to be changed in place.
            *args: those that `ParDo` was given; an override has parameters of its own for them.
            **kwargs: likewise, and what the defaults of parameters ask for.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process(self, element)")

    def process_batch(self, batch: pa.RecordBatch) -> Any:
        """Outputs for many typed rows at once; define it instead of `process`, or beside it with the same outputs.

        With both, ``process_batch`` is called where elements are columns (of `ReadFromJsonLines` with ``rows``,
        `GroupBy`, or another ``process_batch``), and ``process`` elsewhere.  With ``process_batch`` alone, elements
        must be rows of one type.  A batch is a part of a bundle, of any size above zero; after a failure smaller ones
        come again.

        Args:
            batch: a column for each field, in order: int64, float64, string, bool, or timestamp[us, UTC].

        Returns:
            A record batch with one row for each row of ``batch``, in order: each output has the event time and window
            of its input.  Or that and the indexes of the inputs, one for each row of it, for none or several outputs of
            an input.  None for none at all.  Outputs are rows: of the input's type if the names of the columns are the
            same, else of `output_rows`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_batch(self, batch)")

    def finish_bundle(self) -> Iterable[Any] | None:
        """After the last element of a bundle; may emit what was gathered from it.

        There is no element here that an output could have its event time from: each output is a `WindowedValue`, or one
        inside a `TaggedOutput`.  Its window is one of the bundle's elements; its event time is not before all of these,
        but for the transform's ``allowed_timestamp_skew``.  In the global window a `TimestampedValue` is enough.
        It has no pane.  Where the input may be retracted nothing can be emitted here: what was emitted for one bundle
        would have to be retracted with another bundle.
        """

    def teardown(self) -> Awaitable[None] | None:
        """Once on a worker when it stops in good order."""
        return None


@attrs.frozen(init=False)
class TimestampedValue(Generic[OutT_co]):
    """An output with an event time of its own.

    It may be earlier than the element that it comes from only by the transform's ``allowed_timestamp_skew``.

    Args:
        value: the output.
        timestamp: its event time: a datetime with a time zone, or seconds since 1970.
    """

    value: OutT_co  # type: ignore[misc] # mypy takes the constructor that attrs makes for a method
    timestamp_us: int

    def __init__(self, value: OutT_co, timestamp: TimestampLike) -> None:
        self.__attrs_init__(value, to_timestamp_us(timestamp))

    @property
    def timestamp(self) -> datetime:
        """Its event time, in UTC."""
        return to_datetime(self.timestamp_us)


@attrs.frozen(init=False)
class WindowedValue:
    """An output of `DoFn.finish_bundle`, with an event time and a window of its own.

    Args:
        value: the output.
        timestamp: its event time: a datetime with a time zone, or seconds since 1970.
        window: one of the windows of the input.

    Raises:
        PipelineError: the window is none.
    """

    value: Any
    timestamp_us: int
    window: Window

    def __init__(self, value: Any, timestamp: TimestampLike, window: Window) -> None:
        if not isinstance(window, Window):
            raise PipelineError(
                f"a WindowedValue needs a window, not {window!r}",
                hint="ask for it in process, with window=df.DoFn.WindowParam",
            )
        self.__attrs_init__(value, to_timestamp_us(timestamp), window)

    @property
    def timestamp(self) -> datetime:
        """Its event time, in UTC."""
        return to_datetime(self.timestamp_us)


class OutputTag(Generic[T]):
    """The tag of an output, with the type of its elements; text is a tag of which nothing more is known.

    Type checkers compare what a `TaggedOutput` has with it, and know the output by it: those that ``with_outputs(BAD)``
    names, and ``outputs[BAD]``.  When the pipeline is built it is the type that the output is declared to have, and
    with ``check_types=True`` when it runs, too.

    Example::

        BAD = df.OutputTag[str]("bad")

        def parse(line: str) -> Iterator[int | df.TaggedOutput]:
            yield int(line) if line.isdigit() else df.TaggedOutput(BAD, line)

        good, bad = lines | df.FlatMap(parse).with_outputs(BAD)

    Args:
        name: what the output is called: ``outputs["bad"]`` and ``outputs.bad`` are it as well.

    Raises:
        PipelineError: the name is not text.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise PipelineError(
                f"OutputTag needs a name, not {name!r:.200} ({user_location()})",
                hint='the type of the elements stands before it: df.OutputTag[str]("bad")',
            )
        self.name = name

    @property
    def element_type(self) -> Any:
        """The type that stands in brackets; `typing.Any` if none does."""
        # Where `typing` leaves what a generic class was called with.
        args = get_args(getattr(self, "__orig_class__", None))
        return args[0] if args else Any

    def __repr__(self) -> str:
        return f"OutputTag[{text_of(self.element_type)}]({self.name!r})"


@attrs.frozen(init=False)
class TaggedOutput:
    """An output for one of the extra outputs that `ParDo.with_outputs` named.

    Args:
        tag: the name of the output, or its `OutputTag`, whose name it then has.
        value: the element; it may be a `TimestampedValue`.
    """

    tag: str
    value: Any

    @overload
    def __init__(
        self, tag: OutputTag[T], value: T | TimestampedValue[T] | WindowedValue
    ) -> None: ...
    @overload
    def __init__(self, tag: str, value: Any) -> None: ...
    def __init__(self, tag: str | OutputTag[Any], value: Any) -> None:
        self.__attrs_init__(tag_name(tag), value)


def tag_name(tag: str | OutputTag[Any]) -> str:
    """The name of an output.

    Args:
        tag: its tag, or its name.
    """
    return tag.name if isinstance(tag, OutputTag) else tag


class Shape(Enum):
    """What a call returns, so that the hot path can loop over a list without asking each time."""

    #: One value per element.
    MAP = "map"
    #: An iterable of values per element, or None.
    FLAT_MAP = "flat_map"
    #: A truth value: keep the element or not.
    FILTER = "filter"


#: What a call has returned, and None; or None, and what it has raised.
Outcome = tuple[Any, BaseException | None]


class ConcurrentCalls(Protocol):
    """Runs asynchronous calls of user code; `dataflow.async_calls` is the one there is."""

    def outcomes(self, call: Callable[[Any], Any], elements: Sequence[Any]) -> Sequence[Outcome]:
        """The outcome for each element, in their order.

        Args:
            call: of user code, for an element.
            elements: of one bundle.
        """
        ...

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine, and return its result.

        Args:
            coroutine: of user code.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait in asynchronous code.

        Args:
            seconds: how long.
        """
        ...

    def close(self) -> None:
        """End what it runs calls with."""
        ...


@attrs.frozen
class CallableDoFn:
    """A plain function used as user code; see `dataflow.transforms.par_do`."""

    function: Callable[..., Any]
    shape: Shape


def is_async(call: Callable[..., Any]) -> bool:
    """Whether calling a function gives something that is awaited, or iterated asynchronously.

    Args:
        call: a function, a partial of one, or an object with ``__call__``.
    """
    while isinstance(call, partial):
        call = call.func
    code: Any = call if inspect.isroutine(call) or isinstance(call, type) else type(call).__call__
    return inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)


def has_process_batch(fn: object) -> bool:
    """Whether user code is a DoFn whose class defines `DoFn.process_batch`."""
    return isinstance(fn, DoFn) and type(fn).process_batch is not DoFn.process_batch


MarkedT = TypeVar("MarkedT", bound=Callable[..., Any])


def nondeterministic(target: MarkedT) -> MarkedT:
    """Mark user code that may return something else when it is run again: a DoFn class or a function.

    To retract an element, user code is run on it again and its outputs are retracted, so code has to be deterministic,
    or be marked.  What marked code made of an element is kept in the state of the grouping that the element came from,
    for as long as it may be retracted.

    Dataflow Model, section 2.3, footnote 12.

    Example::

        @df.nondeterministic
        def with_price_now(order):
            return order, fetch_price(order)
    """
    target.__dataflow_nondeterministic__ = True  # type: ignore[attr-defined]
    return target


def is_nondeterministic(fn: DoFn | CallableDoFn) -> bool:
    """Whether user code is marked as `nondeterministic`."""
    target = fn.function if isinstance(fn, CallableDoFn) else fn
    return bool(getattr(target, "__dataflow_nondeterministic__", False))


def requested_params(call: Callable[..., Any], what: str) -> dict[str, DoFnParam]:
    """The `DoFnParam` defaults in the signature of ``call``, by parameter name.

    Args:
        call: ``process`` of a DoFn, or a plain function.
        what: the name of the call in an error.

    Raises:
        PipelineError: the call cannot take one element as its first argument, or asks for it as another.
    """
    signature = signature_of(call)
    if signature is None:
        return {}  # a built-in requests nothing
    try:
        signature.bind(object())
    except TypeError as error:
        raise PipelineError(
            f"{what} cannot be called with one element",
            detail=f"its signature is {signature}: {error}",
            hint="the element is the first argument; give the others behind the function, e.g. df.Map(f, 3), "
            "or a default, such as window=df.DoFn.WindowParam",
        ) from None
    first, *others = signature.parameters.values()
    behind = next((each.name for each in others if each.default is DoFnParam.ELEMENT), None)
    if behind is not None:
        raise PipelineError(
            f"{what} asks for ElementParam where it is not given",
            detail=f"its signature is {signature}: {behind!r} is not the first parameter",
            hint="the element is the first argument: put its parameter there",
        )
    return {
        each.name: each.default
        for each in (first, *others)
        if isinstance(each.default, DoFnParam) and each.default is not DoFnParam.ELEMENT
    }
