"""What user code counts, on each runner: every element once, with dead letters and when the job is run again."""

from typing import Any

import pytest

import dataflow as df
from tests.conformance.conftest import MakeRunner

COLUMNS = {"key": int, "value": int}


class Adding(df.CombineFn):
    """A sum that counts what it adds."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        df.Metrics.counter("test", "added").inc()
        return accumulator + value

    def merge_accumulators(self, accumulators: Any) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


class Poisoned(df.DoFn):
    """Counts, and fails on some."""

    seen = df.Metrics.counter("test", "seen")

    def process(self, value: int) -> Any:
        self.seen.inc()
        df.Metrics.distribution("test", "values").update(value)
        df.Metrics.string_set(Poisoned, "parities").add("odd" if value % 2 else "even")
        df.Metrics.gauge("test", "limit").set(100)
        if value % 10 == 7:
            raise ValueError("poison")
        yield value


def check(result: df.PipelineResult) -> None:
    result.wait_until_finish()
    found = result.metrics().query()
    good = [value for value in range(100) if value % 10 != 7]
    assert {(each.key.step, each.key.metric.name): each.result for each in found["counters"]} == {
        ("sum", "added"): 90,
        ("poisoned", "seen"): 90,
        ("row", "rows"): 5,
    }
    (values,), (limit,), (parities,) = (
        found["distributions"],
        found["gauges"],
        found["string_sets"],
    )
    assert values.committed == df.DistributionResult(90, sum(good), 0, max(good))
    assert limit.committed.value == 100
    assert parities.committed == {"odd", "even"}
    assert len(result.dead_letters()) == 10


def row(pair: tuple[int, int]) -> dict[str, int]:
    df.Metrics.counter("test", "rows").inc()
    return {"key": pair[0], "value": pair[1]}


def test_each_element_counts_once(make_runner: MakeRunner) -> None:
    p = df.Pipeline(make_runner(tries_per_record=2))
    sums: Any = (
        p
        | "read" >> df.Create(range(100))
        | "poisoned" >> df.ParDo(Poisoned())
        | df.WithKeys(lambda value: value % 5)
        | "sum" >> df.CombinePerKey(Adding())
        | "row" >> df.Map(row)
    )
    sums | df.WriteToPostgres("sums", columns=COLUMNS, key=["key"])
    result = p.run()
    check(result)
    if not isinstance(getattr(result, "job", None), str):
        return
    # The same job again, in which nothing is left to be done.
    check(p.run())


@pytest.mark.parametrize("name", ["seen", "lost"])
def test_what_feeds_no_table_is_counted_too(make_runner: MakeRunner, name: str) -> None:
    p = df.Pipeline(make_runner())

    def seen(value: int) -> int:
        df.Metrics.counter("test", "seen").inc()
        return value

    p | "read" >> df.Create(range(100)) | "seen" >> df.Map(seen)
    result = p.run()
    result.wait_until_finish()
    found = result.metrics().query(df.MetricsFilter().with_name(name))["counters"]
    assert [each.result for each in found] == [100] * (name == "seen")
