"""Programs that type checkers accept, and what they find to flow; checked by `test_type_checkers.py`, never run."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, assert_type

import dataflow as df


class Sale(NamedTuple):
    shop: str
    amount: int


class Split(df.DoFn[str, str]):
    def process(self, element: str, /, *args: Any, **kwargs: Any) -> Iterator[str]:
        yield from element.split()


class Mean(df.CombineFn[float, tuple[float, int], float]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add_input(self, accumulator: tuple[float, int], value: float) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Iterable[tuple[float, int]]) -> tuple[float, int]:
        sums, counts = zip(*accumulators, strict=True)
        return sum(sums), sum(counts)

    def extract_output(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]


def half(number: int) -> float:
    return number / 2


def is_even(number: int) -> bool:
    return number % 2 == 0


def length(text: str, more: int, window: df.Window = df.DoFn.WindowParam) -> int:
    return len(text) + more


Pairs = df.PCollection[tuple[str, int]]


def functions(ints: df.PCollection[int], texts: df.PCollection[str]) -> None:
    assert_type(ints | df.Map(half), df.PCollection[float])
    assert_type(ints | "half" >> df.Map(half), df.PCollection[float])
    assert_type(ints | df.Filter(is_even), df.PCollection[int])
    assert_type(ints | "even" >> df.Filter(is_even), df.PCollection[int])
    assert_type(ints | df.Map(lambda number: f"{number}"), df.PCollection[str])
    assert_type(texts | df.FlatMap(str.split), df.PCollection[str])
    assert_type(texts | "split" >> df.FlatMap(str.split), df.PCollection[str])
    assert_type(texts | df.ParDo(Split()), df.PCollection[str])
    assert_type(texts | "split" >> df.ParDo(Split()), df.PCollection[str])
    assert_type(texts | df.Map(length, 3), df.PCollection[int])
    assert_type(texts | df.Map(length, more=3), df.PCollection[int])


def keys(ints: df.PCollection[int], texts: df.PCollection[str]) -> None:
    assert_type(texts | df.WithKeys(str.upper), df.PCollection[tuple[str, str]])
    assert_type(ints | "halves" >> df.WithKeys(half), df.PCollection[tuple[float, int]])
    assert_type(texts | df.WithKeys(length, 3), df.PCollection[tuple[int, str]])
    assert_type(texts | "more" >> df.WithKeys(length, more=3), df.PCollection[tuple[int, str]])
    assert_type(ints | df.WithKeys(lambda number: f"{number}"), df.PCollection[tuple[str, int]])
    assert_type(ints | df.WithKeys("all"), df.PCollection[tuple[str, int]])
    assert_type(texts | "none" >> df.WithKeys(None), df.PCollection[tuple[None, str]])
    assert_type(ints | df.WithKeys(Sale("a", 1)), df.PCollection[tuple[Sale, int]])
    counted = texts | df.WithKeys(len) | df.CombinePerKey(df.CountCombineFn())
    assert_type(counted, df.PCollection[tuple[int, int]])


def lambdas(texts: df.PCollection[str]) -> None:
    """With further parameters, of which nothing is known."""
    texts | df.Map(lambda text, more: text * more, 3)
    texts | df.Map(lambda text, window=df.DoFn.WindowParam: (window.start, text))
    texts | df.Filter(lambda text, least=3: len(text) > least)


class Orders(df.Source[Sale]):
    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: Any, position: Any, *, fence: int) -> Any:
        raise NotImplementedError


def numbers(text: str) -> Iterator[int | df.TaggedOutput]:
    yield len(text)


def outputs(texts: df.PCollection[str]) -> None:
    """The main one has its type; the others differ by texts, of which type checkers know nothing."""
    split = texts | df.ParDo(Split()).with_outputs("other")
    main, other = split
    assert_type(main, df.PCollection[str])
    assert_type(other, df.PCollection[Any])
    assert_type(split.other, df.PCollection[Any])
    lengths, bad, _ = texts | "labelled" >> df.FlatMap(numbers).with_outputs("bad", "worse")
    assert_type(lengths, df.PCollection[int])
    assert_type(bad, df.PCollection[Any])
    many = texts | df.FlatMap(numbers).with_outputs("a", "b", "c", "d")
    assert_type(many["a"], df.PCollection[Any])


BAD = df.OutputTag[Sale]("bad")
LONG = df.OutputTag[tuple[str, int]]("long")
MAYBE = df.OutputTag[int | None]("maybe")


class Parse(df.DoFn[str, int]):
    def process(
        self, element: str, /, *args: Any, **kwargs: Any
    ) -> Iterator[int | df.TaggedOutput]:
        yield len(element)
        yield df.TaggedOutput(BAD, Sale(element, 1))
        yield df.TaggedOutput(LONG, df.TimestampedValue((element, 1), 7))
        yield df.TaggedOutput(MAYBE, None)
        yield df.TaggedOutput("text", 1.5)


def typed_outputs(texts: df.PCollection[str]) -> None:
    """A tag that is an `OutputTag` has the type of its output."""
    good, bad = texts | df.ParDo(Parse()).with_outputs(BAD)
    assert_type(good, df.PCollection[int])
    assert_type(bad, df.PCollection[Sale])
    lengths, long, other = texts | "labelled" >> df.FlatMap(numbers).with_outputs(LONG, "other")
    assert_type(lengths, df.PCollection[int])
    assert_type(long, df.PCollection[tuple[str, int]])
    assert_type(other, df.PCollection[Any])
    many = texts | "many" >> df.ParDo(Parse()).with_outputs(BAD, LONG, MAYBE, "text")
    assert_type(many[BAD], df.PCollection[Sale])
    assert_type(many[MAYBE], df.PCollection[int | None])
    assert_type(many["bad"], df.PCollection[Any])
    assert_type(many[LONG] | df.Keys(), df.PCollection[str])


def failures(texts: df.PCollection[str]) -> None:
    """What a transform fails on is an output of `BadElement`."""
    good, bad = texts | df.Map(len).with_exception_handling()
    assert_type(good, df.PCollection[int])
    assert_type(bad, df.PCollection[df.BadElement])
    main, other, failed = texts | df.ParDo(Parse()).with_outputs(BAD).with_exception_handling()
    assert_type(main, df.PCollection[int])
    assert_type(other, df.PCollection[Sale])
    assert_type(failed, df.PCollection[df.BadElement])
    kept, _ = texts | "kept" >> df.Filter(str.isupper).with_exception_handling("kept", "lost")
    assert_type(kept, df.PCollection[str])


def failures_of_a_source(p: df.Pipeline) -> None:
    rows, bad = p | df.ReadFromCsv("x.csv").with_exception_handling(threshold=0.1)
    assert_type(rows, df.PCollection[dict[str, str]])
    assert_type(bad, df.PCollection[df.BadElement])
    sales, _ = p | "read" >> df.Read(Orders()).with_exception_handling()
    assert_type(sales, df.PCollection[Sale])


def stamped(text: str) -> df.TimestampedValue[int]:
    return df.TimestampedValue(len(text), 7)


def failures_of_what_has_times(texts: df.PCollection[str]) -> None:
    lengths, _ = texts | df.Map(stamped).with_exception_handling()
    assert_type(lengths, df.PCollection[int])


def parts(texts: df.PCollection[str]) -> None:
    upper, lower = texts | df.Partition(place, 2)
    assert_type(upper, df.PCollection[str])
    assert_type(lower, df.PCollection[str])
    texts | "by lambda" >> df.Partition(lambda text, n: len(text) % n, 2)
    texts | "with more" >> df.Partition(lambda text, n, more: len(text) % n + more, 2, 0)
    few = texts | "few" >> df.Partition(place, 3)
    assert_type(few[0], df.PCollection[str])


def place(text: str, number: int) -> int:
    return len(text) % number


def sources(p: df.Pipeline) -> None:
    assert_type(p | df.ReadFromCsv("x.csv"), df.PCollection[dict[str, str]])
    assert_type(p | df.ReadFromJsonLines("x", rows=Sale), df.PCollection[Sale])
    assert_type(p | "read" >> df.ReadFromJsonLines("x", rows=Sale), df.PCollection[Sale])
    assert_type(p | df.ReadFromJsonLines("x", event_time=float), df.PCollection[Any])
    assert_type(p | df.ReadFromParquet("x", rows=Sale, event_time="at"), df.PCollection[Sale])
    assert_type(p | df.ReadFromParquet(["x", "y"]), df.PCollection[dict[str, Any]])
    assert_type(p | df.ReadFromText("x"), df.PCollection[str])
    assert_type(p | df.Read(Orders()), df.PCollection[Sale])
    assert_type(p | df.Impulse(), df.PCollection[bytes])


def declared(texts: df.PCollection[str]) -> None:
    lengths = texts | df.Map(lambda text: len(text) + 1).with_output_types(int)
    assert_type(lengths, df.PCollection[int])
    assert_type(texts | "l" >> df.Map(len).with_output_types(int), df.PCollection[int])
    rows = texts | df.GroupBy("shop").with_output_types(Sale)
    assert_type(rows, df.PCollection[Sale])
    assert_type(texts | df.Map(len).with_input_types(str), df.PCollection[int])


def windows_and_keys(pairs: Pairs) -> None:
    windowed = pairs | "windows" >> df.WindowInto(df.FixedWindows(60))
    assert_type(windowed, Pairs)
    assert_type(windowed | df.GroupByKey(), df.PCollection[tuple[str, Sequence[int]]])
    assert_type(windowed | "group" >> df.GroupByKey(), df.PCollection[tuple[str, Sequence[int]]])
    assert_type(pairs | "keys" >> df.Keys(), df.PCollection[str])
    assert_type(pairs | "values" >> df.Values(), df.PCollection[int])
    assert_type(pairs | "swapped" >> df.KvSwap(), df.PCollection[tuple[int, str]])
    assert_type(pairs | "distinct" >> df.Distinct() | df.Reshuffle(), Pairs)


def combined(pairs: Pairs, ints: df.PCollection[int]) -> None:
    assert_type(pairs | df.CombinePerKey(sum), Pairs)
    assert_type(pairs | "sum" >> df.CombinePerKey(sum), Pairs)
    assert_type(pairs | "max" >> df.CombinePerKey(max), Pairs)
    assert_type(pairs | "mean" >> df.CombinePerKey(Mean()), df.PCollection[tuple[str, float]])
    assert_type(pairs | "len" >> df.CombinePerKey(len), Pairs)
    assert_type(ints | "least" >> df.CombineGlobally(min), df.PCollection[int])
    assert_type(ints | "mean" >> df.CombineGlobally(Mean()), df.PCollection[float])
    assert_type(ints | "count" >> df.Count.Globally(), df.PCollection[int])
    assert_type(pairs | "count" >> df.Count.PerKey(), Pairs)
    assert_type(pairs | "largest" >> df.Max.PerKey(), Pairs)
    assert_type(ints | "each" >> df.Count.PerElement(), df.PCollection[tuple[int, int]])


def several(pairs: Pairs, names: df.PCollection[tuple[str, str]]) -> None:
    assert_type((pairs, pairs) | df.Flatten(), Pairs)
    assert_type(
        (pairs, names) | df.CoGroupByKey(),
        df.PCollection[tuple[str, tuple[list[int], list[str]]]],
    )


def created(p: df.Pipeline) -> None:
    assert_type(p | df.Create([1, 2]), df.PCollection[int])
    assert_type(p | df.Create({"a": 1}), Pairs)
    assert_type(p | df.Create([df.TimestampedValue("a", 1)]), df.PCollection[str])
