"""CombineGlobally: all elements of a window combined into one result; CombineValues: of lists that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Self, overload

import attrs

from dataflow.combine_fn import CombineFn, as_combine_fn, combined
from dataflow.errors import PipelineError
from dataflow.graph import AssignWindows, Read
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform, changed
from dataflow.transforms.counted import counted_at_the_end
from dataflow.transforms.fanout import check_fanout
from dataflow.transforms.flatten import Flatten
from dataflow.transforms.group import CombinePerKey
from dataflow.transforms.handled_combine import combine_handled
from dataflow.transforms.par_do import FlatMap, Map
from dataflow.transforms.rewindowed import Rewindowed
from dataflow.transforms.side_inputs import AsSingleton
from dataflow.type_hints import type_of
from dataflow.type_vars import (
    V2,
    K,
    OfInputs,
    OfOutputs,
    OutT,
    ResultT,
    SumOrExtreme,
    T,
    V,
)
from dataflow.upstream import nearest
from triggers.windowing_strategy import WindowingStrategy
from windowing.global_windows import GlobalWindows


class CombineGlobally(PTransform[Any, Any], Generic[V, OutT, ResultT]):
    """All elements of each window to one result per firing; in the global window also where there is no element.

    There the result of nothing (0 of a count, an empty list) is emitted once, at the end of time, if the input has
    none, or if all that it had has been retracted; of an input without an end, when its job is drained.  A function
    that has no result of nothing, as ``max``, emits nothing then.  In other windows nobody knows
    which windows are empty: `without_defaults` is the only possibility there.  Beam's ``CombineGlobally``.

    All elements have one key, so one worker has the accumulator of a window; see `with_fanout`.

    Example::

        orders | df.Map(lambda order: order.price) | df.CombineGlobally(sum)

    Args:
        fn: as for `CombinePerKey`.

    Raises:
        PipelineError: ``fn`` is neither a function nor a `CombineFn`; when applied, the windows are not the global one,
            and there is no `without_defaults`.
    """

    @overload
    def __init__(
        self: CombineGlobally[V, OutT, OfOutputs], fn: CombineFn[V, Any, OutT]
    ) -> None: ...
    @overload
    def __init__(self: CombineGlobally[Any, Any, OfInputs], fn: SumOrExtreme) -> None: ...
    @overload
    def __init__(
        self: CombineGlobally[V, OutT, OfOutputs], fn: Callable[[list[V]], OutT]
    ) -> None: ...
    def __init__(self, fn: CombineFn | Callable[..., Any]) -> None:
        self._given = fn
        self._combine_fn = as_combine_fn(fn)
        self._has_defaults = True
        self._shards: int | None = None

    def default_label(self) -> str:
        """``CombineGlobally(name)``."""
        name = getattr(self._given, "__name__", type(self._given).__name__)
        return f"CombineGlobally({name})"

    def with_defaults(self) -> Self:
        """Emit the result of nothing where there is no element; in the global window only.  The default."""
        return changed(self, _has_defaults=True)

    def without_defaults(self) -> Self:
        """Emit nothing where there is no element."""
        return changed(self, _has_defaults=False)

    def with_fanout(self, fanout: int) -> Self:
        """Combine the elements in so many shards first; see `CombinePerKey.with_hot_key_fanout`.

        Raises:
            PipelineError: ``fanout`` is not a positive integer; when applied, the windows or the trigger are refused.
        """
        check_fanout(fanout)
        return changed(self, _shards=fanout)

    def as_singleton_view(self) -> CombinedView:
        """Emit no collection, but the result as a side input: ``f(element, total)``.

        The result of nothing stands for windows without elements, unless there is none, or `without_defaults` is set.

        Example::

            total = orders | df.CombineGlobally(sum).as_singleton_view()
            orders | df.Map(lambda order, total: order / total, total)
        """
        named = CombinedView(self, self._combine_fn, has_default=self._has_defaults)
        named.label = self.label
        return named

    @overload
    def expand(
        self: CombineGlobally[Any, Any, OfInputs], pcoll: PCollection[V2]
    ) -> PCollection[V2]: ...
    @overload
    def expand(self, pcoll: PCollection[V]) -> PCollection[OutT]: ...
    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Give all elements one key, combine them, and add what to emit of none.

        Raises:
            PipelineError: a default is wanted, and the windows are not the global one.
        """
        if self._has_defaults:
            _check_global(pcoll)
        handled = combine_handled(
            pcoll,
            self._combine_fn,
            lambda combine_fn: changed(self, _combine_fn=combine_fn, label=None),
            has_keys=False,
        )
        if handled is not None:
            return handled
        combine = CombinePerKey(self._combine_fn)
        if self._shards is not None:
            combine = combine.with_hot_key_fanout(self._shards)
        results: PCollection[Any] = (
            pcoll | "key" >> Map(_with_no_key) | "combine" >> combine | "result" >> Map(_value)
        )
        if not self._has_defaults:
            return results
        default = pcoll | "default" >> _Default(self._combine_fn, results.node.strategy)
        nothing = _OfNothing(self._combine_fn)((None, 0))
        default = default.of_type(type_of(nothing[0]) if nothing else results.element_type)
        return (results, default) | "results" >> Flatten()


class CombinedView(PTransform[PCollection[Any], AsSingleton]):
    """A `CombineGlobally` whose result is a side input, as `CombineGlobally.as_singleton_view` returns it.

    Args:
        combine: combines the elements.
        combine_fn: what it combines them with.
        has_default: whether the result of nothing stands for windows without elements.
    """

    def __init__(
        self, combine: CombineGlobally[Any, Any, Any], combine_fn: CombineFn, *, has_default: bool
    ) -> None:
        self._combine, self._combine_fn, self._has_default = combine, combine_fn, has_default

    def default_label(self) -> str:
        """The label of the `CombineGlobally`."""
        return self._combine.default_label()

    def expand(self, pcoll: PCollection[Any]) -> AsSingleton:
        """Combine, with the default where elements look at the result."""
        results = self._combine.without_defaults().expand(pcoll)
        default = _OfNothing(self._combine_fn)((None, 0)) if self._has_default else []
        return AsSingleton(results, *default)


class _Default(PTransform[PCollection[Any], PCollection[Any]]):
    """The result of nothing, if the input is empty when it has ended."""

    def __init__(self, combine_fn: CombineFn, strategy: WindowingStrategy) -> None:
        self._combine_fn, self._strategy = combine_fn, strategy

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        return (
            counted_at_the_end(pcoll)
            | "of nothing" >> FlatMap(_OfNothing(self._combine_fn))
            | "windows" >> Rewindowed(_same, self._strategy)
        )


class CombineValues(PTransform[Any, Any], Generic[V, OutT, ResultT]):
    """``(key, values)`` to ``(key, result)``, such as `GroupByKey` emits; `CombinePerKey` does both for less.

    Beam's ``CombineValues``.

    Args:
        fn: as for `CombinePerKey`; it is called with all of the values.

    Raises:
        PipelineError: ``fn`` is neither a function nor a `CombineFn`.
    """

    @overload
    def __init__(self: CombineValues[V, OutT, OfOutputs], fn: CombineFn[V, Any, OutT]) -> None: ...
    @overload
    def __init__(self: CombineValues[Any, Any, OfInputs], fn: SumOrExtreme) -> None: ...
    @overload
    def __init__(
        self: CombineValues[V, OutT, OfOutputs], fn: Callable[[list[V]], OutT]
    ) -> None: ...
    def __init__(self, fn: CombineFn | Callable[..., Any]) -> None:
        self._given = fn
        self._combine_fn = as_combine_fn(fn)

    def default_label(self) -> str:
        """``CombineValues(name)``."""
        name = getattr(self._given, "__name__", type(self._given).__name__)
        return f"CombineValues({name})"

    @overload
    def expand(
        self: CombineValues[Any, Any, OfInputs], pcoll: PCollection[tuple[K, Iterable[V2]]]
    ) -> PCollection[tuple[K, V2]]: ...
    @overload
    def expand(self, pcoll: PCollection[tuple[K, Iterable[V]]]) -> PCollection[tuple[K, OutT]]: ...
    def expand(self, pcoll: PCollection[tuple[Any, Iterable[Any]]]) -> PCollection[tuple[Any, Any]]:
        """Add a function of each element."""
        return pcoll | "combine" >> Map(_ToResult(self._combine_fn))


def _check_global(pcoll: PCollection[Any]) -> None:
    origins = nearest(pcoll.pipeline.graph(), pcoll.node.id, AssignWindows | Read)
    windows = [
        each.operation.window_fn for each in origins if isinstance(each.operation, AssignWindows)
    ]
    other = next((each for each in windows if not isinstance(each, GlobalWindows)), None)
    if other is not None:
        raise PipelineError(
            f"{pcoll.pipeline.here()} is to emit the result of nothing for empty windows, and does not know "
            "which are empty",
            detail=f"the windows are {other!r}; only in the global window it is known that nothing comes any more",
            hint="call .without_defaults() on it, and windows without elements emit nothing",
        )


@attrs.frozen
class _ToResult:
    combine_fn: CombineFn

    def __call__(self, element: tuple[Any, Iterable[Any]], /) -> tuple[Any, Any]:
        key, values = element
        return key, combined(self.combine_fn, values)


@attrs.frozen
class _OfNothing:
    combine_fn: CombineFn

    def __call__(self, element: tuple[None, int], /) -> list[Any]:
        if element[1]:
            return []
        try:
            return [combined(self.combine_fn, [])]
        except Exception:  # noqa: BLE001 - whatever the user's code raises, it has no result
            return []


def _with_no_key(element: T) -> tuple[None, T]:
    return None, element


def _value(element: tuple[None, T]) -> T:
    return element[1]


def _same(element: T) -> T:
    return element
