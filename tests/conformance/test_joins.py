"""Joins emit the pairs of their definition on every runner, of what comes once and of what is retracted."""

from collections import Counter
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from tests.conformance.conftest import MakeRunner
from tests.oracle.joined import oracle_pairs

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
COLUMNS = {"key": str, "number": int, "city": str, "total": int}
CITIES = [("a", "Oslo"), ("b", "Rome"), ("b", "Bern"), ("c", "Lima")]
ORDERS = [("abdx"[number % 4], number) for number in range(40)]


def events() -> Any:
    """Orders before, between and after the cities."""
    stream = TestStream()
    tagged: list[Any] = [("order", each) for each in ORDERS]
    tagged[7:7] = [("city", each) for each in CITIES[:2]]
    tagged[25:25] = [("city", each) for each in CITIES[2:]]
    for start in range(0, len(tagged), 5):
        stream = stream.add_elements(tagged[start : start + 5])
    return stream


def row(pair: Any) -> dict[str, Any]:
    key, ((number, city), total) = pair
    return {"key": key, "number": number, "city": city, "total": total}


def some(key: str, pairs: list[tuple[str, Any]]) -> list[Any]:
    return [value for each, value in pairs if each == key]


@pytest.mark.parametrize("join_type", df.JoinType, ids=lambda each: each.name)
def test_all_emit_the_pairs_of_the_definition(
    join_type: df.JoinType, make_runner: MakeRunner
) -> None:
    """Orders and cities, over all time and at once, and both with totals that are retracted with every order."""
    p = df.Pipeline(make_runner())
    both: Any = (
        p
        | "read" >> events()
        | df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=RETRACTING)
    )
    orders, cities = (
        both
        | f"{kind} events" >> df.Filter(lambda event, kind=kind: event[0] == kind)
        | f"{kind} pairs" >> df.Map(lambda event: event[1])
        for kind in ("order", "city")
    )
    totals = orders | "total" >> df.CombinePerKey(sum)
    pairs = (orders, cities) | "cities" >> df.Join(join_type)
    with_totals = (pairs, totals) | "totals" >> df.Join(df.JoinType.LEFT_OUTER)
    (
        with_totals
        | df.ToChangelog()
        | df.Map(_change)
        | df.WriteToPostgres("changes", columns={**COLUMNS, "sign": int})
    )
    result = p.run()
    result.wait_until_finish()

    found: Counter[Any] = Counter()
    for each in result.read_table("changes"):
        found[tuple(each[name] for name in COLUMNS)] += each["sign"]
    expected: Counter[Any] = Counter()
    for key in dict([*ORDERS, *CITIES]):
        numbers = some(key, ORDERS)
        for number, city in oracle_pairs(numbers, some(key, CITIES), join_type):
            expected[key, number, city, sum(numbers) if numbers else None] += 1
    assert expected == Counter({each: count for each, count in found.items() if count})


def _change(change: df.Change[Any]) -> dict[str, Any]:
    return {**row(change.value), "sign": change.sign}
