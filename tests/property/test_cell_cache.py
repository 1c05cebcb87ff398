"""CellCache against a dictionary that keeps everything, and its order against one that looks at all keys."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runners.core.ground.cells import CellId, WindowState, WindowTimers
from runners.core.stateful.keyed_state import KeyedState
from runners.millwheel.worker.state.cell_cache import (
    ENTRY_BYTES,
    CellCache,
    FurthestFirst,
    needed_us,
)
from runners.stored.cells import encode_cell
from triggers.trigger import TriggerTimers
from windowing.window import Window

KEYS = st.sampled_from(["a", "b", 1, None, ("c", 2), 7.5])
CELLS: list[CellId] = [
    (key, window) for key in ("a", 1, None) for window in (Window(0, 9), Window(9, 18))
]


class FurthestFirstMachine(RuleBasedStateMachine):
    """The model: when each key is needed, in the order of use."""

    def __init__(self) -> None:
        super().__init__()
        self.order: FurthestFirst[Any] = FurthestFirst()
        self.model: dict[Any, int] = {}

    # Often the same few, so that the queue has more outdated entries than it keeps.
    @rule(keys=st.lists(KEYS, max_size=100), at_us=st.integers(-3, 3))
    def use(self, keys: list[Any], at_us: int) -> None:
        for key in keys:
            self.model.pop(key, None)
            self.model[key] = at_us
            self.order.use(key, at_us)

    @rule(key=KEYS)
    def forget(self, key: Any) -> None:
        self.model.pop(key, None)
        self.order.forget(key)

    @precondition(lambda self: self.model)
    @rule()
    def pop(self) -> None:
        # The first of the furthest, as `max` looks at them in the order of use.
        key = max(self.model, key=self.model.__getitem__)
        del self.model[key]
        assert self.order.pop() == key

    @precondition(lambda self: not self.model)
    @rule()
    def pop_of_none(self) -> None:
        with pytest.raises(IndexError):
            self.order.pop()

    @invariant()
    def keeps_about_as_much_as_there_is(self) -> None:
        assert len(self.order) == len(self.model)
        assert len(self.order._heap) <= 2 * len(self.model) + 66


TestFurthestFirst = FurthestFirstMachine.TestCase

Writes = dict[CellId, bytes | None]


class CellCacheMachine(RuleBasedStateMachine):
    """Steps, each on the state that the one before has left; what they change is in the store sooner or later."""

    def __init__(self) -> None:
        super().__init__()
        self.truth: dict[CellId, WindowState] = {}
        self.stored: dict[CellId, bytes] = {}
        self.waiting: list[tuple[Writes, Callable[[], None]]] = []
        #: The last change of a cell that is not in the store as it is, and of one that is being written.
        self.changes: dict[CellId, int] = {}
        self.compacting: dict[CellId, int] = {}
        self.number = 0

    @initialize(
        bytes_max=st.sampled_from([None, 0, 1, 3 * ENTRY_BYTES, 4 * ENTRY_BYTES]),
        before=st.sets(st.sampled_from(CELLS)),
        is_read=st.booleans(),
    )
    def take(self, bytes_max: int | None, before: set[CellId], is_read: bool) -> None:
        self.bytes_max = bytes_max
        self.cache = CellCache(self.read, bytes_max)
        for cell_id in before:
            self.truth[cell_id] = WindowState(-1)
            self.stored[cell_id] = encode_cell(WindowState(-1))
        if is_read or bytes_max is None:
            self.cache.take_in(self.stored)
            self.cache.trim()
        else:
            self.cache.leave_out()

    def read(self, asked: Sequence[CellId]) -> Iterator[tuple[CellId, bytes]]:
        """The store; whoever asks for what it does not know yet would read what was."""
        assert not set(asked) & self.changes.keys()
        assert self.bytes_max is not None
        return ((cell_id, self.stored[cell_id]) for cell_id in asked if cell_id in self.stored)

    @rule(
        needed=st.lists(st.sampled_from(CELLS)),
        gone=st.sets(st.sampled_from(CELLS)),
        timer_us=st.none() | st.integers(0, 30),
        is_one_by_one=st.booleans(),
    )
    def step(
        self, needed: list[CellId], gone: set[CellId], timer_us: int | None, *, is_one_by_one: bool
    ) -> None:
        self.cache.need(iter(needed))
        writes: Writes = {}
        for cell_id in dict.fromkeys(needed):
            assert self.cache.get(cell_id) == self.truth.get(cell_id)
            if cell_id in gone:
                self.cache.pop(cell_id, None)
                self.truth.pop(cell_id, None)
                writes[cell_id] = None
            else:
                self.number += 1
                state = WindowState(self.number, timers=WindowTimers(timer_us))
                self.cache[cell_id] = self.truth[cell_id] = state
                writes[cell_id] = encode_cell(state)
            self.changes[cell_id] = self.number = self.number + 1
        if is_one_by_one:
            for cell_id, value in writes.items():
                self.cache.wrote([(cell_id, self.cache.get(cell_id))], len(value or b""))
            return
        for size in {len(value or b"") for value in writes.values()}:
            some = [each for each, value in writes.items() if len(value or b"") == size]
            self.cache.wrote([(each, self.cache.get(each)) for each in some], size)

    @precondition(lambda self: not self.waiting)
    @rule(count=st.integers(1, 4))
    def compact(self, count: int) -> None:
        """Some cells are written as they are now."""
        cells = list(self.cache.uncommitted)[:count]
        writes = {
            cell_id: encode_cell(self.cache[cell_id]) if cell_id in self.cache else None
            for cell_id in cells
        }
        for cell_id, value in writes.items():
            # Who writes may leave out what is gone and was never there.
            assert value is not None or self.cache.is_stored(cell_id) or cell_id not in self.stored
        self.compacting = {cell_id: self.changes[cell_id] for cell_id in cells}
        self.waiting = [(writes, self.cache.compact(cells))]

    @precondition(lambda self: self.waiting)
    @rule()
    def commit(self) -> None:
        ((writes, then),) = self.waiting
        self.waiting = []
        for cell_id, value in writes.items():
            if value is None:
                self.stored.pop(cell_id, None)
            else:
                self.stored[cell_id] = value
            if self.changes.get(cell_id) == self.compacting[cell_id]:
                del self.changes[cell_id]
        then()

    @rule()
    def page(self) -> None:
        """A signal has come, and all cells pass by."""
        self.cache.bring_back(self.stored)
        for cell_id in [*self.stored, *self.cache.uncommitted]:
            assert self.cache.get(cell_id) == self.truth.get(cell_id)
        self.cache.trim()

    @rule(key=st.sampled_from(["a", 1]))
    def release(self, key: Any) -> None:
        """A range goes to somebody else, compacted or not."""
        if self.waiting:
            self.commit()
        self.cache.forget(lambda cell_id: cell_id[0] == key)
        for known in (self.truth, self.stored, self.changes):
            for cell_id in [cell_id for cell_id in known if cell_id[0] == key]:
                del known[cell_id]

    @invariant()
    def is_bounded(self) -> None:
        if not hasattr(self, "cache"):
            return
        assert self.cache.uncommitted == self.changes.keys()
        kept = sum(ENTRY_BYTES + len(encode_cell(cell)) for cell in self.cache.values())
        if self.bytes_max is None:
            assert self.cache == self.truth
            assert self.cache.counts.bytes_buffered == 0
            return
        assert self.cache.counts.bytes_buffered == kept
        if not self.changes:
            assert kept <= self.bytes_max


TestCellCache = CellCacheMachine.TestCase


@pytest.mark.parametrize(
    ("cell_id", "cell", "expected_us"),
    [
        (("k", Window(0, 9)), WindowState(), 9),
        (("k", Window(0, 9)), WindowState(timers=WindowTimers(30)), 30),
        (("k", Window(0, 9)), WindowState(timers=WindowTimers(30, 5, 20)), 20),
        (("k", Window(0, 9)), WindowState(timers=WindowTimers(None, 5)), 9),
        (("k", None), {Window(0, 9): WindowState(), Window(3, 8): WindowState()}, 8),
        (("k", Window(0, 9)), KeyedState(), 9),
        (("k", Window(0, 9)), KeyedState(engine_timers=TriggerTimers(4, 2)), 4),
    ],
)
def test_a_cell_is_needed_at_its_next_timer(cell_id: CellId, cell: Any, expected_us: int) -> None:
    assert needed_us(cell_id, cell) == expected_us


def test_what_is_needed_last_goes_first() -> None:
    """Though it was used last."""
    asked: list[CellId] = []

    def read(missing: Sequence[CellId]) -> Iterator[tuple[CellId, bytes]]:
        asked.extend(missing)
        return iter(())

    cells: list[CellId] = [("k", Window(start, start + 1)) for start in (3, 1, 2)]
    cache = CellCache(read, 2 * (ENTRY_BYTES + len(encode_cell(WindowState()))))
    cache.need(cells)
    for cell_id in [cells[1], cells[2], cells[0]]:
        cache[cell_id] = WindowState()
        cache.wrote([(cell_id, cache[cell_id])], len(encode_cell(WindowState())))
    assert len(cache) == 3, "nothing goes before it is compacted"
    cache.compact(cells)()

    assert list(cache) == [cells[1], cells[2]]
    assert asked == [], "nobody asks the store while all cells are in memory"
    cache.need(cells)
    assert asked == [cells[0]]
    counts = cache.counts
    assert (counts.hits, counts.misses, counts.loads, counts.evictions) == (2, 1, 1, 1)


def test_of_what_is_needed_alike_that_goes_first_that_has_not_changed_for_longest() -> None:
    """Where nothing had to go before, too, and the order of eviction begins with what is there."""
    a, b, c, d = cells = [(key, Window(0, 9)) for key in "abcd"]
    cache = CellCache(lambda _: iter(()), 3 * ENTRY_BYTES)
    for cell_id in [a, b, c, a, d]:
        cache[cell_id] = WindowState()
        cache.wrote([(cell_id, cache[cell_id])], 0)
        cache.compact([cell_id])()

    assert cache.counts.evictions == 1
    assert [a, c, d] == [each for each in cells if each in cache]
    assert b not in cache
