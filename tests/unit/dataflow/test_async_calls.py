"""Asynchronous user code: order, failures, bounds, and that nothing is left when a bundle has ended."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.async_calls import AsyncCalls
from dataflow.serialization import dumps_code, loads_code
from dataflow.testing import assert_that, contains_in_any_order
from runners.direct import DirectRunner

#: What an element does: how many turns of the loop it takes, and whether it fails then.
PLANS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12)


class Traced:
    """Calls that say when they began and ended."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.ended: list[int] = []

    async def __call__(self, element: tuple[int, tuple[int, bool]]) -> int:
        index, (turns, fails) = element
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
            if fails:
                raise ValueError(index)
        finally:
            self.running -= 1
        self.ended.append(index)
        return index


@given(plans=PLANS, limit=st.integers(1, 5))
def test_outcomes_are_those_of_one_call_after_the_other(
    plans: list[tuple[int, bool]], limit: int
) -> None:
    """Up to the first failure, which is that of the first element that fails, whichever was the fastest."""
    call, calls = Traced(), AsyncCalls(limit)
    outcomes = calls.outcomes(call, list(enumerate(plans)))
    calls.close()

    first = next((index for index, (_, fails) in enumerate(plans) if fails), len(plans))
    assert [(index, None) for index in range(first)] == list(outcomes[:first])
    assert set(range(first)) <= set(call.ended)
    if first < len(plans):
        assert isinstance(outcomes[first][1], ValueError)
        assert str(outcomes[first][1]) == str(first)
    assert call.running == 0
    assert call.most <= limit


def test_calls_behind_a_failure_are_cancelled() -> None:
    """Nobody waits for them; and no new ones begin."""
    began: list[int] = []

    async def call(element: int) -> None:
        began.append(element)
        if element == 1:
            raise ValueError
        await asyncio.sleep(1_000 if element > 1 else 0)

    calls = AsyncCalls(3)
    outcomes = calls.outcomes(call, range(100))

    assert began in ([0, 1], [0, 1, 2], [0, 1, 2, 3])
    assert [type(error) for _, error in outcomes[:2]] == [type(None), ValueError]
    calls.close()


def test_a_call_that_cancels_itself_fails() -> None:
    async def call(element: int) -> None:
        raise asyncio.CancelledError(element)

    calls = AsyncCalls(1)
    (outcome,) = calls.outcomes(call, [5])

    assert "it was cancelled" in str(outcome[1])
    calls.close()


def test_an_interrupt_leaves_no_call_behind() -> None:
    ended: list[int] = []

    async def call(element: int) -> None:
        try:
            if element == 1:
                await asyncio.sleep(0)
                raise KeyboardInterrupt
            await asyncio.sleep(1_000)
        finally:
            ended.append(element)

    calls = AsyncCalls(3)
    with pytest.raises(KeyboardInterrupt):
        calls.outcomes(call, range(3))

    assert sorted(ended) == [0, 1, 2]
    calls.close()


class Client(df.DoFn):
    """Has something that belongs to the loop of its worker."""

    max_concurrency = 2
    log: list[str] = []

    async def setup(self) -> None:
        self.free, self.loop = asyncio.Semaphore(1), asyncio.get_running_loop()
        Client.log.append("setup")

    async def process(self, element: int, window: Any = df.DoFn.WindowParam) -> AsyncIterator[Any]:
        assert self.loop is asyncio.get_running_loop()
        async with self.free:
            await asyncio.sleep(0)
        yield element
        yield df.TaggedOutput("more", (element, window.start_us))

    def finish_bundle(self) -> None:
        Client.log.append("bundle")

    async def teardown(self) -> None:
        await asyncio.sleep(0)
        Client.log.append("teardown")


def test_what_setup_has_made_lasts_as_long_as_the_worker() -> None:
    Client.log.clear()
    with df.Pipeline(DirectRunner(bundle_records=2)) as p:
        values = (
            p
            | df.Create([df.TimestampedValue(x, x) for x in range(4)])
            | df.WindowInto(df.FixedWindows(60))
        )
        main, more = values | df.ParDo(Client()).with_outputs("more")
        assert_that(main, contains_in_any_order(range(4)), label="main")
        assert_that(
            more | df.Map(lambda pair: pair[0]), contains_in_any_order(range(4)), label="more"
        )

    assert Client.log[0] == "setup"
    assert Client.log[-1] == "teardown"
    assert Client.log.count("bundle") >= 2


async def doubled(x: int, times: int = 1) -> int:
    await asyncio.sleep(0)
    return 2 * times * x


async def is_even(x: int) -> bool:
    await asyncio.sleep(0.001 * (x % 3))
    return x % 2 == 0


async def repeated(x: int) -> AsyncIterator[int]:
    for _ in range(x):
        await asyncio.sleep(0)
        yield x


async def listed(x: int) -> list[int]:
    return [x]


#: The types of functions that are awaited are not known to transforms.
REPEATED: Any = repeated
LISTED: Any = listed
DOUBLED: Any = doubled


def test_functions_may_be_asynchronous() -> None:
    """With further arguments, and in whatever order the calls end."""
    with df.Pipeline() as p:
        numbers = p | df.Create(range(7)) | df.Filter(is_even) | df.FlatMap(REPEATED)
        found = numbers | df.FlatMap(LISTED) | df.Map(DOUBLED, times=2)
        assert_that(found, contains_in_any_order([8] * 2 + [16] * 4 + [24] * 6))


async def fails_at_seven(x: int) -> int:
    await asyncio.sleep(0.001 * (x % 5))
    if x in {7, 9}:
        raise ValueError(f"not {x}")
    return x


def test_an_error_names_transform_line_and_element() -> None:
    p = df.Pipeline()
    p | df.Create(range(20)) | "Fail" >> df.Map(fails_at_seven)
    with pytest.raises(
        df.TransformError, match=r"'Fail' \(.*test_async_calls\.py:\d+\) raised ValueError: not 7"
    ) as e:
        p.run()
    assert "element: 7" in e.value.detail


def test_elements_that_always_fail_are_dead_letters() -> None:
    p = df.Pipeline(DirectRunner(tries_per_record=2))
    found = p | df.Create(range(20)) | df.Map(fails_at_seven)
    assert_that(found, contains_in_any_order(set(range(20)) - {7, 9}))

    result = p.run()
    result.wait_until_finish()
    assert {7, 9} == {letter["element"].value for letter in result.dead_letters()}


def test_in_a_notebook_a_loop_is_running_already() -> None:
    async def cell() -> None:
        with df.Pipeline() as p:
            assert_that(p | df.Create([1]) | df.Map(DOUBLED), contains_in_any_order([2]))

    asyncio.run(cell())


def test_outputs_that_change_are_remembered_where_they_may_be_retracted() -> None:
    calls = iter(range(1_000))

    @df.nondeterministic
    async def numbered(total: tuple[str, int]) -> tuple[str, int, int]:
        await asyncio.sleep(0)
        return (*total, next(calls))

    runner = DirectRunner(bundle_records=1)
    p = df.Pipeline(runner)
    retracting = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    always = df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=retracting)
    totals = p | df.Create([("a", 1), ("a", 2), ("a", 3)]) | always | df.CombinePerKey(sum)
    rows = totals | df.Map(numbered) | df.MapTuple(lambda k, v, n: {"key": k, "total": v, "n": n})
    rows | df.WriteToPostgres("t", columns={"key": str, "total": int, "n": int}, key="key")
    result = p.run()

    (left,) = result.read_table("t")
    assert (left["key"], left["total"]) == ("a", 6)


def test_the_loop_does_not_travel() -> None:
    calls = AsyncCalls(3)
    assert calls.outcomes(doubled, [1]) == [(2, None)]

    assert loads_code(dumps_code(calls, "it")).max_concurrency == 3
    calls.close()


class Nobody(df.DoFn):
    """Would wait for ever."""

    max_concurrency = 0

    async def process(self, element: Any) -> list[Any]:
        return [element]


SEEN = df.BagStateSpec("seen")


class Kept(df.DoFn):
    """Asynchronous, with state."""

    async def process(self, element: Any, seen: Any = df.DoFn.StateParam(SEEN)) -> list[Any]:
        return [element, seen]


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (df.ParDo(Nobody()), "max_concurrency of 0"),
        (df.ParDo(Kept()), "never be awaited"),
        (df.Map(repeated), "yield where nothing is emitted"),
        (df.Filter(repeated), "yield where nothing is emitted"),
        (df.WithTimestamps(DOUBLED), "never be awaited"),
        (df.Partition(DOUBLED, 2), "never be awaited"),
    ],
)
def test_what_would_not_run_is_refused(transform: Any, text: str) -> None:
    with pytest.raises(df.PipelineError, match=rf"test_async_calls\.py:\d+.*{text}"):
        df.Pipeline() | df.Create([(1, 2)]) | transform
