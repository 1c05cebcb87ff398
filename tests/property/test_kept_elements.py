"""Elements that may be retracted, and the views that they depend on: what is in pages is what is not, and is right.

Two side inputs: one is retracted, so all elements follow it, and of the other each element keeps the version that it
was emitted with.  Cells are as in `test_large_views`: a real cache, over a store that is a dict.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.element_digests import element_digest
from dataflow.graph import SideInputs
from dataflow.views import View, WithViews
from runners.core.ground.cells import EmittedPane, Page
from runners.core.side_inputs import emitted_elements, side_inputs_machine
from runners.core.side_inputs.side_inputs_machine import SideInputsMachine
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from runners.core.stateful.keyed_state import KeyedState
from runners.millwheel.worker.state.cell_cache import ENTRY_BYTES
from runners.stored.cells import encode_cell
from runners.stored.journal import encode_changes
from runners.testing.scripted_source import ScriptedSource
from tests.effort import costly
from tests.property.test_large_views import SHARDS, SIZE_US, WINDOWS, Engine
from windowing.pane import NO_FIRING
from windowing.time_domain import TimeDomain
from windowing.window import Window

Patch = pytest.MonkeyPatch
MODE = df.AccumulationMode
FOLLOWED, KEPT = 0, 1
#: Elements of a window may be retracted for as long.
LATENESS_US = 5


def _windowed(mode: MODE) -> df.WindowInto:
    return df.WindowInto(
        df.FixedWindows(SIZE_US / 1e6),
        trigger=df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1)),
        allowed_lateness=LATENESS_US / 1e6,
        accumulation_mode=mode,
    )


@attrs.define
class Shards(Engine):
    """Elements beside both side inputs; ``found`` has what was stood of them, with signs."""

    @classmethod
    def seeing(
        cls,
        page_bytes: int | None,
        *,
        is_retracted: bool = True,
        is_remembered: bool = False,
        form: Any = df.AsDict,
        **how: Any,
    ) -> "Shards":
        """Build the pipeline.

        Args:
            page_bytes: of a page.
            is_retracted: whether elements may be retracted.
            is_remembered: whether user code would say something else when it is asked again.
            form: of the side input that each element keeps.
            **how: of the engine.
        """
        p = df.Pipeline()
        followed, kept = [
            p | f"read {each}" >> df.Read(ScriptedSource([])) | f"side {each}" >> _windowed(mode)
            for each, mode in enumerate((MODE.ACCUMULATING_AND_RETRACTING, MODE.ACCUMULATING))
        ]
        mains: Any = p | "main" >> df.Read(ScriptedSource([]))
        if is_retracted:
            windowed = mains | "windows" >> _windowed(MODE.ACCUMULATING_AND_RETRACTING)
            mains = windowed | df.WithKeys(lambda x: x) | df.GroupByKey() | df.Keys()
        else:
            mains = mains | "windows" >> _windowed(MODE.ACCUMULATING)
        times, found = itertools.count(), list[Any]()

        def look(x: Any, all_of_it: Any, pairs: Any) -> Any:
            asked = x, sorted(map(repr, all_of_it)), sorted(map(repr, dict(pairs).items()))
            return (*asked, next(times)) if is_remembered else asked

        call = df.nondeterministic(look) if is_remembered else look
        (
            mains
            | "beside"
            >> df.Map(call, df.AsIter(followed, shards=SHARDS), form(kept, shards=SHARDS))
            | df.ToChangelog()
            | "found" >> df.Map(lambda each: found.append((each.sign, each.value)))
        )
        execution = plan(p.graph())
        (stage,) = (
            each for each in execution.groupings() if isinstance(each.root.operation, SideInputs)
        )
        shards = cls(GroupingStage(execution, stage, tries=1), page_bytes, found=found, **how)
        assert isinstance(shards.stage.machine, SideInputsMachine)
        assert shards.stage.machine.is_remembered == is_remembered
        shards.stage.machine.waits_for_end = False
        shards.restart()
        return shards

    def come(self, window: Window, signed: Sequence[tuple[int, int]]) -> list[Any]:
        """Elements, each with the sign +1 or -1."""
        partials: Any = [
            (x % SHARDS, window, [((None, x), window.start_us, NO_FIRING, sign)], 1)
            for x, sign in signed
        ]
        self.cells.need([(key, None) for key, *_ in partials])
        return self.note(self.stage.add(self.cells, partials, self._clocks()))

    def written(self, act: Callable[[], object]) -> int:
        """The bytes that a step commits."""
        self.journal.clear()
        act()
        changes = [(each, self.cells.get(each)) for each in self.journal]
        return len(encode_changes(changes, ()))


@attrs.define
class Model:
    """What stands, by a model that knows neither cells nor versions nor pages."""

    is_retracted: bool
    watermark_us: int = 0
    views: dict[tuple[int, Window], list[Any]] = attrs.field(factory=dict)
    waiting: list[tuple[Window, int]] = attrs.field(factory=list)
    #: What was stood of elements: the window, the element, and both views then.
    stood: list[tuple[Window, int, list[Any], list[Any]]] = attrs.field(factory=list)

    def pane(self, number: int, window: Window, contents: list[Any]) -> None:
        if window.end_us + LATENESS_US <= self.watermark_us:
            return
        before = self.views.get((number, window), [])
        self.views[number, window] = contents
        if number == FOLLOWED and before != contents:
            kept = self.views.get((KEPT, window), [])
            self.stood = [
                (window, each[1], contents, kept) if each[0] == window else each
                for each in self.stood
            ]
        self._release()

    def come(self, window: Window, signed: Sequence[tuple[int, int]]) -> None:
        if window.end_us + LATENESS_US <= self.watermark_us:
            return
        for x, sign in signed:
            if sign > 0:
                self.waiting.append((window, x))
            elif (window, x) in self.waiting:
                self.waiting.remove((window, x))
            else:
                self.stood.remove(next(each for each in self.stood if each[:2] == (window, x)))
        self._release()

    def advance(self, to_us: int) -> None:
        self.watermark_us = max(self.watermark_us, to_us)
        self._release()

    def _release(self) -> None:
        for window, x in list(self.waiting):
            views = [self.views.get((number, window)) for number in (FOLLOWED, KEPT)]
            if window.end_us <= self.watermark_us or None not in views:
                self.waiting.remove((window, x))
                self.stood.append((window, x, views[0] or [], views[1] or []))

    def standing(self) -> Counter[Any]:
        return Counter(
            repr((x, sorted(map(repr, one)), sorted(map(repr, dict(other).items()))))
            for _, x, one, other in self.stood
        )


CONTENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=12).map(
    lambda pairs: list(dict(pairs).items())
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("pane"), st.sampled_from([FOLLOWED, KEPT]), st.sampled_from(WINDOWS), CONTENTS
        ),
        st.tuples(
            st.just("come"), st.sampled_from(WINDOWS), st.lists(st.integers(0, 5), min_size=1)
        ),
        st.tuples(st.just("retract"), st.sampled_from(WINDOWS), st.integers(0, 9)),
        st.tuples(st.just("advance"), st.integers(1, 6)),
        st.just(("restart",)),
        st.just(("compact",)),
    ),
    max_size=14,
)


def play(
    shards: Shards, events: Sequence[tuple[Any, ...]], *, is_retracted: bool, is_remembered: bool
) -> list[Any]:
    """What was stood, event by event; at every moment it is what the model says."""
    model, stands, stood = Model(is_retracted), Counter[str](), list[Any]()
    there: dict[Window, list[int]] = {window: [] for window in WINDOWS}
    for name, *args in [*events, ("advance", 10 * SIZE_US)]:
        if name == "pane":
            number, window, contents = args
            shards.add(window, (number, list(contents)))
            model.pane(number, window, contents)
        elif name == "come":
            window, elements = args
            shards.come(window, [(x, +1) for x in elements])
            model.come(window, [(x, +1) for x in elements])
            if window.end_us + LATENESS_US > model.watermark_us:
                there[window] += elements
        elif name == "retract":
            window, index = args
            is_open = window.end_us + LATENESS_US > model.watermark_us
            if not is_retracted or not there[window] or not is_open:
                continue
            x = there[window].pop(index % len(there[window]))
            # What waits has its own retraction beside it, which goes on with it.
            if (window, x) in model.waiting:
                there[window].append(x)
                continue
            shards.come(window, [(x, -1)])
            model.come(window, [(x, -1)])
        elif name == "advance":
            shards.advance(shards.watermark_us + args[0])
            model.advance(shards.watermark_us)
        elif name == "restart":
            shards.restart()
        else:
            shards.compact()
        for sign, value in shards.found:
            stands[repr(value)] += sign
        assert min(stands.values(), default=0) >= 0, "retracted is what was not stood"
        now = Counter[str]()
        for value, count in stands.items():
            now[_plain(value) if is_remembered else value] += count
        assert +now == model.standing()
        stood.append(list(shards.found))
        shards.found.clear()
    return stood


def _plain(value: str) -> str:
    """Without what user code says differently each time."""
    return f"{value.rpartition(', ')[0]})"


def in_no_order(stood: Sequence[Sequence[Any]]) -> list[list[str]]:
    """What was stood after each event: elements that have waited may go on in parts."""
    return [sorted(map(repr, each)) for each in stood]


def check(
    events: Sequence[tuple[Any, ...]],
    bytes_max: int,
    *,
    is_retracted: bool = True,
    is_remembered: bool = False,
    form: Any = df.AsDict,
) -> None:
    kinds = {"is_retracted": is_retracted, "is_remembered": is_remembered}
    plain = play(Shards.seeing(None, form=form, **kinds), events, **kinds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_inputs_machine, "FEW", 1)
        if not is_remembered:
            # Code that counts its calls would see another order.
            patch.setattr(side_inputs_machine, "RELEASED_PAGES", 1)
        shards = Shards.seeing(60, bytes_max=bytes_max, form=form, **kinds)
        paged = play(shards, events, **kinds)
        assert plain == paged or (not is_remembered and in_no_order(plain) == in_no_order(paged))
    assert shards.pages() == set(), "pages are left"
    assert len(shards.cells) == 0


@costly(cells=4)
@given(
    events=EVENTS,
    bytes_max=st.sampled_from([0, 3 * ENTRY_BYTES, 10**6]),
    form=st.sampled_from([df.AsDict, df.AsList]),
)
@pytest.mark.parametrize("is_retracted", [False, True])
@pytest.mark.parametrize("is_remembered", [False, True])
def test_what_stands_is_what_the_views_give(
    events: list[tuple[Any, ...]],
    bytes_max: int,
    form: Any,
    is_retracted: bool,
    is_remembered: bool,
) -> None:
    check(events, bytes_max, is_retracted=is_retracted, is_remembered=is_remembered, form=form)


MANY = [(each, each % 4) for each in range(12)]
OTHERS = MANY[3:]
ELEMENTS = list(range(6)) * 3


def scripted() -> list[list[tuple[Any, ...]]]:
    """Panes of both side inputs behind elements, and elements that are retracted with what they were stood with."""
    first, second = WINDOWS
    begin = [
        ("pane", FOLLOWED, first, MANY),
        ("pane", KEPT, first, MANY),
        ("come", first, ELEMENTS),
    ]
    again = [("compact",), ("restart",)]
    back = [("retract", first, each) for each in (7, 3, 5, 0)]
    return [
        [*begin, *again, ("pane", FOLLOWED, first, OTHERS), *again, *back],
        [*begin, *again, ("pane", KEPT, first, OTHERS), ("come", first, ELEMENTS), *again, *back],
        [
            *begin,
            ("pane", KEPT, first, OTHERS),
            *again,
            ("come", first, ELEMENTS[:3]),
            ("pane", KEPT, first, MANY[6:]),
            *again,
            *back,
            ("pane", FOLLOWED, first, OTHERS),
            *again,
            *back,
            ("pane", FOLLOWED, second, MANY),
        ],
        # Equal panes are no news.
        [*begin, *again, ("pane", FOLLOWED, first, MANY), ("pane", KEPT, first, MANY), *back],
    ]


def keep_no_former_view(patch: Patch) -> None:
    """An element is retracted with the view that is there now."""
    patch.setattr(
        SideInputsMachine, "versioned", property(lambda _: [], lambda *_: None), raising=False
    )


def forget_uses(patch: Patch) -> None:
    """A former view goes when it is replaced."""
    patch.setattr(side_inputs_machine, "_count", lambda *_: None)


def replace_pages_in_place(patch: Patch) -> None:
    """A view has the pages of the one before."""
    state = side_inputs_machine._state
    patch.setattr(side_inputs_machine, "_state", lambda name, place, _=0: state(name, place))


def take_any(patch: Patch) -> None:
    """The first element that is found is retracted."""

    def taken(entries: Any, *_: Any) -> Any:
        digest, (entry, *_) = next(iter(entries.items()))
        return emitted_elements.take(entries, digest, entry[0].value)

    patch.setattr(side_inputs_machine, "take", taken)


def pack_too_early(patch: Patch) -> None:
    """What user code stood is not in the pages."""
    patch.setattr(side_inputs_machine._Step, "_unpack", lambda *_: None)


def change_pages_as_they_are(patch: Patch) -> None:
    """A page that has changed in the step is taken for the one that the store has, and goes."""

    def changing(page: Page) -> Page:
        assert page.entries is not None
        page._packed = None
        return page

    patch.setattr(Page, "changing", changing)


def take_equal_for_news(patch: Patch) -> None:
    """A view in pages is never known again."""
    patch.setattr(side_inputs_machine, "_digest", lambda _: object())


MUTATIONS = [
    keep_no_former_view,
    forget_uses,
    replace_pages_in_place,
    take_any,
    pack_too_early,
    change_pages_as_they_are,
    take_equal_for_news,
]


def retract_what_is_still_to_go_on() -> None:
    """Elements have waited, and some have gone on; one of the others is retracted."""
    window, count = WINDOWS[0], 40
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_inputs_machine, "FEW", 1)
        patch.setattr(side_inputs_machine, "RELEASED_PAGES", 1)
        shards = Shards.seeing(60, bytes_max=10**6)
        shards.come(window, [(x, +1) for x in range(count)])
        with pytest.MonkeyPatch.context() as standing_still:
            standing_still.setattr(Shards, "_fire", lambda *_: [])
            for number in (FOLLOWED, KEPT):
                shards.add(window, (number, [("k", 1)]))
            assert 0 < len(shards.found) < count - 2
            shards.come(window, [(count - 1, -1), (count - 2, -1)])
            assert all(sign > 0 for sign, _ in shards.found), "it is retracted before it is stood"
        shards._fire(lambda timer, _: timer[2] is TimeDomain.PROCESSING)
        stands = Counter[Any]()
        for sign, value in shards.found:
            stands[value[0]] += sign
        assert +stands == dict.fromkeys(range(count - 2), 1)
        shards.advance(100)
    assert not shards.pages()


def test_a_retraction_goes_on_behind_its_element() -> None:
    retract_what_is_still_to_go_on()


def test_a_retraction_that_goes_before_its_element_is_found(monkeypatch: Patch) -> None:
    take = side_inputs_machine._Step.take

    def overtaking(step: Any, cell_id: Any, window: Window, inputs: Any) -> None:
        cell = step._cells.get(cell_id)
        waiting = {} if cell is None else cell.values.pop(side_inputs_machine.WAITING, {})
        take(step, cell_id, window, inputs)
        if waiting:
            cell.values[side_inputs_machine.WAITING] = waiting

    monkeypatch.setattr(side_inputs_machine._Step, "take", overtaking)
    with pytest.raises(AssertionError):
        retract_what_is_still_to_go_on()


def check_all() -> None:
    for events, is_remembered in itertools.product(scripted(), (False, True)):
        check(events, 0, is_remembered=is_remembered)


@pytest.mark.slow
def test_the_scripts_of_the_breakages_hold() -> None:
    check_all()


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_broken_is_found(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError, df.DataflowError)):
        check_all()


PAGE_BYTES = 4_096
PAIRS = [(f"{each:050}", each) for each in range(2_000)]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("is_retracted", [False, True])
def test_an_element_that_is_kept_costs_a_page_or_so(*, is_retracted: bool) -> None:
    """However many there are, and however large the views are that it was emitted with."""
    shards = Shards.seeing(PAGE_BYTES, is_retracted=is_retracted, form=df.AsMultiMap)
    first = WINDOWS[0]
    assert shards.written(lambda: shards.add(first, (FOLLOWED, PAIRS), (KEPT, PAIRS))) > 200_000

    elements = [10**200 + each for each in range(400)]
    costs = [shards.written(partial(shards.come, first, [(x, +1)])) for x in elements]
    assert max(costs) < 8 * PAGE_BYTES
    assert max(costs[200:]) < max(costs[:200]) + PAGE_BYTES
    assert sum("kept" in str(each) for each in shards.cells) > 3

    if is_retracted:
        back = [shards.written(partial(shards.come, first, [(x, -1)])) for x in elements[::7]]
        assert max(back) < 8 * PAGE_BYTES


@pytest.mark.slow
def test_a_former_view_is_there_once_and_as_long_as_an_element_needs_it() -> None:
    shards = Shards.seeing(PAGE_BYTES)
    first = WINDOWS[0]

    def views() -> set[Any]:
        return {each.state for each in shards.pages() if each.state[:2] == ("views", KEPT)}  # type: ignore[union-attr]

    shards.add(first, (FOLLOWED, [(1, 2)]))
    for number in range(4):
        shards.add(first, (KEPT, [*PAIRS, ("number", number)]))
        shards.come(first, [(number, +1), (number, +1)])
    assert len(views()) == 4
    for number in range(3):
        shards.come(first, [(number, -1)])
        assert len(views()) == 4 - number
        shards.come(first, [(number, -1)])
        assert len(views()) == 3 - number


@pytest.mark.parametrize("is_retracted", [False, True])
def test_elements_that_were_stored_with_their_views_go_on(*, is_retracted: bool) -> None:
    """With the view that is there, and another one that is not there any more."""
    first = WINDOWS[0]
    now, before, followed = View([("k", 2)]), View([("k", 1)]), View([(7, 7)])
    emitted: dict[int, list[EmittedPane]] = {}
    for x, view in ((2, before), (4, now)):
        pane = EmittedPane(WithViews(x, (followed, view)), first.start_us, first, NO_FIRING)
        digest = element_digest((first.start_us, x)) if is_retracted else 0
        emitted.setdefault(digest, []).append(pane)
    cell = KeyedState(
        {"views": {(FOLLOWED, first): followed, (KEPT, first): now}, "emitted": {first: emitted}}
    )
    shards = Shards.seeing(PAGE_BYTES, is_retracted=is_retracted)
    shards.stored[0, None] = encode_cell(cell)
    shards.restart()

    if is_retracted:
        shards.come(first, [(2, -1), (4, -1)])
    else:
        shards.add(first, (FOLLOWED, [(8, 8)]))
    taken = [value for sign, value in shards.found if sign < 0]
    assert taken == [(2, ["(7, 7)"], ["('k', 1)"]), (4, ["(7, 7)"], ["('k', 2)"])]
    stood = [value for sign, value in shards.found if sign > 0]
    both = [(x, ["(8, 8)"], ["('k', 2)"]) for x in (2, 4)]
    assert stood == ([] if is_retracted else both)
    assert not any("former" in each.values for each in shards.cells.values())
