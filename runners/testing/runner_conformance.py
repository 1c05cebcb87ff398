"""Runner conformance: small programs, one for each construct of the SDK, with what every runner must emit.

`PROGRAMS` is the list, and `check_runner` runs all of them in one pipeline on a runner, ours or another's::

    check_runner(lambda: MyRunner(...))

No test framework is needed.  What an order, a bundle or a clock decides is not in it.
"""

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dataflow as df
from dataflow.testing import assert_that, contains_in_any_order
from runners.testing import (
    combining_programs,
    session_programs,
    source_programs,
    state_programs,
    window_programs,
)

Build = Callable[[df.Pipeline], df.PCollection[Any]]

#: Files that programs read.
_FILES = TemporaryDirectory()
PAIRS = [("a", 1), ("b", 2), ("a", 3)]
MINUTE = df.WindowInto(df.FixedWindows(60))


class RunnerConformanceError(AssertionError):
    """A runner has emitted something else than what a program defines; names the programs."""


@attrs.frozen
class Program:
    """A small pipeline and what it emits.

    Attributes:
        name: of the construct; a label.
        build: applies it to a pipeline.
        expected: the elements, in any order.
        counters: what its user code has counted, by name; None: that is not checked.
    """

    name: str
    build: Build
    expected: Sequence[Any]
    counters: Mapping[str, int] | None = None


class _Sale(NamedTuple):
    """A typed row."""

    shop: str
    amount: int


class _Scaled(df.DoFn):
    """Multiplies by an argument, and emits the count of a bundle at its end."""

    def start_bundle(self) -> None:
        """Begin to count."""
        self.ends: dict[df.Window, Any] = {}

    def process(
        self,
        element: int,
        /,
        factor: int,
        at: Any = df.DoFn.TimestampParam,
        window: Any = df.DoFn.WindowParam,
        *,
        plus: int = 0,
    ) -> Iterator[Any]:
        """Multiply."""
        number, earliest = self.ends.get(window, (0, at))
        self.ends[window] = number + 1, min(earliest, at)
        yield element * factor + plus

    def finish_bundle(self) -> Iterator[Any]:
        """Emit the counts."""
        for window, (number, at) in self.ends.items():
            yield df.TaggedOutput("counts", df.WindowedValue(number, at, window))


def stamped(values: Iterable[tuple[Any, int]]) -> list[Any]:
    """Values at seconds since 1970."""
    return [df.TimestampedValue(value, at) for value, at in values]


def _arguments(p: df.Pipeline) -> df.PCollection[Any]:
    numbers = p | "numbers" >> df.Create([1, 2, 3])
    scaled = numbers | "scale" >> df.ParDo(_Scaled(), 10, plus=1).with_outputs("counts")
    return (
        scaled.main
        | df.Filter(lambda x, least: x > least, 11)
        | df.Map(lambda x, more, unit: f"{x + more}{unit}", 1, unit="m")
    )


def _bundle_ends(p: df.Pipeline) -> df.PCollection[Any]:
    numbers = p | "numbers" >> df.Create(stamped((n, n) for n in range(100))) | MINUTE
    _, counts = numbers | "scale" >> df.ParDo(_Scaled(), 10).with_outputs("counts")
    return counts | df.WithKeys(0) | df.CombinePerKey(sum) | df.Values()


def _sequences(p: df.Pipeline) -> df.PCollection[Any]:
    """Instants of ranges, of which two are equal, by the minute."""
    ranges = [(70, 75, 10), (-10, 50, "1 minute"), (0, 10, 10), (70, 75, 10), (5, 5, 1)]
    created: df.PCollection[Any] = p | df.Create(ranges)
    seconds = created | df.PeriodicSequence() | df.Map(lambda at: (None, at.timestamp()))
    windowed: df.PCollection[Any] = seconds | MINUTE | df.GroupByKey() | df.Reify.Window()
    return windowed | df.MapTuple(
        lambda group, _, window: (window.start.timestamp(), sorted(group[1]))
    )


_ODD, _TENS = df.OutputTag[int]("odd"), df.OutputTag[tuple[str, int]]("tens")


class _Sorted(df.DoFn[tuple[str, int], int]):
    """Sends numbers to outputs whose tags have types, from what keeps state and from what does not."""

    def __init__(self, number: Any = None) -> None:
        self._number = number

    def process(self, element: tuple[str, int], /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Send on a number."""
        value = element[1]
        yield df.TaggedOutput(_ODD, value) if value % 2 else value
        yield df.TaggedOutput(_TENS, df.TimestampedValue((element[0], value // 10), 61))


class _SortedByKey(_Sorted):
    """Does so where state is."""

    requires_time_sorted_input = True


def _typed_tags(p: df.Pipeline) -> df.PCollection[Any]:
    pairs = p | df.Create([("a", 4), ("b", 15)])
    even, odd, tens = pairs | df.ParDo(_Sorted()).with_outputs(_ODD, _TENS)
    by_key = pairs | "by key" >> df.ParDo(_SortedByKey()).with_outputs(_ODD, _TENS, "unused")
    stamped_tens = [each | df.Reify.Timestamp() for each in (tens, by_key[_TENS])]
    seconds = stamped_tens | df.Flatten() | df.Map(lambda each: (each.value, each.timestamp_us))
    every: df.PCollection[Any] = [even, odd, by_key.main, by_key[_ODD], seconds] | df.Flatten()
    return every


def _partition(p: df.Pipeline) -> df.PCollection[Any]:
    even, odd = p | df.Create(range(5)) | df.Partition(lambda x, n: x % n, 2)
    named = [
        part | f"name {name}" >> df.WithKeys(name)
        for name, part in {"even": even, "odd": odd}.items()
    ]
    return named | df.Flatten()


def _tee(p: df.Pipeline) -> df.PCollection[Any]:
    return p | df.Create([1, 2]) | df.Tee("square" >> df.Map(lambda x: x * x)) | df.LogElements()


@df.ptransform_fn
def _doubled(numbers: df.PCollection[int], times: int) -> df.PCollection[int]:
    for number in range(times):
        numbers = numbers | f"double {number}" >> df.Map(lambda x: 2 * x)
    return numbers


def _windows(p: df.Pipeline) -> df.PCollection[Any]:
    numbers = p | df.Create(stamped([(1, 5), (2, 65)])) | MINUTE | df.Reify.Window()
    return numbers | df.MapTuple(lambda x, at, window: (x, at.timestamp(), window.start_us))


def _stamped_values(p: df.Pipeline) -> df.PCollection[Any]:
    pairs = p | df.Create(stamped([(("a", 1), 5)])) | MINUTE
    sides = [pairs | df.Reify.TimestampInValue(), pairs | df.Reify.WindowInValue()]
    return sides | df.Flatten() | df.Map(repr)


def _distinct(p: df.Pipeline) -> df.PCollection[Any]:
    letters = p | df.Create(stamped(zip("abaab", (1, 2, 3, 61, 62), strict=True))) | MINUTE
    return letters | df.Distinct()


def _distinct_totals(p: df.Pipeline) -> df.PCollection[Any]:
    """Totals are retracted with each element, so one that has been superseded is not there in the end."""
    mode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    always = df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=mode)
    totals = p | df.Create([("a", 1), ("a", 2), ("b", 3)]) | always | df.CombinePerKey(sum)
    changes = totals | df.Values() | df.Distinct() | df.ToChangelog()
    signs = changes | df.Map(lambda change: (change.value, change.sign))
    once = df.WindowInto(df.GlobalWindows())
    net = signs | "once" >> once | "net" >> df.CombinePerKey(sum)
    return net | df.FlatMapTuple(lambda value, number: [value] if number else [])


def _co_group(p: df.Pipeline) -> df.PCollection[Any]:
    left = p | "left" >> df.Create(PAIRS)
    right = p | "right" >> df.Create([("a", "x")])
    grouped = (left, right) | df.CoGroupByKey()
    return grouped | df.MapTuple(lambda key, lists: (key, sorted(lists[0]), lists[1]))


class _AsColumns(df.DoFn):
    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def _flatten_with(p: df.Pipeline) -> df.PCollection[Any]:
    more = p | "more" >> df.Create(["b"]), p | "most" >> df.Create(["c", "c"])
    return p | "some" >> df.Create(["a"]) | df.FlattenWith(*more) | df.Map(str.upper)


def _expressions(p: df.Pipeline) -> df.PCollection[Any]:
    sales = p | df.Create([_Sale("Oslo", 3), _Sale("Rome", 4), _Sale("Oslo", 5)])
    large = sales | df.ParDo(_AsColumns()) | df.Filter(df.col("amount") % 2 == 1)
    totals = df.GroupBy("shop").aggregate_field(df.col("amount") * 2 + 1, sum, "total")
    by_shop = large | totals.aggregate_field(
        (-df.col("amount"), "amount"), df.ArgMaxCombineFn(), "best"
    ).aggregate_field("amount", df.TopCombineFn(2), "two")
    of_all = large | df.GroupBy().aggregate_field(-df.col("amount"), min, "least")
    return (by_shop | "shops" >> df.Map(tuple), of_all | "all" >> df.Map(tuple)) | df.Flatten()


def _reshuffle(p: df.Pipeline) -> df.PCollection[Any]:
    pairs = p | df.Create(stamped([(("a", 1), 5), (("b", 2), 6), (("a", 3), 70)]))
    windowed = pairs | df.WindowInto(df.Sessions(10)) | df.Reshuffle()
    return windowed | df.CombinePerKey(sum)


def _batches(p: df.Pipeline) -> df.PCollection[Any]:
    numbers = p | df.Create(range(100)) | df.BatchElements(2, 10)
    return numbers | df.FlatMap(lambda batch: batch if len(batch) <= 10 else [])


def _group_into_batches(p: df.Pipeline) -> df.PCollection[Any]:
    pairs = p | df.Create(stamped((("ab"[n % 2], n), n) for n in range(11))) | MINUTE
    return pairs | df.GroupIntoBatches(4)


class Size(Enum):
    """A class of keys."""

    SMALL = 1
    LARGE = 2


@dataclass(frozen=True)
class Place:
    """A class of keys that have a field of a class."""

    size: Size
    price: Decimal


@attrs.frozen
class Shelf:
    """A class of keys, of attrs."""

    row: int
    place: Place


KINDS_OF_KEYS: Sequence[Any] = (
    Size.SMALL,
    HTTPStatus.OK,
    200,
    Place(Size.LARGE, Decimal("1.5")),
    _Sale("Oslo", 3),
    ("Oslo", 3),
    (Size.LARGE, "x"),
    Decimal("2.5"),
    UUID(int=7),
    time(1, 2),
    timedelta(days=-1),
    date(2024, 2, 29),
    df.Window(0, 5),
    Shelf(1, Place(Size.SMALL, Decimal(2))),
)
#: They come back as what they stand for.
SCALARS_OF_NUMPY: Sequence[Any] = (np.int64(41), np.float64(0.25), np.str_("numpy"))


class _KeysOfState(df.DoFn):
    """Says the key of its state."""

    total = df.CombiningValueStateSpec("total", sum)

    def process(
        self,
        element: tuple[Any, int],
        /,
        key: Any = df.DoFn.KeyParam,
        total: Any = df.DoFn.StateParam(total),
    ) -> Iterator[Any]:
        """Emit the key when both of its elements have come."""
        total.add(element[1])
        if total.read() == 3:
            yield key, 3 if element[0] == key else 0


class _LargeState(df.DoFn):
    """Keeps thousands of entries of each kind, and says what it has in the end."""

    bag, seen = df.BagStateSpec("bag"), df.SetStateSpec("set")
    names, times = df.MapStateSpec("map"), df.OrderedListStateSpec("list")

    def process(
        self,
        element: tuple[str, int],
        /,
        bag: Any = df.DoFn.StateParam(bag),
        seen: Any = df.DoFn.StateParam(seen),
        names: Any = df.DoFn.StateParam(names),
        times: Any = df.DoFn.StateParam(times),
    ) -> None:
        """Add a thousand entries, and remove some."""
        for number in range(1_000 * element[1], 1_000 * element[1] + 1_000):
            bag.add(number)
            seen.add(number)
            names.put(str(number), number)
            times.add((number, number))
        seen.remove(1_000 * element[1])
        names.remove("5")

    @df.on_window_expiration
    def last(
        self,
        bag: Any = df.DoFn.StateParam(bag),
        seen: Any = df.DoFn.StateParam(seen),
        names: Any = df.DoFn.StateParam(names),
        times: Any = df.DoFn.StateParam(times),
    ) -> Iterator[Any]:
        """What there is of each kind."""
        yield len(bag.read()), sum(bag.read())
        yield len(seen.read()), seen.contains(4_321)
        yield len(names.keys()), names.get("4321")
        yield [value for _, value in times.read_range(3_999, 4_002)]


def _large_state(p: df.Pipeline) -> df.PCollection[Any]:
    pairs: df.PCollection[Any] = p | df.Create([("a", number) for number in range(8)])
    found: df.PCollection[Any] = pairs | df.ParDo(_LargeState())
    return found


def _keys_of_classes(p: df.Pipeline) -> df.PCollection[Any]:
    """Keys of unlike classes that Python calls equal are not in one bundle."""
    given = [*KINDS_OF_KEYS, *SCALARS_OF_NUMPY]
    some = [
        p | f"keys {n}" >> df.Create([(key, value) for key in given[n::2] for value in (1, 2)])
        for n in range(2)
    ]
    pairs = some | df.Flatten()
    seen = [
        pairs | df.CombinePerKey(sum),
        pairs | df.GroupByKey() | df.MapTuple(lambda key, values: (key, sum(values))),
        pairs | df.Reshuffle() | df.ParDo(_KeysOfState()),
        pairs | df.Keys() | df.Distinct() | "once" >> df.Map(lambda key: (key, 3)),
    ]
    return seen | "all" >> df.Flatten() | df.MapTuple(lambda k, v: (type(k).__name__, repr(k), v))


class _Awaited(df.DoFn):
    """Asynchronous, with an output of its own for each element."""

    max_concurrency = 3

    async def setup(self) -> None:
        """Have something that belongs to the loop."""
        self.free = asyncio.Semaphore(2)

    async def process(
        self, element: int, /, window: Any = df.DoFn.WindowParam
    ) -> AsyncIterator[Any]:
        """Emit the element, and its window."""
        async with self.free:
            await asyncio.sleep(0.001 * (element % 3))
        yield element
        yield df.TaggedOutput("windows", (element, window.start_us))


async def _squares(numbers: list[int]) -> list[int]:
    await asyncio.sleep(0)
    return [number * number for number in numbers]


def _async(p: df.Pipeline) -> df.PCollection[Any]:
    numbers = p | df.Create(stamped((n, n) for n in range(10))) | MINUTE
    same, windows = numbers | df.ParDo(_Awaited()).with_outputs("windows")
    asked = same | df.RequestResponse(_squares, batch_size=4, cache_ttl=60)
    enriched = same | df.Enrichment(_squares, lambda n: n % 2, batch_size=4)
    return [asked, enriched, windows] | df.Flatten()


def _deduplicate(p: df.Pipeline) -> df.PCollection[Any]:
    letters = p | "letters" >> df.Create(stamped(zip("aabab", (1, 5, 6, 12, 20), strict=True)))
    pairs = p | "pairs" >> df.Create(stamped([(("k", 1), 1), (("k", 2), 2), (("k", 3), 31)]))
    firsts = [
        letters | df.Deduplicate(event_time_duration=10),
        pairs | df.DeduplicatePerKey(event_time_duration=30),
    ]
    return firsts | df.Flatten()


_KEYS_AS_SEEN = [
    (type(key).__name__, repr(key), 3)
    for key in (*KINDS_OF_KEYS, *(each.item() for each in SCALARS_OF_NUMPY))
] * 4


def _side_inputs(p: df.Pipeline) -> df.PCollection[Any]:
    """In the global window, each kind once, as an argument by position or by name."""
    amounts = p | "amounts" >> df.Create([("eur", 2), ("usd", 3)])
    rates = p | "rates" >> df.Create([("eur", 10), ("usd", 9)])
    fee = p | "fee" >> df.Create([1])
    none: df.PCollection[int] = p | "none" >> df.Create([])
    open_for = p | "open for" >> df.Create(["eur"])
    paid = amounts | "pay" >> df.Map(
        lambda each, rates, fee, *, tip: (each[0], each[1] * rates[each[0]] + fee + tip),
        df.AsDict(rates),
        df.AsSingleton(fee),
        tip=df.AsSingleton(none, 0),
    )
    seen = paid | "see" >> df.FlatMap(
        lambda each, names, *, rates: [(*each, rates[name]) for name in names if name == each[0]],
        df.AsIter(open_for),
        rates=df.AsMultiMap(rates),
    )
    return seen | "keep" >> df.Filter(lambda each, names: each[0] in names, df.AsList(open_for))


def _large_side_inputs(p: df.Pipeline) -> df.PCollection[Any]:
    """More than a page of each kind that is looked up or iterated; what is asked is answered as by a small one."""
    numbers = p | "numbers" >> df.Create([3, 2_999, 3_000])
    pairs = p | "pairs" >> df.Create([(f"key {each}", each) for each in range(3_000)])
    lists = p | "lists" >> df.Create([(each % 1_000, each) for each in range(3_000)])
    return numbers | df.Map(
        lambda x, one, many, every: (
            one.get(f"key {x}"),
            f"key {x}" in one,
            sorted(many[x % 1_000]),
            (len(one), len(many), sum(value for _, value in every)),
            sum(one.values())
            == sum(map(sum, many.values()))
            == sum(value for value in dict(one).values()),
        ),
        df.AsDict(pairs),
        df.AsMultiMap(lists),
        df.AsIter(lists),
    )


_SIZES_OF_LARGE = (3_000, 1_000, sum(range(3_000)))


def _side_windows(p: df.Pipeline) -> df.PCollection[Any]:
    """A window sees the side window that its last instant is in, which may be empty; times and windows stay."""
    numbers = p | "numbers" >> df.Create(stamped([(1, 5), (2, 65), (3, 125), (4, 66)])) | MINUTE
    letters = p | "letters" >> df.Create(stamped([("x", 1), ("y", 61), ("z", 119), ("w", 0)]))
    by_two = letters | "by two" >> df.WindowInto(df.FixedWindows(120))
    sides = [letters | "by one" >> MINUTE, by_two]
    both = numbers | df.Map(
        lambda x, one, two, at=df.DoFn.TimestampParam: (
            x,
            at.timestamp(),
            sorted(one),
            sorted(two),
        ),
        *map(df.AsList, sides),
    )
    return both | df.Reify.Window() | df.MapTuple(lambda x, _, window: (x, window.start_us))


def _side_input_of_the_same(p: df.Pipeline) -> df.PCollection[Any]:
    """The share of each element in the total of its window."""
    numbers = p | df.Create(stamped([(1, 5), (3, 6), (5, 70)])) | MINUTE
    total = numbers | df.CombineGlobally(sum).without_defaults()
    return numbers | df.Map(lambda x, total: x / total, df.AsSingleton(total))


def _slowly_changing(p: df.Pipeline) -> df.PCollection[Any]:
    """What is read again every minute, for the elements of that minute."""
    reads = p | df.PeriodicImpulse(0, 120, 60, apply_windowing=True)
    rates = reads | df.FlatMap(lambda at: [("eur", at.timestamp()), ("usd", 1.0)])
    orders = p | "orders" >> df.Create(
        stamped([(("eur", 1), 5), (("usd", 2), 66), (("eur", 3), 67)])
    )
    halves = orders | df.WindowInto(df.FixedWindows(30))
    return halves | df.Map(lambda order, rates: (order[1], rates[order[0]]), df.AsDict(rates))


def _retracted_side_input(p: df.Pipeline) -> df.PCollection[Any]:
    """A total that changes is retracted with all that was said of it: in the end only the last is there."""
    always = df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=_RETRACTING)
    numbers = p | "numbers" >> df.Create([1, 2, 3])
    total = p | "more" >> df.Create([10, 20]) | always | df.CombineGlobally(sum)
    return numbers | df.Map(lambda x, total: x + total, df.AsSingleton(total, 0)) | _Net()


def _large_side_inputs_that_change(p: df.Pipeline) -> df.PCollection[Any]:
    """One whose elements are retracted, and one that grows by panes: in the end the last of both is there."""
    always = df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=_RETRACTING)
    growing = df.WindowInto(
        df.GlobalWindows(),
        trigger=df.AfterWatermark(early=df.AfterCount(1_000)),
        accumulation_mode=df.AccumulationMode.ACCUMULATING,
    )
    numbers = p | "numbers" >> df.Create([3, 999])
    twice = p | "twice" >> df.Create([(f"key {each % 1_000}", each) for each in range(2_000)])
    newest = twice | always | df.CombinePerKey(max)
    every = p | "every" >> df.Create(range(3_000)) | "growing" >> growing
    seen = numbers | df.Map(
        lambda x, newest, every: (newest[f"key {x}"], len(newest), len(every), sum(every)),
        df.AsDict(newest),
        df.AsList(every),
    )
    return seen | _Net()


def _wait_on(p: df.Pipeline) -> df.PCollection[Any]:
    """In windows, one of which has no signal; values that look like outputs stay what they are."""
    numbers = p | "numbers" >> df.Create(stamped([(1, 5), (2, 65), (3, 125)])) | MINUTE
    signals = p | "signals" >> df.Create(stamped([("x", 1), ("y", 61)])) | "by minute" >> MINUTE
    waited = numbers | df.Reify.Timestamp() | df.WaitOn(signals, signals | df.Distinct())
    kept = waited | df.Filter(lambda each, n: n or each.value == 3, df.AsList(signals))
    return kept | df.Map(lambda each: each.value)


def _singleton_view(p: df.Pipeline) -> df.PCollection[Any]:
    """A total as a side input, where there is nothing in the window too."""
    numbers = p | "numbers" >> df.Create(stamped([(1, 5), (2, 65)])) | MINUTE
    letters = p | "letters" >> df.Create(stamped([("x", 1)])) | "letters' windows" >> MINUTE
    count = letters | df.CombineGlobally(df.CountCombineFn()).as_singleton_view()
    return numbers | df.Map(lambda x, count: (x, count), count)


class _Net(df.PTransform[df.PCollection[Any], df.PCollection[Any]]):
    """Elements that were emitted, without those that were retracted; all are hashable."""

    def expand(self, pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
        """Sum the signs."""
        changes = pcoll | df.ToChangelog()
        signs = changes | df.Map(lambda change: (change.value, change.sign))
        net = signs | df.WindowInto(df.GlobalWindows()) | df.CombinePerKey(sum)
        return net | df.FlatMapTuple(lambda value, number: [value] * number)


_RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


class _Adding(df.CombineFn):
    """Adds numbers, and counts them."""

    def create_accumulator(self) -> int:
        """Nothing is added yet."""
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        """Add a number."""
        df.Metrics.counter(_Adding, "added").inc()
        return accumulator + value

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        """Add sums."""
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        """The sum."""
        return accumulator


def _seen(pair: tuple[str, int]) -> tuple[str, int]:
    df.Metrics.counter("conformance", "seen").inc()
    if pair[1] > 1:
        df.Metrics.counter("conformance", "large").dec()
    return pair


def _counted(p: df.Pipeline) -> df.PCollection[Any]:
    return p | df.Create(PAIRS) | df.Map(_seen) | df.CombinePerKey(_Adding())


def _scored(line: str) -> tuple[str, int]:
    team, score = line.split(",")
    return team, int(score)


def _failures(p: df.Pipeline) -> df.PCollection[Any]:
    lines = (
        p
        | df.Create(stamped([("red,5", 1), ("red,nine", 2), ("blue", 61), ("red,1", 62)]))
        | MINUTE
    )
    handled = df.Map(_scored).with_exception_handling(exc_class=ValueError, threshold=0.6)
    good, bad = lines | "parse" >> handled
    named = bad | df.Map(lambda each: (each.element, each.failure.exception))
    counted = named | df.Values() | df.Map(lambda name: (name, 1)) | df.CombinePerKey(sum)
    return [good, named, counted] | df.Flatten()


@df.ptransform_fn
def _inverted(lines: df.PCollection[str]) -> df.PCollection[float]:
    scores = lines | "parse" >> df.Map(_scored) | df.Values()
    return scores | "invert" >> df.FlatMap(lambda score: iter([score, 10 // score]))


def _failures_of_a_composite(p: df.Pipeline) -> df.PCollection[Any]:
    lines = p | df.Create(["red,5", "red,0", "blue"])
    good, bad = lines | "all" >> _inverted().with_exception_handling()
    steps = bad | df.Map(lambda each: (each.element, each.failure.transform.rpartition("/")[2]))
    return [good, steps] | df.Flatten()


def _failures_that_are_retracted(p: df.Pipeline) -> df.PCollection[Any]:
    """The total of "a" may be 1 for a while, and then that failure is retracted."""
    mode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    always = df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=mode)
    totals = p | df.Create([("a", 1), ("a", 2), ("b", 1)]) | always | df.CombinePerKey(sum)
    inverse = df.MapTuple(lambda key, total: (key, 10 // (total - 1)))
    _, bad = totals | "invert" >> inverse.with_exception_handling()
    changes = bad | df.Map(lambda each: each.element) | df.ToChangelog()
    signs: df.PCollection[Any] = changes | df.Map(lambda change: (change.value, change.sign))
    net = signs | "once" >> df.WindowInto(df.GlobalWindows()) | "net" >> df.CombinePerKey(sum)
    return net | df.FlatMapTuple(lambda value, number: [value] if number else [])


def _failures_of_a_source(p: df.Pipeline) -> df.PCollection[Any]:
    path = Path(_FILES.name, "scores.csv")
    path.write_text("at,team\n5,red\n7\nsoon,blue\n9,blue\n")
    read = df.ReadFromCsv(path, event_time=lambda row: float(row["at"]))
    good, bad = p | "read" >> read.with_exception_handling(threshold=0.5)
    places = bad | df.Map(
        lambda each: (each.element, each.failure.origin and each.failure.origin.line)
    )
    teams: df.PCollection[Any] = good | df.Map(lambda row: row["team"])
    return [teams, places] | df.Flatten()


def _text(p: df.Pipeline) -> df.PCollection[Any]:
    return p | df.ReadFromText(_text_files())


def _text_files() -> Path:
    """A packed file, and one that is not."""
    packed = b"".join(map(gzip.compress, [b"to be\nor ", b"not\n"]))
    Path(_FILES.name, "a.txt.gz").write_bytes(packed)
    Path(_FILES.name, "b.txt").write_bytes(b"to be\r\n")
    return Path(_FILES.name, "*.txt*")


def _read_all(p: df.Pipeline) -> df.PCollection[Any]:
    """Of files that patterns match, and of lines of JSON."""
    path = Path(_FILES.name, "amounts.jsonl")
    path.write_text('{"amount": 3}\n{"amount": 4}\n')
    amounts = p | df.ReadFromJsonLines(path) | df.Map(lambda row: row["amount"])
    _text_files()
    patterns = p | "patterns" >> df.Create([str(Path(_FILES.name, "*.txt*"))])
    lines = patterns | df.MatchAll() | df.ReadAllFromText()
    return [lines, amounts] | df.Flatten()


def _sales_file() -> Path:
    """Three row groups; one row has no amount."""
    path = Path(_FILES.name, "sales.parquet")
    table = pa.table(
        {
            "amount": pa.array([1, 2, None, 4, 5], pa.int32()),
            "at": pa.array([5, 65, 66, 7, 8], pa.timestamp("s", "UTC")),
            "shop": ["Oslo", "Oslo", "Rome", "Rome", "Oslo"],
        }
    )
    pq.write_table(table, path, row_group_size=2)
    return path


def _parquet(p: df.Pipeline) -> df.PCollection[Any]:
    """Typed rows as columns, by the minute; what does not fit is an output of its own."""
    read = df.ReadFromParquet(_sales_file(), rows=_Sale, event_time="at")
    sales, bad = p | "read" >> read.with_exception_handling(threshold=0.5)
    totals = (
        sales
        | MINUTE
        | df.GroupBy("shop").aggregate_field("amount", sum, "total")
        | df.WindowStart("minute")
        | df.Map(lambda row: (row.shop, row.minute.minute, row.total))
        | "once" >> df.WindowInto(df.GlobalWindows())
    )
    refused: df.PCollection[Any] = bad | df.Map(lambda each: (each.element["shop"], "refused"))
    return [totals, refused] | df.Flatten()


def _parquet_mappings(p: df.Pipeline) -> df.PCollection[Any]:
    read = df.ReadFromParquet(_sales_file(), columns=["shop", "amount"])
    return p | read | df.Map(lambda row: (row["shop"], row["amount"]))


class _Halving(_Adding):
    """Half of the sum; fails on what is no number, and has no result for an odd sum."""

    def add_input(self, accumulator: int, value: Any) -> int:
        """Add a number."""
        return accumulator + int(value)

    def extract_output(self, accumulator: int) -> int:
        """Half of the sum."""
        if accumulator % 2:
            raise ValueError("odd")
        return accumulator // 2


def _failures_of_combining(p: df.Pipeline) -> df.PCollection[Any]:
    """By key, in shards too, and of all elements: what fails does not depend on how a group is divided."""
    scores: list[Any] = [*((team, n) for n in range(20) for team in "ab"), ("a", 1), ("b", "?")]
    pairs = p | df.Create(stamped((score, 5) for score in scores)) | MINUTE
    combine = df.CombinePerKey(_Halving())
    found: list[df.PCollection[Any]] = []
    for name, each in [
        ("keys", combine.with_exception_handling(threshold=0.6)),
        ("shards", combine.with_hot_key_fanout(3).with_exception_handling()),
        (
            "all",
            df.CombineGlobally(_Halving()).without_defaults().with_exception_handling(),
        ),
    ]:
        inputs = pairs | f"values of {name}" >> df.Values() if name == "all" else pairs
        good, bad = inputs | name >> each
        texts = bad | f"texts of {name}" >> df.Map(
            lambda each: (each.element, each.failure.exception)
        )
        found += [good, texts]
    return found | df.Flatten()


def _failures_of_async(p: df.Pipeline) -> df.PCollection[Any]:
    """Each call by itself, and each once more."""
    handled = df.Map(_inverse).with_exception_handling(retries=1, retry_delay=0, threshold=0.5)
    good, bad = p | df.Create([0, 2, 5]) | "invert" >> handled
    return [good, bad | df.Map(lambda each: (each.element, each.failure.exception))] | df.Flatten()


async def _inverse(number: int) -> int:
    return 10 // number


#: The suite, in reading order.
PROGRAMS: Sequence[Program] = (
    Program("arguments", _arguments, ["22m", "32m"]),
    Program("outputs of a bundle's end", _bundle_ends, [60, 40]),
    Program("Impulse", lambda p: p | df.Impulse(), [b""]),
    Program(
        "PeriodicImpulse",
        lambda p: p | df.PeriodicImpulse(0, 150, 60) | df.Map(lambda at: at.timestamp()),
        [0.0, 60.0, 120.0],
    ),
    Program(
        "OutputTag",
        _typed_tags,
        [4, 15, 4, 15, *2 * [(("a", 0), 61_000_000), (("b", 1), 61_000_000)]],
    ),
    Program("PeriodicSequence", _sequences, [(0.0, [0.0]), (60.0, [70.0, 70.0]), (-60.0, [-10.0])]),
    Program("Keys", lambda p: p | df.Create(PAIRS) | df.Keys(), ["a", "b", "a"]),
    Program("Values", lambda p: p | df.Create(PAIRS) | df.Values(), [1, 2, 3]),
    Program("KvSwap", lambda p: p | df.Create(PAIRS) | df.KvSwap(), [(1, "a"), (2, "b"), (3, "a")]),
    Program("WithKeys", lambda p: p | df.Create(["ab"]) | df.WithKeys(len), [(2, "ab")]),
    Program(
        "MapTuple",
        lambda p: p | df.Create(PAIRS) | df.MapTuple(lambda k, v, end: f"{k}{v}{end}", "!"),
        ["a1!", "b2!", "a3!"],
    ),
    Program(
        "FlatMapTuple",
        lambda p: p | df.Create(PAIRS) | df.FlatMapTuple(lambda k, v: [k] * v),
        list("abbaaa"),
    ),
    Program(
        "Partition",
        _partition,
        [("even", 0), ("odd", 1), ("even", 2), ("odd", 3), ("even", 4)],
    ),
    Program("ToString", lambda p: p | df.Create(PAIRS) | df.ToString.Kvs(), ["a,1", "b,2", "a,3"]),
    Program("Tee", _tee, [1, 2]),
    Program("Metrics", _counted, [("a", 4), ("b", 2)], {"seen": 3, "added": 3, "large": -2}),
    Program("ptransform_fn", lambda p: p | df.Create([1, 2]) | _doubled(3), [8, 16]),
    Program(
        "Select",
        lambda p: (
            p
            | df.Create([_Sale("Oslo", 3)])
            | df.Select("shop", twice=lambda sale: 2 * sale.amount)
            | df.Map(lambda row: (row.shop, row.twice))
        ),
        [("Oslo", 6)],
    ),
    Program("ReadFromText", _text, ["to be", "or not", "to be"]),
    Program(
        "ReadFromParquet",
        _parquet,
        [("Oslo", 0, 6), ("Oslo", 1, 2), ("Rome", 0, 4), ("Rome", "refused")],
    ),
    Program(
        "ReadFromParquet of mappings",
        _parquet_mappings,
        [("Oslo", 1), ("Oslo", 2), ("Rome", None), ("Rome", 4), ("Oslo", 5)],
    ),
    Program("FlattenWith", _flatten_with, list("ABCC")),
    Program("col", _expressions, [("Oslo", 18, -5, [5, 3]), (-5,)]),
    Program("Reify", _windows, [(1, 5.0, 0), (2, 65.0, 60_000_000)]),
    Program(
        "Reify of values",
        _stamped_values,
        [
            repr(("a", df.TimestampedValue(1, 5))),
            repr(("a", (1, df.TimestampedValue(1, 5).timestamp, df.Window(0, 60_000_000)))),
        ],
    ),
    Program("Distinct", _distinct, ["a", "b", "a", "b"]),
    Program("Distinct of what is retracted", _distinct_totals, [3]),
    Program("CoGroupByKey", _co_group, [("a", [1, 3], ["x"]), ("b", [2], [])]),
    Program("Reshuffle", _reshuffle, [("a", 1), ("b", 2), ("a", 3)]),
    Program("BatchElements", _batches, range(100)),
    Program(
        "state of thousands of entries",
        _large_state,
        [(8_000, 31_996_000), (7_992, True), (7_999, 4_321), [3_999, 4_000, 4_001]],
    ),
    Program(
        "GroupIntoBatches",
        _group_into_batches,
        [("a", [0, 2, 4, 6]), ("a", [8, 10]), ("b", [1, 3, 5, 7]), ("b", [9])],
    ),
    Program("keys of classes", _keys_of_classes, [*_KEYS_AS_SEEN]),
    Program("side inputs", _side_inputs, [("eur", 21, [10])]),
    Program(
        "large side inputs",
        _large_side_inputs,
        [
            (3, True, [3, 1_003, 2_003], _SIZES_OF_LARGE, True),
            (2_999, True, [999, 1_999, 2_999], _SIZES_OF_LARGE, True),
            (None, False, [0, 1_000, 2_000], _SIZES_OF_LARGE, True),
        ],
    ),
    Program(
        "windows of side inputs",
        _side_windows,
        [
            ((1, 5.0, ["w", "x"], ["w", "x", "y", "z"]), 0),
            ((2, 65.0, ["y", "z"], ["w", "x", "y", "z"]), 60_000_000),
            ((4, 66.0, ["y", "z"], ["w", "x", "y", "z"]), 60_000_000),
            ((3, 125.0, [], []), 120_000_000),
        ],
    ),
    Program("side input of the same source", _side_input_of_the_same, [0.25, 0.75, 1.0]),
    Program("as_singleton_view", _singleton_view, [(1, 1), (2, 0)]),
    Program("WaitOn", _wait_on, [1, 2, 3]),
    Program("side input that changes slowly", _slowly_changing, [(1, 0.0), (2, 1.0), (3, 60.0)]),
    Program("side input that is retracted", _retracted_side_input, [31, 32, 33]),
    Program(
        "large side inputs that change",
        _large_side_inputs_that_change,
        [(each, 1_000, 3_000, sum(range(3_000))) for each in (1_003, 1_999)],
    ),
    Program(
        "asynchronous calls",
        _async,
        [
            *(n * n for n in range(10)),
            *((n, n % 2) for n in range(10)),
            *((n, 0) for n in range(10)),
        ],
    ),
    Program(
        "with_exception_handling",
        _failures,
        [
            ("red", 5),
            ("red", 1),
            ("red,nine", "ValueError"),
            ("blue", "ValueError"),
            ("ValueError", 1),
            ("ValueError", 1),
        ],
    ),
    Program(
        "with_exception_handling of a composite",
        _failures_of_a_composite,
        [5, 2, (0, "invert"), ("blue", "parse")],
    ),
    Program(
        "with_exception_handling of what is retracted", _failures_that_are_retracted, [("b", 1)]
    ),
    Program(
        "with_exception_handling of a source",
        _failures_of_a_source,
        ["red", "blue", ("7", 3), ("soon,blue", 4)],
    ),
    Program(
        "with_exception_handling of combining",
        _failures_of_combining,
        [
            *[("b", 95), (("b", "?"), "ValueError"), (("a", "191"), "ValueError")] * 2,
            ("?", "ValueError"),
            ("381", "ValueError"),
        ],
    ),
    Program(
        "with_exception_handling of asynchronous calls",
        _failures_of_async,
        [5, 2, (0, "ZeroDivisionError")],
    ),
    Program(
        "with_exception_handling of state",
        state_programs.failed_calls,
        [
            (7, (3,)),
            (3, (3, 4)),
            (0, (3, 4, 3)),
            (("account", 9), "overdrawn"),
            (("account", 5), "overdrawn"),
        ],
    ),
    Program("combiners of all", combining_programs.combiners_of_all, combining_programs.OF_ALL),
    Program("combiners of keys", combining_programs.combiners_of_keys, combining_programs.OF_KEYS),
    Program("Join", combining_programs.joins, combining_programs.JOINED),
    Program("windows", window_programs.windows, window_programs.WINDOWS),
    Program("triggers", window_programs.triggers, window_programs.TRIGGERED),
    Program("TimestampCombiner", window_programs.event_times, window_programs.EVENT_TIMES),
    Program("ReadAllFromText", _read_all, ["to be", "or not", "to be", 3, 4]),
    Program("RequestResponse", combining_programs.requests, [10, 20, 10]),
    Program("Deduplicate", _deduplicate, ["a", "b", "a", "b", ("k", 1), ("k", 3)]),
    Program(
        "kinds of state",
        state_programs.kinds_of_state,
        [
            (True, ("till",), (("till", 1),), ("till",)),
            (True, ("till", "x"), (("till", 1), ("x", 1)), ("till",)),
            (True, ("till", "x", "home"), (("till", 1), ("x", 1), ("home", 1)), ("till", "home")),
            (
                False,
                ("till", "x", "home"),
                (("till", 2), ("x", 1), ("home", 1)),
                ("till", "home", "till"),
            ),
        ],
    ),
    Program(
        "time to live",
        state_programs.time_to_live,
        [(None, 0), (0, 9), (None, 19), (None, 40), (None, 50), (50, 51)],
    ),
    Program(
        "on_window_expiration",
        state_programs.window_expiration,
        [
            ("ann", "bought", ("tea",)),
            ("ann", "lost in 0", ("jam",)),
            ("bob", "lost in 0", ("nut",)),
            ("ann", "lost in 60", ("oil",)),
        ],
    ),
    Program(
        "output timestamps of timers",
        state_programs.output_timestamps,
        [(0, 1), (10, 2), (30, 4), (140, 8)],
    ),
    Program("watermark holds", state_programs.watermark_holds, [(0, 7), (140, 8)]),
    Program(
        "state in sessions",
        session_programs.sessions_in_order,
        [
            ("ann", "look", 0, 10),
            ("ann", "fill", 0, 18),
            ("ann", "go", 0, 25),
            ("ann", "pay", 0, 34),
            ("ann", ("look", "fill", "go", "pay"), True),
            ("bob", "look", 3, 13),
            ("bob", ("look",), False),
            ("ann", "look", 60, 70),
            ("ann", ("look",), False),
        ],
    ),
    Program(
        "state in sessions that are bridged",
        session_programs.sessions_that_are_bridged,
        [
            *(("pause", value) for value in range(1, 7)),
            ((100, 140), (1, 2, 3, 4, 5), ((0, 2), (1, 3)), (0, 1, 2), 15, (1, 5, 2, 4, 3)),
            ((190, 200), (6,), ((0, 1),), (0,), 6, (6,)),
        ],
    ),
    Program(
        "a source that retracts records",
        source_programs.records_that_are_retracted,
        [
            *(("read", each) for each in [("oslo", 1), ("oslo", 7), ("bergen", 3)]),
            *(
                ("sums", each)
                for each in [(("oslo", 1), 0, 60), (("bergen", 3), 0, 60), (("oslo", 7), 60, 120)]
            ),
            *(
                ("groups", each)
                for each in [
                    (("oslo", 1), 20, 45),
                    (("oslo", 7), 70, 95),
                    (("bergen", 3), 15, 40),
                ]
            ),
            *(("kinds", each) for each in ["oslo", "bergen"]),
            *(("shares", each) for each in [("oslo", 1, 11), ("oslo", 7, 11), ("bergen", 3, 11)]),
            ("number", 3),
        ],
    ),
    Program(
        "state of a source that retracts records",
        source_programs.balances_of_retracted_records,
        [("balance", *each) for each in [("oslo", 5), ("oslo", 0), ("oslo", 7), ("bergen", 2)]],
    ),
    Program(
        "columns of a source that retracts records",
        source_programs.columns_that_are_retracted,
        [
            *(("rows", each) for each in [("oslo", 8), ("bergen", 4)]),
            *(("sums", each) for each in [("oslo", 8), ("bergen", 4)]),
        ],
    ),
    Program(
        "with_exception_handling of a source that retracts records",
        source_programs.failures_of_retracted_records,
        [("good", 2), ("bad", 0)],
    ),
)


@attrs.frozen
class _InItsScope(df.PTransform[df.Pipeline, df.PCollection[Any]]):
    program: Program

    def default_label(self) -> str:
        return self.program.name

    def expand(self, pcoll: df.Pipeline) -> df.PCollection[Any]:
        return self.program.build(pcoll)


def check_runner(
    make_runner: Callable[[], df.Runner], programs: Sequence[Program] = PROGRAMS
) -> None:
    """Run programs in one pipeline on a runner.

    Args:
        make_runner: makes the runner, for a job that has not been run before.
        programs: that are run.

    Raises:
        RunnerConformanceError: what one of them has emitted is not what it defines.
    """
    p = df.Pipeline(make_runner())
    for program in programs:
        outputs = p | _InItsScope(program)
        assert_that(outputs, contains_in_any_order(program.expected), label=f"check {program.name}")
    result = p.run()
    try:
        result.wait_until_finish()
    except AssertionError as error:
        raise RunnerConformanceError(str(error)) from None
    for program in programs:
        if program.counters is None:
            continue
        found = result.metrics().query(df.MetricsFilter().with_step(program.name))["counters"]
        counters = Counter[str]()
        for each in found:
            counters[each.key.metric.name] += each.committed
        if counters != program.counters:
            raise RunnerConformanceError(
                f"check {program.name}: it defines the counters {dict(program.counters)}, and the runner has "
                f"{dict(counters)}"
            )
