"""The final fold: the final contents of a collection, out of everything that was emitted on the way.

How panes add up depends on the accumulation mode: the last pane of each window, all panes together, or the signed sum.

Dataflow Model, section 2.3.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from dataflow.pipeline import PCollection
from dataflow.signed_sum import FoldError, signed_sum
from dataflow.transforms.changelog import Change
from triggers.accumulation import AccumulationMode
from windowing.window import Window
from windowing.window_fn import FrozenWindows, MergingWindowFn

#: An element's key; by default the first of a pair.
KeyOf = Callable[[Any], Any]
#: A function that combines the values of a key and window, one from each pane, such as ``sum``.
Combine = Callable[[list[Any]], Any]


@attrs.frozen(kw_only=True)
class Folding:
    """How the panes of a collection add up.

    Attributes:
        is_merging: whether its windows came out of merging, so that a window may have gone into a larger one.
        combine: for discarding panes; without it, their fold is the list of all of them.
    """

    mode: AccumulationMode
    is_merging: bool
    key_of: KeyOf | None = None
    combine: Combine | None = None

    @classmethod
    def of(cls, pcoll: PCollection[Any]) -> "Folding":
        """The folding of a collection, by the last windowing and grouping before it."""
        strategy = pcoll.node.strategy
        mode = strategy.accumulation_mode
        if pcoll.node.retracted_by:
            mode = AccumulationMode.ACCUMULATING_AND_RETRACTING
        graph = pcoll.pipeline.graph()
        place = pcoll.node.id
        while isinstance(strategy.window_fn, FrozenWindows):
            place = graph.producers[place].inputs[0]
            strategy = graph.pcollections[place].strategy
        return cls(mode=mode, is_merging=isinstance(strategy.window_fn, MergingWindowFn))

    def fold(self, changes: Sequence[Change[Any]]) -> list[Change[Any]]:
        """The final contents.

        Args:
            changes: everything emitted and retracted, in any order.

        Raises:
            FoldError: something was retracted that had not been emitted, or a fold by key has no keys.
        """
        if self.mode is AccumulationMode.ACCUMULATING_AND_RETRACTING:
            return signed_sum(changes)
        if self.mode is AccumulationMode.DISCARDING and self.combine is None:
            return list(changes)
        folded = []
        for (key, window), panes in self._by_place(changes).items():
            if self.mode is AccumulationMode.ACCUMULATING:
                # The last to fire is that of the final window: panes are counted on through merges.
                final = [each for each in panes if each.window == window]
                last = max(each.pane.index for each in final)
                folded += [each for each in final if each.pane.index == last]
            else:
                assert self.combine is not None
                value = (key, self.combine([each.value[1] for each in panes]))
                folded.append(attrs.evolve(panes[-1], value=value, window=window))
        return folded

    def _by_place(
        self, changes: Iterable[Change[Any]]
    ) -> dict[tuple[Any, Window], list[Change[Any]]]:
        """The changes by key and window; those of a window that was merged are with the window that it went into."""
        by_key: dict[Any, list[Change[Any]]] = defaultdict(list)
        for change in changes:
            by_key[self.key(change.value)].append(change)
        places: dict[tuple[Any, Window], list[Change[Any]]] = defaultdict(list)
        for key, found in by_key.items():
            windows = {change.window for change in found}
            home = _homes(windows) if self.is_merging else dict(zip(windows, windows, strict=True))
            for change in found:
                places[key, home[change.window]].append(change)
        return places

    def key(self, value: Any) -> Any:
        """The key of an element.

        Raises:
            FoldError: it is not a pair, and there is no ``key_of``.
        """
        if self.key_of is not None:
            return self.key_of(value)
        if isinstance(value, tuple) and len(value) == 2:
            return value[0]
        raise FoldError(
            f"the panes of a {self.mode.value} grouping are folded by key, and {value!r} is no (key, value) pair; "
            "pass key_of=, a function from an element to its key"
        )


def _homes(windows: Iterable[Window]) -> dict[Window, Window]:
    """For each window the largest that covers it."""
    home: dict[Window, Window] = {}
    # Among those with the same start, the longest comes first.
    for window in sorted(windows, key=lambda each: (each.start_us, -each.end_us)):
        outer = next((each for each in home.values() if _covers(each, window)), window)
        home[window] = outer
    return home


def _covers(outer: Window, window: Window) -> bool:
    return outer.start_us <= window.start_us and window.end_us <= outer.end_us
