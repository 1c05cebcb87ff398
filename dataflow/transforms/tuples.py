"""MapTuple and FlatMapTuple: functions whose arguments are the parts of an element."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any, Generic

from dataflow.do_fn import DoFnParam, Shape
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.signature_types import FunctionTypes, function_types, parameter_types
from dataflow.transforms.par_do import FlatMap, Map
from dataflow.transforms.wrapped import Wrapped, check_function, check_runs_once
from dataflow.type_hints import fields_of
from dataflow.type_vars import OutT


class _TupleTransform(OneOutput[PCollection[Any], OutT], Generic[OutT]):
    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
        check_function(fn, self)
        self._fn, self._args, self._kwargs = fn, args, kwargs

    def default_label(self) -> str:
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        return f"{type(self).__name__}({name})"


class MapTuple(_TupleTransform[OutT]):
    """One output per element, which is a tuple: ``fn(*element, *args, **kwargs)``.

    ``pairs | df.MapTuple(lambda key, value: ...)``.  A parameter whose default asks for something, such as
    ``window=df.DoFn.WindowParam``, is filled in by its name.

    Args:
        fn: called with the parts of each element.
        *args: given to the function behind these, each time; a collection as `AsSingleton`, `AsList` or the like.
        **kwargs: likewise, by name.

    Raises:
        PipelineError: ``fn`` is no function.
    """

    def __init__(self, fn: Callable[..., OutT], *args: Any, **kwargs: Any) -> None:
        super().__init__(fn, args, kwargs)

    def expand(self, pcoll: PCollection[Any]) -> PCollection[OutT]:
        """Map with a function of the tuple."""
        check_runs_once(self._fn, pcoll.pipeline.here())
        return pcoll | "map" >> Map(_Unpacking(self._fn), *self._args, **self._kwargs)


class FlatMapTuple(_TupleTransform[OutT]):
    """Any number of outputs per element, which is a tuple: those of the iterable ``fn(*element, *args, **kwargs)``.

    Args:
        fn: called with the parts of each element; returns an iterable.
        *args: given to the function behind these, each time; a collection as `AsSingleton`, `AsList` or the like.
        **kwargs: likewise, by name.

    Raises:
        PipelineError: ``fn`` is no function.
    """

    def __init__(self, fn: Callable[..., Iterable[OutT] | None], *args: Any, **kwargs: Any) -> None:
        super().__init__(fn, args, kwargs)

    def expand(self, pcoll: PCollection[Any]) -> PCollection[OutT]:
        """Map with a function of the tuple."""
        check_runs_once(self._fn, pcoll.pipeline.here(), Shape.FLAT_MAP)
        return pcoll | "map" >> FlatMap(_Unpacking(self._fn), *self._args, **self._kwargs)


class _Unpacking(Wrapped):
    def __call__(self, element: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*element, *args, **kwargs)

    def function_types(self, given: Any) -> FunctionTypes:
        """Of as many parameters as an element is known to have parts; the others are given behind them."""
        parts, parameters = fields_of(given), parameter_types(self.function)
        accepts: Any = Any
        if parts and parameters is not None and len(parts) <= len(parameters):
            accepts = types.GenericAlias(tuple, parameters[: len(parts)])
        return FunctionTypes(accepts, function_types(self.function).returns)

    @property
    def __signature__(self) -> inspect.Signature:
        """Of the element; how many parts that has shows only when the function is called."""
        parameters = inspect.signature(self.function).parameters.values()
        asked = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in parameters
            if isinstance(each.default, DoFnParam)
        ]
        return inspect.Signature(
            [
                inspect.Parameter("element", inspect.Parameter.POSITIONAL_ONLY),
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                *asked,
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        )
