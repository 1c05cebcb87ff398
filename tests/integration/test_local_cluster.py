"""Both runners on executors that are processes of their own, which are killed, and replaced by Spark."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

import dataflow as df
from runners.streaming.job_thread import StreamingJob
from tests.batch_jobs import SCORES, Batch, assert_same, note, notes, once, windowed, write
from tests.gated_sources import Gate
from tests.processes import kill
from tests.spark_cluster import executors_below
from tests.streaming_jobs import (
    Streaming,
    direct,
    read_on,
    rows_of,
    two_branches,
    write_events,
)
from tests.waiting import until

# Several Javas start at a time, which takes a machine with much else to do minutes.
pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

#: Small ones: there are three Javas at a time.
SETTINGS = {"spark.executor.memory": "512m"}


@pytest.fixture
def batch(store_dsn: str, local_cluster: str) -> Batch:
    return Batch(store_dsn, local_cluster)


@pytest.fixture
def streaming(store_dsn: str, local_cluster: str) -> Streaming:
    return Streaming(store_dsn, local_cluster)


def executor_of_this_task() -> psutil.Process:
    """The Java above the Python of a task."""
    return next(each for each in psutil.Process().parents() if "java" in each.name())


class KillExecutorOnce(df.DoFn):
    """Passes pairs through; the first task to end has committed, and takes its executor with it."""

    def __init__(self, flag: Path, executors: Path) -> None:
        self._flag, self._executors = flag, executors

    def setup(self) -> None:
        note(self._executors, executor_of_this_task().pid)

    def process(self, element: Any) -> Iterator[Any]:
        yield element

    def teardown(self) -> None:
        if once(self._flag):
            executor_of_this_task().send_signal(signal.SIGKILL)
            time.sleep(5)  # its Python follows it
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.nightly
@pytest.mark.parametrize("at", ["source", "grouping"])
def test_a_batch_loses_an_executor_and_equals_the_direct_runner(
    batch: Batch, tmp_path: Path, at: str
) -> None:
    """With the executor go the shuffle files of tasks that have committed: they run again, and write nothing."""
    flag, executors = tmp_path / "killed", tmp_path / "executors"

    def build(p: df.Pipeline) -> None:
        def maybe_killing(pairs: df.PCollection[Any], where: str) -> df.PCollection[Any]:
            if at != where or not is_real:
                return pairs
            return pairs | f"kill {where}" >> df.ParDo(KillExecutorOnce(flag, executors))

        pairs = maybe_killing(p | df.Create(SCORES), "source")
        pairs | "plain" >> df.Map(windowed) | write("plain", "user", "start", "total")
        sums = maybe_killing(
            pairs | df.WindowInto(df.FixedWindows(120)) | "sum" >> df.CombinePerKey(sum), "grouping"
        )
        sums | "sums" >> df.Map(windowed) | write("sums", "user", "start", "total")
        (
            sums
            | df.Map(lambda pair: ("all", pair[1]))
            | "total" >> df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("totals", "user", "start", "total")
        )

    is_real = False
    expected = direct(build)
    is_real = True
    result = batch.run(build, partitions=4, spark_settings=SETTINGS)

    assert flag.exists()
    assert len(set(notes(executors))) >= 2
    for table in ("plain", "sums", "totals"):
        assert rows_of(expected, table) == rows_of(result, table)


def test_a_batch_equals_the_direct_runner(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        pairs = p | df.Create(SCORES)
        (
            pairs
            | df.WindowInto(df.Sessions(60))
            | df.GroupByKey()
            | df.Map(lambda pair: (pair[0], sum(pair[1])))
            | df.Map(windowed)
            | write("sessions", "user", "start", "total")
        )

    assert_same(batch, build, "sessions", spark_settings=SETTINGS)


def sessions(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend'"
        ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.nightly
def test_a_stream_loses_an_executor_and_has_another(streaming: Streaming, tmp_path: Path) -> None:
    """Its worker is replaced, in an executor that was not there before; the rows are the direct runner's."""
    build = two_branches(write_events(tmp_path / "events.csv"))
    gate = Gate(path=tmp_path / "gate")
    result = streaming.start(build, gate, spark_settings=SETTINGS)
    assert isinstance(result, StreamingJob)
    read_on(result, 5_000)
    # Two workers; the lock of the driver, its reader, and what writes its evidence, which may come later; and this
    # question: it is in docs/how-to/run-on-a-cluster.md.
    until(lambda: sessions(streaming.store) == 6, lambda: str(sessions(streaming.store)))
    before = executors_below(psutil.Process())
    assert len(before) == 2
    kill(before[:1])
    gate.open()
    result.wait_until_finish()

    after = executors_below(psutil.Process())
    assert {each.pid for each in after} - {each.pid for each in before}
    statistics = result.statistics()
    assert statistics is not None
    assert statistics.workers_replaced >= 1
    expected = direct(build)
    for table in ("totals", "visits"):
        assert rows_of(expected, table) == rows_of(result, table)
