"""The examples leave the same tables on every runner: those that a plain loop over all of the input leaves."""

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from examples.ab_test import pipeline as ab_test
from examples.ab_test.events import write_events
from examples.backfill_then_live import folder as rides_folder
from examples.backfill_then_live import pipeline as backfill_then_live
from examples.billing import pipeline as billing
from examples.card_fraud import pipeline as card_fraud
from examples.click_sessions import pipeline as click_sessions
from examples.pictures import FOLDER
from tests import example_models as models
from tests.conformance.conftest import MakeRunner

CLICKS = FOLDER / "click_sessions" / "clicks.csv"
PAYMENTS = FOLDER / "card_fraud" / "payments.csv"
USAGE = FOLDER / "billing" / "usage.csv"


def records(path: Path) -> list[tuple[datetime, dict[str, str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [(df.instant(row["at"]), row) for row in csv.DictReader(file)]


def rows_of(rides: Path) -> list[dict[str, Any]]:
    paths = rides.glob("rides-*.jsonl")
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


def same(found: Sequence[Mapping[str, Any]], expected: Sequence[Any]) -> None:
    """Check that the same rows are there, as often; numbers with a fraction but for their last digits."""

    def plain(values: Any) -> tuple[Any, ...]:
        values = values.values() if isinstance(values, Mapping) else values
        return tuple(round(each, 9) if isinstance(each, float) else each for each in values)

    assert Counter(map(plain, found)) == Counter(map(plain, expected))


@pytest.mark.slow
def test_examples_leave_the_tables_of_a_plain_loop(make_runner: MakeRunner, tmp_path: Path) -> None:
    """All of them in one pipeline, and so in one job."""
    events, rides = write_events(tmp_path / "events.csv", seed=3), tmp_path / "rides"
    rides.mkdir()
    rides_folder.write_hours(rides, 0, 30, seed=3)
    rides_folder.close(rides)
    p = df.Pipeline(make_runner())
    click_sessions.build(p, CLICKS)
    card_fraud.build(p, PAYMENTS)
    billing.build(p, USAGE)
    ab_test.build(p, events)
    backfill_then_live.build(p, rides)
    result = p.run()
    result.wait_until_finish()
    assert result.late_counts() == {}

    visits = models.visits([(at, (row["user"], row["page"])) for at, row in records(CLICKS)])
    same(result.read_table("visits"), visits)
    same(result.read_table("dashboard"), models.dashboard(visits))

    paid = [(at, (row["card"], int(row["cents"]))) for at, row in records(PAYMENTS)]
    same(result.read_table("cases"), models.cases(paid))

    usage = [
        (at, (row["account"], int(row["units"]) * billing.PRICES[row["product"]]))
        for at, row in records(USAGE)
    ]
    owed = models.bills(usage)
    same(result.read_table("bills"), [(*key, amount) for key, amount in owed.items()])
    entered: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for row in result.read_table("bill_journal"):
        entered[row["account"], row["month"]] += row["amount"]
    assert entered == owed

    happened = [(at, ab_test.event(row)) for at, row in records(events)]
    same(result.read_table("experiment_results"), models.results(happened))

    ridden = rows_of(rides)
    same(result.read_table("station_days"), models.station_days(ridden))
    same(result.read_table("trips"), models.trips(ridden))
