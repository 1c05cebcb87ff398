"""PTransform: a named step of a pipeline, primitive or made of others; also one that is written as a function."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

InT = TypeVar("InT")
OutT = TypeVar("OutT")
P = ParamSpec("P")
InT_contra = TypeVar("InT_contra", contravariant=True)
OutT_co = TypeVar("OutT_co", covariant=True)
TransformT = TypeVar("TransformT", bound="PTransform[Any, Any]")


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

    @abstractmethod
    def expand(self, pcoll: InT_contra) -> OutT_co:
        """Apply the inner steps to the input and return the output."""

    def default_label(self) -> str:
        """The label where the user gave none."""
        return type(self).__name__

    def __rrshift__(self, label: str) -> Self:
        if not isinstance(label, str):
            return NotImplemented
        named = copy.copy(self)
        named.label = label
        return named


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
