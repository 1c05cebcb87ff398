"""State in pages is what plain state is: whatever is done, whatever is in memory, through any restart, to its end."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.map_keys import place_of
from dataflow.paged_state import JoinedBag, Paged, PagedBag, PagedList, PagedMap
from dataflow.user_state import PAGES
from runners.core.ground.cells import CellId, Page, PageId
from runners.core.stages.entries import Changes
from runners.core.stateful import stateful_do_fn
from runners.core.stateful.cell_pages import Passing, name_of_pages
from runners.core.stateful.keyed_state import KeyedState, MergingState
from runners.stored.journal import decode_entry, encode_changes
from tests.stateful_programs import Engine
from windowing.timestamps import to_datetime
from windowing.window import GLOBAL_WINDOW, Window

PAGE_BYTES = 60
HOUR = Window(0, 3_600_000_000)


class Where(Enum):
    HERE, THERE = "here", "there"


class Level(IntEnum):
    LOW = 1


class Name(StrEnum):
    A = "a"


class Point(NamedTuple):
    x: int
    y: int


@attrs.frozen
class Place:
    x: int
    y: int


@attrs.frozen(eq=False)
class Unlike:
    """Equal if a part of it is: nobody knows that but itself."""

    name: str
    note: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unlike) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


#: Several of which are equal, and of different types.
ATOMS: list[Any] = [
    *(0, 1, True, 1.0, Decimal(1), Fraction(1), complex(1), np.int64(1), np.float64(1), Level.LOW),
    *("a", Name.A, np.str_("a"), b"a", np.bytes_(b"a"), "", "\ud800", None, 0.1, float("inf")),
    *(2**70, -1, -2, Where.HERE, Where.THERE, Unlike("a"), Unlike("a", "b"), Unlike("b")),
    *(
        Point(1, 2),
        (1, 2),
        (1.0, 2),
        Place(1, 2),
        Place(2, 1),
        frozenset({1, 2}),
        frozenset({2.0, 1}),
    ),
    *(date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), timedelta(1), timedelta(hours=24)),
    datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(2026, 1, 1),  # noqa: DTZ001 - users may have such ones
]
VALUES = st.sampled_from(ATOMS) | st.integers(0, 40)
TIMES = st.integers(0, 30)
RANGES = st.tuples(st.none() | TIMES, TIMES | st.none())
SPECS = (
    df.BagStateSpec("bag"),
    df.SetStateSpec("set"),
    df.MapStateSpec("map", ttl=1000),
    df.OrderedListStateSpec("list"),
)
END = df.TimerSpec("end", df.TimeDomain.EVENT)


class Called(df.DoFn):
    """Does what an element says: calls of handles, by name; and fails in the end, if it says so."""

    def process(
        self,
        element: tuple[str, Any],
        /,
        bag: Any = df.DoFn.StateParam(SPECS[0]),
        set_: Any = df.DoFn.StateParam(SPECS[1]),
        map_: Any = df.DoFn.StateParam(SPECS[2]),
        list_: Any = df.DoFn.StateParam(SPECS[3]),
    ) -> Iterator[Any]:
        handles = {"bag": bag, "set": set_, "map": map_, "list": list_}
        calls, fails = element[1]
        found = [repr(getattr(handles[name], call)(*args)) for name, call, *args in calls]
        if fails:
            raise ValueError("it says so")
        yield found


def times(*each_us: int | None) -> tuple[Any, ...]:
    return tuple(None if at_us is None else to_datetime(at_us) for at_us in each_us)


def many(make: Callable[[Any], tuple[Any, ...]], values: st.SearchStrategy[Any]) -> Any:
    return st.lists(values.map(make), min_size=1, max_size=40)


CALLS = st.one_of(
    many(lambda value: ("bag", "add", value), VALUES),
    many(lambda value: ("set", "add", value), VALUES),
    many(lambda value: ("set", "remove", value), VALUES),
    many(lambda value: ("set", "contains", value), VALUES),
    many(lambda pair: ("map", "put", *pair), st.tuples(VALUES, VALUES)),
    many(lambda pair: ("map", "put_if_absent", *pair), st.tuples(VALUES, VALUES)),
    many(lambda value: ("map", "remove", value), VALUES),
    many(lambda value: ("map", "get", value), VALUES),
    many(lambda pair: ("list", "add", (to_datetime(pair[0]), pair[1])), st.tuples(TIMES, VALUES)),
    many(lambda pair: ("list", "read_range", *times(*pair)), RANGES),
    RANGES.map(lambda pair: [("list", "clear_range", *times(*pair))]),
    st.sampled_from(["bag", "set", "list"]).map(lambda name: [(name, "read")]),
    st.sampled_from(["keys", "values", "items"]).map(lambda call: [("map", call)]),
    st.sampled_from(["bag", "set", "map", "list"]).map(lambda name: [(name, "clear")]),
)
ELEMENTS = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from([GLOBAL_WINDOW, HOUR]),
    st.tuples(st.lists(CALLS, max_size=3).map(lambda each: list(chain(*each))), st.booleans()),
    st.integers(0, 900),
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("bundle"), st.lists(ELEMENTS, min_size=1, max_size=3)),
        st.just(("restart",)),
        st.tuples(st.just("evict"), st.integers(1, 5)),
        st.tuples(st.just("watermark"), st.integers(1, 2_000)),
    ),
    max_size=14,
)


#: What most of the events are about: enough of each kind for several pages.
FILLED = [
    call
    for value in range(12)
    for call in (
        ("bag", "add", value),
        ("set", "add", value),
        ("map", "put", value, value),
        ("list", "add", (to_datetime(value), value)),
    )
]


@attrs.define
class Durable:
    """An engine with pages, and what it has committed: whatever a step has not said that it has changed is lost."""

    engine: Engine
    committed: dict[CellId, bytes] = attrs.field(factory=dict)
    #: Of each step: the bytes that it has committed, and the pages that it has read.
    nbytes: list[int] = attrs.field(factory=list)
    reads: int = 0

    @classmethod
    def of(cls, fn: df.DoFn, page_bytes: int = PAGE_BYTES, **how: Any) -> "Durable":
        engine = Engine.of(fn, page_bytes=page_bytes, **how)
        durable = cls(engine)
        engine.stage.keep_in_pages(page_bytes, durable.read)
        return durable

    def read(self, page_ids: Sequence[PageId], passing: Passing | None = None) -> None:
        del passing
        self.reads += len(page_ids)
        for page_id in page_ids:
            self.engine.cells[page_id] = decoded(self.committed[page_id])

    def commit(self) -> None:
        self.nbytes.append(0)
        for cell_id in self.engine.touched:
            cell = self.engine.cells.get(cell_id)
            blob = encode_changes([(cell_id, cell)], ())
            self.nbytes[-1] += len(blob)
            if cell is None:
                self.committed.pop(cell_id, None)
            else:
                self.committed[cell_id] = blob
        self.engine.touched.clear()

    def restart(self) -> None:
        """Nothing is in memory but cells; pages are read when they are used."""
        self.engine.cells.clear()
        for cell_id, blob in self.committed.items():
            if not isinstance(cell_id, PageId):
                self.engine.cells[cell_id] = decoded(blob)

    def evict(self, every: int) -> None:
        for number, cell_id in enumerate(list(self.engine.cells)):
            if isinstance(cell_id, PageId) and number % every == 0:
                del self.engine.cells[cell_id]

    def pages(self) -> set[CellId]:
        return {each for each in self.committed if isinstance(each, PageId)}

    def check(self) -> None:
        """Every page that there is belongs to state that is there, and what is in memory is what was committed."""
        named = set[CellId]()
        for cell_id, cell in list(self.engine.cells.items()):
            assert decoded(self.committed[cell_id]) == cell
            for values in values_in(cell):
                for state, value in values.items():
                    name = name_of_pages(state, values.get(PAGES))
                    runs = [(name, self.numbers(cell_id, name, value))]
                    if isinstance(value, JoinedBag):
                        runs += [(each, range(*span)) for each, *span in value.runs]
                    found = {
                        PageId(cell_id[0], cell_id[1], each, number)
                        for each, numbers in runs
                        for number in numbers
                    }
                    assert named.isdisjoint(found)
                    named |= found
        assert named == self.pages()

    def numbers(self, cell_id: CellId, state: Any, value: Any) -> Sequence[int]:
        if isinstance(value, PagedList):
            directory = decoded(self.committed[PageId(cell_id[0], cell_id[1], state, 0)]).entries
            return [0, *directory[2]]
        if isinstance(value, PagedBag):
            return range(value.since, value.size)
        return range(value.size) if isinstance(value, PagedMap) else ()


def values_in(cell: Any) -> list[dict[Any, Any]]:
    """The values of a cell, by name; of several windows, where it has them."""
    if isinstance(cell, MergingState):
        return [each.values for each in cell.windows.values()]
    return [cell.values] if isinstance(cell, KeyedState) else []


def decoded(blob: bytes) -> Any:
    entry = decode_entry(blob, None)
    assert isinstance(entry, Changes)
    ((_, cell),) = entry.cells
    return cell


def run(durable: Durable, plain: Engine, events: Sequence[tuple[Any, ...]]) -> None:
    now_us = 0
    for engine in (durable.engine, plain):
        engine.advance(0, 0)
    for name, *args in events:
        if name == "bundle":
            for engine in (durable.engine, plain):
                engine.add(*args[0])
            durable.commit()
        elif name == "watermark":
            now_us += args[0]
            for engine in (durable.engine, plain):
                engine.advance(now_us)
            durable.commit()
        elif name == "restart":
            durable.restart()
        else:
            durable.evict(*args)
        assert durable.engine.outputs == plain.outputs
        assert len(durable.engine.dead) == len(plain.dead)
        durable.check()


@pytest.mark.parametrize("how", [{"tries": 2}, {"handled": {}}, {"tries": 2, "handled": {}}])
@given(
    events=EVENTS,
    filled=st.sets(st.tuples(st.sampled_from("ab"), st.sampled_from([GLOBAL_WINDOW, HOUR]))),
)
def test_state_in_pages_is_what_plain_state_is(
    how: dict[str, Any], events: list[tuple[Any, ...]], filled: set[tuple[str, Window]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stateful_do_fn, "FEW", 1)
        durable = Durable.of(Called(), **how)
        plain = Engine.of(Called(), **how)
        first = [(*place, (FILLED, False), 0) for place in sorted(filled)]
        run(durable, plain, [("bundle", first), *events])
        # Whatever is there is brought into memory, read, and goes with its window.
        durable.restart()
        calls = [("bag", "read"), ("set", "read"), ("map", "items"), ("list", "read")]
        read = [(key, window, (calls, False), 0) for key in "ab" for window in (GLOBAL_WINDOW,)]
        run(durable, plain, [("bundle", read), ("restart",), ("watermark", HOUR.end_us)])
        assert [each for each in durable.committed if each[1] == HOUR] == []
        cleared = [(name, "clear") for name in ("bag", "set", "map", "list")]
        gone = [(key, GLOBAL_WINDOW, (cleared, False), HOUR.end_us) for key in "ab"]
        run(durable, plain, [("restart",), ("bundle", gone)])
        assert durable.committed == {}


def are_one(one: Any, other: Any) -> bool:
    """Whether a dict takes them for one key."""
    try:
        return len({one, other}) == 1
    except TypeError:
        # Decimals and numbers of numpy cannot be compared, in a dict neither.
        return False


@given(values=st.lists(VALUES, min_size=1, max_size=60))
def test_equal_keys_are_at_one_place(values: list[Any]) -> None:
    for one in values:
        for other in values:
            places = place_of(one), place_of(other)
            if are_one(one, other) and None not in places:
                assert places[0] == places[1], (one, other)


def test_keys_of_different_types_have_places() -> None:
    """All but those of a class that says itself what equals it; and places are the same in every process."""
    assert [each for each in ATOMS if place_of(each) is None] == [
        each for each in ATOMS if isinstance(each, Unlike)
    ]
    assert [place_of(each) for each in ("a", 1, (1, "a"), None)] == [
        11_881_906_679_622_767_379,
        12_549_877_395_308_531_466,
        15_484_659_276_917_370_622,
        10_834_645_935_491_022_999,
    ]


def filled(name: str, count: int) -> list[tuple[Any, ...]]:
    if name == "map":
        return [("map", "put", each, each) for each in range(count)]
    if name == "list":
        return [("list", "add", (to_datetime(each), each)) for each in range(count)]
    return [(name, "add", each) for each in range(count)]


COUNT = 100_000
LARGE_PAGE = 16 << 10
ONE: dict[str, list[tuple[Any, ...]]] = {
    "bag": [("bag", "add", -1)],
    "set": [("set", "add", -1)],
    "map": [("map", "put", COUNT // 2, -1)],
    "list": [("list", "add", (to_datetime(COUNT // 2), -1))],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE)
def test_a_write_into_large_state_costs_about_a_page(name: str) -> None:
    """A hundred thousand entries: bytes that are committed, and pages that are read."""
    durable = Durable.of(Called(), LARGE_PAGE)
    durable.engine.advance(0, 0)

    def do(calls: list[tuple[Any, ...]]) -> int:
        durable.engine.add(("k", GLOBAL_WINDOW, (calls, False), 0))
        durable.commit()
        return durable.nbytes[-1]

    whole = do(filled(name, COUNT))
    assert whole > 200_000
    costs = []
    for _ in range(20):
        durable.restart()
        durable.reads = 0
        costs.append(do(ONE[name]))
        assert durable.reads <= {"bag": 0, "set": 1, "map": 1, "list": 2}[name]
    assert max(costs) < 3 * LARGE_PAGE
    assert all(len(durable.committed[each]) < 3 * LARGE_PAGE for each in durable.pages())
    # Nothing has to be read for it to go.
    durable.restart()
    durable.reads = 0
    do([(name, "clear")])
    assert durable.reads <= (1 if name == "list" else 0)
    assert durable.committed == {}


@pytest.mark.slow
def test_what_shrinks_is_not_in_pages_any_more() -> None:
    durable = Durable.of(Called(), LARGE_PAGE)
    durable.engine.advance(0, 0)
    for name in ("map", "list"):
        gone = (
            [("map", "remove", each) for each in range(5, 20_000)]
            if name == "map"
            else [("list", "clear_range", *times(5, 20_000))]
        )
        for calls in (filled(name, 20_000), gone):
            durable.engine.add(("k", GLOBAL_WINDOW, (calls, False), 0))
            durable.commit()
    cell = durable.engine.cells["k", GLOBAL_WINDOW]

    assert not any(isinstance(value, Paged) for value in cell.values.values())
    assert durable.pages() == set()


def test_a_page_is_bytes_until_it_is_used() -> None:
    page = Page(packed=Page([1, 2]).pack())

    assert page.entries == [1, 2]
    assert page == Page([1, 2]) != Page([1])
