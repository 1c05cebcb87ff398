"""The pipelines that the simulator is shipped with, by name: every kind of thing that the core has to keep.

Each is a function of a pipeline and a source of chance, which draws the input and what else can vary.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

import attrs

import dataflow as df
from runners.testing.simulator.bundle_sums import BundleSums
from runners.testing.simulator.scripts import (
    SECONDS,
    changing,
    guessing,
    in_order,
    retrying,
    truthful,
)
from runners.testing.simulator.spellings import as_shown, spelled
from runners.testing.simulator.typed import TypedSource

Build = Callable[[df.Pipeline, Random], None]

COLUMNS = {"key": str, "start": float, "end": float, "value": str}
LATENESS = timedelta(hours=2)
FLUSH = df.Repeatedly(df.AfterSignal("flush"))
TRIGGERS = [
    None,
    df.AfterWatermark(early=df.AfterProcessingTime(0.2), late=df.AfterCount(1)),
    df.AfterWatermark(early=df.AfterCount(2)),
    df.Repeatedly(df.AfterAny(df.AtPeriod(1), df.AfterCount(3))),
    df.AfterEach(df.AfterCount(1), df.AfterAll(df.AfterProcessingTime(0.1), df.AfterCount(2))),
    df.OrFinally(df.Repeatedly(df.AfterCount(1)), df.AfterWatermark()),
]
SIGNAL_TRIGGERS = [
    FLUSH,
    df.AfterWatermark(early=df.AfterSignal("flush"), late=df.AfterSignal("flush")),
    df.Repeatedly(df.AfterAny(df.AfterSignal("flush"), df.AfterCount(3))),
    df.OrFinally(FLUSH, df.AfterSignal("stop")),
]
STAMPS = list(df.TimestampCombiner)
NUMBER = df.CombiningValueStateSpec("number", df.CountCombineFn())
BEFORE = df.ReadModifyWriteStateSpec("before")
WAITING = df.BagStateSpec("waiting")
SILENCE = df.TimerSpec("silence", df.TimeDomain.EVENT)
DUE = df.TimerSpec("due", df.TimeDomain.PROCESSING)


@attrs.frozen(kw_only=True)
class NamedPipeline:
    """A pipeline of the vector.

    Attributes:
        tables: those whose rows do not depend on when things happen; None for all that have a key.
        whole: a grouping into lists in whose panes, or among its late records, each number of the input must be once.
    """

    name: str
    build: Build
    tables: Collection[str] | None = None
    whole: str | None = None


def row(pair: tuple[Any, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    """Make a row of a result with its window; values are in an order that does not depend on arrival.

    Args:
        pair: key and value.
        window: of the result.
    """
    key, value = pair
    return {
        "key": str(key),
        "start": window.start.timestamp(),
        "end": window.end.timestamp(),
        "value": str(sorted(value) if isinstance(value, list) else value),
    }


def _write(pcoll: Any, name: str, *, has_key: bool = True) -> None:
    rows = pcoll | f"{name} row" >> df.Map(row)
    key = ["key", "start", "end"] if has_key else []
    rows | name >> df.WriteToPostgres(name, columns=COLUMNS, key=key)


def _sums(p: df.Pipeline, random: Random) -> None:
    """Sums by the minute, or in windows that overlap."""
    window_fn = random.choice([df.FixedWindows(60), df.SlidingWindows(60, period=40)])
    sums = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows"
        >> df.WindowInto(
            window_fn,
            trigger=random.choice(TRIGGERS),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            allowed_lateness=LATENESS,
        )
        | "sum" >> df.CombinePerKey(sum)
    )
    _write(sums, "sums")


def _sessions(p: df.Pipeline, random: Random) -> None:
    """Sessions that merge after they fired, and retract what they emitted."""
    sessions = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows"
        >> df.WindowInto(
            df.Sessions(30),
            trigger=random.choice(TRIGGERS),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=LATENESS,
        )
        | "group" >> df.GroupByKey()
    )
    _write(sessions, "sessions")


def _chain(p: df.Pipeline, random: Random) -> None:
    """Three groupings, each of what the one before emits and retracts."""
    sums = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=random.choice(TRIGGERS),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=LATENESS,
        )
        | "sum" >> df.CombinePerKey(sum)
    )
    halves = (
        sums | "halve" >> df.Map(lambda pair: (pair[0] % 2, pair[1])) | "half" >> df.GroupByKey()
    )
    whole = (
        halves
        | "join" >> df.Map(lambda pair: ("all", sum(pair[1])))
        | "whole" >> df.CombinePerKey(max)
    )
    _write(halves, "halves")
    _write(whole, "wholes")


def _stamped(p: df.Pipeline, random: Random) -> None:
    """Results at the event times of records, in windows anew, which follow every retraction."""
    mode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    lateness = random.choice([0, 20, 600])
    sessions = (
        p
        | "read" >> df.Read(in_order(random))
        | "windows"
        >> df.WindowInto(
            random.choice([df.Sessions(30), df.FixedWindows(60)]),
            trigger=random.choice(TRIGGERS),
            accumulation_mode=mode,
            allowed_lateness=lateness,
            timestamp_combiner=random.choice(STAMPS),
        )
        | "sum" >> df.CombinePerKey(sum)
    )
    by_start = (
        sessions
        | "halve" >> df.Map(lambda pair: (pair[0] % 2, pair[1]))
        | "narrow"
        >> df.WindowInto(
            random.choice([df.FixedWindows(7), df.FixedWindows(60), df.Sessions(10)]),
            trigger=random.choice(TRIGGERS),
            accumulation_mode=mode,
            allowed_lateness=lateness,
            timestamp_combiner=random.choice(STAMPS),
        )
        | "list" >> df.GroupByKey()
    )
    combine: Any = random.choice([max, df.SumCombineFn()])
    # Groups that are retracted to nothing, and filled again.
    by_size = (
        by_start
        | "size" >> df.Map(lambda pair: (len(pair[1]), sum(pair[1])))
        | "by size" >> df.CombinePerKey(combine)
    )
    _write(by_start, "lists")
    _write(by_size, "sizes")


class Numbered(df.DoFn):
    """Numbers the elements of a key in time order, and emits an element when nothing has come for 20 seconds."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[int, int],
        /,
        at: datetime = df.DoFn.TimestampParam,
        number: Any = df.DoFn.StateParam(NUMBER),
        before: Any = df.DoFn.StateParam(BEFORE),
        silence: Any = df.DoFn.TimerParam(SILENCE),
    ) -> Iterator[Any]:
        """Emit the number and the element before.

        Args:
            element: key and value.
            at: the event time of the element.
            number: how many elements the key has had.
            before: the value of the last element.
            silence: the timer that is set anew by each element.
        """
        number.add(1)
        yield element[0], [number.read(), element[1], before.read() or -1]
        before.write(element[1])
        silence.set(at + timedelta(seconds=20))

    @df.on_timer(SILENCE)
    def silent(
        self,
        key: Any = df.DoFn.KeyParam,
        at: datetime = df.DoFn.TimestampParam,
        before: Any = df.DoFn.StateParam(BEFORE),
    ) -> Iterator[Any]:
        """Emit the time, and the last element."""
        yield df.TaggedOutput("silent", (key, [int(at.timestamp()), before.read()]))


def _stateful(p: df.Pipeline, random: Random) -> None:
    """State and event-time timers, in the order of time."""
    numbered: Any = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows" >> df.WindowInto(df.FixedWindows(60))
        | "number" >> df.ParDo(Numbered()).with_outputs("silent")
    )
    _write(numbered.main, "numbers", has_key=False)
    _write(numbered.silent, "silences", has_key=False)


class Gathered(df.DoFn):
    """Gathers values, and emits them a little later, by the clock."""

    def process(
        self,
        element: tuple[int, int],
        /,
        waiting: Any = df.DoFn.StateParam(WAITING),
        timer: Any = df.DoFn.TimerParam(DUE),
    ) -> None:
        """Keep the value.

        Args:
            element: key and value.
            waiting: the values that are kept.
            timer: set by the first value that is kept.
        """
        if not waiting.read():
            timer.set_after(0.2)
        waiting.add(element[1])

    @df.on_timer(DUE)
    def gathered(
        self, key: Any = df.DoFn.KeyParam, waiting: Any = df.DoFn.StateParam(WAITING)
    ) -> Iterator[Any]:
        """Emit all that was kept."""
        for value in waiting.read():
            yield key, value
        waiting.clear()


def _clocks(p: df.Pipeline, random: Random) -> None:
    """Processing-time timers, and what they make is grouped."""
    lists = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows" >> df.WindowInto(df.FixedWindows(60))
        | "gather" >> df.ParDo(Gathered())
        | "list" >> df.GroupByKey()
    )
    _write(lists, "lists")


def _signals(p: df.Pipeline, random: Random) -> None:
    """Windows that fire by signals, and totals of them that do as well."""
    sums = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows"
        >> df.WindowInto(
            random.choice([df.FixedWindows(60), df.Sessions(30)]),
            trigger=random.choice(SIGNAL_TRIGGERS),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=LATENESS,
        )
        | "sum" >> df.CombinePerKey(sum)
    )
    totals = (
        sums
        | "global"
        >> df.WindowInto(
            df.GlobalWindows(),
            trigger=FLUSH,
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "total" >> df.CombinePerKey(sum)
    )
    _write(sums, "sums")
    _write(totals, "totals")


def _percentiles(p: df.Pipeline, random: Random) -> None:
    """Two groupings that follow a percentile of the watermark."""
    first = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=LATENESS,
            watermark_percentile=random.choice([20, 50, 80]),
        )
        | "first" >> df.GroupByKey()
    )
    (
        first
        | "flatten" >> df.FlatMap(lambda pair: [(pair[0] % 2, value) for value in pair[1]])
        | "second" >> df.GroupByKey()
    )


def _late(p: df.Pipeline, random: Random) -> None:
    """A watermark that guesses, idle splits, hardly any allowed lateness; and a grouping of the results."""
    window_fn, mode = random.choice(
        [
            (df.FixedWindows(60), df.AccumulationMode.DISCARDING),
            (df.FixedWindows(60), df.AccumulationMode.ACCUMULATING_AND_RETRACTING),
            # Discarding panes of sessions that went into others do not add up when grouped by another key.
            (df.Sessions(30), df.AccumulationMode.ACCUMULATING_AND_RETRACTING),
        ]
    )
    groups = (
        p
        | "read" >> df.Read(guessing(random))
        | "windows"
        >> df.WindowInto(
            window_fn,
            trigger=random.choice(TRIGGERS),
            accumulation_mode=mode,
            allowed_lateness=random.choice([0, 30]),
        )
        | "group" >> df.GroupByKey()
    )
    (
        groups
        | "join" >> df.FlatMap(lambda pair: [("all", value) for value in pair[1]])
        | "again" >> df.GroupByKey()
    )


def _retries(p: df.Pipeline, random: Random) -> None:
    """Records that come several times, each to count once; behind filters that are often wrong."""
    slack_s = random.choice([0, 60, SECONDS])
    record_ids = df.RecordIds(
        of=lambda record: record[1],
        slack=slack_s,
        expected_ids=random.choice([1, 3, 1_000]),
        false_positive_rate=random.choice([0.01, 0.9]),
    )
    (
        p
        | "read" >> df.Read(retrying(random, slack_s), record_ids=record_ids)
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=random.choice(TRIGGERS),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=LATENESS,
        )
        | "group" >> df.GroupByKey()
    )


def _typed(p: df.Pipeline, random: Random) -> None:
    """Typed rows, in windows that fire once: mostly kept as columns, until an element comes that is no typed row."""
    script = random.choice([truthful, truthful, guessing])
    totals = (
        p
        | "read" >> df.Read(TypedSource.of(script(random), random))
        | "windows"
        >> df.WindowInto(
            random.choice(
                [df.FixedWindows(60), df.SlidingWindows(60, period=40), df.GlobalWindows()]
            ),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
        )
        | "total"
        >> df.GroupBy("key")
        .aggregate_field("number", sum, "total")
        .aggregate_field("number", df.CountCombineFn(), "count")
    )
    largest = totals | "largest" >> df.GroupBy("count").aggregate_field("total", max, "largest")
    for results, name in ((totals, "totals"), (largest, "largests")):
        _write(results | f"{name} pair" >> df.Map(lambda each: (each[0], tuple(each[1:]))), name)


def _keys(p: df.Pipeline, random: Random) -> None:
    """Keys that can be written in several ways, in windows of all kinds, and what user code sees of them."""
    records = p | "read" >> df.Read(truthful(random)) | "spell" >> df.Map(spelled)
    groups = (
        records
        | "windows"
        >> df.WindowInto(
            random.choice([df.FixedWindows(60), df.Sessions(30), df.GlobalWindows()]),
            trigger=random.choice(TRIGGERS),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=LATENESS,
        )
        | "group" >> df.GroupByKey()
    )
    numbered: Any = (
        records
        | "minutes" >> df.WindowInto(df.FixedWindows(60))
        | "number" >> df.ParDo(Numbered()).with_outputs("silent")
    )
    sums = (
        groups | "add" >> df.Map(lambda pair: (pair[0], sum(pair[1]))) | "show" >> df.Map(as_shown)
    )
    _write(sums, "sums")
    _write(numbered.main | "show numbers" >> df.Map(as_shown), "numbers", has_key=False)
    _write(numbered.silent | "show silences" >> df.Map(as_shown), "silences", has_key=False)


def _bundles(p: df.Pipeline, random: Random) -> None:
    """Elements that are emitted at the ends of bundles: of records as they are read, and of what a grouping emits."""
    sums = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows" >> df.WindowInto(df.FixedWindows(60))
        | "presum" >> df.ParDo(BundleSums())
        | "sum" >> df.CombinePerKey(sum)
    )
    totals = (
        sums
        | "parity" >> df.Map(lambda pair: (pair[0] % 2, pair[1]))
        | "presum again" >> df.ParDo(BundleSums())
        | "total" >> df.CombinePerKey(sum)
    )
    _write(sums, "sums")
    _write(totals, "totals")


def _joins(p: df.Pipeline, random: Random) -> None:
    """Records joined with those of the same key, and with counts that are retracted."""
    retracting = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    records = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows"
        >> df.WindowInto(
            random.choice([df.FixedWindows(60), df.SlidingWindows(60, period=40)]),
            trigger=random.choice(TRIGGERS),
            accumulation_mode=retracting,
            allowed_lateness=LATENESS,
        )
    )
    join_type = random.choice(list(df.JoinType))
    even, odd = (
        records | name >> df.Filter(lambda pair, rest=rest: pair[1] % 2 == rest)
        for rest, name in enumerate(("even", "odd"))
    )
    counts = records | "count" >> df.CombinePerKey(df.CountCombineFn())
    pairs = (even, odd) | "pairs" >> df.Join(join_type)
    counted = (pairs, counts) | "counted" >> df.Join()
    _write(counted | "add" >> df.CombinePerKey(df.CountCombineFn()), "rows")


def _sides(p: df.Pipeline, random: Random) -> None:
    """Records with totals that are retracted, of their window or of a longer one, and with a count that is not.

    The totals are one of all records, one element of a view, and one of each key, elements that are retracted.
    """
    retracting = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    read = p | "read" >> df.Read(truthful(random))

    def windowed(label: str, window_fn: df.WindowFn, trigger: df.Trigger | None) -> Any:
        into = df.WindowInto(
            window_fn, trigger=trigger, accumulation_mode=retracting, allowed_lateness=LATENESS
        )
        return read | label >> into

    main = random.choice([df.FixedWindows(60), df.SlidingWindows(60, period=40)])
    records = windowed("windows", main, random.choice(TRIGGERS))
    side = windowed(
        "side windows", df.FixedWindows(random.choice([60, 120])), random.choice(TRIGGERS)
    )
    numbers = side | "numbers" >> df.Values()
    totals = side | "totals" >> df.CombinePerKey(sum)
    if random.random() < 0.5:
        records = records | "sums" >> df.CombinePerKey(sum)
    total = numbers | "total" >> df.CombineGlobally(sum).without_defaults()
    minutes = read | "minutes" >> df.WindowInto(df.FixedWindows(60))
    shares = records | "share" >> df.Map(
        lambda pair, total, numbers, even, totals: (
            pair[0],
            (pair[1], total, len(numbers), len(even), len(totals), totals.get(pair[0])),
        ),
        df.AsSingleton(total, 0, shards=random.choice([1, 2, 5])),
        df.AsList(numbers),
        df.AsList(minutes | "even" >> df.Filter(lambda pair: pair[1] % 2 == 0)),
        df.AsDict(totals),
    )
    _write(shares | "group" >> df.GroupByKey(), "shares")


def _changes(p: df.Pipeline, random: Random) -> None:
    """Records that their source retracts: rows of a table, sums, sessions that come apart, and pairs."""
    read = p | "read" >> df.Read(changing(random))
    rows = read | "row of record" >> df.Map(lambda pair: {"number": pair[1], "key": str(pair[0])})
    rows | "records" >> df.WriteToPostgres(
        "records", columns={"number": int, "key": str}, key=["number"]
    )

    def windowed(label: str, window_fn: df.WindowFn) -> Any:
        return read | label >> df.WindowInto(
            window_fn,
            trigger=random.choice(TRIGGERS),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=LATENESS,
        )

    minutes = windowed("minutes", df.FixedWindows(60))
    sums = minutes | "sum" >> df.CombinePerKey(sum)
    _write(sums, "sums")
    _write(windowed("sessions", df.Sessions(30)) | "group" >> df.GroupByKey(), "groups")
    with_sums = (minutes, sums) | "with sum" >> df.Join()
    _write(with_sums | "count" >> df.CombinePerKey(df.CountCombineFn()), "counts")


PIPELINES: Mapping[str, NamedPipeline] = {
    each.name: each
    for each in (
        NamedPipeline(name="sums", build=_sums),
        NamedPipeline(name="sessions", build=_sessions, whole="group"),
        NamedPipeline(name="chain", build=_chain),
        NamedPipeline(name="stamped", build=_stamped),
        NamedPipeline(name="stateful", build=_stateful, tables=("numbers", "silences")),
        NamedPipeline(name="clocks", build=_clocks),
        NamedPipeline(name="signals", build=_signals),
        NamedPipeline(name="percentiles", build=_percentiles, whole="first"),
        NamedPipeline(name="late", build=_late, whole="group"),
        NamedPipeline(name="retries", build=_retries, whole="group"),
        NamedPipeline(name="typed", build=_typed),
        NamedPipeline(
            name="keys", build=_keys, tables=("sums", "numbers", "silences"), whole="group"
        ),
        NamedPipeline(name="bundles", build=_bundles),
        NamedPipeline(name="joins", build=_joins),
        NamedPipeline(name="sides", build=_sides),
        NamedPipeline(name="changes", build=_changes),
    )
}
