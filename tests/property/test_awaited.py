"""Laws of what a trigger waits for: the tree is met exactly if the trigger fires, and so is each of its nodes."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from tests.property.test_trigger_laws import STEPS, WINDOW, Alone
from tests.strategies import triggers as any_trigger
from triggers import Awaited, AwaitedKind, Turn

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

PHASED = df.AfterWatermark(early=df.AfterCount(3), late=df.AfterCount(1))
_INSTANTS = {AwaitedKind.WATERMARK: "watermark_us", AwaitedKind.CLOCK: "now_us"}
_ENOUGH = {AwaitedKind.ALL: all, AwaitedKind.ANY: any}


class Observed(Alone):
    """A trigger in one window, with what it has waited for before and after each firing."""

    def __init__(self, trigger: df.Trigger) -> None:
        self.seen: list[tuple[Any, df.Clocks]] = []
        super().__init__(trigger)

    def would_fire(self, clocks: df.Clocks) -> bool:
        if not self.progress.is_finished:
            self.seen.append((self.progress.state, clocks))
        return super().would_fire(clocks)


def reached(trigger: df.Trigger, steps: list[tuple[str, int]]) -> list[tuple[Any, df.Clocks]]:
    """The states that a trigger comes through."""
    alone = Observed(trigger)
    alone.seen.append((alone.progress.state, alone.clocks))
    for step in steps:
        alone.take(*step)
    return alone.seen


def check_node(node: Awaited) -> None:
    """What is over is met, what comes later is not, and a node is met as its kind says."""
    for part in node.parts:
        check_node(part)
    if node.turn is not Turn.NOW:
        assert node.is_met == (node.turn is Turn.OVER)
        return
    assert not (node.is_met and node.open_leaves())
    counting = [part.is_met for part in node.parts if part.turn is Turn.NOW]
    if node.kind in _ENOUGH:
        assert node.is_met == _ENOUGH[node.kind](part.is_met for part in node.parts)
    elif node.parts:
        assert node.is_met == any(counting)
    if node.kind in (AwaitedKind.EACH, AwaitedKind.REPEATEDLY):
        assert len(counting) == 1
    if node.kind is AwaitedKind.PHASES:
        check_phases(node)
    if node.need is not None:
        assert node.is_met == ((node.have or 0) >= node.need)


def check_phases(node: Awaited) -> None:
    """The early phase counts until the window has ended, and the late one once that pane has fired."""
    end = next(part for part in node.parts if part.kind is AwaitedKind.WATERMARK)
    for part in node.parts:
        if part.name.startswith("early"):
            assert (part.turn is Turn.NOW) == (end.turn is Turn.NOW and not end.is_met)
        if part.name.startswith("late"):
            assert (part.turn is Turn.NOW) == (end.turn is Turn.OVER)


def leaves(node: Awaited) -> list[Awaited]:
    return [node] if not node.parts else [leaf for part in node.parts for leaf in leaves(part)]


@given(trigger=any_trigger(), steps=STEPS, ahead_us=st.integers(0, 60))
@example(df.Repeatedly(df.AfterCount(1)), [("add", 1)], 0)
@example(PHASED, [("add", 1), ("watermark", 30), ("watermark", 30), ("watermark", 30)], 0)
@example(PHASED, [("watermark", 30), ("watermark", 30), ("watermark", 30), ("add", 2)], 0)
def test_the_tree_is_met_exactly_if_the_trigger_fires(
    trigger: df.Trigger, steps: list[tuple[str, int]], ahead_us: int
) -> None:
    for state, clocks in reached(trigger, steps):
        for at in (clocks, attrs.evolve(clocks, watermark_us=clocks.watermark_us + ahead_us)):
            tree = trigger.awaited(state, WINDOW, at)

            assert tree.is_met == trigger.should_fire(state, WINDOW, at)
            check_node(tree)


@given(trigger=any_trigger(), steps=STEPS)
def test_a_leaf_is_met_at_the_instant_that_it_waits_for(
    trigger: df.Trigger, steps: list[tuple[str, int]]
) -> None:
    """And not before."""
    for state, clocks in reached(trigger, steps):
        for place, leaf in enumerate(leaves(trigger.awaited(state, WINDOW, clocks))):
            if leaf.until_us is None or leaf.is_met or leaf.turn is not Turn.NOW:
                continue
            clock = _INSTANTS[leaf.kind]
            assert getattr(clocks, clock) < leaf.until_us
            for instant_us, is_met in ((leaf.until_us - 1, False), (leaf.until_us, True)):
                changed: dict[str, Any] = {clock: instant_us}
                later = attrs.evolve(clocks, **changed)
                assert leaves(trigger.awaited(state, WINDOW, later))[place].is_met == is_met


class Thirteenth(df.Trigger):
    """A trigger of a user's, which knows nothing of trees."""

    def on_elements(
        self, state: Any, window: df.Window, elements: df.Elements, clocks: df.Clocks
    ) -> Any:
        return (state or 0) + elements.size

    def should_fire(self, state: Any, window: df.Window, clocks: df.Clocks) -> bool:
        return (state or 0) >= 13

    def on_fire(self, state: Any, window: df.Window, clocks: df.Clocks) -> Any:
        raise NotImplementedError

    def next_timers(self, state: Any, window: df.Window, clocks: df.Clocks) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("records", [0, 12, 13])
def test_a_trigger_of_the_users_is_one_leaf(records: int) -> None:
    trigger = df.AfterAll(Thirteenth(), df.AfterCount(1))
    clocks = df.Clocks(watermark_us=0, now_us=0)
    tree = trigger.awaited((records, 1), WINDOW, clocks)

    assert tree.is_met == (records >= 13)
    (own, _) = tree.parts
    assert (own.kind, own.is_met) == (AwaitedKind.OWN, records >= 13)
    assert "Thirteenth" in own.name
