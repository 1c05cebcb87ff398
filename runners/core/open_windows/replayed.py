"""Replayed: open windows that all fire once, when all input is there (Dataflow Model, section 2.4).

Keeps partials as they come, merged when they take much room: no window has a cell or a timer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from runners.core.columns.partials import PartialColumns, key_counts
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import CellId
from runners.core.open_windows.open_windows import Arrival, OneKey, OpenWindows
from runners.core.partials.merging import PartialMerging
from runners.core.partials.partial import Partial
from runners.core.single_firing.single_panes import SinglePanes, in_bundles
from runners.core.stages.entries import Changes, Entry, Released, Whole
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from windowing.timestamps import MAX_TIMESTAMP_US

_key_of = itemgetter(0)


class Replayed(OpenWindows):
    """Windows whose partials are kept until the watermark is at the end of time.

    Args:
        stage: the grouping.
        panes: makes the panes then.
    """

    def __init__(self, stage: GroupingStage, panes: SinglePanes) -> None:
        self._stage, self._panes, self._merging = stage, panes, panes.lifter.merging
        self._partials: list[Partial] = []
        self._columns: list[PartialColumns] = []
        self._bundles: Iterator[Bundle] | None = None

    def take(self, arrivals: Sequence[Arrival], clocks: StageClocks) -> Step:
        """Keep partials."""
        for arrival in arrivals:
            self._keep(arrival.partials)
        return Step()

    def _keep(self, partials: Sequence[Partial]) -> None:
        if isinstance(partials, PartialColumns):
            self._columns.append(partials)
        else:
            self._partials.extend(partials)

    def advance(
        self,
        clocks: StageClocks,
        *,
        timers_max: int | None = None,
        panes_max: int | None = None,
    ) -> Step | None:
        """Fire windows, when the watermark is at the end of time; none is kept any more."""
        if self._bundles is None:
            if clocks.watermark_us < MAX_TIMESTAMP_US:
                return None
            columns, partials = self._columns, self._partials
            self._columns, self._partials = [], []
            self._bundles = self._panes.bundles([*columns, partials])
        step = self._stage.emit_next(self._bundles, clocks)
        if step is None:
            self._bundles = None
        return step

    def signal(
        self, name: str, clocks: StageClocks, receivers: Iterable[CellId] | None = None
    ) -> Step:
        """No window that fires once listens to signals."""
        return Step()

    def __len__(self) -> int:
        return 0

    def keys(self) -> Iterator[Any]:
        """The key of every partial; of columns each key once."""
        in_columns = chain.from_iterable(key_counts(each)[0] for each in self._columns)
        return chain(in_columns, map(_key_of, self._partials))

    def contents(self) -> Iterator[Entry]:
        """Merge the partials into as few as possible, and yield them."""
        if len(self._columns) > 1:
            merged = self._merging.columns(self._columns)
            if merged is None:
                for columns in self._columns:
                    self._partials.extend(columns)
            self._columns = [] if merged is None else [merged]
        self._partials = self._merging.combined(self._partials)
        yield from (part for part in (*self._columns, self._partials) if part)

    def spill(self) -> Iterator[Entry]:
        """The partials, as they are kept."""
        batches: list[Sequence[Partial]] = [*self._columns, self._partials]
        self._partials, self._columns = [], []
        while batches:
            yield batches.pop(0)

    def restore(self, entry: Entry) -> None:
        """Keep partials that were spilled."""
        assert not isinstance(entry, Changes | Whole | Released)
        self._keep(entry)

    def large_key(self) -> OneKey | None:
        """The key of more than half of the partials, where those of one key can be sorted by windows.

        Of lists of values more than half of the values.
        """
        order, is_list = self._merging.order, self._panes.is_list
        if order is None:
            return None
        weights = Counter[Any]()
        for columns in self._columns:
            # Their accumulators are numbers, so none is a list.
            weights.update(dict(zip(*key_counts(columns), strict=True)))
        for key, _, _, count in self._partials:
            weights[key] += count if is_list else 1
        key = max(weights, key=weights.__getitem__)
        if 2 * weights[key] <= sum(weights.values()):
            return None
        return _ReplayedKey(key, order, self._stage, self._panes)


class _ReplayedKey(OneKey):
    """One key whose windows fire once."""

    def __init__(
        self,
        key: Any,
        order: Callable[[Partial], tuple[int, int]],
        stage: GroupingStage,
        panes: SinglePanes,
    ) -> None:
        self.key, self.is_list, self.order = key, panes.is_list, order
        self._stage, self._panes = stage, panes
        self._merging: PartialMerging = panes.lifter.merging

    def joined(
        self, partials: Iterable[Partial], join: Callable[[Any, Any], Any]
    ) -> Iterator[Partial]:
        return self._merging.joined(partials, join)

    def windows(self, parts: Iterator[Sequence[Partial]]) -> Iterator[Sequence[Partial]]:
        slices = self._panes.slices
        return parts if slices is None else in_bundles(slices.windows(chain.from_iterable(parts)))

    def merged(self, accumulators: Sequence[Any]) -> Any:
        return self._merging.accumulator(accumulators)

    def fire(self, partials: Sequence[Partial], clocks: StageClocks) -> Step:
        step = self._stage.emit_next(map(self._panes.bundle, [partials]), clocks)
        assert step is not None
        return step
