"""User code that would never run, or whose results would go nowhere, is refused in words, with transform and line."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.computations import Computation, Topology
from dataflow.testing import TestStream, assert_that, contains_in_any_order
from runners.direct import DirectRunner

HERE = r"tests/unit/dataflow/test_user_code.py:\d+"
TIMER = df.TimerSpec("timer", df.TimeDomain.EVENT)
SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())
RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


class Pair(NamedTuple):
    first: int
    second: int


class Plain(df.DoFn):
    """Emits its element; what a test puts in is returned by a method."""

    def process(self, element: Any, /) -> Any:
        yield element


class Stateful(df.DoFn):
    """A DoFn with state and a timer."""

    def process(
        self,
        element: Any,
        /,
        seen: Any = df.DoFn.StateParam(SEEN),
        timer: Any = df.DoFn.TimerParam(TIMER),
    ) -> Any:
        seen.add(1)
        timer.set(5)
        yield element

    @df.on_timer(TIMER)
    def fired(self) -> Any:
        return []


class Counting(Computation):
    """A computation that emits nothing."""

    inputs = {"numbers": lambda value: value}
    outputs = ("counts",)

    def process_record(self, record: Any) -> None:
        self.state = 1


def with_method(base: type[Any], name: str, method: Callable[..., Any]) -> Any:
    return type(f"Own{base.__name__}", (base,), {name: method})()


def generator(*_: Any) -> Iterator[int]:
    yield 1


async def coroutine(*_: Any) -> int:
    return 1


async def asynchronous(*_: Any) -> AsyncIterator[int]:
    yield 1


PAIRS = [df.TimestampedValue(("k", value), value) for value in (1, 2)]


def run(*transforms: Any, values: Any = PAIRS, **options: Any) -> df.PipelineResult:
    p = df.Pipeline(DirectRunner(**options))
    pcoll: Any = p | df.Create(values)
    for transform in transforms:
        pcoll = pcoll | transform
    return p.run()


@pytest.mark.parametrize("base", [Plain, Stateful])
@pytest.mark.parametrize("hook", ["setup", "start_bundle", "teardown"])
@pytest.mark.parametrize("method", [generator, coroutine, asynchronous])
def test_hooks_that_would_not_run_are_refused_when_applied(
    base: type[df.DoFn], hook: str, method: Any
) -> None:
    with pytest.raises(
        df.PipelineError, match=rf"ParDo\(Own{base.__name__}\)' \({HERE}\)"
    ) as caught:
        df.Pipeline() | df.Create([("k", 1)]) | df.ParDo(with_method(base, hook, method))

    assert f"Own{base.__name__}.{hook} would" in str(caught.value)


@pytest.mark.parametrize("name", ["process", "finish_bundle", "fired"])
@pytest.mark.parametrize("method", [coroutine, asynchronous])
def test_async_methods_are_refused_when_applied(name: str, method: Any) -> None:
    if name == "fired":
        method = df.on_timer(TIMER)(partial(method).func)
    with pytest.raises(df.PipelineError, match="never be awaited"):
        df.Pipeline() | df.Create([("k", 1)]) | df.ParDo(with_method(Stateful, name, method))


class Called:
    """An object in place of a function."""

    def __call__(self, element: Any) -> Iterator[Any]:
        yield element


@pytest.mark.parametrize("transform", [df.Map, df.Filter, df.WithTimestamps])
@pytest.mark.parametrize("function", [generator, partial(generator, 1), Called(), asynchronous])
def test_functions_that_would_not_run_are_refused_when_applied(
    transform: Callable[[Any], Any], function: Any
) -> None:
    with pytest.raises(df.PipelineError, match=rf"\({HERE}\) has an? (yield|async)"):
        df.Pipeline() | df.Create([1]) | transform(function)


def test_a_time_is_not_awaited() -> None:
    with pytest.raises(df.PipelineError, match="never be awaited"):
        df.Pipeline() | df.Create([1]) | df.WithTimestamps(coroutine)  # type: ignore[arg-type]


def test_a_generator_function_is_one_for_a_flat_map() -> None:
    run(df.FlatMap(generator))


def test_a_process_batch_with_a_yield_is_refused() -> None:
    with pytest.raises(df.PipelineError, match="process_batch with a yield"):
        run(df.ParDo(with_method(Plain, "process_batch", generator)))


@pytest.mark.parametrize("hook", ["setup", "process_record", "process_timer", "teardown"])
def test_hooks_of_computations_that_would_not_run_are_refused(hook: str) -> None:
    with pytest.raises(df.PipelineError, match=rf"computation 'c' \({HERE}\) has a yield"):
        Topology().computation("c", with_method(Counting, hook, generator))


@pytest.mark.parametrize("base", [Plain, Stateful])
@pytest.mark.parametrize("hook", ["setup", "start_bundle", "teardown"])
def test_what_a_silent_hook_returns_is_refused(base: type[df.DoFn], hook: str) -> None:
    fn = with_method(base, hook, lambda self: [1])
    with pytest.raises(df.TransformError, match=rf"returned something from {hook}"):
        run(df.ParDo(fn))


ONE_VALUE = [
    "text", "", b"bytes", bytearray(b"x"), {"a": 1}, {}, Pair(1, 2),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("returned", ONE_VALUE, ids=repr)
def test_one_value_in_place_of_outputs_is_refused(returned: Any, size: int) -> None:
    """From each kind of call that is asked for outputs; of one element and of several."""
    values = [("k", number) for number in range(size)]
    fired = df.on_timer(TIMER)(lambda self: returned)
    for transform, where in (
        (df.FlatMap(lambda element: returned), "<lambda>"),
        (df.ParDo(with_method(Plain, "process", lambda self, element: returned)), "process"),
        (df.ParDo(with_method(Plain, "finish_bundle", lambda self: returned)), "finish_bundle"),
        (df.ParDo(with_method(Stateful, "finish_bundle", lambda self: returned)), "finish_bundle"),
        (df.ParDo(with_method(Stateful, "fired", fired)), "fired"),
        (df.ParDo(df.nondeterministic(Returning)(returned)), "process"),
    ):
        with pytest.raises(df.TransformError, match=rf"\({HERE}\) returned one value from {where}"):
            run(transform, values=values)
    timed = [df.TimestampedValue(each, 1) for each in values]
    with pytest.raises(df.TransformError, match="returned one value from process"):
        run(*retracted(), df.ParDo(df.nondeterministic(Returning)(returned)), values=timed)


class Returning(df.DoFn):
    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def process(self, element: Any, /) -> Any:
        return self.returned


def retracted() -> list[Any]:
    """A grouping that retracts what it emits."""
    windows = df.WindowInto(df.FixedWindows(60), trigger=df.Always(), accumulation_mode=RETRACTING)
    return [windows, df.CombinePerKey(sum)]


@pytest.mark.parametrize("returned", [(1, 2), [1, 2], {1, 2}, range(1, 3), deque([1, 2])], ids=repr)
def test_everything_else_that_is_iterable_is_outputs(returned: Any) -> None:
    p = df.Pipeline()
    assert_that(p | df.Create([0]) | df.FlatMap(lambda _: returned), contains_in_any_order([1, 2]))
    p.run().wait_until_finish()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (1, "has no event time"),
        (df.TaggedOutput("t", 1), "has no event time"),
        (df.TimestampedValue(1, 5), "has no event time"),
        (df.WindowedValue(1, 9, df.Window(0, 10)), "in a window that none"),
        (df.WindowedValue(1, -60, df.Window(0, 60_000_000)), "earlier event time"),
        (
            df.TaggedOutput("u", df.WindowedValue(1, 9, df.Window(0, 60_000_000))),
            "to the output 'u'",
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("base", [Plain, Stateful])
def test_outputs_at_the_end_of_a_bundle_have_their_time_and_window(
    base: type[df.DoFn], output: Any, message: str
) -> None:
    fn = with_method(base, "finish_bundle", lambda self: [output])
    windows = df.WindowInto(df.FixedWindows(60))
    with pytest.raises(df.TransformError, match=message):
        run(windows, df.ParDo(fn).with_outputs("t"), values=[df.TimestampedValue(("k", 1), 3)])


def test_in_the_global_window_a_time_is_enough() -> None:
    fn = with_method(Plain, "finish_bundle", lambda self: [df.TimestampedValue("end", 7)])
    p = df.Pipeline()
    outputs: Any = (
        p
        | df.Create([df.TimestampedValue("x", -9)])
        | df.ParDo(fn)
        | df.WindowInto(df.FixedWindows(60))
    )
    starts = outputs | df.Map(lambda x, window=df.DoFn.WindowParam: (x, window.start_us >= 0))
    assert_that(starts, contains_in_any_order([("x", False), ("end", True)]))
    p.run().wait_until_finish()


def test_a_windowed_value_for_an_element_is_refused() -> None:
    with pytest.raises(df.TransformError, match="emitted a WindowedValue for an element"):
        run(df.Map(lambda each: df.WindowedValue(each, 0, df.Window(0, 1))))
    with pytest.raises(df.PipelineError, match="needs a window"):
        df.WindowedValue(1, 2, (3, 4))  # type: ignore[arg-type]


def emits(self: Any) -> Iterator[Any]:
    yield df.WindowedValue("end", 5, df.Window(0, 60_000_000))


def test_what_may_be_retracted_ends_no_bundle_with_outputs() -> None:
    with pytest.raises(df.PipelineError, match="emits from finish_bundle, and its input may be"):
        run(*retracted(), df.ParDo(with_method(Plain, "finish_bundle", emits)))
    returns = with_method(Plain, "finish_bundle", lambda self: [*emits(self)])
    with pytest.raises(df.TransformError, match="emits from finish_bundle, and its input may be"):
        run(*retracted(), df.ParDo(returns), values=[df.TimestampedValue(("k", 1), 3)])


class Sums(df.DoFn):
    """Emits the sum of a bundle at its end; some values it cannot take."""

    def start_bundle(self) -> None:
        self.total = 0

    def process(self, element: int, /) -> None:
        self.total += 10 // element * element

    def finish_bundle(self) -> Iterator[Any]:
        yield df.TimestampedValue(("all", self.total), 0)


@given(
    values=st.lists(st.integers(0, 3)), bundle_records=st.integers(1, 5), tries=st.integers(1, 2)
)
def test_what_fails_is_in_no_bundle_that_ends(
    values: list[int], bundle_records: int, tries: int
) -> None:
    p = df.Pipeline(DirectRunner(bundle_records=bundle_records, tries_per_record=tries))
    total = p | df.Create(values) | df.ParDo(Sums()) | df.CombinePerKey(sum)
    rows = total | df.Map(lambda pair: {"total": pair[1]})
    rows | df.WriteToPostgres("totals", columns={"total": int})
    result = p.run()

    taken = [10 // value * value for value in values if value]
    assert [{"total": sum(taken)}] * bool(taken) == list(result.read_table("totals"))
    assert len(values) - len(taken) == len(result.dead_letters())


@pytest.mark.parametrize("given_values", ["ab", b"ab", Pair(1, 2), 7, None], ids=repr)
def test_one_value_in_place_of_elements_is_refused(given_values: Any) -> None:
    with pytest.raises(df.PipelineError, match="Create needs several elements"):
        df.Create(given_values)
    with pytest.raises(df.PipelineError, match="add_elements needs several elements"):
        TestStream().add_elements(given_values)


def test_a_dict_is_its_items() -> None:
    for source in (df.Create({"a": 1, "b": 2}), TestStream().add_elements({"a": 1, "b": 2})):
        p = df.Pipeline()
        assert_that(p | source, contains_in_any_order([("a", 1), ("b", 2)]))
        p.run().wait_until_finish()
