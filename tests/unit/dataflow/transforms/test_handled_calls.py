"""with_exception_handling of asynchronous and of stateful code: the rest goes on, and nothing is half done."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import dataflow as df

PAIRS = [("a", 1), ("a", -2), ("a", 3), ("b", -4), ("b", 5)]


def run(elements: Any, transform: Any) -> tuple[list[Any], list[df.BadElement]]:
    """The good and the bad elements of a transform."""
    good: list[Any] = []
    bad: list[df.BadElement] = []
    with df.Pipeline() as p:
        outputs = p | df.Create(elements) | "under test" >> transform
        outputs["good"] | "good" >> df.Map(good.append)
        outputs["bad"] | "bad" >> df.Map(bad.append)
    return good, bad


async def halved(number: int) -> int:
    await asyncio.sleep(0)
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


async def halves(number: int) -> Any:
    yield number
    yield await halved(number)


async def is_halved(number: int) -> bool:
    return bool(await halved(number))


@pytest.mark.parametrize(
    ("transform", "good"),
    [
        (df.Map(halved), [1, 2]),
        (df.FlatMap(halves), [2, 1, 4, 2]),
        (df.Filter(is_halved), [2, 4]),
    ],
    ids=["Map", "FlatMap", "Filter"],
)
def test_a_failed_call_of_asynchronous_code_ends_no_other(transform: Any, good: list[int]) -> None:
    found, bad = run([1, 2, 3, 4], transform.with_exception_handling())

    assert found == good
    assert [(each.element, each.failure.message) for each in bad] == [
        (1, "1 is odd"),
        (3, "3 is odd"),
    ]
    assert any("in halved" in line for line in bad[0].failure.traceback)


def test_what_asynchronous_code_has_emitted_is_kept_if_it_is_asked_for() -> None:
    good, bad = run([3], df.FlatMap(halves).with_exception_handling(partial=True))
    assert (good, [each.element for each in bad]) == ([3], [3])


class Asking(df.DoFn):
    """Asks a service that is away for the first two times of each element."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}

    async def process(self, element: int, /, at: Any = df.DoFn.TimestampParam) -> list[int]:
        self.asked[element] = self.asked.get(element, 0) + 1
        if self.asked[element] < 3:
            raise ConnectionError("away")
        return [element, int(at.timestamp())]


def test_asynchronous_calls_are_tried_again_without_each_other() -> None:
    handled = df.ParDo(Asking()).with_exception_handling(retries=2, retry_delay=0.001)
    assert run([df.TimestampedValue(7, 5)], handled) == ([7, 5], [])

    handled = df.ParDo(Asking()).with_exception_handling(retries=1, retry_delay=0.001)
    good, bad = run([7, 8], handled)
    assert (good, [each.element for each in bad]) == ([], [7, 8])


def test_another_exception_of_asynchronous_code_ends_the_run() -> None:
    with pytest.raises(df.TransformError, match="raised ValueError: 1 is odd"):
        run([1], df.Map(halved).with_exception_handling(exc_class=KeyError))


class Summing(df.DoFn):
    """The sum of a key so far; has changed state, and set a timer, when it fails on a number below zero."""

    SUM = df.ReadModifyWriteStateSpec("sum")
    SEEN = df.BagStateSpec("seen")
    BELOW = df.TimerSpec("below", df.TimeDomain.EVENT)
    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[str, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        total: Any = df.DoFn.StateParam(SUM),
        seen: Any = df.DoFn.StateParam(SEEN),
        below: Any = df.DoFn.TimerParam(BELOW),
    ) -> Iterator[tuple[str, int, list[int]]]:
        key, number = element
        total.write((total.read() or 0) + number)
        seen.add(number)
        yield key, total.read(), seen.read()
        if number < 0:
            below.set(at)
            raise ValueError(f"{number} is below zero")

    @df.on_timer(BELOW)
    def is_below(self) -> Iterator[str]:
        yield "a timer of a call that has failed"


def test_a_call_that_fails_leaves_state_and_timers_as_they_were() -> None:
    good, bad = run(PAIRS, df.ParDo(Summing()).with_exception_handling())

    assert sorted(good) == [("a", 1, [1]), ("a", 4, [1, 3]), ("b", 5, [5])]
    assert sorted((each.element, each.failure.message) for each in bad) == [
        (("a", -2), "-2 is below zero"),
        (("b", -4), "-4 is below zero"),
    ]
    assert bad[0].failure.transform == "under test"


def test_what_a_stateful_call_has_emitted_is_kept_if_it_is_asked_for_and_its_state_is_not() -> None:
    pairs = [df.TimestampedValue(pair, at) for at, pair in enumerate(PAIRS[:3])]
    good, bad = run(pairs, df.ParDo(Summing()).with_exception_handling(partial=True))
    assert good == [("a", 1, [1]), ("a", -1, [1, -2]), ("a", 4, [1, 3])]
    assert len(bad) == 1


class Flaky(df.DoFn):
    """Fails on each element for the first two times, with its state changed."""

    COUNT = df.ReadModifyWriteStateSpec("count")

    def __init__(self) -> None:
        self.calls = 0

    def process(
        self, element: tuple[str, int], /, count: Any = df.DoFn.StateParam(COUNT)
    ) -> list[int]:
        self.calls += 1
        count.write((count.read() or 0) + 1)
        if self.calls % 3:
            raise ConnectionError("away")
        return [count.read()]


def test_each_attempt_at_a_stateful_call_begins_with_the_same_state() -> None:
    handled = df.ParDo(Flaky()).with_exception_handling(retries=2, retry_delay=0)
    assert run([("a", 1), ("a", 2)], handled) == ([1, 2], [])


class Failing(df.DoFn):
    """Fails in the method of a timer, and when its window expires."""

    COUNT = df.ReadModifyWriteStateSpec("count")
    END = df.TimerFamilySpec("end", df.TimeDomain.EVENT)

    def process(
        self,
        element: tuple[str, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        count: Any = df.DoFn.StateParam(COUNT),
        end: Any = df.DoFn.TimerParam(END),
    ) -> None:
        count.write(1)
        end.get("first").set(at)

    @df.on_timer(END)
    def ended(self, count: Any = df.DoFn.StateParam(COUNT)) -> None:
        count.write(2)
        raise LookupError("in a timer")

    @df.on_window_expiration
    def expired(self, count: Any = df.DoFn.StateParam(COUNT)) -> Iterator[int]:
        yield count.read()
        raise LookupError("at the end")


def test_a_timer_that_fails_is_an_element_of_key_and_timer() -> None:
    handled = df.ParDo(Failing()).with_exception_handling(partial=True)
    good, bad = run([("a", 1)], handled)

    assert good == [1]
    assert [(each.element, each.failure.message) for each in bad] == [
        (("a", ("end", "first")), "in a timer"),
        (("a", "window expiration"), "at the end"),
    ]


def test_another_exception_of_stateful_code_ends_the_run_or_is_a_dead_letter() -> None:
    handled = df.ParDo(Summing()).with_exception_handling(exc_class=KeyError)
    with pytest.raises(df.TransformError, match="raised ValueError: -4 is below zero"):
        run(PAIRS[3:], handled)

    p = df.Pipeline(tries_per_record=2)
    p | df.Create(PAIRS) | handled
    result = p.run()
    result.wait_until_finish()
    assert {each["element"].value for each in result.dead_letters()} == {("a", -2), ("b", -4)}


def test_too_many_failures_of_stateful_code_end_the_run() -> None:
    assert len(run(PAIRS, df.ParDo(Summing()).with_exception_handling(threshold=0.4))[1]) == 2
    with pytest.raises(df.TooManyFailuresError, match="failed on 2 of 5 elements"):
        run(PAIRS, df.ParDo(Summing()).with_exception_handling(threshold=0.3))
