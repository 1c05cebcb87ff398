"""Arguments behind the function: where they arrive, beside what the runner fills in, and what does not fit."""

import operator
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import dataflow as df
from dataflow.extra_arguments import ExtraArguments
from tests.unit.dataflow.transforms.test_transforms import run

HERE = r"test_transforms.py:\d+"
AT = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())


def scaled(element: int, factor: int, at: datetime = df.DoFn.TimestampParam, unit: str = "") -> Any:
    return f"{element * factor}{unit}", at


class Scale(df.DoFn):
    """Multiplies."""

    def process(
        self,
        element: int,
        /,
        factor: int = 1,
        window: df.Window = df.DoFn.WindowParam,
        *,
        offset: int = 0,
    ) -> Iterable[Any]:
        yield element * factor + offset, window.start_us


class Count(df.DoFn):
    """Counts from a number on, by key."""

    def process(
        self, element: tuple[str, int], /, start: int, seen: Any = df.DoFn.StateParam(SEEN)
    ) -> Iterable[Any]:
        seen.add(1)
        yield start + seen.read()


def rest(element: int, *others: int, window: df.Window = df.DoFn.WindowParam) -> Any:
    return element, others, window.end_us


def test_arguments_follow_the_element() -> None:
    """By position, past the parameters that the runner fills in, and by name."""
    values = [df.TimestampedValue(2, AT)]

    assert [("6m", AT)] == run(df.Map(scaled, 3, "m"), values=values)
    assert [("6m", AT)] == run(df.Map(scaled, 3, unit="m"), values=values)
    assert [("6", AT)] == run(df.Map(scaled, factor=3), values=values)
    assert [1, 1, 2, 1, 2, 3] == run(df.FlatMap(counted, 1))
    assert [2, 3] == run(df.Filter(operator.gt, 1))
    assert ["a", "b"] == run(df.FlatMap(str.split, ","), values=["a,b"])
    assert [9, 9, 9] == run(df.Map(max, 8, 9))
    minute = df.WindowInto(df.FixedWindows(60))
    assert [(2, (3, 4), 60_000_000)] == run(minute, df.Map(rest, 3, 4), values=values)


def counted(element: int, start: int) -> Iterable[int]:
    return range(start, element + 1)


def test_a_request_may_be_given_as_an_argument() -> None:
    assert [(1, AT)] == run(
        df.Map(lambda element, at: (element, at), at=df.DoFn.TimestampParam),
        values=[df.TimestampedValue(1, AT)],
    )


def test_arguments_are_given_to_process() -> None:
    minute = df.WindowInto(df.FixedWindows(60))
    values = [df.TimestampedValue(2, AT)]

    assert [(7, 0)] == run(minute, df.ParDo(Scale(), 3, offset=1), values=values)
    assert [11, 11, 12] == sorted(run(df.ParDo(Count(), 10), values=[("a", 1), ("a", 2), ("b", 3)]))


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (df.Map(scaled), "missing a required argument: 'factor'"),
        (df.Map(scaled, unit="m"), "missing a required argument: 'factor'"),
        (df.Map(scaled, 3, length=4), "unexpected keyword argument 'length'"),
        (df.Map(scaled, 3, "m", 5), "too many positional arguments"),
        (df.Map(scaled, 3, factor=3), "multiple values for argument 'factor'"),
        (df.Filter(operator.gt, 1, 2), "too many positional arguments"),
        (df.ParDo(Scale(), 3, 4), "too many positional arguments"),
        (df.ParDo(Count()), "missing a required argument: 'start'"),
        (df.ParDo(Count(), 3, end=4), "unexpected keyword argument 'end'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(transform: Any, why: str) -> None:
    with pytest.raises(df.PipelineError, match=rf"'.+' \(.*{HERE}\)") as caught:
        run(transform)

    assert why in (caught.value.detail or "")


def test_a_collection_as_an_argument_is_refused() -> None:
    pipeline = df.Pipeline()
    numbers = pipeline | df.Create([1])

    for made in (
        partial(df.Map, scaled, numbers),
        partial(df.Filter, scaled, factor=numbers),
        partial(df.ParDo, Scale(), numbers),
    ):
        with pytest.raises(df.PipelineError, match="and not how to see it"):
            made()


def test_arguments_keep_what_a_function_is_marked_with() -> None:
    marked = ExtraArguments((1,)).bound(df.nondeterministic(lambda x, y: x + y), "it")

    assert getattr(marked, "__dataflow_nondeterministic__", False)
    assert 3 == marked(2)


def test_outputs_unpack_with_the_main_one_first() -> None:
    """Also those of a function."""
    good: list[Any] = []
    bad: list[Any] = []
    with df.Pipeline() as p:
        numbers = p | df.Create([1, 2, 3])
        parted = df.FlatMap(lambda x: [x if x % 2 else df.TaggedOutput("even", x)])
        odd, even = numbers | parted.with_outputs("even", main="odd")
        odd | "good" >> df.Map(good.append)
        even | "bad" >> df.Map(bad.append)

    assert ([1, 3], [2]) == (good, bad)
