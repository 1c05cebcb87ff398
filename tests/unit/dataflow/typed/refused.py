"""Programs that type checkers refuse, each at the line that says so; checked by `test_type_checkers.py`, never run."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import dataflow as df


class Split(df.DoFn[str, str]):
    def process(self, element: str, /, *args: Any, **kwargs: Any) -> Iterator[str]:
        yield from element.split()


class Sale(NamedTuple):
    shop: str
    amount: int


def half(number: int) -> float:
    return number / 2


def first(pair: tuple[int, int]) -> int:
    return pair[0]


def longest(texts: list[str]) -> str:
    return max(texts, key=len)


def wrong(ints: df.PCollection[int], pairs: df.PCollection[tuple[str, int]]) -> None:
    ints | df.Map(first)  # refused
    ints | "label" >> df.Map(first)  # refused
    ints | df.FlatMap(str.split)  # refused
    ints | df.Filter(str.isupper)  # refused
    ints | df.ParDo(Split())  # refused
    ints | "label" >> df.ParDo(Split())  # refused
    ints | df.GroupByKey()  # refused
    ints | "label" >> df.GroupByKey()  # refused
    pairs | df.CombinePerKey(longest)  # refused
    pairs | "label" >> df.CombinePerKey(longest)  # refused
    ints | df.Keys()  # refused
    ints | df.WithKeys(str.upper)  # refused
    ints | "label" >> df.WithKeys(str.upper)  # refused
    ints | df.WithKeys("all") | df.Map(first)  # refused
    ints | df.WindowInto(df.FixedWindows(60)) | df.Map(first)  # refused
    ints | "count" >> df.Count.Globally() | df.Map(str.upper)  # refused
    main, _ = ints | df.Map(half).with_outputs("other")
    main | df.Map(str.upper)  # refused
    ints | df.Map(lambda number: number).with_output_types(int) | df.Map(str.upper)  # refused


BAD = df.OutputTag[str]("bad")


def wrong_outputs(ints: df.PCollection[int]) -> None:
    df.TaggedOutput(BAD, 3)  # refused
    df.TaggedOutput(BAD, df.TimestampedValue(3, 7))  # refused
    _, bad = ints | df.Map(half).with_outputs(BAD)
    bad | df.Map(half)  # refused
    outputs = ints | df.Map(half).with_outputs(BAD, "a", "b")
    outputs[BAD] | df.Map(half)  # refused
    good, failed = ints | df.Map(half).with_exception_handling()
    good | df.Map(str.upper)  # refused
    failed | df.Map(half)  # refused
    ints | df.Partition(place, 2)  # refused
    ints | "label" >> df.Partition(place, 2)  # refused


def place(text: str, number: int) -> int:
    return len(text) % number


def wrong_sources(p: df.Pipeline) -> None:
    p | df.ReadFromCsv("x.csv") | df.Map(first)  # refused
    p | df.ReadFromJsonLines("x", rows=Sale) | df.Map(str.upper)  # refused
    p | df.ReadFromParquet("x", rows=Sale) | df.Map(str.upper)  # refused
    p | df.ReadFromText("x") | "first" >> df.Map(first)  # refused
