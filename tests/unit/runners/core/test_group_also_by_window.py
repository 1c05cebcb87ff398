"""The machine one step at a time: panes, timers, lateness and what is freed."""

from typing import Any

import pytest

import dataflow as df
from dataflow.combine_fn import ListCombineFn
from runners.core.ground.cells import Cell, CellId, Effects, TimerId
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.partials.folding import Accumulation
from tests.oracle.laws import microseconds
from triggers.windowing_strategy import WindowingStrategy
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US

Mode = df.AccumulationMode
FIXED = df.FixedWindows(microseconds(10))
SESSIONS = df.Sessions(microseconds(10))


class Driver:
    """A machine with its cells, fed with ``(timestamp, value)`` of one key."""

    def __init__(
        self,
        window_fn: df.WindowFn,
        *,
        lateness_us: int = 0,
        mode: Mode = Mode.ACCUMULATING_AND_RETRACTING,
        trigger: df.Trigger | None = None,
    ) -> None:
        self.window_fn = window_fn
        strategy = WindowingStrategy(
            window_fn=window_fn,
            accumulation_mode=mode,
            allowed_lateness_us=lateness_us,
            trigger=trigger or df.DefaultTrigger(),
        )
        self.machine = GroupAlsoByWindow(Accumulation(ListCombineFn(), strategy))
        self.cells: dict[CellId, Cell] = {}

    def add(self, *records: tuple[int, Any], watermark_us: int) -> Effects:
        partials = [
            ("k", self.window_fn.assign_windows(time_us, None)[0], [value], 1)
            for time_us, value in records
        ]
        return self.machine.add(
            self.cells, partials, df.Clocks(watermark_us=watermark_us, now_us=0)
        )

    def fire(self, *windows: tuple[int, int], watermark_us: int) -> Effects:
        due = [self.timer(*window) for window in windows]
        return self.machine.fire_timers(
            self.cells, due, df.Clocks(watermark_us=watermark_us, now_us=0)
        )

    def cell_id(self, window: tuple[int, int]) -> CellId:
        return ("k", None if self.machine.is_merging else df.Window(*window))

    def timer(self, start_us: int, end_us: int) -> TimerId:
        return (self.cell_id((start_us, end_us)), df.Window(start_us, end_us), TimeDomain.EVENT)


def panes_of(effects: Effects) -> list[Any]:
    """``(sign, values, window)`` of each pane, in order."""
    rows = zip(effects.signs, effects.values, effects.windows, strict=True)
    return [(sign, sorted(values), tuple(window)) for sign, (_, values), window in rows]


def timings(effects: Effects) -> list[str]:
    return [pane.timing.value for pane in effects.panes]


def test_a_window_waits_for_its_end_and_is_gone() -> None:
    """A timer at the end; then the on-time pane, which is first and last, and nothing is left."""
    driver = Driver(FIXED)
    first = driver.add((3, "a"), (9, "b"), watermark_us=0)

    assert [] == panes_of(first)
    assert {driver.timer(0, 10): 10} == first.timers
    last = driver.fire((0, 10), watermark_us=10)

    assert [(1, ["a", "b"], (0, 10))] == panes_of(last)
    assert [df.PaneInfo(0, df.PaneTiming.ON_TIME, True, True, 0)] == last.panes
    assert [9] == last.timestamps_us
    assert [driver.cell_id((0, 10))] == list(first.touched) == list(last.touched)
    assert {} == driver.cells


def test_corrections_until_the_lateness_has_passed() -> None:
    """On time, then late panes at once, each retracting the one before, counted and labelled."""
    driver = Driver(FIXED, lateness_us=5)
    driver.add((3, "a"), watermark_us=0)
    on_time = driver.fire((0, 10), watermark_us=10)
    late = driver.add((4, "b"), watermark_us=14)

    assert [(1, ["a"], (0, 10))] == panes_of(on_time)
    assert {driver.timer(0, 10): 15} == on_time.timers
    assert [(-1, ["a"], (0, 10)), (1, ["a", "b"], (0, 10))] == panes_of(late)
    assert ["on_time", "late"] == timings(late)
    assert [on_time.panes[0], df.PaneInfo(1, df.PaneTiming.LATE, False, False, 1)] == late.panes
    end = driver.fire((0, 10), watermark_us=15)

    assert ([], {}) == (panes_of(end), driver.cells)
    gone = driver.add((5, "c"), watermark_us=15)

    assert [] == panes_of(gone)
    assert [("k", df.Window(0, 10), ["c"], 1, 15)] == [
        (each.key, each.window, each.accumulator, each.count, each.watermark_us)
        for each in gone.late
    ]
    assert {} == driver.cells


def test_a_late_first_record_makes_a_late_pane() -> None:
    """Its window's on-time moment is behind, although nothing was emitted then."""
    late = Driver(FIXED, lateness_us=50).add((3, "a"), watermark_us=20)

    assert ["late"] == timings(late)
    assert late.panes[0].is_first
    assert not late.panes[0].is_last


@pytest.mark.parametrize(
    ("mode", "second"), [(Mode.DISCARDING, ["b"]), (Mode.ACCUMULATING, ["a", "b"])]
)
def test_other_modes_take_nothing_back(mode: Mode, second: list[str]) -> None:
    driver = Driver(FIXED, lateness_us=50, mode=mode)
    driver.add((3, "a"), watermark_us=10)

    assert [(1, second, (0, 10))] == panes_of(driver.add((4, "b"), watermark_us=10))


def test_sessions_retract_each_window_they_absorb() -> None:
    """The paper's figure 14: two sessions that were emitted, one late event between them."""
    driver = Driver(SESSIONS, lateness_us=100)
    driver.add((0, "a"), (15, "c"), watermark_us=0)
    emitted = driver.fire((0, 10), (15, 25), watermark_us=30)
    bridged = driver.add((8, "b"), watermark_us=30)

    assert [(1, ["a"], (0, 10)), (1, ["c"], (15, 25))] == panes_of(emitted)
    assert [
        (-1, ["a"], (0, 10)),
        (-1, ["c"], (15, 25)),
        (1, ["a", "b", "c"], (0, 25)),
    ] == panes_of(bridged)
    assert ["on_time", "on_time", "late"] == timings(bridged)
    assert [emitted.panes[0], emitted.panes[1]] == bridged.panes[:2]
    assert {
        driver.timer(0, 10): None,
        driver.timer(15, 25): None,
        driver.timer(0, 25): 125,
    } == bridged.timers


def test_a_session_that_grows_past_the_watermark_fires_again_on_time() -> None:
    """It keeps what it emitted until then, so that the answer does not flicker."""
    driver = Driver(SESSIONS, lateness_us=100)
    driver.add((0, "a"), watermark_us=0)
    driver.fire((0, 10), watermark_us=12)
    grown = driver.add((9, "b"), watermark_us=12)

    assert [] == panes_of(grown)
    again = driver.fire((0, 19), watermark_us=19)

    assert [(-1, ["a"], (0, 10)), (1, ["a", "b"], (0, 19))] == panes_of(again)
    assert ["on_time", "on_time"] == timings(again)
    assert [0, 1] == [pane.index for pane in again.panes]
    assert not again.panes[1].is_first


def test_whether_a_record_is_late_is_decided_by_the_session_it_joins() -> None:
    """Saved by an open session, or by a companion; alone it is dropped."""
    driver = Driver(SESSIONS)
    driver.add((15, "open"), watermark_us=12)

    assert [] == driver.add((6, "saved"), watermark_us=20).late
    driver.fire((6, 25), watermark_us=60)

    assert 1 == len(driver.add((2, "alone"), watermark_us=60).late)
    assert [] == driver.add((45, "with"), (52, "companion"), watermark_us=60).late


def test_an_expired_window_that_gets_a_record_before_its_timer_is_freed_once() -> None:
    """A watermark can be ahead of the timers, e.g. when ranges are taken over: nothing may stay."""
    for window_fn, expected in ((FIXED, (0, 10)), (SESSIONS, (0, 11))):
        driver = Driver(window_fn)
        driver.add((0, "a"), watermark_us=0)
        effects = driver.add((1, "b"), watermark_us=50)

        assert [(1, ["a", "b"], expected)] == panes_of(effects)
        assert effects.panes[0].is_last
        assert {driver.timer(0, 10): None} == effects.timers
        assert {} == driver.cells
        assert [] == panes_of(driver.fire((0, 10), watermark_us=50))


def test_windows_of_a_key_expire_one_by_one() -> None:
    driver = Driver(SESSIONS)
    driver.add((0, "a"), (20, "b"), watermark_us=0)
    driver.fire((0, 10), watermark_us=10)

    assert [df.Window(20, 30)] == list(driver.cells["k", None])  # type: ignore[arg-type]
    driver.fire((20, 30), watermark_us=30)
    assert {} == driver.cells


def test_a_jump_to_the_end_of_time_fires_everything_once() -> None:
    driver = Driver(SESSIONS, lateness_us=1_000)
    driver.add((0, "a"), (20, "b"), watermark_us=0)
    effects = driver.fire((0, 10), (20, 30), watermark_us=MAX_TIMESTAMP_US)

    assert [(1, ["a"], (0, 10)), (1, ["b"], (20, 30))] == panes_of(effects)
    assert all(pane.is_last for pane in effects.panes)
    assert {} == driver.cells


def test_a_timer_of_what_is_gone_does_nothing() -> None:
    for window_fn in (FIXED, SESSIONS):
        effects = Driver(window_fn).fire((0, 10), watermark_us=10)

        assert Effects() == effects


class EveryRecord(df.DefaultTrigger):
    """Fires on every record: early panes."""

    def should_fire(self, state: Any, window: df.Window, clocks: df.Clocks) -> bool:
        return True


def test_early_panes() -> None:
    """They are speculative, and the on-time pane is the first that is not."""
    driver = Driver(FIXED, trigger=EveryRecord(), lateness_us=5)
    early = driver.add((1, "a"), watermark_us=0)
    driver.add((2, "b"), watermark_us=0)
    late = driver.add((3, "c"), watermark_us=10)

    assert df.PaneInfo(0, df.PaneTiming.EARLY, True, False, -1) == early.panes[0]
    assert df.PaneInfo(2, df.PaneTiming.ON_TIME, False, False, 0) == late.panes[-1]


def test_what_is_retracted_before_its_window_fired_is_not_kept() -> None:
    """Nothing has changed but that the cell is gone, which is to be stored too."""
    strategy = WindowingStrategy(window_fn=SESSIONS)
    accumulation = Accumulation(ListCombineFn(), strategy, is_retracted=True)
    machine = GroupAlsoByWindow(accumulation)
    cells: dict[CellId, Cell] = {}
    for sign in (+1, -1):
        partial = ("k", df.Window(0, 10), accumulation.folded([("a", sign)]), 1)
        effects = machine.add(cells, [partial], df.Clocks(watermark_us=0, now_us=0))

    assert not cells
    assert list(effects.touched) == [("k", None)]
    assert list(effects.timers.values()) == [None]


@pytest.mark.parametrize(
    ("window_fn", "is_kept"), [(FIXED, True), (SESSIONS, False), (df.GlobalWindows(), False)]
)
def test_what_was_emitted_and_is_retracted_is_kept_where_it_expires(
    window_fn: df.WindowFn, is_kept: bool
) -> None:
    """Its panes are numbered on.  What does not expire would be kept for ever, and what merges has other windows."""
    strategy = WindowingStrategy(
        window_fn=window_fn,
        trigger=df.Always(),
        accumulation_mode=Mode.ACCUMULATING_AND_RETRACTING,
        allowed_lateness_us=100,
    )
    accumulation = Accumulation(ListCombineFn(), strategy, is_retracted=True)
    machine = GroupAlsoByWindow(accumulation)
    cells: dict[CellId, Cell] = {}
    (window,) = window_fn.assign_windows(0, None)
    emitted = []
    for sign in (+1, -1):
        partial = ("k", window, accumulation.folded([("a", sign)]), 1)
        effects = machine.add(cells, [partial], df.Clocks(watermark_us=0, now_us=0))
        emitted += effects.signs

    assert emitted == [+1, -1]
    assert bool(cells) == is_kept
    assert len(effects.touched) == 1


class Retracted:
    """Sessions of a key whose records may be retracted."""

    def __init__(self, trigger: df.Trigger) -> None:
        strategy = WindowingStrategy(window_fn=SESSIONS, trigger=trigger)
        self.accumulation = Accumulation(ListCombineFn(), strategy, is_retracted=True)
        self.machine = GroupAlsoByWindow(self.accumulation)
        self.cells: dict[CellId, Cell] = {}

    def add(self, *records: tuple[int, str], sign: int = +1) -> list[list[str]]:
        """Records at instants; what is emitted for them."""
        partials = []
        for at_us, value in records:
            inputs: Any = [(value, sign)]
            if not self.accumulation.reads_values:
                inputs = self.accumulation.folded(inputs)
            partials.append(("k", df.Window(at_us, at_us + 10), inputs, 1))
        effects = self.machine.add(self.cells, partials, df.Clocks(watermark_us=-5, now_us=0))
        return [sorted(values) for _, values in effects.values]


def test_the_heirs_of_a_session_that_comes_apart_count_what_is_left() -> None:
    """Each what it has itself, and not what the other one has."""
    sessions = Retracted(df.AfterCount(5))
    assert not sessions.add((0, "a"), (1, "b"), (16, "c"), (8, "bridge"))
    assert not sessions.add((8, "bridge"), sign=-1)
    assert not sessions.add((1, "d"), (1, "e"))
    assert sessions.add((1, "f")) == [["a", "b", "d", "e", "f"]]
    assert not sessions.add((16, "g"), (16, "h"), (16, "i"))
    assert sessions.add((16, "j")) == [["c", "g", "h", "i", "j"]]


def test_a_trigger_sees_the_values_of_every_part_of_a_session() -> None:
    sessions = Retracted(df.AfterPunctuation("end".__eq__))
    assert not sessions.add((0, "a"), (5, "b"))
    assert sessions.add((9, "end")) == [["a", "b", "end"]]


@pytest.mark.parametrize(
    ("mode", "hold_us", "emitted_us"),
    [
        # What is emitted again has the event time of what was emitted, for which the watermark waits already.
        (Mode.ACCUMULATING_AND_RETRACTING, [3, 3 + 20], [3, 3, 3]),
        (Mode.ACCUMULATING, [3, None, 7, None], [3, 7]),
        (Mode.DISCARDING, [3, None, 7, None], [3, 7]),
    ],
)
def test_the_watermark_behind_waits_for_what_may_be_retracted(
    mode: Mode, hold_us: list[int | None], emitted_us: list[int]
) -> None:
    """It waits as long as whoever has it allows; before it is emitted, at its event time; and for nothing else."""
    strategy = WindowingStrategy(
        window_fn=FIXED,
        trigger=df.Repeatedly(df.AfterCount(2)),
        accumulation_mode=mode,
        allowed_lateness_us=20,
        timestamp_combiner=df.TimestampCombiner.EARLIEST,
    )
    accumulation = Accumulation(ListCombineFn(), strategy)
    machine = GroupAlsoByWindow(accumulation)
    cells: dict[CellId, Cell] = {}
    found_us: list[int | None] = []
    emitted: list[int] = []
    for at_us in (3, 4, 7, 8):
        partial = ("k", df.Window(0, 10), accumulation.folded([(at_us, at_us)]), 1)
        effects = machine.add(cells, [partial], df.Clocks(watermark_us=0, now_us=0))
        found_us += effects.holds.values()
        emitted += effects.timestamps_us

    assert found_us == hold_us
    assert emitted == emitted_us


@pytest.mark.parametrize("is_retracted", [False, True])
@pytest.mark.parametrize("window_fn", [FIXED, SESSIONS])
def test_what_comes_when_its_window_expires_is_late_and_kept_as_it_would_have_been_emitted(
    window_fn: df.WindowFn, is_retracted: bool
) -> None:
    """Also where partials are not folded, because the trigger looks at the values."""
    strategy = WindowingStrategy(
        window_fn=window_fn, trigger=df.AfterBytes(1_000), allowed_lateness_us=5
    )
    accumulation = Accumulation(df.SumCombineFn(), strategy, is_retracted=is_retracted)
    machine = GroupAlsoByWindow(accumulation)
    inputs: Any = [(3, +1), (4, +1)] if is_retracted else [3, 4]
    partial = ("k", df.Window(0, 10), inputs, 2)
    cells: dict[CellId, Cell] = {}
    in_time = machine.add(cells, [partial], df.Clocks(watermark_us=14, now_us=0))
    assert not in_time.late
    cells = {}
    (late,) = machine.add(cells, [partial], df.Clocks(watermark_us=15, now_us=0)).late

    assert not cells
    assert accumulation.result(late.accumulator) == 7


class Own(df.CombineFn):
    """Collects values in a list, which is inside of so many tuples; the accumulator is the result."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def create_accumulator(self) -> Any:
        accumulator: Any = []
        for _ in range(self._depth):
            accumulator = (accumulator,)
        return accumulator

    def add_input(self, accumulator: Any, value: Any) -> Any:
        self._list_in(accumulator).append(value)
        return accumulator

    def merge_accumulators(self, accumulators: Any) -> Any:
        first, *others = accumulators
        for other in others:
            self._list_in(first).extend(self._list_in(other))
        return first

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator

    def _list_in(self, accumulator: Any) -> list[Any]:
        for _ in range(self._depth):
            (accumulator,) = accumulator
        return accumulator  # type: ignore[no-any-return]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_was_emitted_does_not_change_when_more_comes(depth: int) -> None:
    """Or what is retracted later would not be what was emitted."""
    accumulation = Accumulation(Own(depth), WindowingStrategy(window_fn=df.FixedWindows(60)))
    accumulator = accumulation.folded([1])
    emitted = accumulation.result(accumulator)
    before = repr(emitted)

    accumulation.combine_fn.add_inputs(accumulator, [2])

    assert before == repr(emitted)
