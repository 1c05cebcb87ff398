"""Wrapped: a user's function inside one of ours, which is seen with the user's signature and marks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import attrs

from dataflow.do_fn import CallableDoFn, Shape
from dataflow.signature_types import FunctionTypes, function_types
from dataflow.user_code import check_user_code, no_function


@attrs.frozen
class Wrapped:
    """A function of the element that calls the user's; what that asks for is filled in, and its marks count."""

    function: Callable[..., Any]

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def function_types(self, given: Any) -> FunctionTypes:
        """What the user's function takes; an override says what ours returns.

        Args:
            given: the type of the elements.
        """
        return FunctionTypes(accepts=function_types(self.function, given).accepts)

    @property
    def __dataflow_nondeterministic__(self) -> bool:
        return bool(getattr(self.function, "__dataflow_nondeterministic__", False))


def check_function(function: object, transform: object) -> None:
    """Check what a transform was given as its function.

    Args:
        function: what the user gave.
        transform: that it was given to.

    Raises:
        PipelineError: it cannot be called.
    """
    if not callable(function):
        raise no_function(transform, function)


def check_runs_once(function: Callable[..., Any], here: str, shape: Shape = Shape.MAP) -> None:
    """Check that calling a user's function runs it.

    Args:
        function: that is about to be wrapped.
        here: the transform, as errors name it.
        shape: of the call.

    Raises:
        PipelineError: it is asynchronous, or a generator whose values nobody would ask for.
    """
    check_user_code(CallableDoFn(function, shape), here)
