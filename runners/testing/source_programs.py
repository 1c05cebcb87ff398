"""Programs of sources for `runners.testing.runner_conformance`."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import dataflow as df
from dataflow.columns import IntColumn, Rows
from runners.testing.scripted_source import Batch, ScriptedSource
from windowing.timestamps import MIN_TIMESTAMP_US, US_PER_SECOND

_BALANCE = df.CombiningValueStateSpec("balance", df.SumCombineFn())


class _Stock(NamedTuple):
    """A typed row."""

    shop: str
    pieces: int


class _Balance(df.DoFn):
    """Emits how much there is of a key after each record, or retraction of one."""

    handles_retractions = True

    def process(
        self,
        element: tuple[str, int],
        /,
        sign: int = df.DoFn.SignParam,
        balance: Any = df.DoFn.StateParam(_BALANCE),
    ) -> Iterator[Any]:
        """Add, or take away."""
        balance.add(sign * element[1])
        yield "balance", element[0], balance.read()


def _changes(*changes: tuple[int, Any, int]) -> Batch:
    """A batch of (sign, record, seconds since 1970)."""
    signs, values, times_s = zip(*changes, strict=True) if changes else ((), (), ())
    times_us = [at * US_PER_SECOND for at in times_s]
    return Batch(values, times_us, MIN_TIMESTAMP_US, signs=signs)


def _net(**pcolls: df.PCollection[Any]) -> df.PCollection[Any]:
    """What is left of each collection, with its name."""
    signs: list[df.PCollection[Any]] = [
        each
        | f"changes of {name}" >> df.ToChangelog()
        | f"signs of {name}"
        >> df.Map(lambda change, name: ((name, change.value), change.sign), name)
        | f"all of {name}" >> df.WindowInto(df.GlobalWindows())
        for name, each in pcolls.items()
    ]
    net = signs | df.Flatten() | "net" >> df.CombinePerKey(sum)
    return net | df.FlatMapTuple(lambda value, number: [value] * number)


def _in_seconds(element: Any, window: df.Window = df.DoFn.WindowParam) -> tuple[Any, int, int]:
    return element, window.start_us // US_PER_SECOND, window.end_us // US_PER_SECOND


def records_that_are_retracted(p: df.Pipeline) -> df.PCollection[Any]:
    """A source of changes, through what keeps and what combines; in two splits."""
    stock = p | "stock" >> df.Read(
        ScriptedSource(
            [
                _changes((+1, ("oslo", 5), 10), (+1, ("bergen", 2), 15)),
                _changes((+1, ("oslo", 1), 20), (-1, ("oslo", 5), 10), (+1, ("oslo", 7), 70)),
                _changes((-1, ("bergen", 2), 15)),
                _changes((+1, ("bergen", 3), 15)),
            ],
            [_changes((+1, ("oslo", 4), 40)), _changes(), _changes((-1, ("oslo", 4), 40))],
        )
    )
    minutes = stock | "minutes" >> df.WindowInto(df.FixedWindows(60))
    sessions = stock | "sessions" >> df.WindowInto(df.Sessions(25))
    groups = sessions | "group" >> df.GroupByKey()
    listed: df.PCollection[Any] = groups | df.MapTuple(lambda shop, found: (shop, *sorted(found)))
    kinds = stock | "shop" >> df.Keys() | df.Distinct()
    total = stock | "pieces" >> df.Values() | "all pieces" >> df.CombineGlobally(sum)
    shares: df.PCollection[Any] = stock | "share" >> df.MapTuple(
        lambda shop, pieces, all_pieces: (shop, pieces, all_pieces), df.AsSingleton(total)
    )
    signs: df.PCollection[Any] = stock | df.ToChangelog() | df.Map(lambda change: change.sign)
    number = signs | "signs" >> df.CombineGlobally(sum)
    return _net(
        read=stock,
        sums=minutes | "sum" >> df.CombinePerKey(sum) | "its minute" >> df.Map(_in_seconds),
        groups=listed | "its window" >> df.Map(_in_seconds),
        kinds=kinds,
        shares=shares,
        number=number,
    )


def balances_of_retracted_records(p: df.Pipeline) -> df.PCollection[Any]:
    """What a stateful DoFn sees of a source of changes: each record before its retraction."""
    script = [
        _changes((+1, ("oslo", 5), 10)),
        _changes((-1, ("oslo", 5), 10), (+1, ("oslo", 7), 11)),
        _changes((+1, ("bergen", 2), 15)),
    ]
    return p | df.Read(ScriptedSource(script)) | df.ParDo(_Balance())


def columns_that_are_retracted(p: df.Pipeline) -> df.PCollection[Any]:
    """Typed rows whose signs are a column too."""
    stock = p | "stock" >> df.Read(
        ScriptedSource(
            [
                _columns([(+1, _Stock("oslo", 5), 10), (+1, _Stock("bergen", 2), 15)]),
                _columns([(-1, _Stock("oslo", 5), 10), (+1, _Stock("oslo", 4), 10)]),
            ]
        )
    )
    many = stock | "more than one" >> df.Filter(df.col("pieces") > 1)
    twice = many | df.Select("shop", twice=df.col("pieces") * 2)
    minutes = twice | "minutes" >> df.WindowInto(df.FixedWindows(60))
    by_shop = minutes | df.Map(lambda row: (row.shop, row.twice))
    sums = by_shop | df.CombinePerKey(df.SumCombineFn())
    return _net(rows=twice | df.Map(tuple), sums=sums)


def _columns(changes: Sequence[tuple[int, _Stock, int]]) -> Batch:
    signs, rows, times_s = zip(*changes, strict=True)
    fields = [pa.array(each) for each in zip(*rows, strict=True)]
    return Batch(
        Rows.of(_Stock, _Stock._fields, fields),
        IntColumn(np.array(times_s, np.int64) * US_PER_SECOND),
        signs=IntColumn(np.array(signs, np.int64)),
    )


def failures_of_retracted_records(p: df.Pipeline) -> df.PCollection[Any]:
    """An element that fails is retracted as it was emitted: by its failure."""
    script = [
        _changes((+1, 0, 1), (+1, 2, 1), (+1, 0, 2)),
        _changes((-1, 0, 1), (+1, 5, 3), (-1, 2, 1)),
    ]
    numbers = p | df.Read(ScriptedSource(script))
    good, bad = numbers | "invert" >> df.Map(lambda n: 10 // n).with_exception_handling()
    failed: df.PCollection[Any] = bad | df.Map(lambda each: each.element)
    return _net(good=good, bad=failed)
