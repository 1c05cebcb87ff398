"""Partials: what crosses the shuffle to a grouping, accumulated as far as one bundle allows (lifted combines).

A partial is ``(key, window, accumulator, count)``.  Merging windows are merged here as well: proto-sessions of one
bundle merge associatively.

A record already behind the watermark stays a partial of its own: it may turn out too late, and then the *record* is
what must be kept.  Records ahead of the watermark hold it back until they are delivered, so they
cannot become late on the way.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from dataflow.combine_fn import CombineFn
from dataflow.errors import DataflowError, TransformError
from dataflow.graph import TransformNode
from runners.core.bundle import Bundle
from triggers.windowing_strategy import WindowingStrategy
from windowing.checks import checked_merges
from windowing.window import GLOBAL_WINDOW, Window
from windowing.window_fn import Merge, MergingWindowFn

Partial = tuple[Any, Window, Any, int]
#: Lists by key and window.
_Groups = dict[tuple[Any, Window], list[Any]]


class Lifter:
    """Builds the partials for one grouping."""

    def __init__(
        self, node: TransformNode, combine_fn: CombineFn, strategy: WindowingStrategy
    ) -> None:
        self._node, self._combine_fn = node, combine_fn
        window_fn = strategy.window_fn
        self._merging = window_fn if isinstance(window_fn, MergingWindowFn) else None

    def lift(self, bundle: Bundle, *, watermark_us: int) -> list[Partial]:
        """Partials of a bundle of ``(key, value)`` pairs.

        Raises:
            TransformError: an element is not a pair, or a key cannot be hashed.
        """
        windows = bundle.windows or [GLOBAL_WINDOW] * len(bundle)
        late: list[Partial] = []
        groups: _Groups = defaultdict(list)
        if not set(map(type, bundle.values)) <= {tuple}:
            self._refuse_other_than_pairs(bundle.values)
        try:
            if min(bundle.timestamps_us, default=watermark_us) >= watermark_us:
                for (key, value), window in zip(bundle.values, windows, strict=True):
                    groups[key, window].append(value)
            else:
                rows = zip(bundle.values, windows, bundle.timestamps_us, strict=True)
                for (key, value), window, timestamp_us in rows:
                    if timestamp_us >= watermark_us:
                        groups[key, window].append(value)
                    else:
                        hash(key)  # nothing else looks at it here
                        late.append((key, window, self._folded([value]), 1))
        except (TypeError, ValueError) as error:
            self._refuse_other_than_pairs(bundle.values)
            raise TransformError(f"{self._node} raised {type(error).__name__}: {error}") from error
        partials = [
            (key, window, self._folded(values), len(values))
            for (key, window), values in self._merged(groups).items()
        ]
        return partials + late

    def combined(self, partials: Iterable[Partial]) -> list[Partial]:
        """The partials of several bundles as fewer ones that say the same, for whoever gathers before sending.

        Not for records behind the watermark, which `lift` keeps apart.  May change the accumulators given.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        groups: _Groups = defaultdict(list)
        for key, window, accumulator, count in partials:
            groups[key, window].append((accumulator, count))
        return [
            (key, window, self._merge([each for each, _ in found]), sum(n for _, n in found))
            for (key, window), found in self._merged(groups).items()
        ]

    def _merged(self, groups: _Groups) -> _Groups:
        """Put what is in windows that merge into one list, before anything is accumulated."""
        if self._merging is None:
            return groups
        by_key: dict[Any, list[Window]] = defaultdict(list)
        for key, window in groups:
            by_key[key].append(window)
        for key, windows in by_key.items():
            if len(windows) == 1:
                continue
            for merged, sources in self._merges(self._merging, windows):
                found = [groups.pop((key, source)) for source in sources]
                groups[key, merged] = [each for those in found for each in those]
        return groups

    def _merges(self, window_fn: MergingWindowFn, windows: Sequence[Window]) -> Sequence[Merge]:
        try:
            return checked_merges(window_fn, windows)
        except DataflowError as error:
            raise error.located(str(self._node)) from error

    def _folded(self, values: Sequence[Any]) -> Any:
        try:
            return self._combine_fn.add_inputs(self._combine_fn.create_accumulator(), values)
        except Exception as error:
            raise TransformError(
                f"{self._node} raised {type(error).__name__}: {error}",
                detail=f"while combining {len(values)} values, the first {values[0]!r}",
                hint="correct the CombineFn, or sort such values out before the grouping",
            ) from error

    def _merge(self, accumulators: Sequence[Any]) -> Any:
        if len(accumulators) == 1:
            return accumulators[0]
        try:
            return self._combine_fn.merge_accumulators(accumulators)
        except Exception as error:
            raise TransformError(
                f"{self._node} raised {type(error).__name__}: {error}",
                detail="while merging accumulators",
                hint="correct CombineFn.merge_accumulators",
            ) from error

    def _refuse_other_than_pairs(self, values: Sequence[Any]) -> None:
        # Text of two letters, a list or a dict of two would unpack as well, and not as meant.
        for value in values:
            if not isinstance(value, tuple) or len(value) != 2:
                raise TransformError(
                    f"{self._node} needs (key, value) pairs",
                    detail=f"it was given {value!r}",
                    hint="make pairs before it, e.g. df.Map(lambda x: (key_of(x), x))",
                )
            try:
                hash(value[0])
            except TypeError:
                raise TransformError(
                    f"{self._node} was given a key that cannot be hashed",
                    detail=f"key {value[0]!r} of type {type(value[0]).__name__}",
                    hint="use a tuple instead of a list, or a tuple of sorted items instead of a "
                    "dict or set",
                ) from None
