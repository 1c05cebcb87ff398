"""RowFolding: folds the single records of one grouping; those that are columns, `lifted_columns` folds.

A record already behind the watermark stays a partial of its own, and carries the record along (`LatePartial`): it may
turn out to be too late, and then the *record* is what must be kept.  Records ahead of the watermark hold it back until
they are delivered, so they cannot become late on the way.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dataflow.canonical_keys import canonical_key
from dataflow.errors import KeyEncodingError
from dataflow.graph import TransformNode
from dataflow.metric_updates import RunningAs
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import LateElement
from runners.core.partials.failures import not_folded, refused
from runners.core.partials.folding import Accumulation
from runners.core.partials.groups import Group
from runners.core.partials.merging import PartialMerging
from runners.core.partials.partial import LatePartial, Partial
from runners.core.partials.unfolded import Pairs, Windows
from runners.core.partials.values_by_key import ValuesByKey
from windowing.window import GLOBAL_WINDOW, Window

#: By key: accumulator, and number of records.
Folded = dict[Any, list[Any]]


class RowFolding:
    """Folds the records of one grouping.

    Args:
        node: the grouping.
        accumulation: how it folds its records.
        merging: merges their windows.
    """

    def __init__(
        self, node: TransformNode, accumulation: Accumulation, merging: PartialMerging
    ) -> None:
        self._node, self._merging = node, merging
        #: Folds the inputs of a partial.
        self.combine_fn = accumulation.partial_fn

    def partials(self, pairs: Pairs, windows: Windows) -> list[Partial]:
        """The partials of records as `Lifter.lift` has left them.  Raises what it raises.

        Args:
            pairs: keys, and inputs of the combine function.
            windows: of the pairs; None for the global window.
        """
        with RunningAs(self._node.label):
            return [
                (key, window, self._folded(values), len(values))
                for key, window, values in self._groups(pairs, windows)
            ]

    def _groups(self, pairs: Pairs, windows: Windows) -> Iterable[Group]:
        """The values of each key and window, after merging."""
        if self._merging.is_of_overlaps and windows is not None:
            try:
                return self._merging.overlapping(pairs, windows)
            except (KeyEncodingError, TypeError, ValueError) as error:
                raise refused(self._node, pairs, error) from error
        by_window = ValuesByKey()
        self.sort_into(by_window, pairs, windows)
        return self._merging.groups(
            (key, window, values)
            for window, groups in by_window.items()
            for key, values in groups.items()
        )

    def sort_into(self, waiting: ValuesByKey, pairs: Pairs, windows: Windows) -> None:
        """Add each value to the others of its canonical key and window, in new lists where there are none.

        Args:
            waiting: receives the values.
            pairs: keys and values.
            windows: of the pairs; None for the global window.

        Raises:
            TransformError: an element is not a pair, or a key cannot be hashed.
            KeyEncodingError: something cannot be a key.
        """
        try:
            waiting.add(pairs, windows)
        except (KeyEncodingError, TypeError, ValueError) as error:
            raise refused(self._node, pairs, error) from error

    def fold_into(self, entries: Folded, groups: Mapping[Any, Sequence[Any]]) -> None:
        """Fold more values of some keys into their accumulators.

        Args:
            entries: accumulator and number of records by key; changed in place.
            groups: values by key.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        create, add = self.combine_fn.create_accumulator, self.combine_fn.add_inputs
        values: Sequence[Any] = ()
        try:
            with RunningAs(self._node.label):
                for key, values in groups.items():
                    entry = entries.get(key)
                    if entry is None:
                        entries[key] = [add(create(), values), len(values)]
                    else:
                        entry[0] = add(entry[0], values)
                        entry[1] += len(values)
        except Exception as error:
            raise not_folded(self._node, values, error) from error

    def without_late(
        self, pairs: Pairs, bundle: Bundle, watermark_us: int
    ) -> tuple[list[tuple[Any, Any]], list[Window], list[Partial]]:
        """The pairs and windows that are not behind the watermark, and a partial for each record that is.

        Args:
            pairs: the records of the bundle, as keys and inputs of the combine function.
            bundle: the records.
            watermark_us: the input watermark, in microseconds.

        Raises:
            TransformError: the `CombineFn` failed.
            TypeError, ValueError, KeyEncodingError: something cannot be a key.
        """
        kept: list[tuple[Any, Any]] = []
        kept_windows: list[Window] = []
        late: list[Partial] = []
        signs = bundle.signs or [1] * len(bundle)
        windows = bundle.windows or [GLOBAL_WINDOW] * len(bundle)
        columns = zip(pairs, windows, bundle.values, bundle.timestamps_us, signs, strict=True)
        for pair, window, element, timestamp_us, sign in columns:
            key, value = pair
            if timestamp_us >= watermark_us:
                kept.append(pair)
                kept_windows.append(window)
            else:
                hash(key)  # raises for a key that cannot be hashed: nothing else on this path does
                record = LateElement(element[1], timestamp_us, sign)
                late.append(
                    LatePartial.of((canonical_key(key), window, self._folded([value]), 1), record)
                )
        return kept, kept_windows, late

    def _folded(self, values: Sequence[Any]) -> Any:
        try:
            return self.combine_fn.add_inputs(self.combine_fn.create_accumulator(), values)
        except Exception as error:
            raise not_folded(self._node, values, error) from error
