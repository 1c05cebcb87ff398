"""Combiners give the same results on every runner: of all, of nothing, of divided keys, and under retractions."""

from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from tests.conformance.conftest import MakeRunner

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
COLUMNS = {"name": str, "key": str, "start": int, "result": str}
SCORES = [("abc"[number % 3], number * 7 % 11) for number in range(30)]


def timed() -> list[df.TimestampedValue]:
    return [df.TimestampedValue(score, second) for second, score in enumerate(SCORES)]


def number_of(pair: tuple[str, int]) -> int:
    return pair[1]


class ToRow(df.DoFn):
    """A row of `COLUMNS` of a result, or of a pair of a key and a result."""

    def __init__(self, name: str, *, has_key: bool) -> None:
        self.name, self.has_key = name, has_key

    def process(self, element: Any, /, window: Any = df.DoFn.WindowParam) -> Any:
        key, result = element if self.has_key else ("", element)
        start = max(window.start_us // 1_000_000, -1)
        yield {"name": self.name, "key": key, "start": start, "result": repr(result)}


def write(pcoll: Any, name: str, *, has_key: bool = False) -> Any:
    return pcoll | f"{name} rows" >> df.ParDo(ToRow(name, has_key=has_key))


def rows(p: df.Pipeline, parts: Any) -> set[tuple[Any, ...]]:
    (
        parts
        | df.Flatten()
        | df.WriteToPostgres("results", columns=COLUMNS, key=("name", "key", "start"))
    )
    result = p.run()
    result.wait_until_finish()
    found = [tuple(each[name] for name in COLUMNS) for each in result.read_table("results")]
    return set(found)


GLOBALLY: dict[str, Any] = {
    "count": df.Count.Globally(),
    "mean": df.Mean.Globally(),
    "max": df.Max.Globally(),
    "top": df.Top.Largest(3),
    "sample": df.Sample.FixedSizeGlobally(2),
    "latest": df.Latest.Globally(),
    "divided": df.Sum.Globally().with_fanout(3),
}
OF_SCORES = {
    "count": "30",
    "mean": repr(sum(score for _, score in SCORES) / 30),
    "max": "10",
    "top": "[10, 10, 10]",
    "latest": repr(SCORES[-1][1]),
    "divided": repr(sum(score for _, score in SCORES)),
}
OF_NOTHING = {
    "count": "0",
    "mean": "nan",
    "top": "[]",
    "sample": "[]",
    "latest": "None",
    "divided": "0",
}


@pytest.mark.parametrize("is_empty", [False, True])
def test_all_give_one_result_of_everything_and_of_nothing(
    is_empty: bool, make_runner: MakeRunner
) -> None:
    p = df.Pipeline(make_runner())
    scores = p | df.Create(timed()) | df.Filter(lambda _: not is_empty) | df.Map(number_of)
    found = rows(p, [write(scores | name >> each, name) for name, each in GLOBALLY.items()])

    expected = dict(OF_NOTHING if is_empty else OF_SCORES)
    if not is_empty:
        expected["sample"] = one_sample()
    assert found == {(name, "", -1, result) for name, result in expected.items()}


def one_sample() -> str:
    found: list[Any] = []
    with df.Pipeline() as p:
        p | df.Create(timed()) | df.Map(number_of) | GLOBALLY["sample"] | df.Map(found.append)
    (sample,) = found
    return repr(sample)


def test_all_divide_keys_and_give_the_results_of_the_keys(make_runner: MakeRunner) -> None:
    p = df.Pipeline(make_runner())
    windowed = p | df.Create(timed()) | df.WindowInto(df.FixedWindows(10))
    per_key: dict[str, Any] = {
        "sum": df.Sum.PerKey().with_hot_key_fanout(4),
        "least": df.Top.SmallestPerKey(2).with_hot_key_fanout(2),
        "latest": df.Latest.PerKey().with_hot_key_fanout(3),
    }
    found = rows(
        p, [write(windowed | name >> each, name, has_key=True) for name, each in per_key.items()]
    )

    expected = set()
    for key in "abc":
        for start in (0, 10, 20):
            scores = [score for each, score in SCORES[start : start + 10] if each == key]
            expected.add(("sum", key, start, repr(sum(scores))))
            expected.add(("least", key, start, repr(sorted(scores)[:2])))
            expected.add(("latest", key, start, repr(scores[-1])))
    assert found == expected


def test_all_follow_retractions(make_runner: MakeRunner) -> None:
    """Totals are retracted with every score; the greatest total and the number of them follow, divided or not."""
    stream = TestStream()
    for at in range(0, len(SCORES), 4):
        stream = stream.add_elements(SCORES[at : at + 4])
    p = df.Pipeline(make_runner())
    always = df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=RETRACTING)
    totals = p | stream | always | "totals" >> df.CombinePerKey(sum) | "total" >> df.Map(number_of)
    at_the_end = totals | "end" >> df.WindowInto(df.GlobalWindows())
    globally: dict[str, Any] = {
        "top": df.Top.Largest(2),
        "divided": df.Sum.Globally().with_fanout(2),
        "count": df.Count.Globally(),
    }
    found = rows(p, [write(at_the_end | name >> each, name) for name, each in globally.items()])

    sums = [sum(score for each, score in SCORES if each == key) for key in "abc"]
    expected = {"top": sorted(sums)[:0:-1], "divided": sum(sums), "count": 3}
    assert found == {(name, "", -1, repr(result)) for name, result in expected.items()}
