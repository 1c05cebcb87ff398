"""Joins emit the oracle's pairs, in all windows, whatever triggers do and whatever is retracted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.hard_streams import HARD_STREAMS
from tests.oracle.joined import check_join, check_join_of_results
from tests.strategies import sessions, streams, triggers, windowings

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

JOIN_TYPES = st.sampled_from(df.JoinType)
FIRST = windowings().filter(lambda windowing: windowing.kind != "global")
ZERO = st.just(0)
SECOND = st.one_of(sessions(ZERO), windowings(ZERO).filter(lambda each: each.kind != "own gaps"))


@given(
    windowing=windowings(),
    arrivals=streams(),
    trigger=triggers(),
    join_type=JOIN_TYPES,
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_a_join_adds_up_to_the_oracles_pairs(
    windowing: Windowing,
    arrivals: list[Arrivals],
    trigger: df.Trigger,
    join_type: df.JoinType,
    combiner: df.TimestampCombiner,
) -> None:
    """Nothing is retracted that was not emitted, at no moment is there another pair than of a CoGroupByKey."""
    check_join(windowing, arrivals, trigger, join_type, combiner)


@given(
    windowing=FIRST,
    arrivals=streams(),
    both=st.tuples(triggers(), triggers()),
    second=SECOND,
    join_type=JOIN_TYPES,
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_a_join_of_what_is_retracted_adds_up_to_the_oracles_pairs(
    windowing: Windowing,
    arrivals: list[Arrivals],
    both: tuple[df.Trigger, df.Trigger],
    second: Windowing,
    join_type: df.JoinType,
    combiner: df.TimestampCombiner,
) -> None:
    """Values come and go on both sides."""
    check_join_of_results(windowing, arrivals, both, second, join_type, combiner)


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD_STREAMS)
@pytest.mark.parametrize("join_type", df.JoinType, ids=lambda each: each.name)
def test_hard_streams(name: str, join_type: df.JoinType) -> None:
    """The streams written by hand, at once and at the end of each window."""
    windowing, arrivals = HARD_STREAMS[name]
    for trigger in (df.Always(), None):
        check_join(windowing, arrivals, trigger, join_type)
