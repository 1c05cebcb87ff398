"""The examples, for any input in any order: they come to what a plain loop comes to, and retract what they emitted."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream, assert_that, contains_in_any_order, in_final_fold
from dataflow.testing.laws import check_retracting_prefixes
from dataflow.testing.strategies import arrivals
from examples.ab_test import pipeline as ab_test
from examples.backfill_then_live import pipeline as backfill_then_live
from examples.billing import pipeline as billing
from examples.card_fraud import pipeline as card_fraud
from examples.click_sessions import pipeline as click_sessions
from tests import example_models as models

Build = Callable[[df.PCollection[Any]], df.PCollection[Any]]
DAY = timedelta(days=1)
PEOPLE = st.sampled_from(["ann", "bob"])
#: The strategies put the watermark around here.
BEGIN = df.instant("1970-01-01T00:00:00Z")
#: How many instants there are; few enough for what happens to be crowded.
INSTANTS = 16


@st.composite
def crowded(
    draw: st.DrawFn,
    values: st.SearchStrategy[Any],
    step: timedelta,
    *,
    first: timedelta = timedelta(0),
    is_once: bool = False,
    late: bool = True,
) -> TestStream:
    """So much that most examples have windows that merge and are corrected.

    The watermark goes 60 steps at most, and what is late because of that is in time for a correction.  With ``is_once``
    a key has one element of an instant.
    """
    times = st.integers(0, INSTANTS).map(lambda steps: BEGIN + first + steps * step)
    stamped = st.builds(df.TimestampedValue, values, times)
    place = (lambda each: (each.value[0], each.timestamp)) if is_once else None
    items = draw(st.lists(stamped, min_size=5, max_size=20, unique_by=place))
    return draw(arrivals(items, late=late, step=step))


def happened(stream: TestStream) -> list[tuple[Any, Any]]:
    return [(each.timestamp, each.value) for each in stream.elements()]


def check(build: Build, stream: TestStream, expected: Sequence[Any], key_of: Any) -> None:
    """Right in the end, and retracting what was emitted at every moment before."""
    with df.Pipeline() as p:
        found = build(p | stream)
        final = in_final_fold(contains_in_any_order(expected), key_of=key_of)
        assert_that(found, final)
    check_retracting_prefixes(build, stream, key_of=key_of)


CLICKS = st.tuples(PEOPLE, st.sampled_from(["home", "lamps"]))


@pytest.mark.slow
@given(crowded(CLICKS, timedelta(minutes=10)))
def test_visits_and_their_dashboard(stream: TestStream) -> None:
    visits = models.visits(happened(stream))

    check(click_sessions.visits, stream, visits, lambda visit: visit.user)
    check(
        lambda clicks: click_sessions.dashboard(click_sessions.visits(clicks)),
        stream,
        models.dashboard(visits),
        lambda row: row["hour"],
    )


ITEMS = st.builds(
    billing.Item, st.sampled_from(["u1", "u2"]), st.decimals(-9, 99, places=2, allow_nan=False)
)


@given(crowded(st.tuples(PEOPLE, ITEMS), DAY, first=20 * DAY + timedelta(hours=23.5)))
def test_bills_and_their_journal(stream: TestStream) -> None:
    usage = [(at, (account, item.amount)) for at, (account, item) in happened(stream)]
    wanted = models.bills(usage)

    expected = [billing.Bill(account, month, amount) for (account, month), amount in wanted.items()]
    check(billing.bills, stream, expected, lambda bill: bill.account)

    entries: list[billing.Entry] = []
    with df.Pipeline() as p:
        billing.journal(billing.bills(p | stream)) | df.Map(entries.append)
    owed: dict[tuple[str, str], Decimal] = {}
    for entry in entries:
        key = entry.account, entry.month
        # One bill at a time: the next one after a credit note about the last.
        assert (owed.get(key, 0) == 0 or entry.kind == "credit note") or entry.amount == 0
        owed[key] = owed.get(key, Decimal(0)) + entry.amount
    assert owed == wanted


EVENTS = st.one_of(
    st.builds(ab_test.Event, PEOPLE, st.sampled_from(["bought", "signed up", "left"])),
    st.builds(ab_test.Event, PEOPLE, st.just("shown"), st.just("button"), st.sampled_from(["grey", "green"])),
    st.builds(ab_test.Event, PEOPLE, st.just("shown"), st.just("headline"), st.sampled_from(["plain", "bold"])),
)  # fmt: skip


def results(events: df.PCollection[ab_test.Event]) -> df.PCollection[Any]:
    config = events.pipeline | "config" >> df.Create(list(ab_test.EXPERIMENTS.items()))
    return (
        ab_test.results(events, config)
        # Two formulas differ in the last digits.
        | "rounded" >> df.Map(lambda found: (*found[:-1], rounded(found.p_value)))
    )


def rounded(p_value: float | None) -> float | None:
    return None if p_value is None else round(p_value, 9)


@pytest.mark.slow
@given(crowded(EVENTS, timedelta(hours=4), first=timedelta(hours=60)))
def test_results_of_experiments(stream: TestStream) -> None:
    expected = [(*found[:-1], rounded(found[-1])) for found in models.results(happened(stream))]

    check(results, stream, expected, lambda found: found[0])


PAYMENTS = st.tuples(PEOPLE, st.sampled_from([100, 250, 300, 5_000]))


@given(
    crowded(PAYMENTS, timedelta(minutes=1), is_once=True, late=False)
    | crowded(PAYMENTS, timedelta(minutes=15), is_once=True, late=False)
)
def test_cases_of_cards(stream: TestStream) -> None:
    """Of several payments of a card at one instant no loop knows which is seen first, so there is one."""
    found: dict[Any, card_fraud.Case] = {}
    changes: list[card_fraud.Case] = []
    with df.Pipeline() as p:
        card_fraud.cases(p | stream) | df.Map(changes.append)
    for case in changes:
        before = found.get((case.card, case.opened))
        assert before is None or (before.closed is None and before.payments <= case.payments)
        found[case.card, case.opened] = case

    assert sorted(found.values()) == sorted(models.cases(happened(stream)))


RIDES = st.fixed_dictionaries(
    {
        "station": st.sampled_from(["harbour", "zoo"]),
        "bicycle": st.sampled_from(["b1", "b2"]),
        "minutes": st.integers(1, 40),
    }
)


@pytest.mark.slow
@given(crowded(RIDES, timedelta(minutes=25), first=timedelta(hours=20)))
def test_stations_and_trips(stream: TestStream) -> None:
    rides = [{**ride, "began": at.isoformat()} for at, ride in happened(stream)]

    check(
        backfill_then_live.by_station,
        stream,
        models.station_days(rides),
        lambda row: row["station"],
    )
    check(backfill_then_live.trips, stream, models.trips(rides), lambda row: row["bicycle"])
