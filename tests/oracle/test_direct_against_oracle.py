"""The direct runner, and so the semantic core that all runners share, against the oracle.

The fold of the panes is the oracle's answer, in every accumulation mode, for any stream, any
bundles and any watermark path; and every record is in a window or a late record, exactly once.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from tests.oracle import laws
from tests.oracle.evaluator import Arrivals, Record, Windowing, evaluate, regroup
from tests.oracle.hard_streams import HARD_STREAMS
from tests.pane_log import run_logged
from tests.strategies import (
    NOTHING_EMITTED_US,
    days_with_clock_changes,
    sessions,
    streams,
    windowings,
)

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("mode", df.AccumulationMode)
@given(windowing=windowings(), arrivals=streams())
def test_fold_of_panes_is_the_oracle(
    mode: df.AccumulationMode, windowing: Windowing, arrivals: list[Arrivals]
) -> None:
    """With and without lateness, on time and late: the panes add up to the oracle's groups."""
    laws.CHECKS[mode](windowing, arrivals)


@given(windowing=sessions(lateness_us=st.sampled_from([20, 60])), arrivals=streams())
def test_lateness_and_retractions(windowing: Windowing, arrivals: list[Arrivals]) -> None:
    """Corrections of windows that have fired are exact, at every prefix of what is emitted."""
    laws.check_retracting(windowing, arrivals)


@given(
    windowing=windowings(),
    arrivals=streams(),
    mode=st.sampled_from(df.AccumulationMode),
)
def test_panes_have_the_number_of_their_firing(
    windowing: Windowing, arrivals: list[Arrivals], mode: df.AccumulationMode
) -> None:
    """Index, timing, first and last of every pane agree with the watermark path."""
    laws.check_panes(windowing, arrivals, mode)


@given(windowing=windowings(), arrivals=streams())
def test_keyed_table_is_the_oracle(windowing: Windowing, arrivals: list[Arrivals]) -> None:
    """Upserts and deletes leave exactly the final results in a table."""
    laws.check_keyed_table(windowing, arrivals)


@given(windowing=windowings(), arrivals=streams(watermarks=False), data=st.data())
def test_order_and_bundles_do_not_matter(
    windowing: Windowing, arrivals: list[Arrivals], data: st.DataObject
) -> None:
    """Where nothing is late, any order in any bundles gives the answer of one bundle."""
    records = [record for arrival in arrivals for record in arrival.records]
    shuffled = data.draw(st.permutations(records))
    answer = evaluate(windowing, [Arrivals(tuple(shuffled), NOTHING_EMITTED_US)])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=4)))
    bounds = zip([0, *cuts], [*cuts, len(records)], strict=True)
    rebundled = [Arrivals(tuple(shuffled[low:high]), NOTHING_EMITTED_US) for low, high in bounds]

    assert not answer.dropped
    assert laws.answers(regroup(windowing, records)) == laws.answers(answer.groups)
    for check in laws.CHECKS.values():
        check(windowing, rebundled)


@pytest.mark.parametrize("mode", df.AccumulationMode)
@given(case=days_with_clock_changes())
def test_days_with_clock_changes(
    mode: df.AccumulationMode, case: tuple[Windowing, list[Arrivals]]
) -> None:
    """Days of 23, 23.5, 24, 24.5 and 25 hours are grouped, and emitted, as days."""
    laws.CHECKS[mode](*case)
    laws.check_panes(*case, mode)


@given(gap_us=st.integers(1, 12), arrivals=streams())
def test_windows_are_frozen_by_a_grouping(gap_us: int, arrivals: list[Arrivals]) -> None:
    """Sessions of different keys stay apart in the next grouping, unless they are equal."""
    windowing = Windowing("sessions", gap_us)
    pipeline = df.Pipeline(DirectRunner())
    (
        laws.windowed(pipeline, windowing, arrivals, df.AccumulationMode.DISCARDING)
        | df.GroupByKey()
        | df.Map(lambda pair: ("all", len(pair[1])))
        | "again" >> df.CombinePerKey(sum)
    )
    again = [pane for pane in run_logged(pipeline).panes if pane.transform == "again"]
    expected: dict[tuple[int, int], int] = {}
    for group in evaluate(windowing, arrivals).groups:
        where = (group.start_us, group.end_us)
        expected[where] = expected.get(where, 0) + len(group.records)

    assert expected == {tuple(pane.window): pane.value for pane in again}
    assert len(expected) == len(again)


@pytest.mark.parametrize("case", HARD_STREAMS)
@pytest.mark.parametrize("mode", df.AccumulationMode)
def test_known_hard_streams(case: str, mode: df.AccumulationMode) -> None:
    """Streams that broke this or another implementation once."""
    windowing, arrivals = HARD_STREAMS[case]
    laws.CHECKS[mode](windowing, arrivals)
    laws.check_panes(windowing, arrivals, mode)
    laws.check_keyed_table(windowing, arrivals)


def test_the_oracle_itself() -> None:
    """The oracle's own answers, computed by hand, for one bridge and one dropped record."""
    windowing, arrivals = HARD_STREAMS["a bridge retracts two sessions that were emitted"]
    answer = evaluate(windowing, arrivals)
    late: Any = evaluate(*HARD_STREAMS["a late record alone is dropped"])

    assert {("a", 0, 25): [1, 2, 3]} == laws.answers(answer.groups)
    assert [Record("a", 2, 1)] == late.dropped
    assert {("a", 30, 40): [1]} == laws.answers(late.groups)
