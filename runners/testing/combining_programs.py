"""Programs of combiners, joins and requests for `runners.testing.runner_conformance`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import dataflow as df

_NUMBERS = (3, 1, 4, 1, 5)
_PAIRS = (("a", 3), ("a", 1), ("b", 4))


class _Basket(NamedTuple):
    shop: str
    pieces: int


def _named(found: Mapping[str, Any]) -> Any:
    """Collections in one, each element with the name of its own."""
    named = [
        each | f"name {name}" >> df.Map(lambda element, name: (name, element), name)
        for name, each in found.items()
    ]
    return named | "together" >> df.Flatten()


def combiners_of_all(p: df.Pipeline) -> df.PCollection[Any]:
    """Everything that there is of the elements of a window, and of none."""
    seconds = enumerate(_NUMBERS)
    numbers: Any = p | df.Create([df.TimestampedValue(each, at) for at, each in seconds])
    nothing: Any = numbers | "nothing" >> df.Filter(lambda _: False)
    combiners: dict[str, Any] = {
        "count": df.Count.Globally(),
        "elements": df.Count.PerElement(),
        "sum": df.Sum.Globally(),
        "mean": df.Mean.Globally(),
        "min": df.Min.Globally(),
        "max": df.Max.Globally(),
        "top": df.Top.Of(2),
        "largest": df.Top.Largest(1),
        "smallest": df.Top.Smallest(3),
        "latest": df.Latest.Globally(),
        "set": df.ToSet.Globally(),
        "divided": df.Sum.Globally().with_fanout(2),
        "both": df.CombineGlobally(df.SingleInputTupleCombineFn(min, df.CountCombineFn())),
        "whole": df.CombineGlobally(lambda values: sum(values) / len(values)),
    }
    found = {name: numbers | name >> each for name, each in combiners.items()}
    lists = numbers | "list" >> df.ToList.Globally() | "sorted" >> df.Map(sorted)
    samples = numbers | "sample" >> df.Sample.FixedSizeGlobally(2) | "size" >> df.Map(len)
    default = nothing | "default" >> df.CombineGlobally(df.SumCombineFn())
    no_default = nothing | "no default" >> df.CombineGlobally(sum).without_defaults()
    return _named(  # type: ignore[no-any-return]
        {**found, "list": lists, "sample": samples, "default": default, "no default": no_default}
    )


OF_ALL: tuple[Any, ...] = (
    ("count", 5),
    *(("elements", pair) for pair in [(1, 2), (3, 1), (4, 1), (5, 1)]),
    ("sum", 14),
    ("mean", 2.8),
    ("min", 1),
    ("max", 5),
    ("top", [5, 4]),
    ("largest", [5]),
    ("smallest", [1, 1, 3]),
    ("latest", 5),
    ("set", {1, 3, 4, 5}),
    ("divided", 14),
    ("both", (1, 5)),
    ("whole", 2.8),
    ("list", [1, 1, 3, 4, 5]),
    ("sample", 2),
    ("default", 0),
)


def combiners_of_keys(p: df.Pipeline) -> df.PCollection[Any]:
    """Everything that there is of the values of a key."""
    seconds = enumerate(_PAIRS)
    pairs: Any = p | df.Create([df.TimestampedValue(each, at) for at, each in seconds])
    combiners: dict[str, Any] = {
        "count": df.Count.PerKey(),
        "sum": df.Sum.PerKey(),
        "mean": df.Mean.PerKey(),
        "min": df.Min.PerKey(),
        "max": df.Max.PerKey(),
        "top": df.Top.PerKey(1),
        "smallest": df.Top.SmallestPerKey(1),
        "latest": df.Latest.PerKey(),
        "divided": df.CombinePerKey(sum).with_hot_key_fanout(3),
        "whole": df.CombinePerKey(lambda values: sum(values) / len(values)),
    }
    found = {name: pairs | name >> each for name, each in combiners.items()}
    lists = pairs | "group" >> df.GroupByKey()
    found["values"] = lists | "values" >> df.CombineValues(max)
    twice = pairs | "twice" >> df.MapTuple(lambda key, value: (key, (value, value)))
    found["tuple"] = twice | "tuple" >> df.CombinePerKey(df.TupleCombineFn(min, max))
    found["dict"] = found["latest"] | "dict" >> df.ToDict.Globally()
    sales = pairs | "sale" >> df.MapTuple(_Basket)
    grouped = df.GroupBy("shop").aggregate_field("pieces", df.MeanCombineFn(), "mean")
    found["fields"] = (
        sales
        | "fields" >> grouped.aggregate_field("pieces", max, "most")
        | "plain" >> df.Map(lambda row: (row.shop, row.mean, row.most))
    )
    return _named(found)  # type: ignore[no-any-return]


_OF_A_AND_B: tuple[tuple[str, Any, Any], ...] = (
    ("count", 2, 1),
    ("sum", 4, 4),
    ("mean", 2.0, 4.0),
    ("min", 1, 4),
    ("max", 3, 4),
    ("top", [3], [4]),
    ("smallest", [1], [4]),
    ("latest", 1, 4),
    ("divided", 4, 4),
    ("whole", 2.0, 4.0),
    ("values", 3, 4),
    ("tuple", (1, 3), (4, 4)),
)
OF_KEYS: tuple[Any, ...] = (
    *((name, ("a", a)) for name, a, _ in _OF_A_AND_B),
    *((name, ("b", b)) for name, _, b in _OF_A_AND_B),
    ("dict", {"a": 1, "b": 4}),
    ("fields", ("a", 2.0, 3)),
    ("fields", ("b", 4.0, 4)),
)


def joins(p: df.Pipeline) -> df.PCollection[Any]:
    """Pairs of two collections by their keys, by each kind of join."""
    left = p | "left" >> df.Create([("a", 1), ("a", 2), ("b", 3)])
    right = p | "right" >> df.Create([("a", "x"), ("c", "y")])
    kinds = df.JoinType.INNER, df.JoinType.LEFT_OUTER, df.JoinType.FULL_OUTER
    return _named(  # type: ignore[no-any-return]
        {each.name: (left, right) | each.name >> df.Join(each) for each in kinds}
    )


_INNER = (("a", (1, "x")), ("a", (2, "x")))
_LEFT = (*_INNER, ("b", (3, None)))
JOINED: tuple[Any, ...] = (
    *(("INNER", each) for each in _INNER),
    *(("LEFT_OUTER", each) for each in _LEFT),
    *(("FULL_OUTER", each) for each in (*_LEFT, ("c", (None, "y")))),
)


def requests(p: df.Pipeline) -> df.PCollection[Any]:
    """Elements that another system is asked about, and that are logged."""
    numbers = p | df.Create([1, 2, 1])
    return numbers | df.RequestResponse(lambda each: each * 10) | df.LogElements()
