"""Stateful DoFns as a user writes them, on the direct runner, against answers worked out from the whole input.

What any program at all does is `test_stateful_do_fns`; here nothing is stepped through, neither state nor timers.
"""

import pickle
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.stateful_programs import Engine
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window

US = 1_000_000
#: In seconds.
MINUTE, LATENESS, PAUSE = 60, 25, 15

NUMBER = df.CombiningValueStateSpec("number", df.CountCombineFn())
WAITING = df.BagStateSpec("waiting")
FLUSH = df.TimerSpec("flush", df.TimeDomain.EVENT)


class Gather(df.DoFn):
    """Numbers the elements of a key, and emits them together some seconds after the first that was not emitted yet."""

    def process(
        self,
        element: tuple[str, int],
        /,
        at: datetime = df.DoFn.TimestampParam,
        number: Any = df.DoFn.StateParam(NUMBER),
        waiting: Any = df.DoFn.StateParam(WAITING),
        flush: Any = df.DoFn.TimerParam(FLUSH),
    ) -> Iterator[Any]:
        number.add(1)
        if not waiting.read():
            flush.set(at + timedelta(seconds=PAUSE))
        waiting.add(element[1])
        yield element[0], number.read()

    @df.on_timer(FLUSH)
    def flushed(
        self, key: Any = df.DoFn.KeyParam, waiting: Any = df.DoFn.StateParam(WAITING)
    ) -> Iterator[Any]:
        yield key, waiting.read()
        waiting.clear()


class GatherInOrder(Gather):
    requires_time_sorted_input = True


@attrs.frozen
class Arrival:
    """An element, and the watermark that it meets; in seconds.  ``number`` makes it unique."""

    key: str
    number: int
    at: int
    watermark: int


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Two keys in two minutes, the watermark anywhere."""
    elements = draw(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(0, 2 * MINUTE - 1), st.integers(0, 20)),
            max_size=15,
        )
    )
    watermarks = [0]
    for *_, step in elements:
        watermarks.append(watermarks[-1] + step)
    return [
        Arrival(key, number, at, watermark)
        for number, ((key, at, _), watermark) in enumerate(zip(elements, watermarks, strict=False))
    ]


def into() -> df.WindowInto:
    return df.WindowInto(
        df.FixedWindows(MINUTE),
        allowed_lateness=LATENESS,
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )


#: For each key and minute: what is emitted, and when, in seconds.
EmittedPane = dict[tuple[str, int], list[tuple[Any, float]]]


def emitted_by_direct(fn: df.DoFn, stream: Sequence[Arrival], bundle_records: int) -> EmittedPane:
    """Elements that meet one watermark may come together, so many at a time."""
    emitted: EmittedPane = {}

    def see(
        result: Any, window: Any = df.DoFn.WindowParam, at: Any = df.DoFn.TimestampParam
    ) -> None:
        place = result[0], window.start_us // US // MINUTE
        emitted.setdefault(place, []).append((result[1], at.timestamp()))

    script: list[Batch] = [Batch([], [], 0)]
    while stream:
        watermark = stream[0].watermark
        bundle = [each for each in stream[:bundle_records] if each.watermark == watermark]
        stream = stream[len(bundle) :]
        script.append(
            Batch(
                [(each.key, each.number) for each in bundle],
                [each.at * US for each in bundle],
                stream[0].watermark * US if stream else MIN_TIMESTAMP_US,
            )
        )
    with df.Pipeline(DirectRunner()) as p:
        p | df.Read(ScriptedSource(script)) | into() | df.ParDo(fn) | df.Map(see)
    return emitted


def expected(stream: Sequence[Arrival]) -> EmittedPane:
    """Of what is not late: numbers, and runs of elements each of which meets a watermark before the run is due."""
    emitted: EmittedPane = {}
    for key in "ab":
        for minute in (0, 1):
            end = (minute + 1) * MINUTE
            mine = [
                each
                for each in stream
                if (each.key, each.at // MINUTE) == (key, minute)
                and each.watermark < end + LATENESS
            ]
            runs: list[list[Arrival]] = []
            for each in mine:
                if runs and each.watermark < runs[-1][0].at + PAUSE:
                    runs[-1].append(each)
                else:
                    runs.append([each])
            results: list[tuple[Any, float]] = [
                (number, float(each.at)) for number, each in enumerate(mine, 1)
            ]
            for run in runs:
                due = min(run[0].at + PAUSE, end - 1e-6)
                results.append(([each.number for each in run], due))
            if results:
                emitted[key, minute] = results
    return emitted


def assert_same(expected_: EmittedPane, emitted: EmittedPane) -> None:
    """The numbers in their order, the runs in theirs."""

    def parts(of: EmittedPane) -> Any:
        return {
            place: [[each for each in results if isinstance(each[0], kind)] for kind in (int, list)]
            for place, results in of.items()
        }

    assert parts(expected_) == parts(emitted)


@given(arrivals(), st.integers(1, 5))
def test_counts_and_runs_are_those_of_the_whole_input(
    stream: list[Arrival], bundle_records: int
) -> None:
    """With disorder, late elements and elements that are too late; whatever the bundles."""
    assert_same(expected(stream), emitted_by_direct(Gather(), stream, bundle_records))


@given(arrivals(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_in_time_order_batch_and_direct_emit_the_same(
    stream: list[Arrival], bundle_records: int, chance: Any
) -> None:
    """Nothing is late: what is emitted is what would be emitted if elements met the watermark at their own time."""
    in_order = [
        attrs.evolve(each, watermark=each.at)
        for each in sorted(stream, key=lambda each: (each.at, pickle.dumps(each.number)))
    ]
    chance.shuffle(stream)
    soonest = MAX_TIMESTAMP_US // US
    never_late = []
    for each in reversed(stream):
        soonest = min(soonest, each.at)
        never_late.append(attrs.evolve(each, watermark=soonest))
    never_late.reverse()

    direct = emitted_by_direct(GatherInOrder(), never_late, bundle_records)
    assert_same(expected(in_order), direct)
    assert replayed(stream) == direct


def replayed(stream: Sequence[Arrival]) -> EmittedPane:
    """Run a batch: all input first, then the end of time; the DoFn need not ask for the order."""
    engine = Engine.of(Gather(), into(), is_time_sorted=True)
    minutes = [Window(n * MINUTE * US, (n + 1) * MINUTE * US) for n in (0, 1)]
    engine.add(
        *((each.key, minutes[each.at // MINUTE], each.number, each.at * US) for each in stream)
    )
    engine.advance(watermark_us=MAX_TIMESTAMP_US, now_us=MAX_TIMESTAMP_US)
    emitted: EmittedPane = {}
    for (key, value), at_us, window in engine.outputs:
        emitted.setdefault((key, minutes.index(window)), []).append((value, at_us / US))
    return emitted
