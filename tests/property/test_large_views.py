"""A view in pages is what a plain view is: whatever user code asks, whatever is in memory, through restarts.

The cells are a real `CellCache`, over a store that is a dict, with a journal that is compacted when an event says so.
"""

import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import SideInputs
from dataflow.paged_state import CountedBag
from dataflow.serialization import dumps, loads
from dataflow.views import LargeMapping, ViewPart, ViewSequence
from runners.core.ground.cells import CellId, LateElement, PageId, TimerId
from runners.core.side_inputs import large_views, side_inputs_machine
from runners.core.side_inputs.side_inputs_machine import SideInputsMachine
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stateful.cell_pages import PagesInPassing, Passing
from runners.errors import StoreError
from runners.millwheel.worker.state.cell_cache import ENTRY_BYTES, CellCache
from runners.stored.cells import decode_cell, encode_cell
from runners.testing.scripted_source import ScriptedSource
from tests.effort import costly
from windowing.pane import NO_FIRING, PaneInfo
from windowing.time_domain import TimeDomain
from windowing.window import Window

Patch = pytest.MonkeyPatch
VIEWS: dict[str, Any] = {
    "dict": df.AsDict,
    "multi-map": df.AsMultiMap,
    "iterable": df.AsIter,
    "sequence": df.AsList,
}
SHARDS = 2
NAME_BYTES = 50
SIZE_US = 10
WINDOWS = [Window(start_us, start_us + SIZE_US) for start_us in (0, SIZE_US)]


def asked(x: Any, view: Any) -> Any:
    """What user code may ask a view, in no order where that has none."""
    if isinstance(view, ViewSequence):
        check_sequence(view)
    if not hasattr(view, "keys"):
        return x, sorted(map(repr, view)), sorted(map(repr, view)), len(view)
    try:
        found = view[x]
    except KeyError as error:
        found = repr(error)
    there = sorted(repr(item) for item in view.items())
    assert there == sorted(repr((key, view[key])) for key in view)
    assert sorted(map(repr, view.values())) == sorted(repr(value) for _, value in view.items())
    assert view == dict(view) == {**view} == view.copy() == view | {}
    return x, repr(found), x in view, repr(view.get(x, 7)), len(view), there, bool(view)


def check_sequence(view: ViewSequence) -> None:
    """It is what the list is, wherever and however it is asked."""
    all_of_it, count = list(view), len(view)
    assert view == all_of_it == view.copy() == view.__add__([])
    assert [1, *all_of_it] == view.__radd__([1]) != view
    assert count == len(all_of_it)
    assert list(map(repr, reversed(view))) == list(map(repr, all_of_it[::-1]))
    for place in (0, 1, count // 2, count - 1, -1, -count, count, -count - 1):
        assert outcome(view, place) == outcome(all_of_it, place)
    for places in (slice(None), slice(1, -1), slice(-2, 0, -2), slice(2, 99, 3), slice(5, 2)):
        assert repr(view[places]) == repr(all_of_it[places])
    assert all(each in view for each in all_of_it[:3])
    assert "nowhere" not in view


def outcome(elements: Sequence[Any], place: int) -> str:
    try:
        return repr(elements[place])
    except IndexError:
        return "no such place"


@attrs.define
class Engine:
    """One grouping of side inputs, with or without pages; steps are as a worker does them.

    Attributes:
        bytes_max: of the cells in memory.
    """

    stage: GroupingStage
    page_bytes: int | None
    bytes_max: int | None = None
    stored: dict[CellId, bytes] = attrs.field(factory=dict)
    journal: dict[CellId, bytes | None] = attrs.field(factory=dict)
    timers: dict[TimerId, int] = attrs.field(factory=dict)
    watermark_us: int = 0
    reads: int = 0
    #: The most bytes of cells that were in memory when one was read.
    most_bytes: int = 0
    #: The most elements that one step with timers has emitted.
    most_fired: int = 0
    #: The most bytes that one step has written, with about as many as a name has for what it has deleted.
    most_written: int = 0
    fails: bool = False
    #: Whether views come as a whole, where others come in parts.
    takes_whole: bool = False
    #: Whether what is due at once by the clock is done before anything else comes.
    goes_on: bool = True
    found: list[Any] = attrs.field(factory=list)
    cells: CellCache = attrs.field(init=False)

    @classmethod
    def of(
        cls, form: str, page_bytes: int | None, ask: Callable[..., Any] = asked, **how: Any
    ) -> "Engine":
        p = df.Pipeline()
        early = df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1))
        into = df.WindowInto(
            df.FixedWindows(SIZE_US / 1e6),
            trigger=None if how.pop("fires_once", False) else early,
            allowed_lateness=how.pop("lateness_us", 0) / 1e6,
            accumulation_mode=how.pop("mode", df.AccumulationMode.ACCUMULATING),
        )
        sides: Any = p | "read" >> df.Read(ScriptedSource([])) | "side windows" >> into
        mains: Any = p | "main" >> df.Read(ScriptedSource([]))
        windowed = mains | "windows" >> df.WindowInto(df.FixedWindows(SIZE_US / 1e6))
        found: list[Any] = []
        waits_for_end = how.pop("waits_for_end", False)

        def look(x: Any, view: Any) -> None:
            found.append(ask(x, view))

        async def look_async(x: Any, view: Any) -> None:
            look(x, view)

        call = look_async if how.pop("is_async", False) else look
        windowed | "beside" >> df.Map(call, VIEWS[form](sides, shards=SHARDS))
        execution = plan(p.graph())
        (stage,) = (
            each for each in execution.groupings() if isinstance(each.root.operation, SideInputs)
        )
        engine = cls(GroupingStage(execution, stage, tries=1), page_bytes, found=found, **how)
        assert isinstance(engine.stage.machine, SideInputsMachine)
        engine.stage.machine.waits_for_end = waits_for_end
        engine.restart()
        return engine

    def read(self, page_ids: Sequence[CellId]) -> Iterator[tuple[CellId, bytes]]:
        if self.fails:
            raise StoreError("the store is away")
        self.reads += len(page_ids)
        self.most_bytes = max(self.most_bytes, self.cells.counts.bytes_buffered)
        return ((each, self.stored[each]) for each in page_ids if each in self.stored)

    def restart(self) -> None:
        """Another worker takes what is stored over: cells that are no pages, and the journal."""
        self.cells = CellCache(self.read, self.bytes_max)
        if self.page_bytes is not None:
            self.stage.keep_in_pages(self.page_bytes, self.cells.need_pages)
        self.cells.take_in({k: v for k, v in self.stored.items() if not isinstance(k, PageId)})
        for cell_id, blob in self.journal.items():
            if blob is None:
                self.cells.pop(cell_id, None)
            else:
                self.cells[cell_id] = decode_cell(blob)
            self.cells.wrote([(cell_id, self.cells.get(cell_id))], len(blob or b""), is_stored=True)

    def compact(self) -> None:
        then = self.cells.compact(list(self.journal))
        for cell_id, blob in self.journal.items():
            if blob is None:
                self.stored.pop(cell_id, None)
            else:
                self.stored[cell_id] = blob
        self.journal.clear()
        then()

    def add(
        self, window: Window, *values: Any, pane: PaneInfo = NO_FIRING, sign: int = +1
    ) -> list[Any]:
        """Elements, and panes of the side input, of all shards; what went wrong."""
        return self.add_all(window, [(value, pane, sign) for value in values])

    def add_all(self, window: Window, came: Sequence[tuple[Any, PaneInfo, int]]) -> list[Any]:
        """What came with panes and signs, in one step."""
        partials: Any = [
            (shard, window, [(value, window.start_us, pane, sign)], 1)
            for value, pane, sign in came
            for shard in ([hash(value[1]) % SHARDS] if value[0] is None else range(SHARDS))
        ]
        self.cells.need([(key, None) for key, *_ in partials])
        dead = self.note(self.stage.add(self.cells, partials, self._clocks()))
        return dead + self.work() if self.goes_on else dead

    def work(self, steps_max: int | None = None) -> list[Any]:
        """Do what is due at once by the clock, in so many steps at most."""
        return self._fire(lambda timer, _: timer[2] is TimeDomain.PROCESSING, steps_max)

    def advance(self, to_us: int) -> list[Any]:
        self.watermark_us = max(self.watermark_us, to_us)
        return self._fire(
            lambda timer, at_us: (
                at_us <= self.watermark_us and (self.goes_on or timer[2] is TimeDomain.EVENT)
            )
        )

    def _fire(
        self, is_due: Callable[[TimerId, int], bool], steps_max: int | None = None
    ) -> list[Any]:
        dead = list[Any]()
        for _ in itertools.count() if steps_max is None else range(steps_max):
            due = [each for each, at_us in self.timers.items() if is_due(each, at_us)]
            if not due:
                break
            for each in due:
                del self.timers[each]
            self.cells.need([cell_id for cell_id, *_ in due])
            before = len(self.found)
            dead += self.note(self.stage.fire_timers(self.cells, due, self._clocks()))
            self.most_fired = max(self.most_fired, len(self.found) - before)
        return dead

    def _clocks(self) -> StageClocks:
        at_us = self.watermark_us
        return StageClocks(watermark_us=at_us, output_watermark_us=at_us, now_us=0)

    def note(self, step: Step) -> list[Any]:
        for timer, at_us in step.effects.timers.items():
            self.timers.pop(timer, None)
            if at_us is not None:
                self.timers[timer] = at_us
        written = 0
        for cell_id in step.effects.touched:
            cell = self.cells.get(cell_id)
            blob = None if cell is None else encode_cell(cell)
            self.journal[cell_id] = blob
            self.cells.wrote([(cell_id, cell)], len(blob or b""))
            written += NAME_BYTES + len(blob or b"")
        self.most_written = max(self.most_written, written)
        return [
            *((each.element, each.error) for each in step.outputs.dead),
            *((each.window, each.record) for each in step.effects.late),
        ]

    def pages(self) -> set[CellId]:
        there = {**self.stored, **self.journal}
        return {each for each, blob in there.items() if blob and isinstance(each, PageId)}


class Own:
    """Equal to all of its kind that have the same name: nobody knows that but itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.name == other.name

    def __hash__(self) -> int:
        return len(self.name)

    def __repr__(self) -> str:
        return f"Own({self.name!r})"


KEYS = st.integers(0, 12) | st.sampled_from([True, 1.0, "a", "b", (1, "a"), None, Own("a")])
PAIRS = st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=12)
DISTINCT = st.dictionaries(KEYS, st.integers(0, 3), max_size=12).map(
    lambda each: list(each.items())
)
#: Some of which no dict can be made.
BAD = st.sampled_from([[(1, 2), 3], [([], 1)] * 3, [(1, 2, 3)] * 2])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pane"), st.sampled_from(WINDOWS), DISTINCT | DISTINCT | PAIRS | BAD),
        st.tuples(
            st.just("parts"),
            st.sampled_from(WINDOWS),
            DISTINCT | DISTINCT | PAIRS | BAD,
            st.integers(0, 1_000),
        ),
        st.tuples(st.just("elements"), st.sampled_from(WINDOWS), st.lists(KEYS, min_size=1)),
        st.tuples(st.just("elements"), st.sampled_from(WINDOWS), st.lists(KEYS, min_size=1)),
        st.tuples(st.just("advance"), st.integers(1, 12)),
        st.just(("restart",)),
        st.just(("compact",)),
    ),
    max_size=12,
)


def answers(engine: Engine, events: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What user code has found, and what went wrong, event by event."""
    found = []
    for name, *args in [*events, ("advance", 10 * SIZE_US)]:
        wrong: list[Any] = []
        if name == "pane":
            window, contents = args
            wrong = engine.add(window, (0, list(contents)))
        elif name == "parts":
            window, contents, index = args
            pane = attrs.evolve(NO_FIRING, index=index)
            for start in range(0, len(contents), 3) if not engine.takes_whole else ():
                part = ViewPart(contents[start : start + 3], len(contents))
                wrong += engine.add(window, (0, part), pane=pane)
                if start % 2:
                    engine.restart()
            if engine.takes_whole and contents:
                wrong += engine.add(window, (0, list(contents)))
        elif name == "elements":
            window, keys = args
            wrong = engine.add(window, *((None, key) for key in keys))
        elif name == "advance":
            wrong = engine.advance(engine.watermark_us + args[0])
        elif name == "restart":
            engine.restart()
        else:
            engine.compact()
        if name == "parts":
            # Each part is late by itself.
            wrong = sorted(
                repr((where, each))
                for where, what in wrong
                for each in (what.value if isinstance(what, LateElement) else [what])
            )
        # Elements that have waited may go on window by window, or some of each.
        # What was found beside an element that fails is found once more, as each is tried by itself.
        emitted = [*map(repr, engine.found)]
        found.append((sorted({*emitted} if wrong else emitted), sorted(map(str, wrong))))
        engine.found.clear()
    return found


def check(form: str, events: Sequence[tuple[Any, ...]], bytes_max: int, **how: Any) -> None:
    plain = answers(Engine.of(form, None, takes_whole=True, **how), events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_inputs_machine, "FEW", 1)
        patch.setattr(side_inputs_machine, "RELEASED_PAGES", 1)
        engine = Engine.of(form, 30, bytes_max=bytes_max, **how)
        assert plain == answers(engine, events)
    assert engine.pages() == set(), "pages are left"
    assert len(engine.cells) == 0


@costly(cells=len(VIEWS))
@given(
    events=EVENTS,
    lateness_us=st.sampled_from([0, 5]),
    waits_for_end=st.booleans(),
    bytes_max=st.sampled_from([0, 3 * ENTRY_BYTES, 10**6]),
)
@pytest.mark.parametrize("form", VIEWS)
def test_a_view_in_pages_is_what_a_plain_one_is(
    form: str,
    events: list[tuple[Any, ...]],
    lateness_us: int,
    waits_for_end: bool,
    bytes_max: int,
) -> None:
    check(form, events, bytes_max, lateness_us=lateness_us, waits_for_end=waits_for_end)


COUNT = 100_000
PAGE_BYTES = 16 << 10
PAIRS_MANY = [(f"key {each}", each) for each in range(COUNT)]


def filled(form: str, ask: Callable[..., Any], bytes_max: int, **how: Any) -> Engine:
    """With a view of many pairs, of which nothing is in memory."""
    engine = Engine.of(form, PAGE_BYTES, ask, bytes_max=bytes_max, **how)
    engine.add(WINDOWS[0], (0, PAIRS_MANY))
    assert not [each for each in engine.found if each]
    engine.compact()
    engine.restart()
    assert len(engine.pages()) > 50 * SHARDS
    return engine


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dict", pytest.param("multi-map", marks=pytest.mark.slow)])
def test_a_key_that_is_looked_up_costs_a_page(form: str) -> None:
    """And as many keys as there are need no more memory than the cache has."""
    ask = {"dict": lambda x, view: view[x], "multi-map": lambda x, view: view[x][0]}[form]
    bytes_max = 10 * PAGE_BYTES
    engine = filled(form, ask, bytes_max)

    assert [] == engine.add(WINDOWS[0], (None, "key 4711"))
    assert engine.reads == 1
    keys = [f"key {each}" for each in range(0, COUNT, 97)]
    assert [] == engine.add(WINDOWS[0], *((None, key) for key in keys))
    assert engine.found == [4711, *(int(key.removeprefix("key ")) for key in keys)]
    assert engine.reads > 100
    assert engine.most_bytes < bytes_max + 3 * PAGE_BYTES


def test_an_element_that_is_asked_for_by_its_place_costs_a_page() -> None:
    """Also for a worker that takes the shard over, and without having iterated it; its length costs none."""
    bytes_max = 10 * PAGE_BYTES
    engine = filled("sequence", lambda x, view: (view[x], len(view), view[-1]), bytes_max)

    assert [] == engine.add(WINDOWS[0], (None, 4_711))
    assert engine.found == [(PAIRS_MANY[4_711], COUNT, PAIRS_MANY[-1])]
    assert engine.reads <= 2
    places = range(0, COUNT, 97)
    assert [] == engine.add(WINDOWS[0], *((None, place) for place in places))
    assert [each for each, *_ in engine.found[1:]] == [PAIRS_MANY[place] for place in places]
    assert engine.most_bytes < bytes_max + 3 * PAGE_BYTES


def test_a_slice_reads_the_pages_that_it_is_in() -> None:
    engine = filled("sequence", lambda x, view: view[x : x + 200 : 2], 10 * PAGE_BYTES)

    assert [] == engine.add(WINDOWS[0], (None, 50_000))
    assert engine.found == [PAIRS_MANY[50_000:50_200:2]]
    assert engine.reads <= 2


@pytest.mark.parametrize("count", [0, 1, 200, COUNT])
def test_a_sequence_is_of_one_class_however_large(count: int) -> None:
    engine = Engine.of("sequence", PAGE_BYTES, lambda _, view: type(view), bytes_max=0)
    engine.add(WINDOWS[0], (0, PAIRS_MANY[:count]), (None, "x"))

    assert engine.found == [ViewSequence]
    assert bool(engine.pages()) == (count == COUNT)


def test_a_view_that_was_stored_otherwise_is_a_sequence_too() -> None:
    """By a pipeline that has iterated it or looked keys up, before it was updated."""
    for form in ("iterable", "dict"):
        former = Engine.of(form, 100, bytes_max=0)
        former.add(WINDOWS[0], (0, PAIRS_MANY[:100]))
        former.compact()
        engine = Engine.of("sequence", 100, stored=former.stored, bytes_max=0)
        assert [] == engine.add(WINDOWS[0], (None, "x"))
        ((_, there, _, count),) = engine.found
        assert there == sorted(map(repr, PAIRS_MANY[:100]))
        assert count == 100


@pytest.mark.slow
def test_pages_that_are_used_again_take_the_place_of_others() -> None:
    """Also where those were written, and never read."""
    engine = Engine.of("dict", PAGE_BYTES, lambda x, view: view[x], bytes_max=10 * PAGE_BYTES)
    engine.add(WINDOWS[0], (0, PAIRS_MANY))
    engine.compact()
    for number in (0, 1, 2) * 30:
        assert [] == engine.add(WINDOWS[0], *((None, f"key {each}") for each in (number, 7, 8)))

    # Five keys, on each shard's pages.
    assert engine.reads <= 5 * SHARDS


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["dict", pytest.param("multi-map", marks=pytest.mark.slow), "iterable", "sequence"]
)
def test_all_of_a_view_is_iterated_page_by_page(form: str) -> None:
    bytes_max = 10 * PAGE_BYTES
    engine = filled(form, lambda _, view: sum(1 for _ in view), bytes_max)

    assert [] == engine.add(WINDOWS[0], (None, "x"))
    assert engine.found == [COUNT]
    assert engine.reads == len(engine.pages()) / SHARDS
    assert engine.most_bytes < bytes_max + 20 * PAGE_BYTES


def scanned_once(patch: Patch) -> None:
    """Pages go in the order in which they came, as if each were read once."""
    let_pass = CellCache._let_pass
    patch.setattr(CellCache, "_let_pass", lambda cache, _: let_pass(cache, Passing.LOOKUP))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("mutation", [None, pytest.param(scanned_once, marks=pytest.mark.slow)])
def test_what_is_scanned_again_is_read_as_far_as_it_is_not_in_memory(
    mutation: Callable[[Patch], None] | None, monkeypatch: Patch
) -> None:
    """For the next element too: as much stays as fits.  And what nobody uses any more goes for it."""
    if mutation is not None:
        mutation(monkeypatch)
    engine = filled("iterable", lambda _, view: sum(1 for _ in view), 40 * PAGE_BYTES)
    pages = len(engine.pages()) // SHARDS
    # Of another shard, in the way.
    engine.add(WINDOWS[0], (None, "x"))
    shard = hash("x") % SHARDS
    other = next(each for each in map(str, range(99)) if hash(each) % SHARDS != shard)

    def read_by(count: int) -> float:
        """Of all pages, how many an element reads."""
        before = engine.reads
        assert [] == engine.add(WINDOWS[0], *((None, other) for _ in range(count)))
        return (engine.reads - before) / (count * pages)

    read_by(30)
    share = read_by(10)
    assert (share < 0.8) == (mutation is None)
    assert (share == 1) == (mutation is scanned_once)


def test_elements_that_have_waited_go_on_in_parts(monkeypatch: Patch) -> None:
    """All of them once, also those that come meanwhile, and with their view, though its window is over."""
    monkeypatch.setattr(side_inputs_machine, "RELEASED_PAGES", 2)
    engine = Engine.of(
        "dict", 1_000, lambda x, view: (x, view["k"]), bytes_max=20_000, waits_for_end=True
    )
    engine.add(WINDOWS[0], (0, [("k", 1)]))
    for start in range(0, 6_000, 100):
        engine.add(WINDOWS[0], *((None, each) for each in range(start, start + 100)))
        engine.compact()
    assert engine.advance(SIZE_US) == []

    assert sorted(engine.found) == [(each, 1) for each in range(6_000)]
    assert 100 < engine.most_fired < 3_000
    assert not engine.pages()
    assert not engine.cells


def test_a_small_view_is_a_dict_and_has_no_pages() -> None:
    engine = Engine.of("dict", PAGE_BYTES, lambda _, view: type(view), bytes_max=0)
    engine.add(WINDOWS[0], (0, PAIRS_MANY[:200]), (None, "x"))

    assert engine.found == [dict]
    assert engine.pages() == set()


@pytest.mark.slow
def test_a_large_view_is_a_mapping_from_the_first_element_on() -> None:
    engine = Engine.of("dict", PAGE_BYTES, lambda _, view: type(view), bytes_max=0)
    engine.add(WINDOWS[0], (0, PAIRS_MANY), (None, "x"))

    assert engine.found == [LargeMapping]


def test_a_view_that_is_kept_is_an_error_and_not_another_view() -> None:
    """What would be read is what the view has become."""
    kept: list[Any] = []

    def ask(_: Any, view: Any) -> Any:
        kept.append(view)
        return kept[0]["key 7"]

    engine = Engine.of("dict", PAGE_BYTES, ask, bytes_max=0)
    engine.add(WINDOWS[0], (0, PAIRS_MANY[:5_000]), (None, 0))
    ((element, error),) = engine.add(WINDOWS[0], (None, 0))

    assert element == 0
    assert "used after the call that it was given to" in error
    assert "a dict or list of it" in error


@pytest.mark.parametrize("form", ["dict", "multi-map", "iterable", "sequence"])
def test_a_view_that_is_emitted_is_what_the_small_one_would_be(form: str) -> None:
    engine = Engine.of(form, 100, lambda _, view: (loads(dumps(view)), pickle.dumps(view)))
    engine.add(WINDOWS[0], (0, PAIRS_MANY[:100]), (None, "x"))

    ((made, pickled),) = engine.found
    assert engine.pages()
    assert made == pickle.loads(pickled)
    assert type(made) is (list if form in ("iterable", "sequence") else dict)
    assert len(made) == 100


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_page_that_cannot_be_read_is_no_failure_of_the_element(*, is_async: bool) -> None:
    """User code that catches all exceptions does not see it, and nothing is a dead letter."""

    def ask(key: Any, view: Any) -> Any:
        try:
            return view[key]
        except Exception:  # noqa: BLE001 - as user code does
            return None

    engine = filled("dict", ask, 10 * PAGE_BYTES, is_async=is_async)
    engine.fails = True

    with pytest.raises(StoreError, match="the store is away"):
        engine.add(WINDOWS[0], (None, "key 1"))
    engine.stage.teardown()


@attrs.define
class Forked:
    """Runs code as a process of its own would."""

    raised: list[BaseException] = attrs.field(factory=list)

    def __call__(self, run: Callable[[], object]) -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - a trial does not come back with it
            self.raised.append(error)

    def renew(self) -> None:
        pass


@pytest.mark.slow
def test_a_page_that_cannot_be_read_on_trial_is_not_the_end_of_its_process() -> None:
    engine, trial = filled("dict", lambda key, view: view[key], 10 * PAGE_BYTES), Forked()
    engine.stage.try_first(trial)
    engine.fails = True

    with pytest.raises(StoreError, match="the store is away"):
        engine.add(WINDOWS[0], (None, "key 1"))
    assert [type(each) for each in trial.raised] == [StoreError]


def forget_what_leaves(patch: Patch) -> None:
    """A view expires in the step that emits what has waited for it."""
    patch.setattr(PagesInPassing, "leave", lambda _: None)


def bring_back_what_has_gone(patch: Patch) -> None:
    """A page that is read when it is being deleted stays."""

    def read(pages: PagesInPassing, numbers: Any, passing: Any) -> Any:
        page_ids = [pages._id_of(number) for number in numbers]
        if missing := [each for each in page_ids if each not in pages._cells]:
            pages._need(missing, passing)
        return [pages._cells[each].entries for each in page_ids]

    patch.setattr(PagesInPassing, "_read", read)


def look_into_one_page(patch: Patch) -> None:
    """Every key is looked up on the first page."""
    patch.setattr(large_views, "page_of", lambda _key, _size: 0)


def take_the_last_of_a_key(patch: Patch) -> None:
    """A key that is there twice in a dict has what came last."""
    made = large_views._by_key
    patch.setattr(large_views, "_by_key", lambda contents, _: dict_of(made(contents, None)))


def dict_of(pairs: dict[Any, tuple[Any, ...]] | None) -> Any:
    return None if pairs is None else {key: values[-1:] for key, values in pairs.items()}


def evict_what_is_not_stored(patch: Patch) -> None:
    """Whatever was read in passing once goes, though it is another page by now."""

    def let_pass(cache: CellCache, _: Any) -> None:
        for page_id in [each for each in cache if isinstance(each, PageId)]:
            cache._evict(page_id)

    patch.setattr(CellCache, "_let_pass", let_pass)


def never_end(patch: Patch) -> None:
    """The view of an earlier pane is the view for good."""
    view = SideInputsMachine.add
    given: dict[Any, Any] = {}

    def add(machine: SideInputsMachine, *args: Any) -> Any:
        effects = view(machine, *args)
        for each in effects.values:
            each.views = given.setdefault((machine, repr(effects.windows[0])), each.views)
        machine.steps = 0
        return effects

    patch.setattr(SideInputsMachine, "add", add)


def forget_views_that_are_waited_for(patch: Patch) -> None:
    """An element that goes on in a step to come sees nothing."""
    forget = side_inputs_machine._Step._forget_expired

    def forgetting(step: Any, cell_id: Any, cell: Any) -> None:
        waiting = cell.values.pop(side_inputs_machine.WAITING, None)
        forget(step, cell_id, cell)
        if waiting is not None:
            cell.values[side_inputs_machine.WAITING] = waiting

    patch.setattr(side_inputs_machine._Step, "_forget_expired", forgetting)


def count_from_one(patch: Patch) -> None:
    """Each place is that of the element after it, but on the first page."""

    def shifted(bag: CountedBag) -> list[int]:
        found = list(itertools.accumulate(bag.counts, initial=0))
        return [0, *(each - 1 for each in found[1:])]

    patch.setattr(CountedBag, "starts", property(shifted))


MUTATIONS = [
    forget_views_that_are_waited_for,
    count_from_one,
    forget_what_leaves,
    bring_back_what_has_gone,
    look_into_one_page,
    take_the_last_of_a_key,
    evict_what_is_not_stored,
    never_end,
]


def scripted() -> list[list[tuple[Any, ...]]]:
    """Panes that replace each other, also while pages are stored alone, and elements that wait until the end."""
    first, second = WINDOWS
    many = [(each, each % 4) for each in range(12)]
    doubled = [*many, (3, 9)]
    keys = list(range(14))
    return [
        [("pane", first, many), ("compact",), ("restart",), ("elements", first, keys)],
        [("pane", first, doubled), ("elements", first, keys)],
        [
            ("pane", first, many),
            ("compact",),
            ("restart",),
            ("elements", first, keys),
            ("pane", first, many[3:]),
            ("elements", first, keys),
            ("restart",),
            ("elements", first, keys),
        ],
        [
            ("pane", first, many),
            ("compact",),
            ("restart",),
            ("pane", second, many),
            ("elements", first, keys),
            ("elements", second, keys),
        ],
    ]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_broken_views_are_found(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    def check_all() -> None:
        for form, waits_for_end, events in product(
            ("dict", "multi-map", "sequence"), (False, True), scripted()
        ):
            check(form, events, 0, waits_for_end=waits_for_end)

    check_all()
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError, StoreError, df.DataflowError, AttributeError)):
        check_all()
