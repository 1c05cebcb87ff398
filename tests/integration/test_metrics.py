"""Metrics over real deaths: a worker that is killed in the middle counts nothing that it had not committed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from runners.batch import BatchRunner
from runners.streaming import StreamingRunner
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

RECORDS = 6_000
SEEN = df.MetricsFilter().with_step("seen")


class Seen(df.DoFn):
    """Counts, and kills its process once, in the midst of a bundle that has counted already."""

    def __init__(self, died: Path) -> None:
        self.died = died

    def process(self, value: int) -> Iterator[tuple[int, int]]:
        df.Metrics.counter("test", "seen").inc()
        df.Metrics.distribution("test", "values").update(value)
        if value == RECORDS // 2 and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield value % 10, value


def row(pair: tuple[int, int]) -> dict[str, int]:
    df.Metrics.counter("test", "rows").inc()
    return {"key": pair[0], "total": pair[1]}


def build(p: df.Pipeline, died: Path) -> None:
    rows: Any = (
        p
        | "read" >> df.Create(range(RECORDS))
        | "seen" >> df.ParDo(Seen(died))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
    )
    rows | df.WriteToPostgres("totals", columns={"key": int, "total": int}, key=["key"])


def seen_by(result: df.PipelineResult) -> int:
    return sum(each.committed for each in result.metrics().query(SEEN)["counters"])


@pytest.mark.parametrize("kind", ["batch", "streaming"])
def test_what_a_killed_worker_had_not_committed_does_not_count(
    kind: str, store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    """And a stream says what it has counted while it runs."""
    died = tmp_path / "died"
    options: Any = {"job": "metrics", "store": store_dsn, "show_progress": False}
    runner: df.Runner
    if kind == "batch":
        runner = BatchRunner(
            master="local[2,4]" if spark_master is None else spark_master, **options
        )
    else:
        runner = StreamingRunner(master=spark_master, records_per_second=2_000, **options)
    p = df.Pipeline(runner)
    build(p, died)
    result = p.run()
    if kind == "streaming":
        until(lambda: 0 < seen_by(result) < RECORDS, lambda: str(result.metrics()))
    result.wait_until_finish()

    assert died.exists()
    found = result.metrics().query(SEEN)
    (values,) = found["distributions"]
    total = RECORDS * (RECORDS - 1) // 2
    assert seen_by(result) == RECORDS
    assert values.committed == df.DistributionResult(RECORDS, total, 0, RECORDS - 1)
    assert sum(each["total"] for each in result.read_table("totals")) == total
    (rows,) = result.metrics().query(df.MetricsFilter().with_name("rows"))["counters"]
    assert rows.committed == 10
