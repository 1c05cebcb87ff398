"""Retractions through two groupings: right at every moment, whatever windows and triggers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.oracle import chained
from tests.oracle.chained import FROZEN, Chain
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.hard_streams import HARD_CHAINS, HARD_STREAMS
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


def sum_of(summaries: object) -> int:
    return sum(map(chained.number, summaries))  # type: ignore[call-overload]


def largest_of(summaries: object) -> int:
    return max(map(chained.number, summaries))  # type: ignore[call-overload, no-any-return]


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


@pytest.mark.parametrize("name", HARD_STREAMS)
@pytest.mark.parametrize("gap_us", [1, 4, 9])
def test_hard_streams_through_sessions_of_sessions(name: str, gap_us: int) -> None:
    """The streams written by hand, whose sessions are put into sessions again, which then have to split."""
    windowing, arrivals = HARD_STREAMS[name]
    chain = Chain(Windowing("sessions", gap_us), df.DefaultTrigger())
    for trigger in (df.DefaultTrigger(), df.Always()):
        chained.check_chain(windowing, arrivals, trigger, chain)
        chained.check_every_moment(windowing, arrivals, trigger, chain)


@pytest.mark.parametrize("name", HARD_CHAINS)
def test_hard_chains(name: str) -> None:
    """Chains written by hand."""
    chained.check_hard_chain(*HARD_CHAINS[name])
