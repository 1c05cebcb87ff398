"""PTransform: a named step of a pipeline, primitive or made of others; also one that is written as a function."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
)

import attrs

from dataflow.errors import PipelineError
from dataflow.exception_handling import ExceptionClasses, ExceptionHandling, exception_handling
from dataflow.type_hints import is_hint
from windowing.location import user_location

if TYPE_CHECKING:
    from windowing.timestamps import DurationLike
    from windowing.window_fn import WindowFn

InT = TypeVar("InT")
OutT = TypeVar("OutT")
P = ParamSpec("P")
InT_contra = TypeVar("InT_contra", contravariant=True)
OutT_co = TypeVar("OutT_co", covariant=True)
TransformT = TypeVar("TransformT", bound="PTransform[Any, Any]")


@attrs.frozen
class DeclaredTypes:
    """The types of elements that a use of a transform was declared to have.

    Attributes:
        accepts: of its input.
        emits: of its output, or its main one; None: nothing is declared.
        tagged: of its further outputs, by tag.
    """

    accepts: Any = Any
    emits: Any = None
    tagged: Mapping[str, Any] = attrs.field(factory=dict)


class Applicable(Protocol[InT_contra, OutT_co]):
    """Anything that has an `expand` from one type to another, for type checkers.

    A transform whose own `expand` is generic, as that of `GroupByKey`, keeps the types of its input under a label too.
    """

    def expand(self, pcoll: InT_contra, /) -> OutT_co:
        """Apply the inner steps to the input and return the output."""
        ...


class PTransform(ABC, Generic[InT_contra, OutT_co]):
    """A step: override `expand` to build it from other steps.

    ``"label" >> transform`` names one use of it.  Labels make up the names of computations in the store, so a job
    that is to be restarted or updated wants explicit ones.
    """

    label: str | None = None
    declared_types = DeclaredTypes()

    @abstractmethod
    def expand(self, pcoll: InT_contra) -> OutT_co:
        """Apply the inner steps to the input and return the output."""

    @property
    def annotated_expand(self) -> Callable[..., Any]:
        """What the types of its elements are read from, if it has annotations: ``PCollection[...]``."""
        return self.expand

    def with_input_types(self, element_type: Any) -> Self:
        """Declare the type of the elements that it takes.

        An input that contradicts it is refused when the transform is applied, and an element that does when the
        pipeline runs with ``check_types=True``.  Beam's ``with_input_types``.

        Args:
            element_type: a type as in an annotation: ``int``, ``tuple[str, float]``, ``Order | None``.

        Raises:
            PipelineError: it is no type.
        """
        return self._declaring(accepts=_checked_hint("with_input_types", element_type))

    def with_output_types(
        self, element_type: Any = Any, /, **tagged: Any
    ) -> PTransform[InT_contra, Any]:
        """Declare the type of the elements that it emits.

        It is what the next transform is compared with, in place of what annotations say, and each element is when the
        pipeline runs with ``check_types=True``.  With `typing.Any` nothing is compared.  Beam's ``with_output_types``.

        Args:
            element_type: of its output, or its main one: a type as in an annotation.
            **tagged: of its further outputs, by their tags.

        Raises:
            PipelineError: one of them is no type; when applied, it contradicts what is known, or there is no such
                output.
        """
        types = {tag: _checked_hint("with_output_types", each) for tag, each in tagged.items()}
        tagged = {**self.declared_types.tagged, **types}
        return self._declaring(
            emits=_checked_hint("with_output_types", element_type), tagged=tagged
        )

    def _declaring(self, **types: Any) -> Self:
        return changed(self, declared_types=attrs.evolve(self.declared_types, **types))

    def default_label(self) -> str:
        """The label where the user gave none."""
        return type(self).__name__

    def with_exception_handling(
        self,
        main_tag: str = "good",
        dead_letter_tag: str = "bad",
        *,
        exc_class: ExceptionClasses = Exception,
        partial: bool = False,
        threshold: float = 1.0,
        threshold_windowing: WindowFn | None = None,
        retries: int = 0,
        retry_delay: DurationLike = 0.1,
        on_failure_callback: Callable[[BaseException, Any], object] | None = None,
    ) -> PTransform[InT_contra, Any]:
        """Have elements that it fails on as an output of their own: ``good, bad = pcoll | transform....``.

        ``bad`` has a `BadElement` for each, ``(element, (exception, message, traceback, transform, origin))``, with the
        event time, window and sign of the element: what was emitted for an element that is retracted is retracted.
        In a composite it is that of every step with a function or a `DoFn`, and of every read; ``failure.transform``
        says which.  Of a source ``element`` is the record, or its text, and ``failure.origin`` has the file and line.

        Handled are calls of functions, asynchronous or not, of `DoFn.process`, of timers and of the expiration of
        windows, and of a `CombineFn`; not those of the other hooks of a `DoFn`, nor of what divides a hot key.  The
        main output is that of the transform; it has none of what the call emitted for a bad element.

        A call of a stateful `DoFn` that fails leaves state and timers as they were, for the price of a copy of the
        key's state for each call; a timer that fails is an element ``(key, its name)``.

        Of combining, an element is bad on which the `CombineFn` fails alone, with nothing added yet.  What fails only
        with others, or when the result is extracted, makes its key bad: ``(key, text)``, where the text shows what was
        being combined.

        Args:
            main_tag: of the main output in the result.
            dead_letter_tag: of the output of bad elements.
            exc_class: which exceptions are handled; any other ends the run, or makes a dead letter, as without this.
            partial: whether what a call has emitted before it failed is kept.
            threshold: the proportion of bad elements, of all in a window, above which the run fails
                (`TooManyFailuresError`), when the window ends; each step by itself.  1: none.
            threshold_windowing: the windows in which that is counted; None: those of the elements.  In the global
                window of a stream there is no end, so give windows there.
            retries: how often an element is tried again before it is bad.
            retry_delay: how long that waits, the first time; each further time it waits twice as long.  The worker
                does nothing else meanwhile, but for other calls of asynchronous code.
            on_failure_callback: called with the exception and the element when it is bad; again when the bundle is
                tried again.  For a group that cannot be combined it is called with the text alone.

        Raises:
            PipelineError: an argument is something else; when applied, there is nothing to handle.

        Beam has it for `ParDo` and what is made of one.
        """
        if main_tag == dead_letter_tag:
            raise PipelineError(
                f"with_exception_handling has two outputs, and {main_tag!r} is the tag of both ({user_location()})"
            )
        handling = exception_handling(
            exc_class=exc_class,
            partial=partial,
            threshold=threshold,
            threshold_windowing=threshold_windowing,
            retries=retries,
            retry_delay=retry_delay,
            on_failure_callback=on_failure_callback,
        )
        return _Handled(self, handling, main_tag, dead_letter_tag)

    def __rrshift__(self, label: str) -> Self:
        if not isinstance(label, str):
            return NotImplemented
        named = copy.copy(self)
        named.label = label
        return named


class _Handled(PTransform[Any, Any]):
    """A transform whose failures are an output."""

    def __init__(
        self, inner: PTransform[Any, Any], handling: ExceptionHandling, good: str, bad: str
    ) -> None:
        self._inner, self._handling, self._tags = inner, handling, (good, bad)
        self.label, self.declared_types = inner.label, inner.declared_types

    @property
    def annotated_expand(self) -> Callable[..., Any]:
        return self._inner.annotated_expand

    def default_label(self) -> str:
        return self._inner.default_label()

    def expand(self, pcoll: Any) -> Any:
        first = pcoll[0] if isinstance(pcoll, tuple | list) else pcoll
        # A read is applied to the pipeline itself.
        pipeline = vars(first).get("pipeline", first)
        return pipeline.expand_handled(self._inner, pcoll, self._handling, *self._tags)

    def __ror__(self, pcolls: Any) -> Any:
        return pcolls[0].pipeline.apply(self, pcolls)


def ptransform_fn(
    fn: Callable[Concatenate[InT, P], OutT],
) -> Callable[P, PTransform[InT, OutT]]:
    """Make transforms of a function from a PCollection, or the pipeline, and further arguments to what it makes.

    The transforms have the name of the function as their label, or one that is given with ``>>``, and the steps that
    the function applies have labels of their own inside it.

    Example::

        @df.ptransform_fn
        def TopWords(words, number):
            return words | df.Map(...) | df.GroupByKey() | ...

        lines | df.FlatMap(str.split) | "ten" >> TopWords(10)
    """

    @wraps(fn)
    def transform(*args: P.args, **kwargs: P.kwargs) -> PTransform[InT, OutT]:
        return _FunctionTransform(fn, args, kwargs)

    return transform


class _FunctionTransform(PTransform[Any, Any]):
    def __init__(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._fn, self._args, self._kwargs = fn, args, kwargs

    def default_label(self) -> str:
        return getattr(self._fn, "__name__", type(self._fn).__name__)

    @property
    def annotated_expand(self) -> Callable[..., Any]:
        return self._fn

    def expand(self, pcoll: Any) -> Any:
        return self._fn(pcoll, *self._args, **self._kwargs)


def changed(transform: TransformT, **attributes: object) -> TransformT:
    """A copy of a transform that differs in some attributes.

    Args:
        transform: stays as it is.
        **attributes: of the copy, by their names.
    """
    found = copy.copy(transform)
    vars(found).update(attributes)
    return found


def called(kind: type) -> str:
    """How an object of a class is made, as a hint shows it: ``df.GroupByKey()``, or ``Mine(...)`` with arguments.

    Args:
        kind: a class of this package, or of a user's.
    """
    name = kind.__qualname__.rpartition("<locals>.")[2]
    prefix = "df." if kind.__module__.partition(".")[0] == "dataflow" else ""
    try:
        inspect.signature(kind).bind()
    except (TypeError, ValueError):
        return f"{prefix}{name}(...)"
    return f"{prefix}{name}()"


def _checked_hint(method: str, given: Any) -> Any:
    if not is_hint(given):
        raise PipelineError(
            f"{method} needs a type, not {given!r:.200} ({user_location()})",
            hint="a type as in an annotation: int, tuple[str, float], Order | None",
        )
    return type(None) if given is None else given
