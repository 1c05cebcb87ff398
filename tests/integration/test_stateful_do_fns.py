"""Stateful DoFns on real Spark and Postgres come to what they come to on the direct runner, in batch and streaming."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from runners.batch import BatchRunner
from runners.direct import DirectRunner
from runners.registry import open_store
from runners.streaming import StreamingRunner

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

EVENTS, DISORDER = 4_000, 120
#: In seconds.
WINDOW, SILENT = 300, 20

WAITING = df.BagStateSpec("waiting")
NUMBER = df.CombiningValueStateSpec("number", df.CountCombineFn())
BEFORE = df.ReadModifyWriteStateSpec("before")
NOTES, BY_VALUE = df.BagStateSpec("notes"), df.MapStateSpec("by value", merge=max)
BY_TIME = df.OrderedListStateSpec("by time")
FLUSH = df.TimerSpec("flush", df.TimeDomain.PROCESSING)
CLOSE = df.TimerSpec("close", df.TimeDomain.EVENT)
SILENCE = df.TimerSpec("silence", df.TimeDomain.EVENT)


class Flushed(df.DoFn):
    """Emits the sum of what it has gathered now and then, by the clock, and how many there were when all are there."""

    def process(
        self,
        element: tuple[str, int],
        /,
        window: df.Window = df.DoFn.WindowParam,
        waiting: Any = df.DoFn.StateParam(WAITING),
        number: Any = df.DoFn.StateParam(NUMBER),
        flush: Any = df.DoFn.TimerParam(FLUSH),
        close: Any = df.DoFn.TimerParam(CLOSE),
    ) -> None:
        if not waiting.read():
            flush.set_after(timedelta(milliseconds=50))
        waiting.add(element[1])
        number.add(1)
        close.set(window.end - timedelta(milliseconds=1))

    @df.on_timer(FLUSH)
    def flushed(
        self, key: str = df.DoFn.KeyParam, waiting: Any = df.DoFn.StateParam(WAITING)
    ) -> Iterator[Any]:
        yield key, sum(waiting.read())
        waiting.clear()

    @df.on_timer(CLOSE)
    def closed(
        self, key: str = df.DoFn.KeyParam, number: Any = df.DoFn.StateParam(NUMBER)
    ) -> Iterator[Any]:
        yield df.TaggedOutput("closed", (key, number.read()))


class InOrder(df.DoFn):
    """What an element follows, and when nothing has come for a while."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[str, int],
        /,
        at: datetime = df.DoFn.TimestampParam,
        before: Any = df.DoFn.StateParam(BEFORE),
        silence: Any = df.DoFn.TimerParam(SILENCE),
    ) -> Iterator[Any]:
        yield element[0], f"{element[1]} after {before.read()}"
        before.write(element[1])
        silence.set(at + timedelta(seconds=SILENT))

    @df.on_timer(SILENCE)
    def silent(
        self,
        key: str = df.DoFn.KeyParam,
        at: datetime = df.DoFn.TimestampParam,
        before: Any = df.DoFn.StateParam(BEFORE),
    ) -> Iterator[Any]:
        yield key, f"silent since {before.read()} at {at:%H:%M:%S}"


class Remembering(df.DoFn):
    """Keeps so much of each user and window that it is in pages, and uses some of it for each element."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[str, int],
        /,
        at: datetime = df.DoFn.TimestampParam,
        notes: Any = df.DoFn.StateParam(NOTES),
        by_value: Any = df.DoFn.StateParam(BY_VALUE),
        by_time: Any = df.DoFn.StateParam(BY_TIME),
    ) -> Iterator[Any]:
        _, value = element
        notes.add(f"{value:01000}")
        yield element[0], (by_value.get(value) or "none")[-9:]
        by_value.put(value, f"{at:%H:%M:%S}".rjust(2_000))
        by_time.add((at, str(value).rjust(2_000)))
        if value % 10 == 0:
            by_value.remove(value + 1)
            by_time.clear_range(at - timedelta(seconds=60), at - timedelta(seconds=40))

    @df.on_window_expiration
    def last(
        self,
        key: str = df.DoFn.KeyParam,
        notes: Any = df.DoFn.StateParam(NOTES),
        by_value: Any = df.DoFn.StateParam(BY_VALUE),
        by_time: Any = df.DoFn.StateParam(BY_TIME),
    ) -> Iterator[Any]:
        values = [value.strip() for value in by_value.values()]
        times = [value.strip() for _, value in by_time.read()]
        yield key, f"{[int(note) for note in notes.read()]} {by_value.keys()} {values} {times}"


def row(
    result: tuple[str, Any],
    window: df.Window = df.DoFn.WindowParam,
    at: datetime = df.DoFn.TimestampParam,
) -> dict[str, Any]:
    return {"key": result[0], "start": window.start, "at": at, "value": str(result[1])}


COLUMNS = {"key": str, "start": datetime, "at": datetime, "value": str}
TABLES = ("sums", "closed", "named", "in_order", "last_three", "remembered", "of_sessions")


def build(p: df.Pipeline, events: Path) -> None:
    """State, timers of both domains, order, count windows: nothing is late, so all of it has one answer."""
    rows = p | "read" >> df.ReadFromCsv(
        events, event_time=lambda row: float(row["time"]), max_disorder=DISORDER
    )
    pairs: Any = (
        rows
        | "pair" >> df.Map(lambda row: (row["user"], int(row["value"])))
        | "windows" >> df.WindowInto(df.FixedWindows(WINDOW))
    )
    # More than a page of it, which is looked up.
    names = p | "names" >> df.Create([(f"user{number}", number) for number in range(3_000)])
    named = pairs | "name" >> df.Map(
        lambda pair, names: (pair[0], pair[1] + names[pair[0]]), df.AsDict(names)
    )
    flushed = pairs | "flush" >> df.ParDo(Flushed()).with_outputs("closed")
    results = {
        "sums": flushed.main | "sum" >> df.CombinePerKey(sum),
        "closed": flushed.closed,
        "named": named | "named sums" >> df.CombinePerKey(sum),
        "in_order": pairs | "in order" >> df.ParDo(InOrder()),
        "remembered": pairs | "remember" >> df.ParDo(Remembering()),
        "of_sessions": pairs
        | "sessions" >> df.WindowInto(df.Sessions(30))
        | "remember sessions" >> df.ParDo(Remembering()),
        "last_three": pairs | "threes" >> df.CountWindows(3, period=2, time_sorted=True),
    }
    for name, result in results.items():
        written: Any = result | f"{name} row" >> df.Map(row)
        written | name >> df.WriteToPostgres(name, columns=COLUMNS)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events of ten users, one a second, out of order."""
    chance = random.Random(11)
    lines = [
        f"user{chance.randrange(10)},{1e9 + number - chance.randrange(DISORDER)},{chance.randrange(99)}"
        for number in range(EVENTS)
    ]
    path = tmp_path_factory.mktemp("events") / "events.csv"
    path.write_text("\n".join(["user,time,value", *lines]))
    return path


def rows_of(result: df.PipelineResult) -> dict[str, list[str]]:
    return {table: sorted(str(each) for each in result.read_table(table)) for table in TABLES}


@pytest.mark.parametrize(
    "engine",
    [
        partial(BatchRunner, partitions=3),
        # Nothing stays in memory between two steps: state, and what is in pages of it, is read again for each.
        partial(StreamingRunner, records_per_second=4_000, state_cache_bytes=0),
    ],
    ids=["batch", "streaming"],
)
def test_rows_are_those_of_the_direct_runner(
    engine: Callable[..., df.Runner], store_dsn: str, spark_master: str, events: Path
) -> None:
    direct = df.Pipeline(DirectRunner(bundle_records=100))
    build(direct, events)
    expected = direct.run()
    pipeline = df.Pipeline(
        engine(job="job", store=store_dsn, master=spark_master, show_progress=False)
    )
    build(pipeline, events)
    result = pipeline.run()
    result.wait_until_finish()

    assert EVENTS == sum(int(each["value"]) for each in expected.read_table("closed"))
    assert rows_of(expected) == rows_of(result)
    assert [] == list(expected.late_records())
    assert [] == list(result.late_records())
    with closing(open_store(store_dsn)) as store:
        left = store.statistics("job")
    assert (0, 0) == (left["cells"], left["timers"])
