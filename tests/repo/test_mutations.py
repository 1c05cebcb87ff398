"""The tests are tested: a core broken on purpose must fail the laws of `tests/oracle/laws.py`."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow import join_fn
from runners.core.ground.cells import NOTHING, LateArrival, WindowState
from runners.core.ground.timers import TimerQueue
from runners.core.panes import group_also_by_window as core
from runners.core.panes import merging_cells, window_lifecycle
from runners.core.panes.firing import Panes
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.panes.merging_cells import Merger, Regrouper
from runners.core.panes.window_lifecycle import WindowLifecycle
from runners.core.partials import signed_groups
from runners.core.partials.lifting import Lifter
from runners.core.partials.signed_combine import MultisetCombineFn
from tests.oracle import (
    laws,
    test_chained_groupings,
    test_stamped_groupings,
    test_triggers_against_oracle,
)
from tests.oracle.chained import check_hard_chain
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.hard_streams import HARD_CHAINS, HARD_STREAMS
from tests.oracle.joined import check_join
from tests.property.test_join_changes import check_the_machine, scripts
from tests.strategies import NOTHING_EMITTED_US, on_time_triggers, streams, windowings
from tests.unit.triggers import test_triggers
from triggers.after_each import AfterEach
from triggers.after_watermark import AfterWatermark
from triggers.composite import AfterAll, AfterAny, OrFinally
from triggers.default_trigger import DefaultTrigger
from triggers.repeatedly import Repeatedly
from triggers.trigger import Progress, Trigger
from triggers.windowing_strategy import WindowingStrategy
from windowing.fixed import FixedWindows
from windowing.sessions import Sessions
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window
from windowing.window_fn import Merge

pytestmark = pytest.mark.slow

#: Far more than any of the mutations needs to be found.
EXAMPLES_MAX = 300

Patch = pytest.MonkeyPatch
#: In each of them something else has to know that the end of a window is ahead again.
ON_TIME = (
    df.AfterWatermark(late=df.AfterCount(3)),
    df.Repeatedly(df.AfterWatermark(late=df.AfterCount(3))),
    df.AfterEach(df.AfterWatermark(), df.AfterCount(3)),
    df.AfterAny(df.AfterCount(5), df.AfterWatermark()),
    df.AfterAll(df.AfterCount(1), df.AfterWatermark()),
    df.OrFinally(df.Repeatedly(df.AfterCount(2)), df.AfterWatermark()),
    df.AfterAny(df.DefaultTrigger(), df.Never()),
    df.AfterAny(df.Repeatedly(df.AfterWatermark()), df.Never()),
)


def expire_by_the_percentile(patch: Patch) -> None:
    """What a percentile leaves out at first is too late."""
    for name in ("add", "fire_timers"):
        step = getattr(GroupAlsoByWindow, name)
        patch.setattr(
            GroupAlsoByWindow,
            name,
            lambda machine, cells, what, clocks, step=step: step(
                machine, cells, what, clocks.for_triggers
            ),
        )


def drop_retraction_on_merge(patch: Patch) -> None:
    """A merged session forgets what its sources have emitted."""
    _change_merged_state(patch, lambda state, _: setattr(state, "emitted", ()))


def retract_for_the_merged_window(patch: Patch) -> None:
    """What a source window has emitted is retracted for the window that it went into."""
    _change_merged_state(
        patch,
        lambda state, window: setattr(
            state,
            "emitted",
            tuple(attrs.evolve(emitted, window=window) for emitted in state.emitted),
        ),
    )


def forget_what_was_emitted(patch: Patch) -> None:
    """Of several panes emitted before a merge, only the first is retracted."""
    _change_merged_state(patch, lambda state, _: setattr(state, "emitted", state.emitted[:1]))


def forget_accumulator_on_merge(patch: Patch) -> None:
    """A merged session starts from nothing."""
    merge = Merger.merge

    def broken(merger: Merger, cell: Any, *args: Any) -> Any:
        before = set(cell)
        result = merge(merger, cell, *args)
        for window in set(cell) - before:
            cell[window].accumulator = NOTHING
        return result

    patch.setattr(Merger, "merge", broken)


def forget_pending_on_merge(patch: Patch) -> None:
    """What joins a window that has fired is not pending."""
    absorb = GroupAlsoByWindow._absorb

    def broken(machine: Any, state: WindowState, *args: Any) -> None:
        absorb(machine, state, *args)
        if state.firings:
            state.pending = 0

    patch.setattr(GroupAlsoByWindow, "_absorb", broken)


def forget_the_on_time_moment_on_merge(patch: Patch) -> None:
    """A late correction of a merged session calls itself on time."""
    _change_merged_state(patch, lambda state, _: setattr(state, "is_past", False))


def window_edge_off_by_one(patch: Patch) -> None:
    """The end of a fixed window is inside it."""
    assign = FixedWindows.assign_bundle
    patch.setattr(
        FixedWindows,
        "assign_bundle",
        lambda fn, times_us, values: assign(fn, [time_us - 1 for time_us in times_us], values),
    )


def sessions_that_touch_merge(patch: Patch) -> None:
    """Windows that only touch are merged, as Spark does."""
    merge = Sessions.merge_windows

    def broken(fn: Sessions, windows: Any) -> list[Merge]:
        longer = merge(fn, [Window(start_us, end_us + 1) for start_us, end_us in windows])
        return [Merge(_shorter(each.merged), tuple(map(_shorter, each.sources))) for each in longer]

    patch.setattr(Sessions, "merge_windows", broken, raising=False)


def drop_late_before_merging(patch: Patch) -> None:
    """A record is late by its own window, not by the session that could have saved it."""
    add = GroupAlsoByWindow._add_merging

    def broken(machine: Any, fn: Any, cells: Any, partials: Any, effects: Any, now: Any) -> None:
        in_time = []
        for partial in partials:
            if machine._strategy.expiry_us(partial[1]) > now.watermark_us:
                in_time.append(partial)
            else:
                machine._drop(partial, effects, now)
        add(machine, fn, cells, in_time, effects, now)

    patch.setattr(GroupAlsoByWindow, "_add_merging", broken)


def free_state_early(patch: Patch) -> None:
    """State goes at the end of its window although late records are allowed."""
    patch.setattr(WindowingStrategy, "expiry_us", lambda _, window: window.end_us)


def free_state_one_window_early(patch: Patch) -> None:
    """State goes, and what comes is too late, when the watermark is where the window before has expired."""
    expiry_us = WindowingStrategy.expiry_us
    patch.setattr(
        WindowingStrategy,
        "expiry_us",
        lambda strategy, window: expiry_us(strategy, window) - window.end_us + window.start_us,
    )


def drop_late_records_in_silence(patch: Patch) -> None:
    """What is too late is no row."""
    patch.setattr(GroupAlsoByWindow, "_drop", lambda *_: None)


def free_the_state_of_the_key(patch: Patch) -> None:
    """The first window of a key to expire takes the others with it."""
    patch.setattr(window_lifecycle, "free", lambda cells, cell_id, _: cells.pop(cell_id))


def keep_state_for_ever(patch: Patch) -> None:
    """State is not freed."""
    patch.setattr(window_lifecycle, "free", lambda *_: None)


def count_late_records_twice(patch: Patch) -> None:
    """A drop counts for two records."""
    late = LateArrival
    patch.setattr(
        core,
        "LateArrival",
        lambda key, window, accumulator, count, *more: late(
            key, window, accumulator, 2 * count, *more
        ),
    )


def lift_late_records_together(patch: Patch) -> None:
    """Records behind the watermark are combined before it is known which are too late."""
    lift = Lifter.lift
    patch.setattr(
        Lifter,
        "lift",
        lambda lifter, bundle, *, watermark_us: lift(
            lifter, bundle, watermark_us=NOTHING_EMITTED_US
        ),
    )


def timers_out_of_order(patch: Patch) -> None:
    """Due timers come latest first."""
    pop_due = TimerQueue.pop_due
    patch.setattr(
        TimerQueue,
        "pop_due",
        lambda queue, until_us, most=None: pop_due(queue, until_us, most)[::-1],
    )


def timers_one_too_late(patch: Patch) -> None:
    """A timer at the watermark waits for the next instant."""
    pop_due = TimerQueue.pop_due
    patch.setattr(
        TimerQueue,
        "pop_due",
        lambda queue, until_us, most=None: pop_due(queue, until_us - (until_us < 1 << 40), most),
    )


def keep_what_was_retracted(patch: Patch) -> None:
    """A session does not split when the record that bridged it is retracted."""
    patch.setattr(MultisetCombineFn, "is_void", lambda *_: False)


def split_sessions_wait_for_their_trigger(patch: Patch) -> None:
    """What a session emitted before it came apart is retracted when only one of its heirs fires."""
    regroup = Regrouper.regroup

    def broken(regrouper: Regrouper, *args: Any) -> Any:
        regrouped = regroup(regrouper, *args)
        regrouped.split.clear()
        return regrouped

    patch.setattr(Regrouper, "regroup", broken)


def retract_merged_windows_too_late(patch: Patch) -> None:
    """What was emitted for a merged window waits until the window that it went into fires."""
    patch.setattr(WindowLifecycle, "_deadline_us", lambda *_: MAX_TIMESTAMP_US)


def retract_merged_windows_a_moment_late(patch: Patch) -> None:
    """The retraction comes just when it is too late for whoever has taken the window in."""
    deadline_us = WindowLifecycle._deadline_us
    patch.setattr(WindowLifecycle, "_deadline_us", lambda *args: deadline_us(*args) + 1)


def deadlines_of_merged_windows_have_no_timer(patch: Patch) -> None:
    """They are kept only where something else makes the window be looked at."""
    arm = WindowLifecycle._arm

    def broken(life: Any, cell_id: Any, window: Window, state: Any, _: int, *args: Any) -> None:
        arm(life, cell_id, window, state, life._strategy.expiry_us(window), *args)

    patch.setattr(WindowLifecycle, "_arm", broken)


def merge_without_rewinding_triggers(patch: Patch) -> None:
    """A session that has emitted its on-time pane and grows has emitted it for good."""
    patch.setattr(AfterWatermark, "on_growth", Trigger.on_growth)


def _no_rewinding_in(composite: Any) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        patch.setattr(composite, "on_growth", Trigger.on_growth)

    mutate.__name__ = f"no_rewinding_in_{composite.__name__}"
    return mutate


def a_part_that_fires_is_forgotten(patch: Patch) -> None:
    """Of parts side by side nobody knows afterwards which of them it was that fired."""
    patch.setattr(
        AfterAny,
        "on_fire",
        lambda trigger, *args, **times: Progress(trigger.initial_state(), is_finished=True),
    )


def what_was_emitted_holds_nothing(patch: Patch) -> None:
    """The watermark behind a grouping passes what may be retracted, and a retraction is too late."""
    hold_us = Panes.hold_us

    def broken(panes: Panes, window: Window, state: WindowState) -> int | None:
        return hold_us(panes, window, state) if state.pending and not state.emitted else None

    patch.setattr(Panes, "hold_us", broken)


def parts_of_a_session_hold_nothing(patch: Patch) -> None:
    """What is emitted again for a part, when the session comes apart, is too late for the next grouping."""
    hold_us = Panes.hold_us

    def broken(panes: Panes, window: Window, state: WindowState) -> int | None:
        if panes._whole is None or state.pending:
            return hold_us(panes, window, state)
        return hold_us(panes, window, attrs.evolve(state, accumulator={}))

    patch.setattr(Panes, "hold_us", broken)


def emptied_windows_are_left_to_the_last(patch: Patch) -> None:
    """What an emptied window has emitted stands until the last of those that have taken its place fires."""
    keep_emitted = merging_cells._keep_emitted

    def broken(cell: Any, groups: Any, sources: dict[Window, list[Window]]) -> None:
        mine: dict[Window, list[Window]] = {window: [] for window in sources}
        claimed = {window: list(found) for window, found in sources.items()}
        keep_emitted(cell, groups, sources)
        for window, found in claimed.items():
            mine[window] = sources[window][len(found) :]
            del sources[window][len(found) :]
        for emptied in [each for found in mine.values() for each in found]:
            over = [
                w for w in claimed if w.start_us < emptied.end_us and emptied.start_us < w.end_us
            ]
            sources[max(over)].append(emptied)

    patch.setattr(merging_cells, "_keep_emitted", broken)


def late_records_choose_the_event_time_of_a_pane(patch: Patch) -> None:
    """So that a pane is behind a watermark that did not wait for it."""
    patch.setattr(core, "_is_late", lambda *_: False)


def panes_choose_among_new_records_only(patch: Patch) -> None:
    """The event time of an answer depends on when it was emitted."""
    fire = Panes.fire

    def broken(
        panes: Panes, key: Any, window: Window, state: WindowState, *args: Any, **more: Any
    ) -> None:
        fire(panes, key, window, state, *args, **more)
        if type(state.accumulator) is tuple and panes._accumulation.is_stamped:
            state.accumulator = panes._accumulation.unstamped(state.accumulator)

    patch.setattr(Panes, "fire", broken)


def a_group_retracted_to_nothing_is_forgotten(patch: Patch) -> None:
    """If more comes, its panes are numbered from zero again."""
    is_over = WindowLifecycle._is_over

    def broken(life: Any, window: Window, state: WindowState) -> bool:
        return is_over(life, window, attrs.evolve(state, firings=0))

    patch.setattr(WindowLifecycle, "_is_over", broken)


def a_group_retracted_to_nothing_keeps_its_event_time(patch: Patch) -> None:
    """Nothing holds the watermark for it, so what comes next is emitted too late."""
    fire = Panes.fire

    def broken(
        panes: Panes, key: Any, window: Window, state: WindowState, *args: Any, **more: Any
    ) -> None:
        before, is_retracted = state.accumulator, panes._accumulation.is_retracted
        fire(panes, key, window, state, *args, **more)
        if is_retracted and not state.emitted and state.accumulator is not NOTHING:
            state.accumulator = before

    patch.setattr(Panes, "fire", broken)


def joins_forget_pairs_of_new_values(patch: Patch) -> None:
    """A value that comes together with one of the other side does not meet it."""
    pairs = join_fn._pairs

    def broken(lefts: Any, left: Any, _: Any, right: Any) -> Any:
        return pairs(lefts, left, (), right)

    patch.setattr(join_fn, "_pairs", broken)


def joins_keep_the_missing(patch: Patch) -> None:
    """A value that met none is not retracted as such when it meets one."""
    padded = join_fn._padded
    patch.setattr(join_fn, "_padded", lambda side, _, after: padded(side, False, after))


def joins_leave_pairs_in_old_windows(patch: Patch) -> None:
    """What was emitted for a session that has grown stays where it was emitted."""
    emit_changes = Panes._emit_changes

    def broken(panes: Panes, key: Any, window: Window, state: WindowState, effects: Any) -> None:
        state.emitted = tuple(attrs.evolve(emitted, window=window) for emitted in state.emitted[:1])
        emit_changes(panes, key, window, state, effects)

    patch.setattr(Panes, "_emit_changes", broken)


def joins_leave_pairs_at_old_times(patch: Patch) -> None:
    """What was emitted at another event time is not emitted again."""
    emit_changes = Panes._emit_changes

    def broken(panes: Panes, key: Any, window: Window, state: WindowState, effects: Any) -> None:
        parts = [each for each in (state.accumulator,) if each is not NOTHING]
        parts += [emitted.value for emitted in state.emitted]
        at_us = panes._accumulation.stamp_of_all_us(parts, window)
        if at_us is not None:
            state.emitted = tuple(
                attrs.evolve(emitted, timestamp_us=at_us) for emitted in state.emitted
            )
        emit_changes(panes, key, window, state, effects)

    patch.setattr(Panes, "_emit_changes", broken)


def joins_forget_what_is_owed(patch: Patch) -> None:
    """A value that is retracted before it came is there when it comes."""
    emit_changes = Panes._emit_changes

    def broken(panes: Panes, key: Any, window: Window, state: WindowState, effects: Any) -> None:
        emit_changes(panes, key, window, state, effects)
        state.accumulator = NOTHING

    patch.setattr(Panes, "_emit_changes", broken)


def joins_count_what_is_owed(patch: Patch) -> None:
    """A value that was retracted too early makes its side smaller."""
    count = signed_groups._count

    def broken(side: Any, value: Any, more: int) -> None:
        size = side[1]
        count(side, value, more)
        side[1] = size + more

    patch.setattr(signed_groups, "_count", broken)


def a_closed_trigger_silences_the_others(patch: Patch) -> None:
    """One finished source makes the merged session finished."""
    patch.setattr(
        Trigger,
        "on_merge",
        lambda _, sources, *args, **times: next((s for s in sources if s.is_finished), sources[0]),
    )


MUTATIONS: list[Callable[[Patch], None]] = [
    drop_retraction_on_merge,
    retract_for_the_merged_window,
    forget_what_was_emitted,
    forget_accumulator_on_merge,
    forget_pending_on_merge,
    forget_the_on_time_moment_on_merge,
    window_edge_off_by_one,
    sessions_that_touch_merge,
    drop_late_before_merging,
    free_state_early,
    free_state_one_window_early,
    drop_late_records_in_silence,
    free_the_state_of_the_key,
    keep_state_for_ever,
    count_late_records_twice,
    lift_late_records_together,
    timers_out_of_order,
    timers_one_too_late,
    keep_what_was_retracted,
    split_sessions_wait_for_their_trigger,
    retract_merged_windows_too_late,
    retract_merged_windows_a_moment_late,
    deadlines_of_merged_windows_have_no_timer,
    merge_without_rewinding_triggers,
    *map(_no_rewinding_in, (Repeatedly, AfterEach, AfterAny, AfterAll, OrFinally, DefaultTrigger)),
    a_part_that_fires_is_forgotten,
    what_was_emitted_holds_nothing,
    parts_of_a_session_hold_nothing,
    emptied_windows_are_left_to_the_last,
    late_records_choose_the_event_time_of_a_pane,
    panes_choose_among_new_records_only,
    a_group_retracted_to_nothing_is_forgotten,
    a_group_retracted_to_nothing_keeps_its_event_time,
    joins_forget_pairs_of_new_values,
    joins_keep_the_missing,
    joins_leave_pairs_in_old_windows,
    joins_leave_pairs_at_old_times,
    joins_forget_what_is_owed,
    joins_count_what_is_owed,
    a_closed_trigger_silences_the_others,
    expire_by_the_percentile,
]


@pytest.mark.nightly
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_broken_core_is_found(mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """Each mutation of the core makes a law fail, whatever else it does."""
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        look_for_a_counterexample(EXAMPLES_MAX)


def test_the_core_as_it_is_passes() -> None:
    """The search finds nothing wrong where nothing was broken."""
    look_for_a_counterexample(50)


def look_for_a_counterexample(examples_max: int) -> None:
    """Among what was written by hand, what takes longest last, and then among random streams."""
    for windowing, arrivals in HARD_STREAMS.values():
        for mode in df.AccumulationMode:
            laws.CHECKS[mode](windowing, arrivals)
            laws.check_panes(windowing, arrivals, mode)
    for name in test_triggers_against_oracle.GROWING:
        for trigger in ON_TIME:
            laws.check_on_time(*HARD_STREAMS[name], trigger)
    for chain in HARD_CHAINS.values():
        check_hard_chain(*chain)
    for name in test_chained_groupings.EMPTIED:
        test_chained_groupings.test_a_window_that_has_become_empty_is_retracted_in_its_turn(name)

    @settings(
        max_examples=examples_max,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    @given(
        windowing=windowings(),
        arrivals=streams(),
        mode=st.sampled_from(df.AccumulationMode),
        trigger=on_time_triggers(),
    )
    def check(
        windowing: Windowing,
        arrivals: list[Arrivals],
        mode: df.AccumulationMode,
        trigger: df.Trigger,
    ) -> None:
        laws.CHECKS[mode](windowing, arrivals)
        laws.check_panes(windowing, arrivals, mode)
        laws.check_on_time(windowing, arrivals, trigger)

    look_for_a_broken_join()
    look_for_a_part_that_is_late()
    test_triggers.test_a_merge_rewinds_the_trigger()
    test_triggers.test_a_finished_session_does_not_silence_the_one_it_joins()
    test_triggers.test_what_was_fired_by_count_is_not_undone_when_a_session_grows(
        df.AfterAny(df.AfterCount(1), df.AfterWatermark())
    )
    for name in test_stamped_groupings.HARD:
        for combiner in df.TimestampCombiner:
            for size_us in (1, 100):
                test_stamped_groupings.check_hard(name, combiner, size_us)
    check()


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
@given(
    stream=test_stamped_groupings.sessions_that_come_apart(),
    combiner=st.sampled_from(df.TimestampCombiner),
    second=st.sampled_from(df.TimestampCombiner),
    is_sum=st.booleans(),
)
def look_for_a_part_that_is_late(
    stream: Any, combiner: df.TimestampCombiner, second: df.TimestampCombiner, *, is_sum: bool
) -> None:
    """Among sessions that come apart."""
    test_stamped_groupings.check_what_is_left(stream, combiner, second, is_sum=is_sum)


def look_for_a_broken_join() -> None:
    """Among the streams written by hand, and all that can happen to one value of each side."""
    for join_type in df.JoinType:
        for windowing, arrivals in HARD_STREAMS.values():
            check_join(windowing, arrivals, df.Always(), join_type)
        for combiner in df.TimestampCombiner:
            for script in scripts():
                check_the_machine(script, join_type, combiner, df.Always(), df.GlobalWindows())


def _change_merged_state(patch: Patch, change: Callable[[WindowState, Window], None]) -> None:
    grown = merging_cells.grown

    def broken(strategy: Any, states: Any, window: Window, now: Any) -> WindowState:
        state = grown(strategy, states, window, now)
        change(state, window)
        return state

    patch.setattr(merging_cells, "grown", broken)


def _shorter(window: Window) -> Window:
    return Window(window.start_us, window.end_us - 1)
