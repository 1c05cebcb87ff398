"""Both runners on a standalone cluster: a master and the workers of two hosts, with an executor each."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest

import dataflow as df
from runners.batch import BatchRunner
from runners.streaming import StreamingRunner
from tests.batch_jobs import SCORES, note, notes, once, windowed, write
from tests.spark_cluster import StandaloneCluster, cluster_settings
from tests.streaming_jobs import direct, rows_of, two_branches, write_events

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

#: A copy is started of a task that takes much longer than half of the others did; Spark wants another host for it.
SETTINGS = {
    **cluster_settings("127.0.0.1"),
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}
Build = Callable[[df.Pipeline], object]


@attrs.frozen
class Cluster:
    """Runs pipelines on it, with the settings of all tests here."""

    store: str
    url: str

    def run(self, runner: Any, build: Build, **options: Any) -> df.PipelineResult:
        options = {
            "job": "job",
            "show_progress": False,
            "store": self.store,
            "master": self.url,
            "spark_settings": SETTINGS,
            **options,
        }
        pipeline = df.Pipeline(runner(**options))
        build(pipeline)
        result = pipeline.run()
        result.wait_until_finish()
        return result


@pytest.fixture
def cluster(store_dsn: str, standalone: StandaloneCluster) -> Cluster:
    return Cluster(store_dsn, standalone.url)


def sums(p: df.Pipeline) -> None:
    (
        p
        | df.Create(SCORES)
        | df.WindowInto(df.FixedWindows(120))
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(windowed)
        | write("sums", "user", "start", "total")
    )


def test_a_batch_runs_on_two_hosts(cluster: Cluster, standalone: StandaloneCluster) -> None:
    result = cluster.run(BatchRunner, sums, partitions=4)

    assert len(standalone.executors()) == 2
    assert rows_of(direct(sums), "sums") == rows_of(result, "sums")


def test_workers_of_a_stream_listen_on_addresses_of_their_own(
    cluster: Cluster, tmp_path: Path
) -> None:
    build = two_branches(write_events(tmp_path / "events.csv"))
    result = cluster.run(StreamingRunner, build)

    expected = direct(build)
    for table in ("totals", "visits"):
        assert rows_of(expected, table) == rows_of(result, table)


@pytest.mark.parametrize("at", ["source", "grouping"])
def test_both_attempts_of_a_speculated_task_write_once(
    cluster: Cluster, tmp_path: Path, at: str
) -> None:
    """The first attempt at one range sleeps, Spark starts another, and both go on to their commits."""
    first, tried = tmp_path / "first", tmp_path / "tried"

    def build(p: df.Pipeline) -> None:
        def slow_once(pair: tuple[int, int]) -> tuple[int, int]:
            if pair[0] == 0:
                note(tried, pair[1])
                if once(first):
                    time.sleep(4)
            return pair

        def row(pair: tuple[int, int]) -> Mapping[str, int]:
            return {"key": pair[0], "total": pair[1]}

        pairs = p | df.Create([(value // 4, value) for value in range(16)])
        if at == "source":
            pairs = pairs | "slow" >> df.Map(slow_once)
        pairs | "plain" >> df.Map(row) | write("rows", "key", "total")
        totals = pairs | "sum" >> df.CombinePerKey(sum)
        if at == "grouping":
            totals = totals | "slow" >> df.Map(slow_once)
        totals | "total" >> df.Map(row) | write("totals", "key", "total")

    result = cluster.run(BatchRunner, build, partitions=4)

    assert len(notes(tried)) >= 2
    assert sorted(notes(tried))[:2] == (["0", "0"] if at == "source" else ["6", "6"])
    assert sorted(row["total"] for row in result.read_table("rows")) == list(range(16))
    assert sorted(row["total"] for row in result.read_table("totals")) == [6, 22, 38, 54]
    with psycopg.connect(cluster.store) as store:
        assert store.execute("SELECT count(*) FROM rows").fetchone() == (16,)
