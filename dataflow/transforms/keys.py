"""Keys, Values, KvSwap and WithKeys: the parts of ``(key, value)`` pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, overload

import attrs

from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.signature_types import FunctionTypes, function_types
from dataflow.transforms.pairs import not_a_pair
from dataflow.transforms.par_do import Map
from dataflow.transforms.wrapped import Wrapped, check_runs_once
from dataflow.type_hints import pair_type, type_of
from dataflow.type_vars import K, KeyT, OfInputs, P, T, V


class Keys(PTransform[Any, Any]):
    """The key of each ``(key, value)`` pair."""

    def expand(self, pcoll: PCollection[tuple[K, Any]]) -> PCollection[K]:
        """Map to the keys."""
        return pcoll | "key" >> Map(_key)


class Values(PTransform[Any, Any]):
    """The value of each ``(key, value)`` pair."""

    def expand(self, pcoll: PCollection[tuple[Any, V]]) -> PCollection[V]:
        """Map to the values."""
        return pcoll | "value" >> Map(_value)


class KvSwap(PTransform[Any, Any]):
    """``(value, key)`` for each ``(key, value)``."""

    def expand(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[V, K]]:
        """Map to the swapped pairs."""
        return pcoll | "swap" >> Map(_swapped)


class WithKeys(PTransform[Any, Any], Generic[T, K]):
    """``(key, element)`` for each element.

    Args:
        key: a function of the element; anything else is the key of all elements.
        *args: given to the function behind the element, each time.
        **kwargs: likewise, by name.

    Raises:
        PipelineError: there are arguments for a key that is no function; when applied, they do not fit the function.
    """

    # The last is for a key that is no function: it says nothing about the elements.
    @overload
    def __init__(self, key: Callable[[T], K]) -> None: ...
    @overload
    def __init__(self, key: Callable[Concatenate[T, P], K], *args: Any, **kwargs: Any) -> None: ...
    @overload
    def __init__(self: WithKeys[OfInputs, KeyT], key: KeyT) -> None: ...
    def __init__(self, key: Any, *args: Any, **kwargs: Any) -> None:
        if not callable(key) and (args or kwargs):
            raise PipelineError(
                f"WithKeys was given arguments for a key that is no function: {key!r}",
                hint="give a function of the element and of these arguments, or the key alone",
            )
        self._key, self._args, self._kwargs = key, args, kwargs

    @overload
    def expand(self: WithKeys[OfInputs, K], pcoll: PCollection[V]) -> PCollection[tuple[K, V]]: ...
    @overload
    def expand(self, pcoll: PCollection[T]) -> PCollection[tuple[K, T]]: ...
    def expand(self, pcoll: PCollection[T]) -> PCollection[tuple[Any, T]]:
        """Map to pairs."""
        if not callable(self._key):
            return pcoll | "constant" >> Map(_WithConstant(self._key))
        check_runs_once(self._key, pcoll.pipeline.here())
        return pcoll | "key" >> Map(_WithKey(self._key), *self._args, **self._kwargs)


def _key(pair: tuple[K, Any]) -> K:
    try:
        key, _ = pair
    except (TypeError, ValueError):
        raise not_a_pair(pair) from None
    return key


def _value(pair: tuple[Any, V]) -> V:
    try:
        _, value = pair
    except (TypeError, ValueError):
        raise not_a_pair(pair) from None
    return value


def _swapped(pair: tuple[K, V]) -> tuple[V, K]:
    try:
        key, value = pair
    except (TypeError, ValueError):
        raise not_a_pair(pair) from None
    return value, key


@attrs.frozen
class _WithConstant:
    key: Any

    def __call__(self, element: Any) -> tuple[Any, Any]:
        return self.key, element

    def function_types(self, given: Any) -> FunctionTypes:
        return FunctionTypes(Any, pair_type(type_of(self.key), given))


class _WithKey(Wrapped):
    def __call__(self, element: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return self.function(element, *args, **kwargs), element

    def function_types(self, given: Any) -> FunctionTypes:
        found = function_types(self.function, given)
        return FunctionTypes(found.accepts, pair_type(found.returns, given))
