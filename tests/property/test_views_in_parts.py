"""A view whose elements go before its end is seen when all of them are there, as a whole, and once; in any order.

Panes come to a shard as parts of a few elements and as ends, in an order that no channel would have, through restarts;
an element that comes in between sees the newest pane that was complete by then.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import SideInputs
from dataflow.views import SignedViewPart, ViewEnd, ViewPart
from runners.core.side_inputs import arriving_views, side_inputs_machine
from runners.core.side_inputs.arriving_views import ArrivingView, FormerView
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.plan import plan
from runners.core.stateful.keyed_state import KeyedState
from runners.testing.scripted_source import ScriptedSource
from tests.effort import costly
from tests.property.test_large_views import SHARDS, SIZE_US, VIEWS, WINDOWS, Engine
from windowing.pane import NO_FIRING, PaneInfo
from windowing.window import Window

Patch = pytest.MonkeyPatch
MODE = df.AccumulationMode
#: What can happen to a window: it fires once, or several times in some mode.
FIRINGS: dict[str, Any] = {
    "once": {"fires_once": True},
    "discarding": {"mode": MODE.DISCARDING},
    "accumulating": {"mode": MODE.ACCUMULATING},
    "retracting": {"mode": MODE.ACCUMULATING_AND_RETRACTING},
    "retracted": {"mode": MODE.ACCUMULATING_AND_RETRACTING},
}
#: What an element asks for is a number that no other has.
ASKED = itertools.count()


def pane_of(index: int) -> PaneInfo:
    return attrs.evolve(NO_FIRING, index=index)


def asked(_: Any, view: Any) -> str:
    """All that a view has, however it is seen."""
    if not hasattr(view, "keys"):
        return repr(sorted(view))
    found = view.items()
    return repr(sorted((key, each) for key, values in found for each in _several(values)))


def _several(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list) else [values]


@attrs.frozen
class Firing:
    """One of a window: a part, or the end of a pane, which retracts the pane before it if panes do.

    Attributes:
        pane: its number.
        elements: of the part, or those that come with the end; where they may be retracted, each with its sign.
        gone: how many have gone before the end; None: it is a part.
    """

    pane: int
    elements: tuple[Any, ...]
    gone: int | None = None


@attrs.frozen
class Panes:
    """The panes of a window, each with what is new in it, in parts.

    Attributes:
        news: by pane, the sizes of parts.
        rests: by pane, how many elements come with its end; none where they may be retracted.
        order: in which all that becomes of them comes, as random numbers.
    """

    news: tuple[tuple[int, ...], ...]
    rests: tuple[int, ...]
    order: tuple[int, ...]

    def firings(self, firing: str) -> list[Firing]:
        """All that becomes of them, in the order in which it comes."""
        placed = zip(itertools.cycle(self.order), self.sent(firing), strict=False)
        return [firing for _, firing in sorted(placed, key=_first)]

    def sent(self, firing: str) -> list[Firing]:
        """All that becomes of them, in the order in which it is sent."""
        coming = changes(self.order) if firing == "retracted" else map(numbered, itertools.count())

        def elements(size: int) -> tuple[Any, ...]:
            return tuple(itertools.islice(coming, size))

        found, gone, rest = list[Firing](), 0, tuple[Any, ...]()
        rests = (0,) if firing == "retracted" else self.rests
        for pane, (sizes, at_the_end) in enumerate(
            zip(self.news, itertools.cycle(rests), strict=False)
        ):
            parts = [elements(size) for size in sizes]
            if firing in ADDING:
                # What came with an end has not gone.
                parts = [rest, *parts] if rest else parts
            else:
                gone = 0
            gone += sum(map(len, parts))
            rest = elements(at_the_end)
            found += [Firing(pane, part) for part in parts]
            found.append(Firing(pane, rest, gone))
        return found


ADDING = ("accumulating", "retracting", "retracted")


#: Those of which a pane retracts the one before.
REPLACING = ("retracting", "retracted")


def numbered(number: int) -> tuple[int, int]:
    return number, number % 7


def changes(dice: Sequence[int]) -> Iterator[tuple[tuple[int, int], int]]:
    """Elements that come, are retracted, and come again, also after they were retracted."""
    there, owed = list[tuple[int, int]](), list[tuple[int, int]]()
    for each, number in zip(itertools.cycle(dice), itertools.count()):
        if each % 3 == 1 and there:
            gone = there.pop(each % len(there))
            # Some come again.
            owed += [gone] * (each % 2)
            yield gone, -1
        elif each % 3 == 2:
            owed.append(numbered(number))
            yield numbered(number), -1
        elif owed:
            come = owed.pop()
            yield come, +1
        else:
            there.append(numbered(number))
            yield numbered(number), +1


def kept(entries: Sequence[tuple[Any, int]]) -> list[Any]:
    counts = Counter[Any]()
    for each, sign in entries:
        counts[each] += sign
    return list(counts.elements())


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


@attrs.define
class Model:
    """What is seen, worked out from what has come."""

    firing: str
    parts: defaultdict[int, list[Any]] = attrs.field(factory=lambda: defaultdict(list))
    ends: dict[int, Firing] = attrs.field(factory=dict)
    newest: int = -1
    seen: str | None = None

    def gone(self, pane: int) -> list[Any]:
        first = 0 if self.firing in ADDING else pane
        return [each for number in range(first, pane + 1) for each in self.parts[number]]

    def take(self, firing: Firing) -> None:
        if firing.gone is None:
            self.parts[firing.pane] += firing.elements
        elif firing.gone:
            self.ends[firing.pane] = firing
        elif firing.elements or self.firing != "discarding":
            self.seen = repr(sorted(firing.elements))
        else:
            # No news, but a view where there was none.
            self.seen = self.seen or "[]"
        for pane, end in sorted(self.ends.items()):
            gone = self.gone(pane)
            if pane <= self.newest or len(gone) < (end.gone or 0):
                continue
            if self.firing == "retracted":
                gone = kept(gone)
            self.newest, self.seen = pane, repr(sorted([*gone, *end.elements]))


def part_of(firing: str, elements: Sequence[Any]) -> ViewPart:
    if firing != "retracted":
        return ViewPart([*elements])
    return SignedViewPart([each for each, _ in elements], signs=[sign for _, sign in elements])


def come(engine: Engine, model: Model, window: Window, firing: Firing, number: int = 0) -> None:
    model.take(firing)
    if firing.gone is None:
        part = part_of(model.firing, firing.elements)
        assert [] == engine.add(window, (number, part), pane=pane_of(firing.pane))
        return
    # Where none has gone before, a pane is what it is where elements stay together.
    rest: Any = [*firing.elements]
    end = ViewEnd(firing.gone, rest) if firing.gone else rest
    ends = [((number, end), pane_of(firing.pane), +1)]
    if model.firing in REPLACING and firing.pane:
        ends.insert(0, ((number, ViewEnd(0)), pane_of(firing.pane - 1), -1))
    assert [] == engine.add_all(window, ends)


def check(form: str, firing: str, panes: Panes, restarts: Sequence[bool]) -> None:
    """An element after each part and end sees the newest view, or waits for the first."""
    window, again = WINDOWS[0], itertools.cycle(restarts)
    engine = Engine.of(form, 30, asked, bytes_max=0, **FIRINGS[firing])
    model, seen = Model(firing), set[str]()
    for each in panes.firings(firing):
        come(engine, model, window, each)
        if next(again):
            engine.compact()
        if next(again):
            engine.restart()
        assert [] == engine.add(window, (None, f"x{next(ASKED)}"))
        if model.seen is None:
            assert engine.found == [], "seen before it was complete"
            continue
        seen.add(model.seen)
        assert engine.found[-1:] == [model.seen], "another view than the newest"
        # What was said with a former view is retracted with that.
        may_be_seen = seen if firing in REPLACING else {model.seen}
        assert set(engine.found) <= may_be_seen, "a view that there never was"
        engine.found.clear()
    engine.advance(10 * SIZE_US)
    assert engine.pages() == set(), "pages are left"
    assert len(engine.cells) == 0


@pytest.fixture(autouse=True)
def tiny(monkeypatch: Patch) -> None:
    monkeypatch.setattr(side_inputs_machine, "FEW", 1)
    monkeypatch.setattr(arriving_views, "FEW", 1)
    monkeypatch.setattr(side_inputs_machine, "RELEASED_PAGES", 1)
    monkeypatch.setattr(side_inputs_machine, "DROPPED_PAGES", 3)
    monkeypatch.setattr(arriving_views, "MADE_PAGES", 1)
    monkeypatch.setattr(arriving_views, "BUCKET_PAGES", 1)
    # So few that some have more pages than are made in one step, and are divided once more.
    monkeypatch.setattr(arriving_views, "BUCKETS_MAX", 4)


SIZES = st.lists(st.integers(1, 3), max_size=4).map(tuple)
ORDER = st.lists(st.integers(0, 9), min_size=1, max_size=9).map(tuple)
#: Mostly as it is now: only earlier versions sent elements with an end that later panes have too.
RESTS = st.just((0,)) | st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple)
MANY = st.builds(Panes, st.lists(SIZES, min_size=1, max_size=4).map(tuple), RESTS, ORDER)
ONE = st.builds(Panes, st.tuples(SIZES.filter(bool)), RESTS, ORDER)
RESTARTS = st.lists(st.booleans(), min_size=1, max_size=5)


@costly(cells=len(VIEWS) * len(FIRINGS))
@given(many=MANY, one=ONE, restarts=RESTARTS)
@pytest.mark.parametrize("form", VIEWS)
@pytest.mark.parametrize("firing", FIRINGS)
def test_a_view_is_seen_when_all_of_it_is_there(
    firing: str, form: str, many: Panes, one: Panes, restarts: list[bool]
) -> None:
    check(form, firing, one if firing == "once" else many, restarts)


@pytest.mark.parametrize("is_retracted", [False, True])
@pytest.mark.parametrize("firing", ADDING)
def test_a_grouping_that_has_begun_anew_has_panes_of_its_own(
    firing: str, *, is_retracted: bool
) -> None:
    """What it had sent before is not in them, whether it was retracted or stays, as in a job that is updated."""
    engine, window = Engine.of("sequence", 30, asked, bytes_max=0, **FIRINGS[firing]), WINDOWS[0]
    signs = itertools.repeat(1)

    def seen_after(numbers: range, pane: int, gone: int) -> str:
        elements = [*map(numbered, numbers)]
        signed = [*zip(elements, signs, strict=False)] if firing == "retracted" else elements
        engine.add(window, (0, part_of(firing, signed)), pane=pane_of(pane))
        engine.add(window, (0, ViewEnd(gone)), pane=pane_of(pane))
        engine.found.clear()
        engine.add(window, (None, f"x{next(ASKED)}"))
        return str(engine.found[-1])

    assert seen_after(range(9), 0, 9) == repr([*map(numbered, range(9))])
    assert seen_after(range(9, 12), 1, 12) == repr([*map(numbered, range(12))])
    if is_retracted:
        engine.add_all(window, [((0, ViewEnd(12)), pane_of(1), -1)])

    assert seen_after(range(50, 58), 0, 8) == repr([*map(numbered, range(50, 58))])
    assert seen_after(range(58, 60), 1, 10) == repr([*map(numbered, range(50, 60))])


def most_written(form: str, firing: str, size: int) -> int:
    """The most bytes that a step writes for a view of so many elements, of which each pane has a half in parts."""
    engine, window = Engine.of(form, 400, asked, bytes_max=4_000, **FIRINGS[firing]), WINDOWS[0]
    model, sent = Model(firing), 0
    for pane in range(2):
        for _ in range(size // 20):
            numbers = range(sent, sent + 10)
            sent += len(numbers)
            elements = [(each, f"{each:040}") for each in numbers]
            news = [(each, 1) for each in elements] if firing == "retracted" else elements
            come(engine, model, window, Firing(pane, tuple(news)))
            engine.compact()
        come(engine, model, window, Firing(pane, (), sent))
        engine.compact()
        engine.restart()
    engine.add(window, (None, "x"))
    assert engine.found[-1:] == [model.seen]
    engine.advance(10 * SIZE_US)
    assert engine.pages() == set(), "pages are left"
    return engine.most_written


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("form", VIEWS)
@pytest.mark.parametrize("firing", ADDING)
def test_a_step_writes_no_more_the_larger_a_view_is(
    form: str, firing: str, monkeypatch: Patch
) -> None:
    """Where it is taken in and made, where the former one goes, and when its window is over."""
    monkeypatch.setattr(arriving_views, "MADE_PAGES", 4)
    monkeypatch.setattr(arriving_views, "BUCKETS_MAX", 8)
    monkeypatch.setattr(side_inputs_machine, "DROPPED_PAGES", 8)

    small, large = (most_written(form, firing, each) for each in (1_200, 3_600))

    assert large < 1.5 * small


def in_the_making(steps: int) -> Engine:
    """A second pane has come of a dict, of which pages have been made in so many steps."""
    engine = Engine.of("dict", 30, asked, goes_on=False, **FIRINGS["accumulating"])
    for pane, numbers in enumerate((range(40), range(40, 60))):
        elements = [(each, 0) for each in numbers]
        engine.add(WINDOWS[0], (0, ViewPart(elements)), pane=pane_of(pane))
        engine.add(WINDOWS[0], (0, ViewEnd(numbers.stop)), pane=pane_of(pane))
        engine.work(None if pane == 0 else steps)
    return engine


@pytest.mark.slow
def test_nothing_stays_of_a_view_that_is_half_made_and_not_wanted_any_more() -> None:
    """However far it has come when a grouping begins anew."""
    stages = Counter[str]()
    for steps in range(200):
        engine = in_the_making(steps)
        arriving = [
            each for cell in cells_of(engine) for each in cell.values.get("arriving", {}).values()
        ]
        stages.update("part" for each in arriving if each.made_parts)
        stages.update("bucket" for each in arriving if each.made_buckets)
        if not arriving:
            break
        engine.add(WINDOWS[0], (0, ViewPart([(1, 1)])), pane=pane_of(0))
        engine.add(WINDOWS[0], (0, ViewEnd(1)), pane=pane_of(0))
        engine.work()
        engine.add(WINDOWS[0], (None, "x"))
        assert engine.found == [repr([(1, 1)])]
        engine.advance(10 * SIZE_US)
        engine.work()
        assert engine.pages() == set(), "pages are left"
    assert min(stages["part"], stages["bucket"]) > 2


@pytest.mark.slow
@pytest.mark.parametrize("twice", range(0, 60, 5))
def test_of_a_view_that_is_no_dict_no_element_is_lost(twice: int) -> None:
    """It is found when some of the pages have been made: the second element of a key is in the second pane."""
    engine = in_the_making(0)
    engine.add(WINDOWS[0], (0, ViewPart([(twice, 1)])), pane=pane_of(2))
    engine.add(WINDOWS[0], (0, ViewEnd(61)), pane=pane_of(2))
    engine.work()

    for cell in cells_of(engine):
        ((_, view),) = cell.values["views"].items()
        assert sorted(view) == sorted([*((each, 0) for each in range(60)), (twice, 1)])
    engine.advance(10 * SIZE_US)
    engine.work()
    assert engine.pages() == set(), "pages are left"


def cells_of(engine: Engine) -> list[KeyedState]:
    return [each for each in engine.cells.values() if isinstance(each, KeyedState)]


LATENESS_US = SIZE_US // 2


@attrs.define
class Patient(Engine):
    """Does what is due by the clock when it is asked to, and counts what it has emitted.

    Attributes:
        net: of each element with its views, how often it was emitted less how often it was retracted.
        holds: on the watermark.
        reached_us: how far the watermark is behind the grouping.
    """

    net: Counter[Any] = attrs.field(factory=Counter)
    holds: dict[Any, int] = attrs.field(factory=dict)
    reached_us: int = 0

    @classmethod
    def beside(cls, firings: Sequence[str]) -> "Patient":
        """One whose elements may be retracted, beside side inputs of which these things happen to windows."""
        p = df.Pipeline()

        def windowed(name: str, mode: df.AccumulationMode) -> Any:
            return (
                p
                | f"read {name}" >> df.Read(ScriptedSource([]))
                | f"windows {name}"
                >> df.WindowInto(
                    df.FixedWindows(SIZE_US / 1e6),
                    trigger=df.AfterWatermark(early=df.AfterCount(1)),
                    accumulation_mode=mode,
                    allowed_lateness=LATENESS_US / 1e6,
                )
            )

        sides = [
            view(windowed(view.__name__, FIRINGS[firing]["mode"]), shards=SHARDS)
            for view, firing in zip(VIEWS.values(), firings, strict=False)
        ]
        elements = windowed("elements", MODE.ACCUMULATING_AND_RETRACTING)
        total = elements | "total" >> df.CombineGlobally(sum).without_defaults()
        total | "beside" >> df.Map(lambda x, *views: (x, *map(len, views)), *sides)
        execution = plan(p.graph())
        (stage,) = (
            each for each in execution.groupings() if isinstance(each.root.operation, SideInputs)
        )
        engine = cls(GroupingStage(execution, stage, tries=1), 30, bytes_max=0, goes_on=False)
        engine.restart()
        return engine

    def note(self, step: Step) -> list[Any]:
        effects = step.effects
        for seen, window, sign in zip(effects.values, effects.windows, effects.signs, strict=True):
            assert self.reached_us < window.end_us + LATENESS_US, "late behind the grouping"
            self.net[seen.element, *(repr(sorted(each.contents)) for each in seen.views)] += sign
        for owner, at_us in effects.holds.items():
            self.holds.pop(owner, None)
            if at_us is not None:
                self.holds[owner] = at_us
        self.reached_us = max(self.reached_us, min([self.watermark_us, *self.holds.values()]))
        return super().note(step)


#: What comes beside panes: an element or its retraction, so many steps by the clock, another worker, or the end of the
#: window, which has not expired then.
BETWEEN = st.lists(
    st.tuples(st.just("element"), st.integers(0, 9))
    | st.tuples(st.just("element"), st.integers(0, 9))
    | st.tuples(st.just("retract"), st.integers(0, 9))
    | st.tuples(st.just("work"), st.integers(1, 9))
    | st.tuples(st.just("restart"), st.booleans())
    | st.tuples(st.just("advance"), st.just(SIZE_US + 1)),
    max_size=20,
)


#: What happens to windows of side inputs: panes of two retract each other, which elements follow; of one they do not.
SIDES = st.tuples(st.sampled_from(REPLACING), st.sampled_from(REPLACING), st.just("accumulating"))


@costly()
@given(
    panes=st.tuples(MANY, MANY, MANY),
    firings=SIDES,
    between=BETWEEN,
    dice=st.randoms(use_true_random=False),
)
def test_each_element_has_the_last_views_though_its_window_is_over(
    panes: Sequence[Panes],
    firings: Sequence[str],
    between: Sequence[tuple[str, int]],
    dice: Random,
) -> None:
    """Views are still being made when the watermark passes; nothing is late behind the grouping by that."""
    check_net(panes, firings, between, dice)


@pytest.mark.parametrize("rounds", range(8))
def test_what_has_waited_is_retracted_with_the_views_that_it_was_emitted_with(rounds: int) -> None:
    """Of elements that go on a page at a time, after the end of their window, one retracts another."""
    engine, window = Patient.beside(["retracting", "retracting", "accumulating"]), WINDOWS[0]
    models = [Model("retracting"), Model("retracting"), Model("accumulating")]
    three = (numbered(0), numbered(1), numbered(2))
    for number, firing in (
        (0, Firing(0, (), 0)),
        (2, Firing(0, three[:1])),
        (1, Firing(0, three)),
        (2, Firing(0, three[1:])),
        (2, Firing(0, (), 3)),
        (2, Firing(1, (numbered(3),))),
        (2, Firing(1, (), 4)),
        (1, Firing(0, (), 3)),
    ):
        come(engine, models[number], window, firing, number)
    for sign in (+1, -1):
        engine.add(window, (None, 0), sign=sign)
    engine.work(rounds)
    engine.advance(10 * SIZE_US)
    engine.work()

    assert not any(engine.net.values())
    assert engine.pages() == set(), "pages are left"
    assert len(engine.cells) == 0
    assert engine.holds == {}


def check_net(
    panes: Sequence[Panes],
    firings: Sequence[str],
    between: Sequence[tuple[str, int]],
    dice: Random,
) -> None:
    engine, models = Patient.beside(firings), [*map(Model, firings)]
    sent = [
        [(number, each) for each in attrs.evolve(panes[number], rests=(0,)).sent(firing)]
        for number, firing in enumerate(firings)
    ]
    queues: list[list[Any]] = [*sent, list(between)]
    turns = [number for number, queue in enumerate(queues) for _ in queue]
    dice.shuffle(turns)
    there = set[int]()
    for turn in turns:
        happen(engine, models, there, *queues[turn].pop(0))
    assert [] == engine.advance(10 * SIZE_US)
    assert [] == engine.work()

    last = tuple(model.seen or "[]" for model in models if model.firing in REPLACING)
    standing = {key: count for key, count in engine.net.items() if count}
    # Which version of the other one an element keeps depends on when it was emitted; it is retracted with that.
    assert sorted(standing.values()) == [1] * len(there)
    assert {(each, *last) for each in there} == {(x, *views[: len(last)]) for x, *views in standing}
    assert engine.pages() == set(), "pages are left"
    assert len(engine.cells) == 0
    assert engine.holds == {}


def happen(engine: Patient, models: list[Model], there: set[int], what: Any, how: Any) -> None:
    window = WINDOWS[0]
    if isinstance(what, int):
        come(engine, models[what], window, how, what)
    elif what == "element" and how not in there:
        there.add(how)
        assert [] == engine.add(window, (None, how))
    elif what == "retract" and how in there:
        there.remove(how)
        assert [] == engine.add(window, (None, how), sign=-1)
    elif what == "work":
        assert [] == engine.work(how)
    elif what == "restart":
        if how:
            engine.compact()
        engine.restart()
    elif what == "advance":
        assert [] == engine.advance(how)


#: Retractions that come before their elements, behind which a pane has no news.
OWING = Panes(((2, 3, 1), (), (1, 1), (3,)), (0,), (0, 3, 6, 8, 11, 14, *range(15, 60, 3)))
SCENES = [
    *(
        Panes(((2, 3, 3, 3, 3, 3), (), (1, 1), (3,)), rests, order)
        for rests in [(1, 0), (0,)]
        for order in [(0,), (3, 1, 4, 1, 5, 9, 2, 6), (9, 8, 7, 6, 5, 4, 3, 2, 1)]
    ),
    OWING,
]


def check_scenes() -> None:
    for scene, firing, form in itertools.product(SCENES, FIRINGS, ("dict", "sequence")):
        panes = attrs.evolve(scene, news=scene.news[:1]) if firing == "once" else scene
        check(form, firing, panes, [True, False, True])


def visible_before_complete(patch: Patch) -> None:
    """A pane is seen when its end has come."""
    end = ArrivingView.end

    def early(view: ArrivingView, of_pane: ViewEnd, **how: Any) -> None:
        end(view, of_pane, **how)
        view.expected = 0

    patch.setattr(ArrivingView, "end", early)


def applied_twice(patch: Patch) -> None:
    """A part that is taken in is taken in once more."""
    add = ArrivingView.add

    def twice(view: ArrivingView, part: ViewPart) -> None:
        add(view, part)
        add(view, part)

    patch.setattr(ArrivingView, "add", twice)


def cleaned_too_early(patch: Patch) -> None:
    """Parts of former panes are forgotten when one of them is the view."""
    patch.setattr(side_inputs_machine._Step, "_keeps_parts", lambda *_: False)


def half_made(patch: Patch) -> None:
    """A map is the view when some pages are made."""
    make = ArrivingView._make_some

    def broken(view: ArrivingView, made: Any, *args: Any) -> Any:
        found = make(view, made, *args)
        return made if found is None else found

    patch.setattr(ArrivingView, "_make_some", broken)


def signs_ignored(patch: Patch) -> None:
    """What is retracted is there."""

    def unsigned(view: ArrivingView, entries: list[Any]) -> list[Any]:
        return [each for each, _ in entries] if view.is_signed else entries

    patch.setattr(ArrivingView, "_kept", unsigned)


def owed_forgotten(patch: Patch) -> None:
    """What is retracted before it comes is there when it comes."""
    patch.setattr(ArrivingView, "owes", lambda *_: None)


def former_half_read(patch: Patch) -> None:
    """The next version has not what was in no page of the former one."""
    read = FormerView.read

    def broken(view: FormerView, first: int, end: int) -> list[Any]:
        return read(view, first, min(end, max(1, view.size)))

    patch.setattr(FormerView, "read", broken)


def former_dropped(patch: Patch) -> None:
    """A pane that has come is not counted for the next one."""
    patch.setattr(side_inputs_machine, "BASES", "other bases")
    follow = side_inputs_machine._Step._follow

    def forgetful(step: Any, cell_id: Any) -> None:
        follow(step, cell_id)
        step._cells[cell_id].values.pop("other bases", None)

    patch.setattr(side_inputs_machine._Step, "_follow", forgetful)


MUTATIONS = [
    visible_before_complete,
    applied_twice,
    cleaned_too_early,
    half_made,
    signs_ignored,
    owed_forgotten,
    former_half_read,
    former_dropped,
]


@pytest.mark.slow
def test_the_scenes_of_the_breakages_are_right() -> None:
    check_scenes()


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_broken_is_found(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError, df.DataflowError)):
        check_scenes()
