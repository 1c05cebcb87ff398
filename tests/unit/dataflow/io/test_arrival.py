"""Records whose event time is when they were read: once fixed it stays, and it never goes back."""

import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.io.arrival import QUIET_STEP_US, ArrivalTime, ArrivalTimeSource
from dataflow.io.memory import MemorySource
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.laws import microseconds
from tests.pane_log import run_logged

ACTIVE, IDLE, FINISHED = df.SplitStatus.ACTIVE, df.SplitStatus.IDLE, df.SplitStatus.FINISHED


class Clock:
    """Shows one instant after the other, and then the last for ever."""

    def __init__(self, *instants_us: int) -> None:
        self.instants_us = list(instants_us)

    def __call__(self) -> int:
        return self.instants_us.pop(0) if len(self.instants_us) > 1 else self.instants_us[0]


def arriving(source: df.Source, *instants_us: int) -> ArrivalTimeSource:
    """The first instant is when the input is divided."""
    return ArrivalTimeSource(source, ArrivalTime(Clock(*instants_us)))


def opened(source: ArrivalTimeSource, position: Any = None) -> df.SourceReader:
    (split,) = source.splits(1)
    return source.open(split, position, fence=0)


def read(reader: df.SourceReader, count: int, records: int = 1) -> list[df.SourceBatch]:
    return [reader.read(records) for _ in range(count)]


def times(batches: Sequence[df.SourceBatch]) -> list[int]:
    return [each for batch in batches for each in batch.timestamps_us]


def test_records_happen_when_they_are_read() -> None:
    """Whatever time they were given; those read together at once."""
    values = [df.TimestampedValue("a", 5), "b", "c"]
    batches = read(opened(arriving(MemorySource(values), 1, 100, 200)), 2, records=2)

    assert [["a", "b"], ["c"]] == [list(batch.values) for batch in batches]
    assert [100, 100, 200] == times(batches)
    assert [100, 200] == [batch.watermark_us for batch in batches]
    assert [ACTIVE, FINISHED] == [batch.status for batch in batches]


def test_a_clock_that_goes_back_takes_no_record_back() -> None:
    batches = read(opened(arriving(MemorySource("abc"), 0, 100, 90, 110)), 3)

    assert [100, 100, 110] == times(batches)


def test_whoever_reads_on_begins_where_the_last_one_was() -> None:
    """Though its own clock is behind."""
    first = opened(arriving(MemorySource("abc"), 0, 100)).read(1)
    position = pickle.loads(pickle.dumps(first.position))
    rest = read(opened(arriving(MemorySource("abc"), 0, 50, 120), position), 2)

    assert [["b"], ["c"]] == [list(batch.values) for batch in rest]
    assert [100, 120] == times(rest)


def test_silence_is_timed_in_steps() -> None:
    """Each news of it is a commit."""
    quiet = [Batch([], [], status=IDLE)] * 3
    clock = (0, QUIET_STEP_US + 1, 2 * QUIET_STEP_US - 1, 2 * QUIET_STEP_US + 7)
    batches = read(opened(arriving(ScriptedSource(quiet), *clock)), 3)

    assert [QUIET_STEP_US, QUIET_STEP_US, 2 * QUIET_STEP_US] == [
        batch.watermark_us for batch in batches
    ]


def test_a_split_with_nothing_to_read_still_knows_the_time() -> None:
    """So it is not idle, and the time of the others cannot pass its own."""
    (batch,) = read(opened(arriving(ScriptedSource([Batch([], [], status=IDLE)]), 0, 5)), 1)

    assert ACTIVE is batch.status


def test_what_is_read_again_happened_when_the_job_began() -> None:
    """A batch may read a part again after its first attempt was seen; and there it may report that it is idle."""
    script = [Batch("a", [5]), Batch([], [], status=IDLE)]
    source = arriving(ScriptedSource(script), 7, 100, 200).repeatable()
    splits = pickle.loads(pickle.dumps(source.splits(1)))
    for _ in range(2):
        reader = source.open(splits[0], None, fence=0)
        batches = read(reader, 3)

        assert [7] == times(batches)
        assert [ACTIVE, IDLE, FINISHED] == [batch.status for batch in batches]


def test_sources_are_themselves_again() -> None:
    source = MemorySource("abc")

    assert source is source.repeatable()


class Endless(ScriptedSource):
    is_bounded = False

    def check(self) -> None:
        raise df.InputError("nothing there")


def test_the_rest_is_the_sources() -> None:
    source = arriving(Endless([], []), 0)

    assert not source.is_bounded
    assert arriving(MemorySource([]), 0).is_bounded
    assert 2 == len(source.splits(1))
    with pytest.raises(df.InputError, match="nothing there"):
        source.check()


def test_fixed_windows_by_arrival() -> None:
    """Event times are far apart and out of order, and do not matter; nothing is late."""
    clock = ArrivalTime(Clock(0, 3, 4, 15, 12, 27, 27))
    script = [Batch([name], [at]) for name, at in [("a", 90), ("b", 5), ("c", 40), ("d", 1)]]
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Read(ScriptedSource(script), event_time=clock)
        | df.Map(lambda name: ("k", name))
        | df.WindowInto(df.FixedWindows(microseconds(10)))
        | df.GroupByKey()
    )
    log = run_logged(pipeline)

    assert [(0, ["a", "b"]), (10, ["c", "d"])] == [
        (pane.window.start_us, pane.value) for pane in log.panes
    ]
    assert [] == log.late_records()
    assert "Read(ScriptedSource)" == pipeline.graph().transforms[0].label


def test_files_by_arrival(tmp_path: Path) -> None:
    """By the machine's clock."""
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n")
    seen: list[Any] = []
    before = time.time()
    with df.Pipeline() as p:
        (
            p
            | df.ReadFromCsv(path, event_time=df.ARRIVAL_TIME)
            | df.Map(lambda row, at=df.DoFn.TimestampParam: (row["x"], at.timestamp()))
            | df.Map(seen.append)
        )
    ((value, at),) = seen

    assert "1" == value
    assert before - 0.001 <= at <= time.time() + 0.001


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(df.PipelineError, match="max_disorder with the arrival") as caught:
        df.ReadFromJsonLines("a.jsonl", event_time=df.ARRIVAL_TIME, max_disorder=5)
    assert "leave max_disorder out" in caught.value.hint
    with pytest.raises(df.PipelineError, match="Read cannot take event times from") as caught:
        df.Read(MemorySource([]), event_time=float)  # type: ignore[arg-type]
    assert "df.WithTimestamps" in caught.value.hint
