"""Whether several collections can be put together: windowed alike, or grouped and not yet grouped in the same windows.

A grouping leaves windows as they are.  Where windows do not merge, an element that has been grouped and one that has
not are in the very same windows, so they can be joined.  Where they merge they cannot: what has not been grouped is in
windows that are still to merge, and no window of it is that of a result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from itertools import starmap
from typing import Any

import attrs

from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.times import in_words
from dataflow.upstream import windows_of
from triggers.windowing_strategy import WindowingStrategy
from windowing.window_fn import FrozenWindows, MergingWindowFn, WindowFn

_SHOWN_MAX = 60
#: Fields of `WindowingStrategy` that have other names for users.
_NAMES = {"window_fn": "windows", "allowed_lateness_us": "allowed_lateness"}


def check_several(given: object, example: str) -> None:
    """Check that a transform of several collections is not applied to one.

    Args:
        given: what it is applied to.
        example: how it is applied.

    Raises:
        PipelineError: it is one.
    """
    if isinstance(given, PCollection):
        raise PipelineError(
            f"{given.pipeline.here()} needs several PCollections, and is applied to one",
            hint=f"put them into a tuple: {example}",
        )


def common_strategy(
    pcolls: Mapping[str, PCollection[Any]], does: str, *, is_join: bool = False
) -> WindowingStrategy:
    """The strategy of all collections together.

    Args:
        pcolls: one or more, by their names in an error.
        does: what is done with them, e.g. "flattens".
        is_join: whether elements of one are to meet elements of another in their windows, also where all are grouped.

    Raises:
        PipelineError: there is none.
    """
    strategies = {name: each.node.strategy for name, each in pcolls.items()}
    pipeline = next(iter(pcolls.values())).pipeline
    graph = pipeline.graph()
    windows = {name: windows_of(graph, each.node) for name, each in pcolls.items()}
    is_same_but_windows = len({each.frozen() for each in strategies.values()}) == 1
    have_same_windows = len(set(windows.values())) == 1
    if len(set(strategies.values())) == 1 and (have_same_windows or not is_join):
        return next(iter(strategies.values()))
    here = pipeline.here()
    if not is_same_but_windows or not have_same_windows:
        raise PipelineError(
            f"{here} {does} collections that are windowed differently",
            detail="; ".join(starmap(_described, _differences(strategies, windows))),
            hint="apply the same WindowInto to each input before it is grouped, or one WindowInto after "
            "the Flatten of unwindowed inputs",
        )
    if any(isinstance(each, MergingWindowFn) for each in next(iter(windows.values()))):
        grouped = [name for name, each in strategies.items() if _is_frozen(each)]
        raise PipelineError(
            f"{here} {does} collections of windows that merge, of which some have been grouped and some have not",
            detail=f"grouped: {', '.join(grouped)}; the windows of the others ({_shown(windows[grouped[0]])}) "
            "are still to merge, so none of them is the window of a result",
            hint="put the inputs together as they are before they are grouped, with df.CoGroupByKey(), and compute "
            "from its lists what the grouping would emit; or group each input, and join results of the same windows",
        )
    return next(iter(strategies.values())).frozen()


def _is_frozen(strategy: WindowingStrategy) -> bool:
    return isinstance(strategy.window_fn, FrozenWindows)


def _differences(
    strategies: Mapping[str, WindowingStrategy], windows: Mapping[str, Collection[WindowFn]]
) -> list[tuple[str, dict[str, Any]]]:
    """The fields that differ: by the name of the field, the value of each collection."""
    found: list[tuple[str, dict[str, Any]]] = []
    for field in attrs.fields(WindowingStrategy):
        values: dict[str, Any] = {
            name: windows[name] if field.name == "window_fn" else getattr(each, field.name)
            for name, each in strategies.items()
        }
        if len(set(values.values())) > 1:
            found.append((field.name, values))
    return found


def _described(field: str, values: Mapping[str, Any]) -> str:
    shown = (
        f"{in_words(value) if field.endswith('_us') else _shown(value)} of {name}"
        for name, value in values.items()
    )
    return f"{_NAMES.get(field, field)}: {', '.join(shown)}"


def _shown(value: Any) -> str:
    """A value in few characters, however deep it is."""
    if isinstance(value, frozenset):
        return " and ".join(sorted(map(_shown, value)))
    if isinstance(value, Enum):
        return value.name
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
