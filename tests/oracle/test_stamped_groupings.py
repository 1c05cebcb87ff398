"""Panes at the event times of records, through several groupings: nothing is late that need not be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.hard_streams import HARD_STREAMS, arrivals_of
from tests.oracle.stamped import Combiner, Groupings, check_stamped
from tests.strategies import own_gaps, sessions, sliding, streams, triggers, windowings

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

FIRST = st.one_of(sessions(), own_gaps(), sliding(), windowings()).filter(
    lambda windowing: windowing.kind != "global"
)
#: Windows by name; the second grouping allows the lateness of the first, at least.
ZERO = st.just(0)
SECOND = st.one_of(
    windowings(ZERO).filter(lambda windowing: windowing.kind != "own gaps"),
    st.sampled_from([1, 7, 10]).map(lambda size_us: Windowing("fixed", size_us)),
    sessions(ZERO),
)
COMBINERS = st.sampled_from(Combiner)
GROUPINGS = st.builds(
    Groupings,
    COMBINERS,
    triggers(),
    SECOND,
    COMBINERS,
    triggers(),
    st.sampled_from([0, 0, 7]),
    st.booleans(),
)


@given(windowing=FIRST, arrivals=streams(), how=GROUPINGS)
def test_what_is_retracted_is_never_late_for_the_next_grouping(
    windowing: Windowing, arrivals: list[Arrivals], how: Groupings
) -> None:
    """Whatever windows, triggers, event times of panes, and watermarks."""
    check_stamped(windowing, arrivals, how)


@given(how=GROUPINGS)
@pytest.mark.parametrize("name", HARD_STREAMS)
def test_hard_streams_at_the_event_times_of_records(name: str, how: Groupings) -> None:
    """The streams written by hand."""
    check_stamped(*HARD_STREAMS[name], how)


@st.composite
def sessions_that_come_apart(draw: st.DrawFn) -> tuple[Windowing, list[Arrivals], Windowing]:
    """Three results in one session of results, until a late record takes the one in the middle away.

    The watermark has passed the window of the first by the lateness, and not yet that of the middle one.
    """
    gap_us, lateness_us = draw(st.integers(3, 12)), draw(st.integers(1, 40))
    middle_us = draw(st.integers(1, gap_us - 1))
    last_us = draw(st.integers(gap_us, middle_us + gap_us - 1))
    watermark_us = lateness_us + draw(st.integers(1, middle_us))
    records = [("a", 0), ("b", middle_us), ("c", last_us)]
    arrivals = arrivals_of(
        (draw(st.permutations(records)), draw(st.integers(0, watermark_us))),
        ([], watermark_us),
        ([("b", middle_us)], watermark_us),
        ([], 300),
    )
    return Windowing("fixed", 1, 0, lateness_us), arrivals, Windowing("sessions", gap_us)


@given(
    stream=sessions_that_come_apart(), combiner=COMBINERS, second=COMBINERS, is_sum=st.booleans()
)
def test_what_is_left_of_a_session_is_not_late(
    stream: tuple[Windowing, list[Arrivals], Windowing],
    combiner: Combiner,
    second: Combiner,
    is_sum: bool,
) -> None:
    """What was emitted at the event time of a later record is emitted again at that of an earlier one."""
    check_what_is_left(stream, combiner, second, is_sum=is_sum)


def check_what_is_left(
    stream: tuple[Windowing, list[Arrivals], Windowing],
    combiner: Combiner,
    second: Combiner,
    *,
    is_sum: bool,
) -> None:
    """Both groupings emit whatever comes at once."""
    windowing, arrivals, sessions = stream
    how = Groupings(combiner, df.Always(), sessions, second, df.Always(), is_sum=is_sum)
    check_stamped(windowing, arrivals, how)


EARLY = df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1))
#: By what is hard about them: how the first grouping windows, and what comes.
HARD: dict[str, tuple[Windowing, list[Arrivals]]] = {
    "a visit that was emitted goes on": (
        Windowing("sessions", 10),
        arrivals_of(([("a", 4)], 10), ([("a", 10)], 30)),
    ),
    "a late record is in a pane that is on time": (
        Windowing("fixed", 100, 0, 10),
        arrivals_of(([("a", 50), ("b", 90)], 60), ([("a", 5)], 99), ([], 300)),
    ),
    "all records of a window are late": (
        Windowing("fixed", 100, 0, 10),
        arrivals_of(([], 60), ([("a", 5)], 99), ([], 105), ([("a", 7)], 108), ([], 300)),
    ),
    "a group of results is retracted to nothing, and filled again much later": (
        Windowing("fixed", 100, 0, 10),
        arrivals_of(([("a", 5)], 6), ([("a", 50)], 51), ([("a", 80)], 81), ([], 300)),
    ),
    # The window [0, 10) is forgotten behind the grouping at 15, and the one that it went into does not end before 19.
    "what an absorbed window has emitted is forgotten at that very instant": (
        Windowing("sessions", 10, 0, 5),
        arrivals_of(
            ([("a", 0)], 10), ([("a", 9)], 14), ([], 15), ([], 16), ([("a", 18)], 18), ([], 300)
        ),
    ),
    "two visits become one long after they were emitted": (
        Windowing("sessions", 10, 0, 40),
        arrivals_of(([("a", 0), ("a", 15)], 30), ([], 49), ([("a", 8)], 49), ([], 64), ([], 300)),
    ),
}


def check_hard(name: str, combiner: Combiner, size_us: int, percentile: float = 100) -> None:
    """One of the streams, whatever else the groupings do."""
    second = Windowing("fixed", size_us)
    windowing, arrivals = HARD[name]
    windowing = windowing._replace(percentile=percentile)
    for trigger in (EARLY, df.Always(), df.DefaultTrigger(), df.AfterWatermark()):
        for is_sum in (False, True):
            for other in Combiner:
                how = Groupings(combiner, trigger, second, other, trigger, is_sum=is_sum)
                check_stamped(windowing, arrivals, how)


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("combiner", Combiner)
@pytest.mark.parametrize(
    "size_us", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (10, 100))]
)
def test_hard_panes_at_the_event_times_of_records(
    name: str, combiner: Combiner, size_us: int
) -> None:
    """Streams written for it; the first is from a report."""
    check_hard(name, combiner, size_us)


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("combiner", Combiner)
def test_hard_panes_of_triggers_that_follow_a_percentile(name: str, combiner: Combiner) -> None:
    """What has merged is retracted in time by the watermark, whatever the triggers look at."""
    check_hard(name, combiner, 1, percentile=99)
