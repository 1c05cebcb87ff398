"""Sessions of what may be retracted, where a retraction may come before its value: nothing is lost, stuck or left."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.combine_fn import ListCombineFn
from runners.core.ground.cells import Cell, CellId, Effects
from runners.core.ground.timers import Timers
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.partials.folding import Accumulation
from tests.effort import by_profile
from tests.oracle.evaluator import Record, Windowing, regroup
from tests.oracle.laws import microseconds
from triggers.trigger import Progress, Trigger, TriggerTimers
from triggers.windowing_strategy import WindowingStrategy
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window

GAP_US = 10
DELAY_US = 5
#: Event time of a value, which is where it is in the list; and in which order it comes and is retracted.
VALUES = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([(1,), (1, -1), (-1, 1)])),
    min_size=1,
    max_size=6,
)
#: Value and sign.
Change = tuple[int, int]


class SomeTimeAfterRecords(Trigger):
    """Of one's own: fires some time after the first record since it fired last, and needs one for that."""

    def on_elements(self, state: Any, window: Any, elements: Any, clocks: df.Clocks) -> Any:
        assert elements.size > 0, "a trigger is notified of records, not of none"
        return clocks.now_us + DELAY_US if state is None else state

    def should_fire(self, state: Any, window: Any, clocks: df.Clocks) -> bool:
        return state is not None and clocks.now_us >= state

    def on_fire(self, state: Any, window: Any, clocks: df.Clocks) -> Progress:
        return Progress(None)

    def next_timers(self, state: Any, window: Any, clocks: df.Clocks) -> TriggerTimers:
        return TriggerTimers(processing_us=state)

    def merge_states(self, states: Sequence[Any], window: Any) -> Any:
        return min((state for state in states if state is not None), default=None)


@attrs.define(slots=False)
class Sessions:
    """One grouping of one key with its timers, and what stands of what it has emitted."""

    strategy: WindowingStrategy
    cells: dict[CellId, Cell] = attrs.field(factory=dict)
    timers: Timers = attrs.field(factory=Timers)
    standing: Counter[tuple[Window, tuple[int, ...]]] = attrs.field(factory=Counter)
    now_us: int = 0

    def __attrs_post_init__(self) -> None:
        self.accumulation = Accumulation(ListCombineFn(), self.strategy, is_retracted=True)
        self.machine = GroupAlsoByWindow(self.accumulation)

    def add(self, changes: Sequence[Change], times_us: Sequence[int]) -> None:
        partials = [
            ("k", Window(times_us[value], times_us[value] + GAP_US), self._folded(value, sign), 1)
            for value, sign in changes
        ]
        clocks = df.Clocks(watermark_us=MIN_TIMESTAMP_US, now_us=self.now_us)
        self._apply(self.machine.add(self.cells, partials, clocks))

    def advance(self, *, now_us: int, watermark_us: int = MIN_TIMESTAMP_US) -> None:
        self.now_us = now_us
        clocks = df.Clocks(watermark_us=watermark_us, now_us=now_us)
        while due := self.timers.pop_due(clocks):
            self._apply(self.machine.fire_timers(self.cells, due, clocks))

    def _folded(self, value: int, sign: int) -> Any:
        combine_fn = self.accumulation.combine_fn
        inputs: list[Any] = [(value, sign)]
        if self.accumulation.is_stamped:
            inputs = [(each, 0) for each in inputs]
        return combine_fn.add_inputs(combine_fn.create_accumulator(), inputs)

    def _apply(self, effects: Effects) -> None:
        assert not effects.late
        for timer, fire_us in effects.timers.items():
            self.timers.set(timer, fire_us)
        for (_, values), window, sign in zip(
            effects.values, effects.windows, effects.signs, strict=True
        ):
            self.standing[window, tuple(sorted(values))] += sign
        assert all(count in (0, 1) for count in self.standing.values())
        expiries = dict(self.timers.queues[TimeDomain.EVENT].items())
        for cell_id, cell in self.cells.items():
            assert isinstance(cell, dict)
            for window in cell:
                assert expiries[cell_id, window, TimeDomain.EVENT] <= self.strategy.expiry_us(
                    window
                )


@settings(max_examples=by_profile(100, nightly=10_000))
@given(
    values=VALUES,
    random=st.randoms(use_true_random=False),
    at_once=st.integers(1, 3),
    trigger=st.sampled_from([df.Always(), SomeTimeAfterRecords(), df.DefaultTrigger()]),
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_in_the_end_the_sessions_are_those_of_what_stands(
    values: list[tuple[int, tuple[int, ...]]],
    random: Any,
    at_once: int,
    trigger: Trigger,
    combiner: df.TimestampCombiner,
) -> None:
    """Whatever the order; at every moment each window has a timer that ends it, and no trigger fires for nothing."""
    sessions = Sessions(
        WindowingStrategy(
            window_fn=df.Sessions(microseconds(GAP_US)),
            trigger=trigger,
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            timestamp_combiner=combiner,
        )
    )
    changes = [(value, sign) for value, (_, signs) in enumerate(values) for sign in signs]
    random.shuffle(changes)
    times_us = [at_us for at_us, _ in values]
    for start in range(0, len(changes), at_once):
        sessions.add(changes[start : start + at_once], times_us)
        sessions.advance(now_us=sessions.now_us + 2)
    sessions.advance(now_us=sessions.now_us, watermark_us=MAX_TIMESTAMP_US)
    left = [
        Record("k", value, at_us) for value, (at_us, signs) in enumerate(values) if sum(signs) > 0
    ]
    groups = regroup(Windowing("sessions", GAP_US), left)

    assert +sessions.standing == Counter(
        (Window(group.start_us, group.end_us), tuple(group.values)) for group in groups
    )
    assert ({}, 0) == (sessions.cells, len(sessions.timers))
