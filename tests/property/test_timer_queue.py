"""TimerQueue against a dictionary: time order, at most once, set, reset and clear as written; and no larger."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runners.core.ground.cells import TimerId
from runners.core.ground.timers import OUTDATED_MAX, TimerQueue, Timers
from triggers.clocks import Clocks
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window

TIMERS = st.builds(
    lambda key, end_us: ((key, None), Window(0, end_us)),
    # Keys that cannot be compared with each other must not matter.
    st.sampled_from(["a", 1, None, ("b", 2)]),
    st.integers(1, 3),
)
TIMES_US = st.integers(0, 20)


class TimerQueueMachine(RuleBasedStateMachine):
    """The model: timer to (time, number of the call that set it)."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: TimerQueue[Any] = TimerQueue()
        self.model: dict[TimerId, tuple[int, int]] = {}
        self.calls = 0

    @rule(timer=TIMERS, fire_us=TIMES_US)
    def set(self, timer: TimerId, fire_us: int) -> None:
        self.calls += 1
        self.model[timer] = (fire_us, self.calls)
        self.queue.set(timer, fire_us)

    @rule(timer=TIMERS)
    def clear(self, timer: TimerId) -> None:
        self.model.pop(timer, None)
        self.queue.set(timer, None)

    @rule(watermark_us=TIMES_US, timers_max=st.none() | st.integers(0, 3))
    def pop(self, watermark_us: int, timers_max: int | None) -> None:
        due = sorted(
            (timer for timer, (fire_us, _) in self.model.items() if fire_us <= watermark_us),
            key=lambda timer: self.model[timer],
        )[:timers_max]
        for timer in due:
            del self.model[timer]

        assert due == self.queue.pop_due(watermark_us, timers_max)

    @rule(watermark_us=TIMES_US, most=st.integers(1, 30))
    def count(self, watermark_us: int, most: int) -> None:
        due = sum(fire_us <= watermark_us for fire_us, _ in self.model.values())
        found = self.queue.count_due(watermark_us, most)
        assert min(due, most) == min(found, most)

    @rule(is_gone=st.sampled_from([lambda timer: timer[1].end_us == 1, lambda _: True]))
    def forget(self, is_gone: Callable[[TimerId], bool]) -> None:
        self.model = {timer: at for timer, at in self.model.items() if not is_gone(timer)}
        self.queue.forget(is_gone)

    @invariant()
    def agrees(self) -> None:
        assert len(self.model) == len(self.queue)
        assert min((t for t, _ in self.model.values()), default=None) == self.queue.next_us()


TestTimerQueue: Any = TimerQueueMachine.TestCase


@given(
    set_us=st.dictionaries(
        st.tuples(st.integers(0, 5), st.sampled_from(TimeDomain)), TIMES_US, max_size=12
    ),
    clocks=st.builds(Clocks, watermark_us=TIMES_US, percentile_us=TIMES_US, now_us=TIMES_US),
    timers_max=st.none() | st.integers(1, 4),
)
def test_a_step_fires_so_many_timers_whatever_their_domains(
    set_us: Mapping[tuple[int, TimeDomain], int], clocks: Clocks, timers_max: int | None
) -> None:
    """In several steps all that are due fire, in each domain in the order of time; and none that is not."""
    timers, windows = Timers(), Window(0, 1)
    until_us = {
        TimeDomain.EVENT: clocks.watermark_us,
        TimeDomain.PERCENTILE: clocks.percentile_us,
        TimeDomain.PROCESSING: clocks.now_us,
    }
    for (key, domain), fire_us in set_us.items():
        timers.set(((key, None), windows, domain), fire_us)
    fired: list[tuple[int, TimeDomain]] = []
    while due := timers.pop_due(clocks, timers_max):
        assert timers_max is None or len(due) <= timers_max
        fired += [(cell_id[0], domain) for cell_id, _, domain in due]

    assert set(fired) == {at for at, fire_us in set_us.items() if fire_us <= until_us[at[1]]}
    assert len(timers) == len(set_us) - len(fired)
    for domain in TimeDomain:
        times_us = [set_us[at] for at in fired if at[1] is domain]
        assert times_us == sorted(times_us)


@given(
    kept=st.integers(0, 20),
    fire_us=st.sampled_from([5, MAX_TIMESTAMP_US]),
    fired_us=st.integers(0, 10),
)
@pytest.mark.parametrize("what", ["cleared", "moved", "forgotten"])
def test_what_is_set_for_nothing_takes_no_room(
    what: str, kept: int, fire_us: int, fired_us: int
) -> None:
    """Timers that are not to fire for long, and never do: what is left of them would grow with the stream."""
    queue: TimerQueue[int] = TimerQueue()
    for timer in range(kept):
        queue.set(-1 - timer, fire_us)
    for timer in range(1_000):
        queue.set(timer if what != "moved" else 0, fire_us)
        if what == "cleared":
            queue.set(timer, None)
        elif what == "forgotten":
            queue.forget(lambda each: each >= 0)

        assert len(queue._heap) <= 2 * len(queue) + OUTDATED_MAX

    left = kept + (what == "moved")
    assert len(queue.pop_due(fired_us)) == (left if fire_us <= fired_us else 0)
