"""The streaming runner on real Spark and Postgres leaves the rows of the direct runner, whoever dies."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

import dataflow as df
from runners.millwheel.master.master import Master
from runners.millwheel.wire.messages import Register
from runners.registry import open_store
from runners.streaming.job_thread import StreamingJob
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.gated_sources import Gate
from tests.processes import kill, workers_of
from tests.streaming_jobs import (
    SUMS,
    Streaming,
    direct,
    open_work,
    read_on,
    rows_of,
    total_row,
    two_branches,
    write_events,
)

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def streaming(store_dsn: str, spark_master: str) -> Streaming:
    return Streaming(store_dsn, spark_master)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_events(tmp_path_factory.mktemp("events") / "events.csv")


def test_rows_equal_the_direct_runners(streaming: Streaming, events: Path) -> None:
    """Two branches, disorder beyond the watermark, late merges: the same rows, and nothing left open."""
    build = two_branches(events)
    result, expected = streaming.run(build), direct(build)

    for table in ("totals", "visits"):
        assert rows_of(expected, table) == rows_of(result, table)
    assert [] == result.late_records()
    assert {"cells": 0, "timers": 0, "checkpoints": 0} == open_work(streaming.store)


def test_early_and_late_panes_end_in_the_same_rows(streaming: Streaming, events: Path) -> None:
    """Speculation by the clock on the wall, corrections of it, and nothing left open."""
    trigger = df.AfterWatermark(early=df.AfterProcessingTime(0.05), late=df.AfterCount(1))
    result = streaming.run(two_branches(events, trigger), records_per_second=10_000)
    expected = direct(two_branches(events))

    for table in ("totals", "visits"):
        assert rows_of(expected, table) == rows_of(result, table)
    assert {"cells": 0, "timers": 0, "checkpoints": 0} == open_work(streaming.store)


def test_a_worker_that_comes_when_the_job_is_done_leaves_it_done(
    streaming: Streaming, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot of a short job may get its first worker, or another, while all are being stopped."""
    stop = Master.stop

    def register_and_stop(master: Master) -> None:
        # Whichever slot has the ranges: on a slow machine the job has been gathered on one worker by now.
        for slot in range(len(master._slots)):
            late = Register(slot=slot, worker=f"late {slot}", address="tcp://127.0.0.1:1")
            master._handle(late)
        assert not master.is_done
        stop(master)

    monkeypatch.setattr(Master, "stop", register_and_stop)
    result = streaming.run(two_branches(events))

    assert result.state is df.PipelineState.FINISHED
    with closing(open_store(streaming.store)) as store:
        job = store.read_job("job")
    assert job is not None
    assert job.is_finished
    assert rows_of(direct(two_branches(events)), "totals") == rows_of(result, "totals")


def test_a_killed_worker_is_replaced(streaming: Streaming, events: Path, tmp_path: Path) -> None:
    """Workers die with -9 while the job runs; it goes on by itself and its rows are right."""
    build, gate = two_branches(events), Gate(path=tmp_path / "gate", records=4_000)
    result = streaming.start(build, gate)
    assert isinstance(result, StreamingJob)
    for kill_number in range(3):
        read_on(result, 1_000 * (kill_number + 1))
        kill([random.choice(workers_of(psutil.Process()))])
    gate.open()
    result.wait_until_finish()
    expected = direct(build)

    statistics = result.statistics()
    assert statistics is not None
    # A worker may die before it has registered; then its slot was replaced only once for both.
    assert statistics.workers_replaced >= 1
    for table in ("totals", "visits"):
        assert rows_of(expected, table) == rows_of(result, table)


def test_a_cancelled_job_goes_on_where_it_was(
    streaming: Streaming, events: Path, tmp_path: Path
) -> None:
    """Cancelling keeps what was committed; the same job name continues it; a finished job does nothing."""
    build, gate = two_branches(events), Gate(path=tmp_path / "gate")
    first = streaming.start(build, gate)
    assert isinstance(first, StreamingJob)
    read_on(first, 2_000)
    states = [first.state, first.wait_until_finish(timeout="0.05s")]
    first.cancel()
    states += [first.wait_until_finish(), first.state]
    assert ["running"] * 2 + ["cancelled"] * 2 == states
    gate.open()
    second = streaming.run(build, gate=gate)
    assert isinstance(second, StreamingJob)
    counts = second.statistics()
    third = streaming.run(build, gate=gate)

    assert counts is not None
    assert counts.records_read <= 20_000 - 2_000
    assert not isinstance(third, StreamingJob)
    assert second.wait_until_finish() is third.wait_until_finish() is df.PipelineState.FINISHED
    for table in ("totals", "visits"):
        assert rows_of(direct(build), table) == rows_of(third, table)


def test_an_error_of_the_users_names_his_transform(streaming: Streaming, events: Path) -> None:
    """A failing function ends the job with the transform, the line and the element; a corrected one continues."""

    def build(divisor: int) -> Callable[[df.Pipeline], None]:
        def inner(p: df.Pipeline) -> None:
            (
                p
                | "read" >> df.ReadFromCsv(events)
                | "invert" >> df.Map(lambda row: {"n": 1 // divisor, "user": row["user"]})
                | "out" >> df.WriteToPostgres("inverted", columns={"n": int, "user": str})
            )

        return inner

    with pytest.raises(df.TransformError) as caught:
        streaming.run(build(0))
    result = streaming.run(build(1))

    assert "transform 'invert' (" in str(caught.value)
    assert "test_streaming_runner.py:" in str(caught.value)
    assert "'user':" in str(caught.value)
    assert 20_000 == len(result.read_table("inverted"))


def test_late_records_are_rows(streaming: Streaming) -> None:
    """What comes after its window was gone is not in the result, and can be read."""
    script = [
        Batch([("a", 1)], [5_000_000], 0),
        Batch([("a", 2)], [700_000_000], 650_000_000),
        *[Batch([], [], 650_000_000 + number) for number in range(1, 50)],
    ]
    late = [Batch([("a", 4)], [6_000_000], 660_000_000)]

    def build(p: df.Pipeline) -> None:
        (
            p
            | "read" >> df.Read(ScriptedSource([*script, *late]))
            | df.WindowInto(df.FixedWindows(60))
            | "sum" >> df.CombinePerKey(sum)
            | "total" >> df.Map(total_row)
            | df.WriteToPostgres("totals", columns=SUMS, key=["user", "start"])
        )

    result = streaming.run(build)
    totals = [row["total"] for row in result.read_table("totals")]
    late_records = result.late_records()

    # Whether the watermark has passed when the record comes is a race; that it is counted exactly once is not.
    assert 7 == sum(totals) + sum(sum(each["payload"]) for each in late_records)
