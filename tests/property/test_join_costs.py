"""A join costs what comes and the pairs that it makes, not what has come before: counted, not timed."""

import sys
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner
from tests.pane_log import LoggedPane, run_logged

TOGETHER = 20


@attrs.define
class Counted:
    """A value that counts how often it is looked for."""

    number: int
    hashes: list[int]

    def __hash__(self) -> int:
        self.hashes[0] += 1
        return self.number


def orders_and_cities(pipeline: df.Pipeline, values: list[Any]) -> Any:
    """Many orders against one city, over all time and at once."""
    stream = TestStream().add_elements([("city", "Oslo")])
    for start in range(0, len(values), TOGETHER):
        part = values[start : start + TOGETHER]
        stream = stream.add_elements([("order", value) for value in part])
    both: Any = (
        pipeline
        | stream
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Always(),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
    )
    return tuple(
        both
        | kind >> df.Filter(lambda event, kind=kind: event[0] == kind)
        | f"{kind} pairs" >> df.Map(lambda event: ("all", event[1]))
        for kind in ("order", "city")
    )


def calls(run: Callable[[], object]) -> int:
    """How many functions are called."""
    count = 0

    def profile(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def looked_at(panes: list[LoggedPane]) -> int:
    """Values that pairs were made of."""
    return sum(len(each) for pane in panes for sides in pane.value.products for each in sides)


@pytest.mark.slow
@pytest.mark.parametrize("join_type", df.JoinType, ids=lambda each: each.name)
def test_each_order_costs_its_pair(join_type: df.JoinType) -> None:
    """Rows emitted and values looked at are as many as have come, and so are calls."""
    numbers = [1_000, 2_000, 4_000]
    called = []
    for number in numbers:
        pipeline = df.Pipeline(DirectRunner())
        orders_and_cities(pipeline, list(range(number))) | "join" >> df.Join(join_type)
        logs: list[Any] = []
        called.append(calls(lambda pipeline=pipeline, logs=logs: logs.append(run_logged(pipeline))))  # type: ignore[misc]
        panes = [each for each in logs[0].panes if each.transform == "join/join"]
        emitted = [pair for each in panes if each.sign > 0 for pair in each.value]
        retracted = [pair for each in panes if each.sign < 0 for pair in each.value]
        alone = join_type in (df.JoinType.RIGHT_OUTER, df.JoinType.FULL_OUTER)

        assert number + alone == len(emitted)
        assert [(None, "Oslo")] * alone == retracted
        assert looked_at(panes) <= number + number // TOGETHER + 4
    assert called[2] - called[1] < 2.2 * (called[1] - called[0])


def test_each_order_that_may_be_retracted_is_looked_for_as_often() -> None:
    """Also where values are counted, because they may be retracted, though none is."""
    looked_for = []
    for number in (1_000, 2_000, 4_000):
        pipeline, hashes = df.Pipeline(DirectRunner()), [0]
        orders, cities = orders_and_cities(pipeline, list(range(number)))
        totals = cities | "totals" >> df.CombinePerKey(df.CountCombineFn())
        counted = orders | df.Map(lambda pair, seen=hashes: (pair[0], Counted(pair[1], seen)))
        (counted, totals) | "join" >> df.Join()
        log = run_logged(pipeline)

        assert number == sum(
            pane.sign * len(list(pane.value)) for pane in log.panes if pane.transform == "join/join"
        )
        looked_for.append(hashes[0] / number)
    assert looked_for[2] <= 1.1 * looked_for[0]


@pytest.mark.slow
def test_a_group_is_divided_once() -> None:
    """Each value of a CoGroupByKey is put to its own when it comes, not again with every pane."""
    called = []
    for number in (1_000, 2_000, 4_000):
        pipeline = df.Pipeline(DirectRunner())
        orders, cities = orders_and_cities(pipeline, list(range(number)))
        {"orders": orders, "cities": cities} | df.CoGroupByKey()
        called.append(calls(lambda pipeline=pipeline: run_logged(pipeline)))  # type: ignore[misc]

    assert called[2] - called[1] < 2.2 * (called[1] - called[0])
