"""What the examples promise, told as scripts: each a late record, or a timer, and what is corrected or closed."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import dataflow as df
from dataflow.testing import (
    TestStream,
    assert_that,
    contains_in_any_order,
    in_final_fold,
    in_late_panes,
    in_on_time_pane,
    retracted,
)
from examples.ab_test import pipeline as ab_test
from examples.backfill_then_live import pipeline as backfill_then_live
from examples.billing import pipeline as billing
from examples.card_fraud import pipeline as card_fraud
from examples.click_sessions import pipeline as click_sessions

NOON = df.instant("2026-03-02T12:00:00Z")


def at(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


def stamped(value: Any, minute: float) -> df.TimestampedValue:
    return df.TimestampedValue(value, at(minute))


def test_a_late_click_makes_one_visit_of_two_and_the_hour_has_one_less() -> None:
    clicks = (
        TestStream()
        .add_elements([stamped(("ann", "home"), 0), stamped(("ann", "lamps"), 30)])
        .advance_watermark_to(at(100))
        .add_elements([stamped(("ann", "rugs"), 15)])
    )
    first, second, both = (
        click_sessions.Visit("ann", at(start), seconds, clicks)
        for start, seconds, clicks in ((0, 0, 1), (30, 0, 1), (0, 1_800, 3))
    )
    with df.Pipeline() as p:
        visits = click_sessions.visits(p | clicks)
        assert_that(visits, retracted(contains_in_any_order([first, second])))
        assert_that(
            visits,
            in_final_fold(contains_in_any_order([both]), key_of=lambda visit: visit.user),
            label="in the end",
        )
        hours: list[df.Change[Any]] = []
        click_sessions.dashboard(visits) | df.ToChangelog() | df.Map(hours.append)
    assert [(change.sign, change.value["visits"]) for change in hours][-1] == (1, 1)
    assert max(change.value["visits"] for change in hours) == 2


def test_a_case_is_closed_when_the_card_was_quiet_and_the_next_payment_is_usual_again() -> None:
    minutes = {0: 500, 10: 400, 20: 600, 30: 500, 40: 9_000, 60: 50, 95: 550}
    payments = TestStream().add_elements(
        [stamped(("card", cents), minute) for minute, cents in minutes.items()]
    )
    case = card_fraud.Case("card", at(40), None, "much more than usual", 1, 9_000)
    grown = case._replace(payments=2, amount_cents=9_050)
    with df.Pipeline() as p:
        assert_that(
            card_fraud.cases(p | payments),
            contains_in_any_order([case, grown, grown._replace(closed=at(90))]),
        )


def test_a_payment_at_the_instant_at_which_a_case_is_closed_is_not_in_it() -> None:
    assert card_fraud.suspicion(801, 1, 4, 100.0) == "much more than usual"
    assert card_fraud.suspicion(800, 1, 4, 100.0) is None
    assert card_fraud.suspicion(801, 1, 3, 100.0) is None
    assert card_fraud.suspicion(1, 4, 0, 0.0) == "many within minutes"
    times = [0, 1, 2, 2.5, 32.5]
    payments = TestStream().add_elements([stamped(("card", 100), minute) for minute in times])
    found: list[card_fraud.Case] = []
    with df.Pipeline() as p:
        card_fraud.cases(p | payments) | df.Map(found.append)
    assert [(case.payments, case.closed) for case in found] == [(1, None), (1, at(32.5))]


def test_a_bill_that_was_wrong_is_credited() -> None:
    def item(usage: str, amount: str) -> tuple[str, billing.Item]:
        return "acme", billing.Item(usage, Decimal(amount))

    usage = (
        TestStream()
        # Half past midnight in Berlin is still the day before in London.
        .add_elements([df.TimestampedValue(item("u1", "5.00"), "2026-02-28T23:30:00Z")])
        .advance_watermark_to(df.instant("2026-04-02T00:00:00Z"))
        .add_elements([df.TimestampedValue(item("u2", "0.10"), "2026-03-20T00:00:00Z")])
    )
    with df.Pipeline() as p:
        entries = billing.journal(billing.bills(p | usage))
        assert_that(
            entries,
            contains_in_any_order(
                [
                    billing.Entry("acme", "2026-03", 0, "bill", Decimal("5.00")),
                    billing.Entry("acme", "2026-03", 0, "credit note", Decimal("-5.00")),
                    billing.Entry("acme", "2026-03", 1, "bill", Decimal("5.10")),
                ]
            ),
        )


def test_a_conversion_that_comes_late_corrects_the_result() -> None:
    shown = [
        stamped(ab_test.Event(user, "shown", "button", variant), 0)
        for user, variant in (("ann", "grey"), ("bob", "green"), ("cid", "green"), ("cid", "grey"))
    ]
    bought = ab_test.Event("bob", "bought")
    events = (
        TestStream()
        .add_elements(shown)
        .advance_watermark_to(NOON + timedelta(days=8))
        .add_elements([stamped(bought, 5), stamped(bought, 6)])
    )
    monday = NOON.date()
    with df.Pipeline() as p:
        config = p | df.Create(list(ab_test.EXPERIMENTS.items()))
        assert_that(
            ab_test.results(p | events, config),
            # Who has seen both is in neither, and who buys twice counts once.
            in_on_time_pane(
                contains_in_any_order([ab_test.Result("button", monday, 1, 0, 1, 0, 1.0)])
            ),
            in_late_panes(
                contains_in_any_order(
                    [ab_test.Result("button", monday, 1, 0, 1, 1, ab_test.p_value((1, 0), (1, 1)))]
                )
            ),
        )


def test_a_p_value_is_that_of_the_books() -> None:
    """45 of 200 against 70 of 200: z is 2.76 (pooled), and twice the tail beyond it 0.0057."""
    p_value = ab_test.p_value((200, 45), (200, 70))
    assert p_value is not None
    assert round(p_value, 4) == 0.0057
    assert ab_test.p_value((0, 0), (5, 1)) is None
    assert ab_test.p_value((5, 0), (5, 0)) == 1.0


def test_a_forgotten_ride_joins_two_trips() -> None:
    def ride(minute: int) -> df.TimestampedValue:
        return stamped({"station": "zoo", "bicycle": "b1", "minutes": 7}, minute)

    rides = (
        TestStream()
        .add_elements([ride(0), ride(90)])
        .advance_watermark_to(at(200))
        .add_elements([ride(45)])
    )
    apart = [{"bicycle": "b1", "began": at(m), "rides": 1, "minutes": 7} for m in (0, 90)]
    with df.Pipeline() as p:
        assert_that(
            backfill_then_live.trips(p | rides),
            retracted(contains_in_any_order(apart)),
            in_late_panes(
                contains_in_any_order(
                    [{"bicycle": "b1", "began": at(0), "rides": 3, "minutes": 21}]
                )
            ),
        )
