"""Retractions through two groupings: right at every moment, whatever windows and triggers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.oracle import chained
from tests.oracle.chained import FROZEN, Chain, largest_of, sum_of
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.hard_streams import HARD_CHAINS, HARD_STREAMS, arrivals_of
from tests.strategies import (
    on_time_triggers,
    own_gaps,
    sessions,
    sliding,
    streams,
    triggers,
    windowings,
)

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

#: A hundred and more: what the first grouping emits ends in the same year as what it was made of.
ZERO = st.just(0)
FIRST = st.one_of(sessions(), own_gaps(), sliding(), windowings()).filter(
    lambda windowing: windowing.kind != "global"
)
SECOND = st.one_of(
    st.just(FROZEN),
    sessions(ZERO),
    sessions(ZERO),
    windowings(ZERO).filter(lambda windowing: windowing.kind != "own gaps"),
)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Grouping, or combining with and without `retract_input`, in any windows."""
    combine, answer = draw(
        st.sampled_from(
            [
                (None, sorted),
                (None, sorted),
                (df.SumCombineFn(), sum_of),
                (sum, sum_of),
                (max, largest_of),
            ]
        )
    )
    return Chain(draw(SECOND), draw(triggers()), combine, answer)


@given(windowing=FIRST, arrivals=streams(), trigger=triggers(), chain=chains())
def test_two_groupings_fold_to_the_oracle(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger, chain: Chain
) -> None:
    """Whatever either trigger does."""
    chained.check_chain(windowing, arrivals, trigger, chain)


@given(windowing=FIRST, arrivals=streams(), trigger=triggers(), chain=chains())
def test_the_second_grouping_is_right_at_every_moment(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger, chain: Chain
) -> None:
    """What it emits is always made of exactly what the first one has emitted."""
    chained.check_every_moment(windowing, arrivals, trigger, chain)


@given(
    windowing=FIRST,
    arrivals=streams(),
    trigger=triggers(),
    second=st.one_of(sessions(ZERO), windowings(ZERO)).filter(lambda each: each.kind != "own gaps"),
    on_time=on_time_triggers(),
)
def test_a_window_of_answers_fires_when_the_watermark_passes_it(
    windowing: Windowing,
    arrivals: list[Arrivals],
    trigger: df.Trigger,
    second: Windowing,
    on_time: df.Trigger,
) -> None:
    """Also a session of what may be retracted, that has grown or come apart."""
    chained.check_chain_on_time(windowing, arrivals, trigger, Chain(second, on_time))


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD_STREAMS)
@pytest.mark.parametrize("gap_us", [1, 4, 9])
def test_hard_streams_through_sessions_of_sessions(name: str, gap_us: int) -> None:
    """The streams written by hand, whose sessions are put into sessions again, which then have to split."""
    windowing, arrivals = HARD_STREAMS[name]
    chain = Chain(Windowing("sessions", gap_us), df.DefaultTrigger())
    for trigger in (df.DefaultTrigger(), df.Always()):
        chained.check_chain(windowing, arrivals, trigger, chain)
        chained.check_every_moment(windowing, arrivals, trigger, chain)


#: Streams whose results leave a window of the second grouping, and how the first one windows.
#: The second makes sessions with a gap of 6 of the results, at the ends of the windows of the first.
EMPTIED: dict[str, tuple[Windowing, list[Arrivals]]] = {
    "the results after it only touch it": (
        Windowing("fixed", 6, 0, 100),
        arrivals_of(([("a", 0), ("b", 6)], 1), ([("a", 1)], 2), ([], 11), ([], 300)),
    ),
    "two others take its place": (
        Windowing("fixed", 1, 0, 100),
        arrivals_of(
            ([("a", 5), ("b", 10)], 1),
            ([("a", 5), ("b", 10), ("c", 3), ("d", 12)], 2),
            ([], 9),
            ([], 300),
        ),
    ),
}


@pytest.mark.parametrize("name", EMPTIED)
def test_a_window_that_has_become_empty_is_retracted_in_its_turn(name: str) -> None:
    """With the first window that has taken its place, or at its own end; not when some later window fires."""
    windowing, arrivals = EMPTIED[name]
    once_before = df.AfterEach(df.AfterCount(1), df.AfterWatermark())
    chain = Chain(Windowing("sessions", 6), once_before)

    chained.check_chain_on_time(windowing, arrivals, df.Always(), chain)


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD_CHAINS)
def test_hard_chains(name: str) -> None:
    """Chains written by hand."""
    chained.check_hard_chain(*HARD_CHAINS[name])
