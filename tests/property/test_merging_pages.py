"""State in pages in windows that merge: it is what plain state is, and a step costs what it changes."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.paged_state import PagedBag, PagedList, PagedMap
from dataflow.user_state import PAGES
from runners.core.stateful import cell_pages, keyed_state, stateful_do_fn
from runners.core.stateful.cell_pages import CellPages, _Kept, all_are_there
from runners.core.stateful.keyed_state import KeyedState, MergingState
from tests.property.test_paged_state import CALLS, FILLED, Durable, filled, run, times
from tests.stateful_programs import Engine
from windowing.timestamps import to_datetime
from windowing.window import Window

SPECS = (
    df.BagStateSpec("bag"),
    df.SetStateSpec("set"),
    df.MapStateSpec("map", merge=lambda earlier, later: (earlier, later)),
    df.OrderedListStateSpec("list"),
)
END_US = 10_000
SESSIONS = df.WindowInto(
    df.Sessions(1),
    allowed_lateness=0.00002,
    accumulation_mode=df.AccumulationMode.DISCARDING,
)


class Called(df.DoFn):
    """Does what an element says: calls of handles, by name; and fails in the end, if it says so."""

    requires_time_sorted_input = False

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
        found = [_outcome(getattr(handles[name], call), args) for name, call, *args in calls]
        if fails:
            raise ValueError("it says so")
        yield found

    @df.on_window_expiration
    def left(
        self,
        bag: Any = df.DoFn.StateParam(SPECS[0]),
        set_: Any = df.DoFn.StateParam(SPECS[1]),
        map_: Any = df.DoFn.StateParam(SPECS[2]),
        list_: Any = df.DoFn.StateParam(SPECS[3]),
    ) -> Iterator[Any]:
        yield [repr([*each]) for each in (bag.read(), set_.read(), map_.items(), list_.read())]


def _outcome(call: Any, args: list[Any]) -> str:
    """What a call returns; some keys cannot be compared with others."""
    try:
        return repr(call(*args))
    except TypeError as error:
        return str(error)


def calls_of(*parts: Any) -> list[Any]:
    return list(chain(*parts))


#: Enough of each kind for several pages.
MANY = FILLED + [("bag", "add", f"value {number}") for number in range(20)]
#: That, or anything.
PROGRAMS = st.just(MANY) | st.lists(CALLS, max_size=3).map(lambda each: calls_of(*each))
ELEMENTS = st.tuples(
    st.sampled_from("ab"), PROGRAMS, st.integers(0, 5), st.integers(0, 60), st.integers(1, 12)
).map(lambda e: (e[0], Window(e[3], e[3] + e[4]), (e[1], e[2] == 0), e[3]))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("bundle"), st.lists(ELEMENTS, min_size=1, max_size=4)),
        st.just(("restart",)),
        st.tuples(st.just("evict"), st.integers(1, 5)),
        st.tuples(st.just("watermark"), st.integers(1, 20)),
    ),
    max_size=14,
)


def without_failures(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [
        (name, [(key, window, (calls, False), at) for key, window, (calls, _), at in args[0]])
        if name == "bundle"
        else (name, *args)
        for name, *args in events
    ]


def check(how: dict[str, Any], events: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stateful_do_fn, "FEW", 1)
        if not how:
            events = without_failures(events)
        durable = Durable.of(Called(), window_into=SESSIONS, **how)
        run(
            durable,
            Engine.of(Called(), SESSIONS, **how),
            [*events, ("restart",), ("watermark", END_US)],
        )
        assert durable.committed == {}


#: A merge that fails, of two sessions with state in pages, and one of them once its pages have left memory.
FAILED_MERGE: list[tuple[Any, ...]] = [
    (
        "bundle",
        [("a", Window(0, 2), (MANY, False), 0), ("a", Window(5, 7), (MANY, False), 5)],
    ),
    ("bundle", [("a", Window(1, 6), (MANY, True), 1)]),
    ("evict", 1),
    ("bundle", [("a", Window(5, 7), (MANY, False), 5)]),
]


@pytest.mark.parametrize("how", [{}, {"tries": 2}, {"handled": {}}])
@example(events=FAILED_MERGE)
@given(events=EVENTS)
def test_state_in_pages_is_what_plain_state_is(
    how: dict[str, Any], events: list[tuple[Any, ...]]
) -> None:
    """Whichever windows merge, in memory or not, and whatever fails in between; no page stays."""
    check(how, events)


def test_what_a_call_that_fails_has_measured_is_measured_again() -> None:
    """Or the sizes of state that is undone would lack what its pages have grown by."""
    pages = CellPages()
    pages.begin(("a", None), {}, all_are_there)
    pages.put("state", 0, [])
    pages.measure("state")
    pages.change("state", 0).append("x" * 100)

    undo = pages.undo()
    found = pages.measure("state")
    undo()

    assert [] != found == pages.measure("state")


COUNTS = [1_000, 100_000]
LARGE_PAGE = 16 << 10
ONE: dict[str, list[tuple[Any, ...]]] = {
    "bag": [("bag", "add", -1)],
    "set": [("set", "add", -1)],
    "map": [("map", "put", 500, -1)],
    "list": [("list", "add", (to_datetime(500), -1))],
}
#: Of these the map in the daily loop, which has pages of both kinds: of entries, and of where they are.
OFTEN = [each if each == "map" else pytest.param(each, marks=pytest.mark.slow) for each in ONE]


class Sessions:
    """Sessions of one key, at so many instants."""

    def __init__(self) -> None:
        self.durable = Durable.of(Called(), LARGE_PAGE, window_into=SESSIONS)
        self.durable.engine.advance(0, 0)

    def do(self, calls: list[tuple[Any, ...]], start_us: int, end_us: int) -> int:
        """The bytes that are committed for an element, with nothing in memory before."""
        self.durable.restart()
        self.durable.reads = 0
        self.durable.engine.add(("k", Window(start_us, end_us), (calls, False), start_us))
        self.durable.commit()
        self.durable.check()
        return self.durable.nbytes[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", OFTEN)
def test_one_more_element_of_a_long_session_costs_about_a_page(name: str) -> None:
    """It grows by each: its pages are those of the session before."""
    sessions = Sessions()
    assert sessions.do(filled(name, COUNTS[1]), 0, 100) > 200_000
    for number in range(1, 20):
        assert sessions.do(ONE[name], number, number + 100) < 3 * LARGE_PAGE
        assert sessions.durable.reads <= {"bag": 0, "set": 1, "map": 1, "list": 2}[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", OFTEN)
def test_a_small_session_that_merges_into_a_large_one_costs_about_its_pages(name: str) -> None:
    """The large one stays where it is."""
    sessions = Sessions()
    whole = sessions.do(filled(name, COUNTS[1]), 0, 100)
    sessions.do(ONE[name], 200, 300)
    assert sessions.do([], 99, 201) < 3 * LARGE_PAGE < whole
    (values,) = [each.values for each in sessions.durable.engine.cells["k", None].windows.values()]
    assert isinstance(values[name], PagedBag | PagedMap | PagedList)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE)
def test_two_large_sessions_that_merge_write_no_more_than_both(name: str) -> None:
    """Of bags nothing: the pages of both stay, and are those of one bag; then more comes, and all of it goes."""
    sessions = Sessions()
    first = sessions.do(filled(name, COUNTS[1]), 0, 100)
    second = sessions.do(filled(name, COUNTS[1] // 4), 200, 300)
    cost = sessions.do([], 99, 201)
    assert cost < (3 * LARGE_PAGE if name == "bag" else 1.5 * (first + second))
    assert sessions.do(ONE[name], 150, 160) < 3 * LARGE_PAGE
    sessions.do(filled(name, 10_000), 500, 600)
    assert sessions.do([], 299, 501) < (3 * LARGE_PAGE if name == "bag" else first + second)
    sessions.do([(name, "clear")], 300, 301)
    assert sessions.durable.pages() == set()


def one_number_for_all(patch: pytest.MonkeyPatch) -> None:
    """Two windows of a key have the same pages."""
    patch.setattr(MergingState, "pages_of", _same_pages)
    patch.setattr(cell_pages, "name_of_pages", lambda state, _: state)
    patch.setattr(stateful_do_fn, "name_of_pages", lambda state, _: state)


def _same_pages(whole: Any, state: KeyedState) -> Any:
    whole.pages = state.pages = whole.pages or cell_pages.CellPages()
    return state.pages


def leave_pages_behind(patch: pytest.MonkeyPatch) -> None:
    """The window goes, its pages stay."""
    patch.setattr(KeyedState, "drop_pages", lambda _: None)


def undo_no_pages(patch: pytest.MonkeyPatch) -> None:
    """An element that fails has changed pages."""
    patch.setattr(cell_pages.CellPages, "undo", lambda _: lambda: None)


def write_no_pages(patch: pytest.MonkeyPatch) -> None:
    """What has changed in a page is in memory alone."""
    patch.setattr(cell_pages.CellPages, "take_touched", lambda _: {})


def reuse_numbers(patch: pytest.MonkeyPatch) -> None:
    """A window is given a number under which another one has taken over pages."""
    patch.setattr(keyed_state, "_last_number", lambda values: values.get(PAGES, 0))


def take_over_and_delete(patch: pytest.MonkeyPatch) -> None:
    """Pages that a bag has taken over go with the window that they were of."""
    followed_by = PagedBag.followed_by

    def broken(bag: PagedBag, other: PagedBag) -> Any:
        joined = followed_by(bag, other)
        other.drop()
        return joined

    patch.setattr(PagedBag, "followed_by", broken)


def keep_what_a_failure_has_made(patch: pytest.MonkeyPatch) -> None:
    """A page that was made in a call that failed is still there."""
    patch.setattr(_Kept, "made", property(lambda _: {}, lambda *_: None), raising=False)


MERGES: list[tuple[Any, ...]] = [
    ("bundle", [("a", Window(0, 5), (MANY, False), 0)]),
    ("bundle", [("a", Window(10, 15), (MANY, False), 10)]),
    ("restart",),
    ("bundle", [("a", Window(1, 6), ([("bag", "add", "last")], False), 1)]),
    ("bundle", [("a", Window(4, 11), (MANY, True), 4)]),
    ("bundle", [("a", Window(2, 6), ([("bag", "read"), ("map", "items")], False), 4)]),
    ("bundle", [("a", Window(4, 11), (MANY, False), 4)]),
    ("restart",),
    ("bundle", [("a", Window(20, 21), ([("list", "clear_range", *times(0, 1))], False), 20)]),
    ("bundle", [("a", Window(30, 35), (MANY, False), 30)]),
    ("restart",),
    ("bundle", [("a", Window(5, 32), ([("bag", "read")], False), 5)]),
    ("bundle", [("a", Window(5, 32), ([*MANY, ("bag", "read")], False), 5)]),
]


def test_two_sessions_have_pages_of_their_own_and_merge() -> None:
    ways: list[dict[str, Any]] = [{}, {"tries": 2}, {"handled": {}}]
    for how in ways:
        check(how, MERGES)


@pytest.mark.parametrize(
    "mutation",
    [
        one_number_for_all,
        leave_pages_behind,
        undo_no_pages,
        write_no_pages,
        reuse_numbers,
        take_over_and_delete,
        keep_what_a_failure_has_made,
    ],
)
def test_broken_pages_are_found(mutation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError, AttributeError, df.DataflowError)):
        check({"tries": 2}, MERGES)
