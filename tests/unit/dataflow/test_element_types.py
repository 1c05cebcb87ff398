"""Types of elements follow from annotations, and what contradicts them is refused when the pipeline is built."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

import dataflow as df

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

T = TypeVar("T")
SPEC = df.ReadModifyWriteStateSpec("seen")
END = df.TimerSpec("end", df.TimeDomain.EVENT)


class Sale(NamedTuple):
    shop: str
    amount: int


def upper(text: str) -> str:
    return text.upper()


def length(text: str) -> int:
    return len(text)


@functools.lru_cache
def cached(text: str) -> int:
    return len(text)


def halves(number: int) -> list[float]:
    return [number / 2, number / 2]


def perhaps(text: str) -> int | None:
    return len(text) or None


def same(element: T) -> T:
    return element


def with_length(text: str) -> tuple[str, int]:
    return text, len(text)


def unresolvable(text: Unknown) -> str:
    return str(text)


async def awaited(text: str) -> int:
    return len(text)


async def parts_awaited(text: str) -> AsyncIterator[str]:
    yield text


awaited_parts: Any = parts_awaited


BAD = df.OutputTag[str]("bad")


def tagged(text: str) -> Iterator[int | df.TaggedOutput]:
    yield len(text)


def stamped(text: str) -> df.TimestampedValue[int]:
    return df.TimestampedValue(len(text), 0)


def total(numbers: Iterable[int]) -> int:
    return sum(numbers)


def priced(name: str, price: float) -> Decimal:
    return Decimal(price)


def nothing(text: str) -> None: ...


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def other(element: Any) -> Any:
        return [function(element)]

    return other


class Words(df.DoFn):
    def process(self, element: str, *args: Any, **kwargs: Any) -> Iterator[str]:
        yield from element.split()


class Lengths(df.DoFn[str, int]):
    def process(self, element: Any, *args: Any, **kwargs: Any) -> Any:
        yield len(element)


class MoreLengths(Lengths): ...


class Ending(Words):
    def finish_bundle(self) -> Iterator[Any]:
        yield df.TimestampedValue(1, 0)


class WithTimer(df.DoFn):
    def process(
        self, element: tuple[str, int], seen: Any = df.DoFn.StateParam(SPEC)
    ) -> Iterator[str]:
        yield element[0]

    @df.on_timer(END)
    def ended(self) -> Iterator[int]:
        yield 1


class Summed(df.CombineFn):
    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        return accumulator + value

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> str:
        return str(accumulator)


class Widened(df.PTransform[Any, Any]):
    def expand(self, pcoll: df.PCollection[int]) -> df.PCollection[float]:
        return pcoll | df.Map(lambda number: number + 0.5)


@df.ptransform_fn
def shouted(texts: df.PCollection[str], mark: str) -> df.PCollection[str]:
    return texts | df.Map(lambda text: text + mark)


class Orders(df.Source[Sale]):
    def splits(self, desired: int) -> Sequence[Any]:
        return [0]

    def open(self, split: Any, position: Any, *, fence: int) -> Any:
        raise NotImplementedError


def of(element_type: Any) -> Any:
    """A collection of elements of a type."""
    created = df.Pipeline() | df.Create([df.TimestampedValue(0, 0)]).with_output_types(Any)
    return created | "typed" >> df.Map(lambda x: x).with_output_types(element_type)


def texts() -> Any:
    return of(str)


def pairs() -> Any:
    return of(tuple[str, int])


@pytest.mark.parametrize(
    ("found", "element_type"),
    [
        (lambda: df.Pipeline() | df.Create([1, "a"]), int | str),
        (lambda: df.Pipeline() | df.Create({"a": 1}), tuple[str, int]),
        (lambda: df.Pipeline() | df.Create([df.TimestampedValue(Sale("a", 1), 0)]), Sale),
        (lambda: df.Pipeline() | df.Create([]), Any),
        (lambda: df.Pipeline() | df.Create(range(20_000)), Any),
        (lambda: df.Pipeline() | df.Impulse(), bytes),
        (lambda: df.Pipeline() | df.Read(Orders()), Sale),
        (lambda: df.Pipeline() | df.Read(Orders(), event_time=df.ARRIVAL_TIME), Sale),
        (lambda: texts() | df.Map(length), int),
        (lambda: texts() | df.Map(len), int),
        (lambda: texts() | df.Map(Sale, 3), Sale),
        (lambda: texts() | df.Map(functools.partial(priced, price=3)), Decimal),
        (lambda: texts() | df.Map(cached), int),
        (lambda: texts() | df.Map(perhaps), int | None),
        (lambda: texts() | df.Map(same), str),
        (lambda: texts() | df.Map(stamped), int),
        (lambda: texts() | df.Map(awaited), int),
        (lambda: texts() | df.FlatMap(awaited_parts), str),
        (lambda: texts() | df.Map(lambda text: text), Any),
        (lambda: texts() | df.Map(decorated(length)), Any),
        (lambda: texts() | df.FlatMap(str.split), str),
        (lambda: of(int) | df.FlatMap(halves), float),
        (lambda: texts() | df.Filter(str.isupper), str),
        (lambda: of(Any) | df.Filter(length), str),
        (lambda: texts() | df.WithTimestamps(length), str),
        (lambda: texts() | df.WindowInto(df.FixedWindows(60)), str),
        (lambda: texts() | df.Reshuffle(), str),
        (lambda: texts() | df.ParDo(Words()), str),
        (lambda: texts() | df.ParDo(MoreLengths()), int),
        (lambda: texts() | df.ParDo(Ending()), Any),
        (lambda: pairs() | df.ParDo(WithTimer()), Any),
        (lambda: (texts() | df.FlatMap(tagged).with_outputs("bad"))["main"], int),
        (lambda: (texts() | df.FlatMap(tagged).with_outputs("bad")).bad, Any),
        (
            lambda: (
                (
                    texts() | df.FlatMap(tagged).with_outputs("bad").with_output_types(int, bad=str)
                ).bad
            ),
            str,
        ),
        (lambda: (texts() | df.FlatMap(tagged).with_outputs(BAD))["bad"], str),
        (lambda: (texts() | df.FlatMap(tagged).with_outputs("a", BAD, "c"))[BAD], str),
        (lambda: (texts() | df.FlatMap(tagged).with_outputs(BAD)).main, int),
        (lambda: (texts() | df.FlatMap(tagged).with_outputs(df.OutputTag("bad"))).bad, Any),
        (
            lambda: (
                texts() | df.FlatMap(tagged).with_outputs(BAD, "b").with_output_types(b=bytes)
            )[BAD],
            str,
        ),
        (lambda: (texts() | df.Map(length).with_exception_handling()).good, int),
        (lambda: (texts() | df.Map(length).with_exception_handling()).bad, df.BadElement),
        (lambda: (texts() | df.Partition(lambda _, n: 0, 2))[1], str),
        (lambda: texts() | df.WithKeys(length), tuple[int, str]),
        (lambda: texts() | df.WithKeys(3), tuple[int, str]),
        (lambda: pairs() | df.Keys(), str),
        (lambda: pairs() | df.Values(), int),
        (lambda: pairs() | df.KvSwap(), tuple[int, str]),
        (lambda: of(tuple[str, float]) | df.MapTuple(priced), Decimal),
        (lambda: pairs() | df.GroupByKey(), tuple[str, Sequence[int]]),
        (lambda: pairs() | df.CombinePerKey(sum), tuple[str, int]),
        (lambda: pairs() | df.CombinePerKey(total), tuple[str, int]),
        (lambda: pairs() | df.CombinePerKey(Summed()), tuple[str, str]),
        (lambda: pairs() | df.CombinePerKey(df.associative(total)), tuple[str, int]),
        (lambda: of(tuple[str, Decimal]) | df.CombinePerKey(sum), tuple[str, Decimal]),
        (lambda: of(tuple[str, bool]) | df.CombinePerKey(sum), tuple[str, Any]),
        (lambda: pairs() | df.Count.PerKey(), tuple[str, int]),
        (lambda: of(int) | df.CombineGlobally(max), int),
        (lambda: of(int) | df.CombineGlobally(Summed()), str),
        (lambda: texts() | df.Count.PerElement(), tuple[str, int]),
        (lambda: of(int) | Widened(), float),
        (lambda: texts() | shouted("!"), str),
        (lambda: texts() | df.Map(length).with_output_types(Any), Any),
    ],
)
def test_types_flow(found: Callable[[], Any], element_type: Any) -> None:
    assert element_type == found().element_type


def test_types_of_several_inputs() -> None:
    p = df.Pipeline()
    ages = p | "ages" >> df.Create([("ann", 7)])
    towns = p | "towns" >> df.Create([("ann", "Rome")])

    both: Any = (ages, towns) | df.Flatten()
    assert tuple[str, int] | tuple[str, str] == both.element_type
    together = (ages, towns) | df.CoGroupByKey()
    assert tuple[str, tuple[list[int], list[str]]] == together.element_type
    named = {"ages": ages, "towns": towns} | df.CoGroupByKey()
    assert tuple[str, dict[str, list[int] | list[str]]] == named.element_type
    joined = (ages, towns) | df.Join(df.JoinType.LEFT_OUTER)
    assert tuple[str, tuple[int, str | None]] == joined.element_type


def test_side_inputs_leave_the_elements_as_they_are() -> None:
    p = df.Pipeline()
    words: Any = p | "words" >> df.Create(["a"])
    number = df.AsSingleton(p | "number" >> df.Create([1]))

    def longer(word: str, least: int) -> bool:
        return len(word) > least

    assert str is (words | df.Filter(longer, number)).element_type
    with pytest.raises(df.PipelineError, match=r"takes str, and is given int"):
        words | df.Map(len) | df.Filter(longer, number)


@pytest.mark.parametrize(
    ("build", "fact"),
    [
        (lambda: of(int) | "up" >> df.Map(upper), "transform 'up' .* takes str, and is given int"),
        (lambda: of(int) | df.Map(str.upper), "takes str, and is given int"),
        (
            lambda: (
                (texts() | df.FlatMap(tagged).with_outputs(df.OutputTag[int]("bad"))).bad
                | df.Map(upper)
            ),
            "'Map.upper.' .* takes str, and is given int",
        ),
        (lambda: of(int) | df.ParDo(Words()), "takes str, and is given int"),
        (lambda: of(int) | df.ParDo(MoreLengths()), "takes str, and is given int"),
        (lambda: of(int) | df.FlatMap(awaited_parts), "takes str, and is given int"),
        (lambda: of(int) | df.WithTimestamps(length), "takes str, and is given int"),
        (lambda: of(int) | df.Map(decorated(same)) | df.Filter(nothing), "keeps no element"),
        (lambda: of(int) | df.FlatMap(same), "returns int, which is one value, and not outputs"),
        (lambda: texts() | df.FlatMap(upper), "returns str, which is one value, and not outputs"),
        (lambda: of(Sale) | df.FlatMap(same), "returns Sale, which is one value"),
        (lambda: of(int) | df.GroupByKey(), r"needs \(key, value\) pairs, and is given int"),
        (lambda: of(int) | df.CombinePerKey(sum), r"needs \(key, value\) pairs, and is given int"),
        (lambda: of(tuple[list[int], int]) | df.GroupByKey(), "keys of type list.int., which"),
        (lambda: of(tuple[str, str]) | df.CombinePerKey(Summed()), "takes tuple.Any, int."),
        (lambda: of(tuple[str, str]) | df.CombinePerKey(total), "takes tuple.Any, int."),
        (lambda: of(str) | df.CombineGlobally(total), "takes tuple.Any, int."),
        (lambda: pairs() | df.MapTuple(priced) | df.Map(upper), "takes str, and is given Decimal"),
        (lambda: of(tuple[int, int]) | df.MapTuple(priced), "takes tuple.str, float."),
        (
            lambda: of(tuple[int, int, int]) | df.Keys(),
            r"'Keys' .* needs \(key, value\) pairs, and is given tuple.int, int, int.",
        ),
        (lambda: texts() | df.WithKeys(with_length) | df.Keys() | df.Map(upper), "takes str"),
        (lambda: texts() | Widened(), "'Widened' .* takes int, and is given str"),
        (lambda: of(int) | shouted("!"), "'shouted' .* takes str, and is given int"),
        (lambda: texts() | df.Map(upper).with_input_types(int), "takes int, and is given str"),
        (lambda: of(Any) | df.Map(upper).with_input_types(int), "takes str, and is given int"),
        (lambda: texts() | df.Map(upper).with_output_types(int), "declared to emit int, and emits"),
        (
            lambda: texts() | df.ParDo(Words()).with_outputs("b").with_output_types(str, c=int),
            "declared to have outputs that it does not have: .'c'.",
        ),
        (lambda: texts() | df.Map(upper).with_output_types(str, bad=int), "does not have"),
        (lambda: texts() | df.WriteToPostgres("t", columns={"a": int}), "takes Mapping.str, Any."),
    ],
)
def test_contradictions_are_refused(build: Callable[[], Any], fact: str) -> None:
    with pytest.raises(df.PipelineError, match=fact) as caught:
        build()
    assert "test_element_types.py:" in str(caught.value)


@pytest.mark.parametrize(
    "build",
    [
        lambda: of(int) | df.Map(unresolvable),
        lambda: of(int) | df.Map(decorated(upper)),
        lambda: of(int | str) | df.Map(upper),
        lambda: of(object) | df.Map(upper),
        lambda: of(bool) | df.FlatMap(halves),
        lambda: of(tuple[str, int]) | df.Map(same) | df.Filter(lambda _: True) | df.Keys(),
        lambda: texts() | df.FlatMap(nothing),
        lambda: of(Sale) | df.GroupByKey(),
        lambda: of(Sale) | df.WriteToPostgres("t", columns={"shop": str, "amount": int}),
        lambda: of(tuple[int, ...]) | df.MapTuple(priced),
    ],
)
def test_what_is_not_certain_is_accepted(build: Callable[[], Any]) -> None:
    build()


def test_a_refusal_names_both_transforms_and_both_types() -> None:
    p = df.Pipeline()
    lengths: Any = p | "begin" >> df.Create(["a"]) | "lengths" >> df.Map(length)
    with pytest.raises(df.PipelineError) as caught:
        lengths | "windows" >> df.WindowInto(df.GlobalWindows()) | "shout" >> df.Map(upper)

    assert "transform 'shout' " in caught.value.fact
    assert caught.value.fact.endswith(" takes str, and is given int")
    assert caught.value.detail.startswith("int is what transform 'lengths' ")
    assert "with_output_types" in caught.value.hint


@pytest.mark.parametrize("given", [3, "int", (int, str)])
def test_a_declaration_is_a_type(given: Any) -> None:
    with pytest.raises(df.PipelineError, match="with_output_types needs a type, not"):
        df.Map(upper).with_output_types(given)
    with pytest.raises(df.PipelineError, match="with_input_types needs a type, not"):
        df.Map(upper).with_input_types(given)


def test_declarations_stay_with_the_outputs_and_the_label() -> None:
    declared = "x" >> df.ParDo(Words()).with_output_types(str).with_input_types(str)
    assert (declared.label, declared.declared_types.accepts) == ("x", str)
    many: Any = df.ParDo(Words()).with_input_types(str)
    assert str is many.with_outputs("bad").declared_types.accepts
