"""The types that user code takes and returns, as its annotations say.

A function without annotations takes and returns anything, and so does one that a decorator has put in place of another:
what is annotated there is the other.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn, get_args, get_origin

import attrs

from dataflow.combine_fn import CallableCombineFn, CombineFn, ListCombineFn, WholeGroupCombineFn
from dataflow.do_fn import DoFn, TaggedOutput, TimestampedValue, WindowedValue, is_async
from dataflow.signatures import signature_of
from dataflow.type_hints import (
    fields_of,
    item_of,
    members_of,
    parameters_of,
    plain,
    resolved,
    solved,
    substituted,
    union_of,
)
from dataflow.user_state import is_of_expiration, members_of_class, timer_of

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
#: Built-in functions and methods, which have no annotations: what they take and return.
_KNOWN: Mapping[Any, tuple[Any, Any]] = {
    len: (Sized, int),
    repr: (Any, str),
    hash: (Any, int),
    **{
        getattr(str, name): (str, str)
        for name in ("capitalize", "casefold", "lower", "lstrip", "rstrip", "strip", "swapcase")
    },
    **{getattr(str, name): (str, str) for name in ("title", "upper")},
    **{getattr(str, name): (str, list[str]) for name in ("rsplit", "split", "splitlines")},
}
#: Functions of values that return one of them, or what adding them up makes.
_OF_THE_VALUES = (sum, min, max)
#: Types whose sum, with 0, is of the type.
_SUMMED = (int, float, complex, Decimal, Fraction)


@attrs.frozen
class FunctionTypes:
    """What a function takes as its first argument, and what it returns for one."""

    accepts: Any = Any
    returns: Any = Any


#: Of a function of which nothing is known.
UNKNOWN = FunctionTypes()


def function_types(call: Callable[..., Any], given: Any = Any) -> FunctionTypes:
    """What a function takes and returns.

    Args:
        call: a function, a class, or an object that can be called; one of this package's may have a method of this
            name, which is given the type of the argument.
        given: the type of its first argument; decides its type variables.
    """
    own = getattr(type(call), "function_types", None)
    found: FunctionTypes = _declared(call) if own is None else own(call, given)
    return attrs.evolve(found, returns=substituted(found.returns, solved(found.accepts, given)))


def parameter_types(call: Callable[..., Any]) -> tuple[Any, ...] | None:
    """The types of the positional parameters of a function; None if it takes any number, or nobody knows.

    Args:
        call: as for `function_types`.
    """
    hints, signature = _hints(call), signature_of(call)
    if hints is None or signature is None:
        return None
    parameters = [each for each in signature.parameters.values() if each.kind in _POSITIONAL]
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return None
    return tuple(hints.get(each.name, Any) for each in parameters)


def _declared(call: Callable[..., Any]) -> FunctionTypes:
    if isinstance(call, types.BuiltinFunctionType | types.MethodDescriptorType) and call in _KNOWN:
        return FunctionTypes(*_KNOWN[call])
    if isinstance(call, _METHODS):
        return FunctionTypes(accepts=call.__objclass__)
    hints, signature = _hints(call), signature_of(call)
    if hints is None:
        return UNKNOWN
    first = next(iter(signature.parameters.values()), None) if signature is not None else None
    accepts = Any if first is None or first.kind not in _POSITIONAL else hints.get(first.name, Any)
    return FunctionTypes(accepts, _returned(call, hints))


def _returned(call: Callable[..., Any], hints: Mapping[str, Any]) -> Any:
    if isinstance(call, type):
        made = inspect.getattr_static(call, "__new__", None)
        is_own = isinstance(getattr(made, "__func__", made), types.FunctionType)
        is_usual = inspect.getattr_static(type(call), "__call__") is vars(type)["__call__"]
        return call if is_usual and (not is_own or fields_of(call) is not None) else Any
    returned = hints.get("return", Any)
    is_awaited = not is_async(call) and any(
        isinstance(origin := get_origin(each) or each, type) and issubclass(origin, Awaitable)
        for each in members_of(returned)
    )
    return Any if returned is NoReturn or is_awaited else returned


def _hints(call: Callable[..., Any]) -> Mapping[str, Any] | None:
    """The annotations of a function by the names of its parameters; None if they may be those of another."""
    while isinstance(call, functools.partial):
        call = call.func
    if isinstance(call, type):
        members = [inspect.getattr_static(call, name) for name in ("__init__", "__new__")]
        made = [getattr(each, "__func__", each) for each in members]
        return next((resolved(each) for each in made if isinstance(each, types.FunctionType)), {})
    if isinstance(call, functools._lru_cache_wrapper):  # noqa: SLF001 - the class has no other name
        call = call.__wrapped__
    if not inspect.isroutine(call):
        call = type(call).__call__
    function = inspect.unwrap(call, stop=lambda each: not hasattr(each, "__dataflow_associative__"))
    function = getattr(function, "__func__", function)
    is_plain = isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__")
    return resolved(function) if is_plain else None


def emitted(returned: Any) -> Any:
    """The type of what becomes elements of the main output.

    Args:
        returned: the type of what user code emits.
    """
    found = []
    for each in members_of(returned):
        origin = get_origin(each) or each
        if origin is TimestampedValue:
            found += list(get_args(each)) or [Any]
        elif origin is not TaggedOutput:
            found.append(Any if origin is WindowedValue else each)
    return union_of(found)


def do_fn_types(fn: DoFn, given: Any) -> FunctionTypes:
    """What a DoFn takes, and what it returns from ``process``: an iterable of what it emits.

    Where more than ``process`` may emit, only ``DoFn[In, Out]`` says what comes out.

    Args:
        fn: the DoFn.
        given: the type of the elements.
    """
    named = parameters_of(type(fn), DoFn)
    of_process = function_types(fn.process, given)
    if type(fn).process is DoFn.process:
        of_process = UNKNOWN
    accepts = of_process.accepts
    if plain(accepts) is Any and named:
        accepts = named[0]
    if named and plain(named[1]) is not Any:
        emits = substituted(named[1], solved(named[0], given))
        return FunctionTypes(accepts, types.GenericAlias(list, (emits,)))
    return FunctionTypes(accepts, Any if _emits_elsewhere(fn) else of_process.returns)


def _emits_elsewhere(fn: DoFn) -> bool:
    """Whether more than ``process`` may emit: the end of a bundle, a timer, the end of a window."""
    members = members_of_class(type(fn)).values()
    is_called = any(timer_of(each) is not None or is_of_expiration(each) for each in members)
    return is_called or type(fn).finish_bundle is not DoFn.finish_bundle


def combine_types(fn: CombineFn, given: Any) -> FunctionTypes:
    """What a CombineFn takes as values, and what its results are.

    Args:
        fn: the CombineFn.
        given: the type of the values.
    """
    own = getattr(type(fn), "combine_types", None)
    if own is not None:
        found: FunctionTypes = own(fn, given)
        return found
    if type(fn) is ListCombineFn:
        return FunctionTypes(Any, types.GenericAlias(Sequence, (given,)))
    if isinstance(fn, CallableCombineFn | WholeGroupCombineFn):
        return _of_a_function_of_values(fn.function, given)
    named = parameters_of(type(fn), CombineFn)
    if len(named) == 3:
        return FunctionTypes(named[0], substituted(named[2], solved(named[0], given)))
    if named:
        return UNKNOWN
    parameters = parameter_types(fn.add_input)
    accepts = parameters[1] if parameters is not None and len(parameters) == 2 else Any
    returned = function_types(fn.extract_output).returns
    return FunctionTypes(accepts, substituted(returned, solved(accepts, given)))


def _of_a_function_of_values(function: Callable[..., Any], given: Any) -> FunctionTypes:
    if any(function is each for each in _OF_THE_VALUES):
        is_kept = function is not sum or all(each in _SUMMED for each in members_of(given))
        return FunctionTypes(Any, given if is_kept else Any)
    found = function_types(function, types.GenericAlias(list, (given,)))
    return FunctionTypes(item_of(found.accepts), found.returns)
