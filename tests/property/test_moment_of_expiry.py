"""A window expires at its end plus the allowed lateness, at that very instant: what comes then is late, before not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.combine_fn import CombineFn, ListCombineFn
from runners.core.ground.cells import Cell, CellId, Effects
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.partials.folding import Accumulation
from tests.oracle.laws import microseconds
from tests.stateful_programs import Engine
from triggers.windowing_strategy import WindowingStrategy
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window

MODES = list(df.AccumulationMode)
#: How far the watermark is from the instant: it is all about one microsecond.
NEAR_US = (-2, -1, 0, 1)
#: Window functions of the same assigned window, `[0, 10)`: each is another way through the machine.
KINDS = {
    "plain": (df.FixedWindows(microseconds(10)), False),
    "plain, may be retracted": (df.FixedWindows(microseconds(10)), True),
    "merging": (df.Sessions(microseconds(10)), False),
    "merging, may be retracted": (df.Sessions(microseconds(10)), True),
}
COUNT = df.CombiningValueStateSpec("count", df.CountCombineFn())
TRIGGERS = [df.DefaultTrigger(), df.Repeatedly(df.AfterCount(1)), df.Never()]


class Machine:
    """One grouping with its cells, fed with records of one key in windows that a window function assigns."""

    def __init__(self, kind: str, strategy: dict[str, Any], combine_fn: CombineFn) -> None:
        self.window_fn, is_retracted = KINDS[kind]
        if is_retracted:
            # The other modes are refused there when a pipeline is built.
            strategy |= {"accumulation_mode": df.AccumulationMode.ACCUMULATING_AND_RETRACTING}
        self.strategy = WindowingStrategy(window_fn=self.window_fn, **strategy)
        self._accumulation = Accumulation(combine_fn, self.strategy, is_retracted=is_retracted)
        self.machine = GroupAlsoByWindow(self._accumulation)
        self.cells: dict[CellId, Cell] = {}

    def window(self, time_us: int) -> Window:
        return self.window_fn.assign_windows(time_us, None)[0]

    def expiry_us(self, time_us: int) -> int:
        return self.strategy.expiry_us(self.window(time_us))

    def add(self, time_us: int, watermark_us: int, sign: int = 1) -> Effects:
        combined = self._accumulation.combine_fn
        taken: Any = (1, sign) if self._accumulation.is_retracted else 1
        taken = (taken, time_us) if self._accumulation.is_stamped else taken
        folded = combined.add_inputs(combined.create_accumulator(), [taken])
        partial = ("k", self.window(time_us), folded, 1)
        return self.machine.add(
            self.cells, [partial], df.Clocks(watermark_us=watermark_us, now_us=0)
        )


@st.composite
def strategies(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "accumulation_mode": draw(st.sampled_from(MODES)),
        "allowed_lateness_us": draw(st.sampled_from([0, 1, 5, 1_000])),
        "trigger": draw(st.sampled_from(TRIGGERS)),
    }


@pytest.mark.parametrize("kind", KINDS)
@given(
    strategy=strategies(),
    combine_fn=st.sampled_from([ListCombineFn(), df.CountCombineFn()]),
    time_us=st.integers(-20, 20),
)
def test_a_record_of_a_window_that_is_not_there(
    kind: str, strategy: dict[str, Any], combine_fn: CombineFn, time_us: int
) -> None:
    """It opens the window, or is late; never both, and what is late emits nothing and leaves nothing."""
    for near_us in NEAR_US:
        grouping = Machine(kind, strategy, combine_fn)
        effects = grouping.add(time_us, grouping.expiry_us(time_us) + near_us)

        if near_us >= 0:
            assert len(effects.late) == 1
            assert (grouping.cells, effects.timers, effects.values) == ({}, {}, [])
        else:
            assert not effects.late
            assert grouping.cells or effects.values


@pytest.mark.parametrize("kind", KINDS)
@given(strategy=strategies(), time_us=st.integers(-20, 20))
def test_a_record_of_a_window_whose_timer_has_not_fired_yet(
    kind: str, strategy: dict[str, Any], time_us: int
) -> None:
    """It is in time, for the last pane, after which nothing is left; and before the instant that is not the last."""
    for near_us in NEAR_US:
        grouping = Machine(kind, strategy, ListCombineFn())
        expiry_us = grouping.expiry_us(time_us)
        grouping.add(time_us, expiry_us - 30)
        effects = grouping.add(time_us, expiry_us + near_us)

        assert not effects.late
        assert any(pane.is_last for pane in effects.panes) is (near_us >= 0)
        assert bool(grouping.cells) is (near_us < 0)


@pytest.mark.parametrize("kind", [each for each in KINDS if "merging" in each])
@given(strategy=strategies(), ahead_us=st.integers(1, 9))
def test_a_record_of_a_window_that_another_one_takes_in(
    kind: str, strategy: dict[str, Any], ahead_us: int
) -> None:
    """It goes by the window that it ends up in: an open one saves what would be late by itself."""
    for near_us in NEAR_US:
        grouping = Machine(kind, strategy, ListCombineFn())
        last_us = grouping.expiry_us(ahead_us)
        grouping.add(ahead_us, last_us - 40)
        effects = grouping.add(0, min(grouping.expiry_us(0) + near_us, last_us - 1))

        assert not effects.late


@given(
    strategy=strategies(), middle_us=st.integers(1, 9), closes=st.sampled_from(df.FiringBehavior)
)
def test_a_window_that_comes_apart_again(
    strategy: dict[str, Any], middle_us: int, closes: df.FiringBehavior
) -> None:
    """What is left of it is emitted at once, for the last time if it has expired by then, and then forgotten."""
    strategy |= {"trigger": df.Repeatedly(df.AfterCount(1)), "closing_behavior": closes}
    for near_us in NEAR_US:
        grouping = Machine("merging, may be retracted", strategy, ListCombineFn())
        earlier, later = grouping.window(0), grouping.window(middle_us + 9)
        for time_us in (0, middle_us, later.start_us):
            grouping.add(time_us, grouping.expiry_us(0) - 5)
        effects = grouping.add(middle_us, grouping.expiry_us(0) + near_us, -1)
        emitted = zip(effects.windows, effects.panes, effects.signs, strict=True)
        left = {window: pane for window, pane, sign in emitted if sign > 0}

        assert left[earlier].is_last is (near_us >= 0)
        assert not left[later].is_last
        kept = grouping.cells["k", None]
        assert isinstance(kept, dict)
        assert set(kept) == {later} | ({earlier} if near_us < 0 else set())


@pytest.mark.parametrize("kind", KINDS)
@given(lateness_us=st.sampled_from([0, 5, MAX_TIMESTAMP_US, 10**20]))
def test_a_hold_is_an_instant_however_much_lateness_is_allowed(kind: str, lateness_us: int) -> None:
    """At the end of time at the latest, as the expiry of the window is."""
    strategy = {
        "allowed_lateness_us": lateness_us,
        "accumulation_mode": df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        "trigger": df.Always(),
        "timestamp_combiner": df.TimestampCombiner.EARLIEST,
    }
    grouping = Machine(kind, strategy, ListCombineFn())
    (hold_us,) = grouping.add(3, 0).holds.values()

    assert hold_us == min(3 + lateness_us, MAX_TIMESTAMP_US)


class Count(df.DoFn):
    """How many elements there have been."""

    def process(
        self,
        element: tuple[str, int],
        /,
        count: Any = df.DoFn.StateParam(COUNT),
    ) -> Any:
        count.add(1)
        yield count.read()


@pytest.mark.parametrize("near_us", NEAR_US)
@pytest.mark.parametrize("lateness", [0, 1, 5])
def test_an_element_of_a_stateful_do_fn(lateness: int, near_us: int) -> None:
    """By the same instant, with nothing in its window yet."""
    us = 1_000_000
    windows = df.WindowInto(
        df.FixedWindows(10),
        allowed_lateness=lateness,
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )
    engine = Engine.of(Count(), windows)
    engine.advance((10 + lateness) * us + near_us)
    engine.add(("a", Window(0, 10 * us), 1, us))

    assert len(engine.late) == (near_us >= 0)
    assert len(engine.outputs) == (near_us < 0)
