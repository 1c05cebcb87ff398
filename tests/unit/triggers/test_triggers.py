"""When windows fire: each trigger on one window, with both clocks moved by hand."""

import pickle
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.combine_fn import ListCombineFn
from runners.core.ground.cells import Cell, CellId, Effects
from runners.core.ground.timers import Timers
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.panes.signal_delivery import on_signal
from runners.core.partials.folding import Accumulation
from tests.ids import shown
from triggers import Progress, TriggerTimers, WindowingStrategy

SECOND_US = 1_000_000
#: The window that everything is in, and how long after its end it is kept.
END_S, LATENESS_S = 100, 50


class Stage:
    """One key in one window; ``emitted`` is what each pane had, with E, O or L for its timing."""

    def __init__(
        self, trigger: df.Trigger, window_fn: df.WindowFn | None = None, **options: Any
    ) -> None:
        self.trigger, self.window_fn = trigger, window_fn or df.FixedWindows(END_S)
        strategy = WindowingStrategy(
            window_fn=self.window_fn,
            trigger=trigger,
            allowed_lateness_us=LATENESS_S * SECOND_US,
            **options,
        )
        self.machine = GroupAlsoByWindow(Accumulation(ListCombineFn(), strategy))
        self.cells: dict[CellId, Cell] = {}
        self.timers = Timers()
        self.watermark_s = self.now_s = 0
        self.emitted: list[str] = []

    def add(self, *values: str, at_s: int = 0) -> "Stage":
        (window,) = self.window_fn.assign_windows(at_s * SECOND_US, None)
        self._apply(
            self.machine.add(self.cells, [("k", window, list(values), len(values))], self._clocks())
        )
        return self

    def signal(self, name: str) -> "Stage":
        fire, cells = self.machine.lifecycle.fire_if_due, list(self.cells)
        self._apply(on_signal(self.trigger, fire, self.cells, cells, name, self._clocks()))
        return self

    def watermark(self, at_s: int) -> "Stage":
        self.watermark_s = at_s
        return self._advance()

    def now(self, at_s: int) -> "Stage":
        self.now_s = at_s
        return self._advance()

    def _advance(self) -> "Stage":
        while due := self.timers.pop_due(self._clocks()):
            self._apply(self.machine.fire_timers(self.cells, due, self._clocks()))
        return self

    def _clocks(self) -> df.Clocks:
        return df.Clocks(watermark_us=self.watermark_s * SECOND_US, now_us=self.now_s * SECOND_US)

    def _apply(self, effects: Effects) -> None:
        for timer, fire_us in effects.timers.items():
            self.timers.set(timer, fire_us)
        for (_, values), pane in zip(effects.values, effects.panes, strict=True):
            self.emitted.append("".join(values) + pane.timing.name[0])


def emitted_by_trigger(trigger: df.Trigger, *steps: tuple[str, Any], **options: Any) -> list[str]:
    """What a window emits in the course of steps: ("add", "xyz"), ("watermark", s), ("now", s)."""
    stage = Stage(trigger, **options)
    for verb, argument in steps:
        getattr(stage, verb)(*argument if verb == "add" else (argument,))
    stage.watermark(END_S + LATENESS_S)

    assert not stage.cells
    assert len(stage.timers) == 0
    return stage.emitted


def test_early_on_time_and_late() -> None:
    """Speculation each minute, the answer at the watermark, every correction."""
    trigger = df.AfterWatermark(early=df.AfterProcessingTime(60), late=df.AfterCount(1))

    assert ["abE", "cE", "dO", "eL", "fL"] == emitted_by_trigger(
        trigger,
        ("add", "a"), ("now", 30), ("add", "b"), ("now", 60), ("now", 70), ("add", "c"), ("now", 129),
        ("now", 130), ("add", "d"), ("watermark", END_S), ("add", "e"), ("add", "f"),
    )  # fmt: skip


def test_a_backlog_is_early_and_not_late() -> None:
    """Processing time far past the end of the window does not move the watermark."""
    trigger = df.AfterWatermark(early=df.AfterCount(2))

    assert ["abE", "cdE", "eO"] == emitted_by_trigger(
        trigger,
        ("now", 1_000_000),
        ("add", "ab"),
        ("add", "cd"),
        ("add", "e"),
        ("watermark", END_S),
    )


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (df.AfterCount(5), ["abcdL"]),
        (df.AfterCount(2), ["abE", "cdL"]),
        (df.Repeatedly(df.AfterCount(2)), ["abE", "cdE"]),
        (df.AfterEach(df.AfterCount(1), df.AfterCount(2)), ["aE", "bcE", "dL"]),
        (df.OrFinally(df.Repeatedly(df.AfterCount(1)), df.AfterCount(3)), ["aE", "bE", "cE", "dL"]),
        (df.AfterAny(df.AfterCount(3), df.AfterProcessingTime(7)), ["abcE", "dL"]),
        (df.AfterAll(df.AfterCount(3), df.AfterCount(2)), ["abcE", "dL"]),
        (df.AfterWatermark(), ["abcdO"]),
        (df.AfterWatermark(early=df.AfterCount(3)), ["abcE", "dO"]),
        (df.Always(), ["aE", "bE", "cE", "dE"]),
        (df.Never(), ["abcdL"]),
        (df.DefaultTrigger(), ["abcdO"]),
    ],
    ids=shown,
)
def test_by_count(trigger: df.Trigger, expected: list[str]) -> None:
    """Four records one by one; what no firing has emitted is emitted when the window expires, never lost."""
    steps = [("add", value) for value in "abcd"]
    emitted = emitted_by_trigger(trigger, *steps, ("watermark", END_S - 1), ("watermark", END_S))

    # What is first emitted after the end of the window is on time if nothing was emitted there before.
    assert [each.replace("L", "O") for each in expected] == [
        each.replace("L", "O") for each in emitted
    ]
    assert "abcd" == "".join(each[:-1] for each in emitted)


def test_all_waits_for_both_in_any_order() -> None:
    """Time that has passed before the count is reached still counts."""
    trigger = df.AfterAll(df.AfterProcessingTime(5), df.AfterCount(3))

    assert ["abcE"] == emitted_by_trigger(
        trigger, ("add", "a"), ("now", 6), ("add", "b"), ("now", 7), ("add", "c")
    )
    assert ["abcE"] == emitted_by_trigger(trigger, ("add", "abc"), ("now", 4), ("now", 5))


def test_any_takes_the_first() -> None:
    """Whichever comes first."""
    trigger = df.Repeatedly(df.AfterAny(df.AfterProcessingTime(5), df.AfterCount(3)))

    assert ["abE", "cdeE", "fE"] == emitted_by_trigger(
        trigger, ("add", "ab"), ("now", 5), ("add", "cde"), ("now", 6), ("add", "f"), ("now", 11)
    )


def test_periods_are_aligned_to_the_clock() -> None:
    """Firing on the minute, whenever the record came; after the first record, not before."""
    trigger = df.Repeatedly(df.AtPeriod(60, offset=10))

    assert ["aE", "bE"] == emitted_by_trigger(
        trigger, ("now", 69), ("add", "a"), ("now", 70), ("now", 130), ("add", "b"), ("now", 189),
        ("now", 190),
    )  # fmt: skip


def test_what_comes_late_to_a_finished_trigger_is_emitted_at_expiry() -> None:
    """Without a late trigger there is no late firing, and no loss."""
    assert ["aO", "bcL"] == emitted_by_trigger(
        df.AfterWatermark(), ("add", "a"), ("watermark", END_S), ("add", "b"), ("add", "c")
    )


@pytest.mark.parametrize(
    ("on_time", "emitted"),
    [("FIRE_ALWAYS", ["aE", "O", "bL"]), ("FIRE_IF_NON_EMPTY", ["aE", "bL"])],
)
def test_an_on_time_moment_with_nothing_new(on_time: str, emitted: list[str]) -> None:
    """It is news that it has come, unless one asks otherwise; what comes after it is late."""
    trigger = df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1))
    steps = ("add", "a"), ("watermark", END_S), ("add", "b")

    assert emitted == emitted_by_trigger(
        trigger, *steps, on_time_behavior=df.FiringBehavior[on_time]
    )


def test_an_on_time_moment_that_the_watermark_jumps_over() -> None:
    """The end of the window and its expiry at once: one pane, on time and the last."""
    trigger = df.AfterWatermark(early=df.AfterCount(1))

    assert ["aE", "O"] == emitted_by_trigger(
        trigger, ("add", "a"), ("watermark", END_S + LATENESS_S)
    )


@pytest.mark.parametrize(
    ("closing", "emitted"), [("FIRE_ALWAYS", ["aO", "L"]), ("FIRE_IF_NON_EMPTY", ["aO"])]
)
def test_a_window_that_expires_with_nothing_new(closing: str, emitted: list[str]) -> None:
    """One pane more, if one asks for it."""
    behavior = df.FiringBehavior[closing]

    assert emitted == emitted_by_trigger(
        df.DefaultTrigger(), ("add", "a"), ("watermark", END_S), closing_behavior=behavior
    )


BIG = df.AfterBytes(len(pickle.dumps("abc", protocol=5)) + 1)
END = df.AfterPunctuation(lambda value: value == ".")
A_THEN_B = df.AfterPattern(lambda value: value == "a", lambda value: value == "b")


@pytest.mark.parametrize(
    ("trigger", "added", "emitted"),
    [
        (BIG, ["a", "b", "c"], ["abE", "cO"]),
        (df.Repeatedly(END), ["a", ".", "b", ".", "c"], ["a.E", "b.E", "cO"]),
        (END, ["a", ".", "b", "."], ["a.E", "b.O"]),
        (df.Repeatedly(A_THEN_B), ["b", "a", "c", "b", "a", "b"], ["bacbE", "abE"]),
        (df.AfterAny(END, df.AfterCount(2)), ["a", "b", "c"], ["abE", "cO"]),
        (df.AfterEach(END, df.Repeatedly(A_THEN_B)), ["a", "b", ".", "a", "b"], ["ab.E", "abE"]),
        (df.AfterWatermark(early=END), ["a", ".", "b"], ["a.E", "bO"]),
        (df.OrFinally(df.Repeatedly(df.AfterCount(1)), END), [*"a.b"], ["aE", ".E", "bO"]),
    ],
)
def test_triggers_that_look_at_values(
    trigger: df.Trigger, added: list[str], emitted: list[str]
) -> None:
    """By size, by punctuation, by a pattern; also inside others."""
    assert emitted == emitted_by_trigger(trigger, *[("add", value) for value in added])


def test_a_pattern_goes_on_in_a_session_that_merges() -> None:
    """What came to one of two sessions has come to the merged one."""
    stage = Stage(A_THEN_B, df.Sessions(10))
    stage.add("a", at_s=0).add("c", at_s=15).add("b", at_s=8)

    assert ["abcE"] == ["".join(sorted(emitted[:-1])) + emitted[-1] for emitted in stage.emitted]


def test_a_merge_rewinds_the_trigger() -> None:
    """Two sessions had their on-time panes; joined past the watermark they have it ahead again."""
    stage = Stage(df.AfterWatermark(), df.Sessions(10))
    stage.add("a", at_s=0).add("b", at_s=16).watermark(20)

    assert ["aO"] == stage.emitted
    stage.add("c", at_s=8).watermark(25)
    assert ["aO"] == stage.emitted
    stage.watermark(26)
    assert ["aO", "bcO"] == [
        "".join(sorted(emitted[:-1])) + emitted[-1] for emitted in stage.emitted
    ]


ON_TIME = df.AfterWatermark()
THEN_THREE = df.AfterWatermark(late=df.AfterCount(3))
FIVE = df.AfterCount(5)


@pytest.mark.parametrize(
    "trigger",
    [
        ON_TIME,
        THEN_THREE,
        df.DefaultTrigger(),
        df.Repeatedly(ON_TIME),
        df.Repeatedly(THEN_THREE),
        df.AfterEach(ON_TIME, FIVE),
        df.AfterEach(df.AfterCount(1), ON_TIME, FIVE),
        df.AfterAny(FIVE, ON_TIME),
        df.AfterAny(FIVE, df.DefaultTrigger()),
        df.AfterAny(FIVE, df.Repeatedly(ON_TIME)),
        df.AfterAny(FIVE, df.AfterEach(ON_TIME, FIVE)),
        df.AfterAny(FIVE, df.OrFinally(THEN_THREE, FIVE)),
        df.AfterAll(df.AfterCount(1), ON_TIME),
        df.AfterAll(df.AfterProcessingTime(0), ON_TIME),
        df.Repeatedly(df.AfterAll(df.AfterCount(1), ON_TIME)),
        df.OrFinally(df.Repeatedly(FIVE), ON_TIME),
        df.OrFinally(ON_TIME, FIVE),
        df.AfterAny(FIVE, df.AfterAll(df.AfterCount(1), df.AfterEach(ON_TIME))),
    ],
    ids=shown,
)
def test_a_session_that_has_fired_and_grows_fires_at_its_new_end(trigger: df.Trigger) -> None:
    """Wherever in the trigger `AfterWatermark` stands, with one source, and with two that have both fired."""
    stage = Stage(trigger, df.Sessions(10))
    stage.add("a", at_s=1).watermark(11).add("b", at_s=5).watermark(14)

    assert stage.emitted in (["aO"], ["aE", "O"])
    stage.watermark(15)
    assert "bO" == stage.emitted[-1]

    stage = Stage(trigger, df.Sessions(10))
    stage.add("a", at_s=0).add("b", at_s=16).watermark(26).add("d", at_s=20).add("c", at_s=8)
    before = list(stage.emitted)
    stage.watermark(29)
    assert before == stage.emitted
    stage.watermark(30)
    assert ["cdO"] == [
        "".join(sorted(emitted[:-1])) + emitted[-1] for emitted in stage.emitted[len(before) :]
    ]


@pytest.mark.parametrize(
    "trigger",
    [
        ON_TIME,
        df.AfterAny(FIVE, ON_TIME),
        df.AfterAny(FIVE, df.DefaultTrigger()),
        df.AfterAny(FIVE, df.OrFinally(THEN_THREE, FIVE)),
        df.AfterAll(df.AfterCount(1), ON_TIME),
        df.OrFinally(df.Repeatedly(FIVE), ON_TIME),
        df.OrFinally(ON_TIME, FIVE),
    ],
    ids=shown,
)
def test_a_session_that_grows_no_further_than_the_watermark_has_fired(trigger: df.Trigger) -> None:
    """Its new end is where the watermark is: what came is late, and the trigger has finished."""
    stage = Stage(trigger, df.Sessions(10))
    stage.add("a", at_s=1).watermark(11)
    fired = list(stage.emitted)
    stage.watermark(15).add("b", at_s=5).add("c", at_s=5).add("d", at_s=5)

    assert fired == stage.emitted
    stage.watermark(15 + LATENESS_S)
    assert ["bcdL"] == stage.emitted[len(fired) :]


def test_each_trigger_is_set_back_to_the_earliest_turn_of_windows_that_merge() -> None:
    """Only one of the two sessions has come to the second part."""
    stage = Stage(df.AfterEach(df.AfterCount(2), df.AfterCount(4)), df.Sessions(10))
    stage.add("a", "b", at_s=0).add("c", at_s=16)

    assert ["abE"] == stage.emitted
    stage.add("d", at_s=8)
    assert ["abE", "cdE"] == [
        "".join(sorted(emitted[:-1])) + emitted[-1] for emitted in stage.emitted
    ]


@attrs.frozen
class Noticing(df.Trigger):
    """Fires when its window has grown; its state is whether it has."""

    def on_elements(self, state: Any, window: Any, elements: Any, clocks: df.Clocks) -> Any:
        return state

    def should_fire(self, state: Any, window: Any, clocks: df.Clocks) -> bool:
        return bool(state)

    def on_fire(self, state: Any, window: Any, clocks: df.Clocks) -> Progress:
        return Progress(None)

    def next_timers(self, state: Any, window: Any, clocks: df.Clocks) -> TriggerTimers:
        return TriggerTimers()

    def on_growth(self, progress: Progress, window: Any, clocks: df.Clocks) -> Progress:
        return Progress(True, progress.is_finished)


@pytest.mark.parametrize(
    "trigger",
    [
        Noticing(),
        df.Repeatedly(Noticing()),
        df.AfterEach(Noticing(), FIVE),
        df.AfterEach(df.AfterAny(df.AfterCount(1)), Noticing()),
        df.AfterAny(Noticing(), FIVE),
        df.AfterAll(df.AfterCount(1), Noticing()),
        df.OrFinally(Noticing(), FIVE),
        df.OrFinally(df.Repeatedly(FIVE), Noticing()),
        df.AfterWatermark(early=Noticing()),
    ],
    ids=shown,
)
def test_every_part_of_a_trigger_is_notified_that_the_window_has_grown(trigger: df.Trigger) -> None:
    stage = Stage(trigger, df.Sessions(10)).add("a", at_s=1)
    before = len("".join(stage.emitted))
    stage.add("b", at_s=5)

    assert len("".join(stage.emitted)) > before


def test_the_late_phase_is_notified_that_the_window_has_grown() -> None:
    """Towards the past: its end is not ahead again."""
    stage = Stage(df.AfterWatermark(late=Noticing()), df.Sessions(10))
    stage.add("a", at_s=11).watermark(22).add("b", at_s=6)

    assert ["aO", "bL"] == stage.emitted


@attrs.frozen
class At(df.Trigger):
    """Fires once two records have come and the watermark is at an instant; always reports when that is."""

    at_s: int

    def initial_state(self) -> int:
        return 0

    def on_elements(self, state: int, window: Any, elements: Any, clocks: df.Clocks) -> int:
        return state + int(elements.size)

    def should_fire(self, state: int, window: Any, clocks: df.Clocks) -> bool:
        return state >= 2 and clocks.watermark_us >= self.at_s * SECOND_US

    def on_fire(self, state: int, window: Any, clocks: df.Clocks) -> Progress:
        return Progress(0)

    def next_timers(self, state: int, window: Any, clocks: df.Clocks) -> TriggerTimers:
        return TriggerTimers(event_us=self.at_s * SECOND_US)


def test_an_instant_that_has_passed_does_not_hide_the_end_of_the_window() -> None:
    trigger = df.AfterWatermark(early=At(40), late=At(120))

    assert ["abE", "cO", "deL"] == emitted_by_trigger(
        trigger,
        ("add", "ab"), ("watermark", 50), ("add", "c"), ("watermark", END_S), ("add", "de"), ("watermark", 120),
    )  # fmt: skip
    stage = Stage(trigger).add("a", "b").watermark(39)
    assert [] == stage.emitted
    stage.watermark(50).add("c").watermark(END_S)
    assert ["abE", "cO"] == stage.emitted
    stage.add("d", "e").watermark(120)
    assert ["abE", "cO", "deL"] == stage.emitted


@pytest.mark.parametrize("trigger", [df.AfterAny(At(40), ON_TIME), df.OrFinally(At(40), ON_TIME)])
def test_an_instant_of_one_part_that_has_passed_does_not_hide_that_of_another(
    trigger: df.Trigger,
) -> None:
    assert ["aO"] == Stage(trigger).add("a").watermark(50).watermark(END_S).emitted


def test_a_part_that_is_due_together_with_the_last_firing_begins_anew() -> None:
    """When the window has grown, what was counted before has been emitted."""
    trigger = df.OrFinally(df.Repeatedly(df.AfterCount(2)), ON_TIME)
    stage = Stage(trigger, df.Sessions(10)).watermark(15).add("a", "b", at_s=1)
    assert ["abL"] == stage.emitted
    stage.add("c", at_s=8)
    assert ["abL"] == stage.emitted
    stage.watermark(18)
    assert ["abL", "cO"] == stage.emitted


def test_a_part_that_others_were_quicker_than_begins_anew() -> None:
    """When the window has grown, it counts what has come since."""
    stage = Stage(df.AfterAny(df.AfterCount(3), ON_TIME), df.Sessions(10))
    stage.add("a", "b", at_s=1).watermark(11).add("c", at_s=5)

    assert ["abO"] == stage.emitted
    assert ["abO", "cO"] == stage.watermark(15).emitted


def test_a_part_has_fired_only_if_it_has_in_all_windows_that_merge() -> None:
    """Of two sessions one had enough records, but not the other one."""
    stage = Stage(df.AfterAll(df.AfterCount(3), ON_TIME), df.Sessions(10))
    stage.add("a", "b", "c", at_s=0).add("d", at_s=16).watermark(26).add("e", at_s=20)
    assert ["abcO"] == stage.emitted
    stage.add("f", at_s=8).watermark(30)
    assert ["abcO", "defO"] == [
        "".join(sorted(emitted[:-1])) + emitted[-1] for emitted in stage.emitted
    ]

    stage = Stage(df.AfterAll(df.AfterCount(3), ON_TIME), df.Sessions(10))
    stage.add("a", "b", "c", at_s=0).add("d", at_s=16).watermark(25).add("f", at_s=8)
    assert ["abcO"] == stage.watermark(30).emitted


def test_the_end_is_news_unless_it_was_in_all_windows_that_merge() -> None:
    """One of them has fired at its end; the watermark has come to that of the other, which nobody has asked yet."""
    trigger = df.AfterWatermark(late=df.AfterCount(9))
    clocks = df.Clocks(watermark_us=50, now_us=0)
    fired = trigger.on_fire(trigger.initial_state(), df.Window(0, 10), clocks)
    others = [fired, Progress(trigger.initial_state())]
    for sources, is_news in ((others, True), (others[::-1], True), ([fired, fired], False)):
        merged = trigger.on_merge(sources, df.Window(0, 30), clocks)

        assert trigger.should_fire(merged.state, df.Window(0, 30), clocks) is is_news


def test_a_first_record_at_the_end_of_its_window_is_late() -> None:
    assert ["aL"] == emitted_by_trigger(df.AfterCount(1), ("watermark", END_S), ("add", "a"))


def test_a_pattern_may_be_matched_before_the_last_value_of_a_bundle() -> None:
    assert ["abcdE"] == emitted_by_trigger(A_THEN_B, ("add", "abcd"))


def test_bytes_are_enough_when_they_are_as_many() -> None:
    size_bytes = len(pickle.dumps("a", protocol=5))

    assert ["aE"] == Stage(df.AfterBytes(size_bytes)).add("a").emitted
    assert [] == Stage(df.AfterBytes(size_bytes + 1)).add("a").emitted


def test_a_signal_that_has_come_is_not_forgotten_when_another_does() -> None:
    stage = Stage(df.AfterAll(df.AfterSignal("peek"), df.AfterSignal("flush"))).add("a")

    assert ["aE"] == stage.signal("peek").signal("flush").emitted


def test_a_signal_reaches_the_phase_it_comes_in() -> None:
    trigger = df.AfterWatermark(early=df.AfterSignal("peek"), late=df.AfterSignal("flush"))
    stage = Stage(trigger).add("a").signal("flush")
    assert [] == stage.emitted
    stage.signal("peek").add("b").watermark(END_S).add("c").signal("peek")
    assert ["aE", "bO"] == stage.emitted
    stage.signal("flush")
    assert ["aE", "bO", "cL"] == stage.emitted


@pytest.mark.parametrize("trigger", [df.AfterAny(df.AfterCount(1), ON_TIME), df.AfterCount(1)])
def test_what_was_fired_by_count_is_not_undone_when_a_session_grows(
    trigger: df.Trigger,
) -> None:
    """A count that was enough has been enough."""
    stage = Stage(trigger, df.Sessions(10))
    stage.add("a", at_s=1).watermark(9).add("b", at_s=5).watermark(15)

    assert ["aE"] == stage.emitted


def test_states_that_nobody_knows_how_to_merge_are_refused() -> None:
    """Even if they are equal: two counts of one are not a count of one."""

    class Counted(df.DataDrivenTrigger):
        def initial_state(self) -> int:
            return 0

        def seen(self, state: Any, values: Any) -> Any:
            return state + len(values)

        def is_ready(self, state: Any) -> bool:
            return bool(state >= 3)

    stage = Stage(Counted(), df.Sessions(10)).add("a", at_s=0).add("c", at_s=15)
    with pytest.raises(df.WindowError, match="does not define how the states of windows") as caught:
        stage.add("b", at_s=8)
    assert "merge_states" in str(caught.value.hint)


def test_a_finished_session_does_not_silence_the_one_it_joins() -> None:
    """The trigger has finished in one source only, so it is unfinished in the merged window."""
    stage = Stage(df.AfterCount(2), df.Sessions(10))
    stage.add("a", "b", at_s=0).add("c", at_s=15)

    assert ["abE"] == stage.emitted
    stage.add("d", at_s=8)
    assert ["abE", "cdE"] == [
        "".join(sorted(emitted[:-1])) + emitted[-1] for emitted in stage.emitted
    ]


@pytest.mark.parametrize(
    "build",
    [
        lambda: df.AfterCount(0),
        lambda: df.AfterProcessingTime(-1),
        lambda: df.AtPeriod(0),
        lambda: df.AfterBytes(0),
        df.AfterPattern,
        df.AfterAny,
        lambda: df.AfterEach(df.AfterCount(1), 3),  # type: ignore[arg-type]
    ],
)
def test_a_trigger_that_cannot_be_right_is_refused(build: Any) -> None:
    with pytest.raises(df.WindowError):
        build()


def test_a_trigger_of_ones_own() -> None:
    """Five verbs and a state that merges: fire when an even number of records has come."""

    class WhenEven(df.Trigger):
        def initial_state(self) -> int:
            return 0

        def on_elements(
            self,
            state: int,
            window: df.Window,
            elements: df.Elements,
            clocks: df.Clocks,
        ) -> int:
            return state + elements.size

        def should_fire(self, state: int, window: df.Window, clocks: df.Clocks) -> bool:
            return state > 0 and state % 2 == 0

        def on_fire(self, state: int, window: df.Window, clocks: df.Clocks) -> df.Progress:
            return df.Progress(0)

        def next_timers(self, state: int, window: df.Window, clocks: df.Clocks) -> df.TriggerTimers:
            return df.TriggerTimers()

        def merge_states(self, states: Any, window: df.Window) -> int:
            return sum(states)

    emitted = emitted_by_trigger(
        WhenEven(), ("add", "a"), ("add", "bc"), ("add", "d"), ("add", "ef")
    )

    assert ["abcdE", "efE"] == emitted
