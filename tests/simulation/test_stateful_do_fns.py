"""Stateful DoFns over the real master and workers, some of which die: state and timers are there for the next one."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.stored.letters import stored_late_mapping
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator.pipelines import Numbered
from tests.effort import costly
from tests.simulation.test_worker_crashes import COLUMNS, Cluster, batches, row, scripted
from windowing.timestamps import MAX_TIMESTAMP_US

WAITING = df.BagStateSpec("waiting")
FLUSH = df.TimerSpec("flush", df.TimeDomain.PROCESSING)


def never_late(script: list[list[tuple[int, int]]]) -> ScriptedSource:
    """Batches of (value, second) in any order; the watermark knows what is still to come."""
    batches, soonest_us = [], MAX_TIMESTAMP_US
    for each in reversed(script):
        times_us = [second * 1_000_000 for _, second in each]
        batches.append(Batch([value for value, _ in each], times_us, soonest_us))
        soonest_us = min([soonest_us, *times_us])
    return ScriptedSource(batches[::-1])


def build_in_order(p: df.Pipeline, source: df.Source) -> None:
    """What depends on the order of elements: the order is that of event times, so nothing else matters."""
    pairs: Any = (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda v: (v % 5, v))
        | "minutes" >> df.WindowInto(df.FixedWindows(60))
    )
    numbered = pairs | "number" >> df.ParDo(Numbered()).with_outputs("silent")
    results = {
        "numbered": numbered.main,
        "silences": numbered.silent | "list" >> df.GroupByKey(),
        "threes": pairs | "last three" >> df.CountWindows(3, period=2, time_sorted=True),
    }
    for name, result in results.items():
        rows: Any = result | f"{name} rows" >> df.Map(row)
        rows | name >> df.WriteToPostgres(name, columns=COLUMNS)


@pytest.mark.slow
@costly(cells=2)
@given(batches=batches, seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_in_time_order_rows_equal_the_direct_runners(
    crash_rate: float, batches: list[list[tuple[int, int]]], seed: int
) -> None:
    direct = df.Pipeline(DirectRunner())
    build_in_order(direct, never_late(batches))
    expected = direct.run()
    cluster = Cluster(direct.graph(), seed, crash_rate)
    cluster.run()

    for spec in direct.graph().tables():
        rows = sorted(tuple(each.values()) for each in expected.read_table(spec.name))
        assert rows == sorted(cluster.store.read_table(spec)), f"seed={seed}"
    assert cluster.store.read_late("sim") == []
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


PAGES, COUNTS = df.SetStateSpec("pages"), df.MapStateSpec("counts", ttl=20)
TIMES, FIRST = df.OrderedListStateSpec("times"), df.WatermarkHoldStateSpec("first")
LATER = df.TimerFamilySpec("later", df.TimeDomain.EVENT, holds_watermark=True)
END = df.TimerSpec("end", df.TimeDomain.EVENT)


class Kinds(df.DoFn):
    """Every kind of state, each with all that a failure could lose: order, what was removed, when it ends, its hold."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[int, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        pages: Any = df.DoFn.StateParam(PAGES),
        counts: Any = df.DoFn.StateParam(COUNTS),
        times: Any = df.DoFn.StateParam(TIMES),
        first: Any = df.DoFn.StateParam(FIRST),
        later: Any = df.DoFn.TimerParam(LATER),
        end: Any = df.DoFn.TimerParam(END),
    ) -> None:
        value = element[1]
        pages.add(value % 7)
        pages.remove(value % 3)
        counts.put(value % 2, counts.get(value % 2, 0) + 1)
        times.add((value, at.timestamp()))
        later.get(str(value)).set(at + timedelta(seconds=25), output_timestamp=at)
        if first.is_empty:
            end.set(at + timedelta(seconds=15))
        first.add(at)

    @df.on_timer(LATER)
    def echo(self, key: Any = df.DoFn.KeyParam) -> Iterator[Any]:
        yield key, 1

    @df.on_timer(END)
    def tell(
        self,
        key: Any = df.DoFn.KeyParam,
        counts: Any = df.DoFn.StateParam(COUNTS),
        first: Any = df.DoFn.StateParam(FIRST),
    ) -> Iterator[Any]:
        total = sum(number << 10 * page for page, number in counts.items())
        yield df.TimestampedValue((key, total), first.read())
        first.clear()

    @df.on_window_expiration
    def last(
        self,
        key: Any = df.DoFn.KeyParam,
        pages: Any = df.DoFn.StateParam(PAGES),
        times: Any = df.DoFn.StateParam(TIMES),
    ) -> Iterator[Any]:
        ordered = [number + 1 for number, (_, at) in enumerate(times.read_range(1, 40)) if at]
        digits = [*pages.read(), *ordered]
        yield df.TaggedOutput("last", (key, int("1" + "".join(map(str, digits)))))


def build_kinds(p: df.Pipeline, source: df.Source) -> None:
    """What is emitted late is as old as it says, so behind it nothing is late either, and it is in its ten seconds."""
    pairs: Any = (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda v: (v % 5, v))
        | "minutes" >> df.WindowInto(df.FixedWindows(60))
    )
    kinds = pairs | "kinds" >> df.ParDo(Kinds()).with_outputs("last")
    sums = kinds.main | "ten" >> df.WindowInto(df.FixedWindows(10)) | "sum" >> df.CombinePerKey(sum)
    sums | "row" >> df.Map(row) | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    lasts = kinds["last"] | "last row" >> df.Map(row)
    lasts | "lasts" >> df.WriteToPostgres("lasts", columns=COLUMNS)


@costly(cells=2)
@given(batches=batches, seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_every_kind_of_state_outlives_its_workers(
    crash_rate: float, batches: list[list[tuple[int, int]]], seed: int
) -> None:
    direct = df.Pipeline(DirectRunner())
    build_kinds(direct, never_late(batches))
    expected = direct.run()
    cluster = Cluster(direct.graph(), seed, crash_rate)
    cluster.run()

    for spec in direct.graph().tables():
        rows = sorted(tuple(each.values()) for each in expected.read_table(spec.name))
        assert rows == sorted(cluster.store.read_table(spec)), f"seed={seed}"
    assert cluster.store.read_late("sim") == []
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


STEPS, BEST = df.BagStateSpec("steps"), df.ReadModifyWriteStateSpec("best", merge=max)
SUMS = df.MapStateSpec("sums", merge=lambda earlier, later: earlier + later, ttl=15)


class Sessions(df.DoFn):
    """What a session has seen, in every kind of state that a merge moves; tells it when it grows and when it ends."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[int, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        steps: Any = df.DoFn.StateParam(STEPS),
        best: Any = df.DoFn.StateParam(BEST),
        sums: Any = df.DoFn.StateParam(SUMS),
        first: Any = df.DoFn.StateParam(FIRST),
        later: Any = df.DoFn.TimerParam(LATER),
    ) -> Iterator[Any]:
        value = element[1]
        steps.add(value)
        best.write(max(value, best.read() or 0))
        sums.put(value % 3, sums.get(value % 3, 0) + value)
        first.add(at)
        later.get(str(value % 2)).set(at + timedelta(seconds=12), output_timestamp=at)
        yield element[0], sum(number << 12 * rest for rest, number in sums.items())

    @df.on_timer(LATER)
    def pause(
        self, key: Any = df.DoFn.KeyParam, steps: Any = df.DoFn.StateParam(STEPS)
    ) -> Iterator[Any]:
        yield key, -sum(steps.read())

    @df.on_window_expiration
    def last(
        self,
        key: Any = df.DoFn.KeyParam,
        steps: Any = df.DoFn.StateParam(STEPS),
        best: Any = df.DoFn.StateParam(BEST),
        first: Any = df.DoFn.StateParam(FIRST),
    ) -> Iterator[Any]:
        digits = [best.read(), *steps.read(), round(first.read().timestamp())]
        yield df.TaggedOutput("last", (key, int("1" + "".join(map(str, digits)))))


class Bridged(df.DoFn):
    """Gathers a session in the order of arrival, in which two that have state become one; tells what has no order."""

    requires_time_sorted_input = False

    def process(
        self,
        element: tuple[int, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        steps: Any = df.DoFn.StateParam(STEPS),
        best: Any = df.DoFn.StateParam(BEST),
        first: Any = df.DoFn.StateParam(FIRST),
        later: Any = df.DoFn.TimerParam(LATER),
    ) -> None:
        value = element[1]
        steps.add(value)
        best.write(max(value, best.read() or 0))
        first.add(at)
        later.get(str(at)).set(at + timedelta(seconds=12), output_timestamp=at)

    @df.on_timer(LATER)
    def pause(self, key: Any = df.DoFn.KeyParam) -> Iterator[Any]:
        yield key, 1

    last = Sessions.last


def build_sessions(p: df.Pipeline, source: df.Source) -> None:
    """State merges in the order of event times, and what is emitted merges again in the grouping behind it."""
    pairs: Any = (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda v: (v % 5, v))
        | "windows" >> df.WindowInto(df.Sessions(20))
    )
    in_order = pairs | "in order" >> df.ParDo(Sessions()).with_outputs("last")
    bridged = pairs | "bridged" >> df.ParDo(Bridged()).with_outputs("last")
    sums = in_order.main | "sum" >> df.CombinePerKey(sum)
    pauses = bridged.main | "count" >> df.CombinePerKey(sum)
    gathered = bridged["last"] | "digits" >> df.MapTuple(
        lambda key, n: (key, sum(map(int, str(n))))
    )
    results = {"sums": sums, "pauses": pauses, "lasts": in_order["last"], "gathered": gathered}
    for name, result in results.items():
        rows: Any = result | f"{name} rows" >> df.Map(row)
        rows | name >> df.WriteToPostgres(name, columns=COLUMNS)


@costly(cells=2)
@given(batches=batches, seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_state_of_sessions_outlives_its_workers(
    crash_rate: float, batches: list[list[tuple[int, int]]], seed: int
) -> None:
    direct = df.Pipeline(DirectRunner())
    build_sessions(direct, never_late(batches))
    expected = direct.run()
    cluster = Cluster(direct.graph(), seed, crash_rate)
    cluster.run()

    for spec in direct.graph().tables():
        rows = sorted(tuple(each.values()) for each in expected.read_table(spec.name))
        assert rows == sorted(cluster.store.read_table(spec)), f"seed={seed}"
    assert cluster.store.read_late("sim") == []
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


class Flushed(df.DoFn):
    """Gathers values, and emits their sum now and then."""

    def process(
        self,
        element: tuple[int, int],
        /,
        waiting: Any = df.DoFn.StateParam(WAITING),
        flush: Any = df.DoFn.TimerParam(FLUSH),
    ) -> None:
        if not waiting.read():
            flush.set_after(0.2)
        waiting.add(element[1])

    @df.on_timer(FLUSH)
    def flushed(
        self, key: Any = df.DoFn.KeyParam, waiting: Any = df.DoFn.StateParam(WAITING)
    ) -> Iterator[Any]:
        yield key, sum(waiting.read())
        waiting.clear()


@costly()
@given(batches=batches, seed=st.integers(0, 2**32), disorder=st.integers(0, 300))
def test_what_waits_for_the_clock_is_emitted_once(
    batches: list[list[tuple[int, int]]], seed: int, disorder: int
) -> None:
    """In the result or among the late, each exactly once, however often workers die."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Read(scripted(batches, disorder))
        | "pair" >> df.Map(lambda v: (v % 5, v))
        | "minutes" >> df.WindowInto(df.FixedWindows(60))
        | "flush" >> df.ParDo(Flushed())
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS, key=["key", "start"])
    )
    cluster = Cluster(pipeline.graph(), seed, crash_rate=0.1)
    cluster.run()
    (table,) = pipeline.graph().tables()
    total = sum(int(each[3]) for each in cluster.store.read_table(table))
    late = [each for each in cluster.store.read_late("sim") if each["transform"] == "flush"]
    lost = sum(stored_late_mapping(each)["element"].value[1] for each in late)

    assert len(late) == len(cluster.store.read_late("sim"))
    assert sum(value for each in batches for value, _ in each) == total + lost, f"seed={seed}"
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))
