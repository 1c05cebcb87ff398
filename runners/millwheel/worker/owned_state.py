"""OwnedState: the key ranges of one grouping that one worker owns, and their state in memory."""

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from dataflow.metric_updates import uncounted
from runners.core.ground.cells import CellId, TimerId
from runners.core.open_windows.choice import opened_for_stream
from runners.core.stages.entries import Changes
from runners.core.stages.grouping import GroupingStage
from runners.errors import WorkerStoppedError
from runners.millwheel.cell_codec import decode_timer
from runners.millwheel.model.counts import CacheCounts
from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyMap
from runners.millwheel.model.loads import LoadMeter
from runners.millwheel.store.port import TakenRange
from runners.millwheel.worker.input_watermark import InputWatermark
from runners.millwheel.worker.key_places import KeyPlaces
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.state.cell_cache import CellCache
from runners.millwheel.worker.state.entry_pieces import EntryPieces
from runners.millwheel.worker.state.journal import Journal
from runners.millwheel.worker.state.stored_cells import CellTable, StoredCells
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits


class OwnedState:
    """The ranges of one grouping on one worker; their cells live together in memory.

    Args:
        job: its name.
        name: of the grouping.
        stage: the grouping.
        table: has the cells that are not in memory.
        pieces: encodes what is kept of the ranges.
        can_hold: whether cells can have a hold on the output watermark of the grouping.
        guarantees: those that it has.
        cache_bytes: how many bytes of cells stay in memory between two steps; None: all.
        steps: how much is done in one step.
        shows_keys: whether frequent keys are remembered as text.
    """

    def __init__(
        self,
        job: str,
        name: str,
        stage: GroupingStage,
        table: CellTable,
        pieces: EntryPieces,
        *,
        can_hold: bool,
        guarantees: Guarantees,
        cache_bytes: int | None = None,
        steps: StepLimits = STEP_LIMITS,
        shows_keys: bool = False,
    ) -> None:
        self._name, self._codec, self._guarantees = name, stage.codec, guarantees
        self._is_merging, self._can_hold = stage.machine.is_merging, can_hold
        self._keeps_signal_mark = bool(stage.signals)
        self.ranges: dict[RangeId, OwnedRange] = {}
        #: The load of the ranges.
        self.meter = LoadMeter(keeps_keys=shows_keys)
        self.stored = StoredCells(
            table,
            job,
            name,
            stage.codec,
            is_merging=self._is_merging,
            owned=self.ranges,
            steps=steps,
        )
        self.cells = CellCache(self.stored.read, cache_bytes)
        stage.keep_in_pages(steps.page_bytes, self.cells.need_pages)
        #: The windows of all ranges.
        self.windows = opened_for_stream(stage, self.cells, self.cells.need, cache_bytes)
        #: State that is durable and not in cells and timers yet.
        self.journal = Journal(
            name,
            self.cells,
            self.stored,
            self.windows,
            self.ranges,
            self.locate,
            stage.combiners,
            pieces,
            steps,
        )
        #: Which of the ranges has a key.
        self._map_keys()
        #: The input watermark.  While it is behind the watermark of the master, no delivery may be taken in.
        self.time = InputWatermark(self.ranges, follows_percentile=stage.percentile is not None)

    def take(self, taken: TakenRange) -> OwnedRange:
        """Load the timers of a range just acquired, and its cells while there is room."""
        owned = OwnedRange.taken(
            taken,
            is_weak=not self._guarantees.strong_productions,
            remembers=self._guarantees.exactly_once,
            keeps_signal_mark=self._keeps_signal_mark,
        )
        timers: dict[TimerId, int | None] = {
            decode_timer(timer, is_merging=self._is_merging): timer.fire_us
            for timer in taken.timers
        }
        self.journal.has_stored(timers)
        with uncounted():
            timers |= self.journal.replay(owned, taken.journal)
        self.windows.restore(Changes([], list(timers.items())), owned.range_id)
        self._load_cells(owned)
        self.ranges[owned.range_id] = owned
        self.meter.forget(owned.range_id)
        self._map_keys()
        self.hold_back()
        self.time.take(owned)
        return owned

    def _load_cells(self, owned: OwnedRange) -> None:
        self._hold_for(self.cells.uncommitted)
        for page, next_hash in self.stored.pages(owned):
            self.cells.take_in(page)
            self._hold_for(page)
            if not self._can_hold and next_hash and self.cells.is_full:
                self.cells.leave_out()
                break
            self.cells.trim()
        self.cells.trim()

    def _hold_for(self, cell_ids: Iterable[CellId]) -> None:
        if self._can_hold:
            self.windows.restore_holds(cell_ids)

    def release(self, range_id: RangeId) -> None:
        """Forget a range, and everything that is kept of it in memory."""
        hash_of, find = self.hash_of, self._map.find

        def is_gone(cell_id: CellId) -> bool:
            return find(hash_of(cell_id[0])) == range_id

        self.cells.forget(is_gone)
        self.journal.forget(range_id, is_gone)
        self.windows.forget(range_id, is_gone)
        del self.ranges[range_id]
        self.meter.forget(range_id)
        self._map_keys()
        self.hold_back()
        if not self.ranges:
            self.cells.start_anew()

    def hash_of(self, key: Any) -> int:
        """The hash by which a key belongs to a range."""
        return self._codec.encode(key).hash

    def locate(self, key: Any) -> OwnedRange:
        """The range of a key.

        Raises:
            WorkerStoppedError: none of the ranges here has it.
        """
        owned = self._places[key]
        if owned is None:
            # The sender knows newer bounds: another owner has reshaped the ranges, and they are not this worker's.
            raise WorkerStoppedError(f"{self._name} has no range for key {key!r} here any more")
        return owned

    def _map_keys(self) -> None:
        self._map = KeyMap(
            {range_id: owned.keys for range_id, owned in self.ranges.items() if owned.keys}
        )
        self._places = KeyPlaces(self._map, self._codec, self.ranges)

    def key_hashes(self) -> Iterator[int]:
        """The hashes of the keys in memory, about as often as there is state of them."""
        return (self.hash_of(cell_id[0]) for cell_id in self.windows.cell_ids())

    def uncommitted(self, range_id: RangeId, first_hash: int, end_hash: int) -> Iterator[CellId]:
        """The cells of a range that the store does not have as they are.

        Args:
            range_id: the range.
            first_hash: of the keys of the cells.
            end_hash: behind the last hash; 0: the end of all keys.
        """
        for cell_id in self.cells.uncommitted:
            key_hash = self.hash_of(cell_id[0])
            is_between = first_hash <= key_hash < (end_hash or KEY_SPACE_END)
            if is_between and self._map.find(key_hash) == range_id:
                yield cell_id

    @property
    def cache_counts(self) -> CacheCounts:
        """How large the cells in memory are, and how many were read and evicted."""
        counts = self.cells.counts
        return attrs.evolve(counts, bytes_buffered=counts.bytes_buffered + self.windows.nbytes)

    def hold_back(self) -> None:
        """Hold the output watermarks for the windows that are open now, after any of them have changed that hold it."""
        hold_us = self.time.window_hold_us = self.windows.hold_us
        for owned in self.ranges.values():
            owned.window_hold_us = hold_us
