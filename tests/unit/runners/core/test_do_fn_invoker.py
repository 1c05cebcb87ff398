"""What comes of a single element goes on in parts: it may be more than fits into memory."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.user_code import do_fn_invoker
from runners.direct import DirectRunner


class EmitBoth(df.DoFn):
    """Emits numbers of several kinds."""

    def process(self, element: list[int], at: Any = df.DoFn.TimestampParam) -> Iterator[Any]:
        for each in element:
            moved = df.TimestampedValue(each, at.timestamp() + each)
            yield [each, moved, df.TaggedOutput("odd", each)][each % 3]


def emitted(elements: list[list[int]], bundle_records: int) -> list[list[Any]]:
    p = df.Pipeline(DirectRunner(bundle_records=bundle_records))
    timed = [df.TimestampedValue(each, at_s) for at_s, each in enumerate(elements)]
    several = p | df.Create(timed) | df.ParDo(EmitBoth()).with_outputs("even", "odd")
    found: list[list[Any]] = [[], []]

    def log(tag: int, value: int, at: Any) -> None:
        found[tag].append((value, at))

    for tag, collection in enumerate((several.even, several.odd)):
        collection | f"log {tag}" >> df.Map(
            lambda value, tag=tag, at=df.DoFn.TimestampParam: log(tag, value, at)
        )
    p.run()
    return found


@given(
    elements=st.lists(st.lists(st.integers(0, 100), max_size=9), min_size=1, max_size=5),
    bundle_records=st.sampled_from([1, 2, 100]),
)
def test_parts_come_to_what_the_whole_comes_to(
    elements: list[list[int]], bundle_records: int
) -> None:
    whole = emitted(elements, bundle_records=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(do_fn_invoker, "PART_OUTPUTS", 3)
        in_parts = emitted(elements, bundle_records)

    # One bundle emits what comes without a time of its own first; parts are in the order of the outputs.
    assert [sorted(each) for each in whole] == [sorted(each) for each in in_parts]


def test_no_more_is_asked_for_than_goes_on() -> None:
    p = df.Pipeline(DirectRunner(bundle_records=1))
    asked, seen = [], []

    def numbers(element: int) -> Iterator[int]:
        for each in range(3 * do_fn_invoker.PART_OUTPUTS):
            asked.append(each)
            yield each

    p | df.Create([1]) | df.FlatMap(numbers) | df.Map(lambda each: seen.append(len(asked) - each))
    p.run()

    assert len(seen) == len(asked) == 3 * do_fn_invoker.PART_OUTPUTS
    assert max(seen) == do_fn_invoker.PART_OUTPUTS


def test_who_fails_in_a_later_part_is_named() -> None:
    def fails(element: str) -> Iterator[int]:
        for each in count():
            yield 1 // (2 * do_fn_invoker.PART_OUTPUTS - each)

    p = df.Pipeline(DirectRunner(bundle_records=1))
    p | df.Create(["the element"]) | "fails" >> df.FlatMap(fails) | "fine" >> df.Map(str)

    with pytest.raises(df.TransformError, match=r"'fails' .* raised ZeroDivisionError") as caught:
        p.run()
    assert "'the element'" in caught.value.detail


def test_who_fails_on_a_later_part_is_named() -> None:
    p = df.Pipeline(DirectRunner(bundle_records=1))
    numbers = df.FlatMap(lambda _: range(do_fn_invoker.PART_OUTPUTS + 5, 0, -1))
    p | df.Create([1]) | "fine" >> numbers | "fails" >> df.Map(lambda each: 1 // (each - 1))

    with pytest.raises(df.TransformError, match=r"'fails' .* raised ZeroDivisionError") as caught:
        p.run()
    assert "element: 1" in caught.value.detail
