"""Both runners on a standalone cluster: a master and the workers of two hosts, with an executor each."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.batch import BatchRunner
from runners.streaming import StreamingRunner
from tests.batch_jobs import SCORES, note, notes, once, windowed, write
from tests.spark_cluster import StandaloneCluster, cluster_settings
from tests.streaming_jobs import direct, rows_of, two_branches, write_events
from tests.waiting import until

# Several Javas start at a time, which takes a machine with much else to do minutes.
pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.nightly]

#: A copy is started of a task that takes much longer than half of the others did; Spark wants another host for it.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    # Else the copy waits for the host that has most of its input, which runs the first attempt.
    "spark.locality.wait": "0",
}
Build = Callable[[df.Pipeline], object]


@attrs.frozen
class Cluster:
    """Runs pipelines on it, with the settings of all tests here."""

    store: str
    standalone: StandaloneCluster

    def run(self, runner: Any, build: Build, **options: Any) -> df.PipelineResult:
        options = {
            "job": "job",
            "show_progress": False,
            "store": self.store,
            "master": self.standalone.url,
            "spark_settings": {**cluster_settings(self.standalone.network.here), **SPECULATION},
            **options,
        }
        pipeline = df.Pipeline(runner(**options))
        build(pipeline)
        result = pipeline.run()
        result.wait_until_finish()
        return result


@pytest.fixture
def cluster(store_dsn: str, standalone: StandaloneCluster) -> Cluster:
    return Cluster(store_dsn, standalone)


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


class NoteNetwork(df.DoFn):
    """Passes everything through."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def setup(self) -> None:
        note(self._path, own_network())

    def process(self, element: object) -> Iterator[object]:
        yield element


def own_network() -> str:
    return str(Path("/proc/self/ns/net").readlink())


def test_a_stream_runs_on_two_hosts(cluster: Cluster, tmp_path: Path) -> None:
    """Where the hosts are namespaces, workers are reached at addresses of their own, or the job would not end."""
    networks = tmp_path / "networks"
    branches = two_branches(write_events(tmp_path / "events.csv"))

    def build(p: df.Pipeline) -> None:
        branches(p)
        counts = p | "few" >> df.Create([("a", 1), ("b", 2)]) | "count" >> df.CombinePerKey(sum)
        counts | "note" >> df.ParDo(NoteNetwork(networks))

    result = cluster.run(StreamingRunner, build)

    found = set(notes(networks))
    if cluster.standalone.network.is_separate:
        assert len(found) == 2
        assert own_network() not in found
    expected = direct(branches)
    for table in ("totals", "visits"):
        assert rows_of(expected, table) == rows_of(result, table)


@pytest.mark.parametrize("at", ["source", "grouping"])
def test_both_attempts_of_a_speculated_task_write_once(
    cluster: Cluster, tmp_path: Path, at: str
) -> None:
    """The first attempt at a range goes on to its commit when the second has taken the range and not yet written."""
    first, second, log = tmp_path / "first", tmp_path / "second", tmp_path / "log"

    def build(p: df.Pipeline) -> None:
        def slow(pair: tuple[int, int]) -> tuple[int, int]:
            if pair[0] == 0 and once(first):
                until(second.exists)
                note(log, "first goes on")
            elif pair[0] == 0 and once(second):
                until(log.exists)
                time.sleep(1)
                note(log, "second goes on")
            return pair

        def row(pair: tuple[int, int]) -> Mapping[str, int]:
            return {"key": pair[0], "total": pair[1]}

        pairs = p | df.Create([(value // 4, value) for value in range(16)])
        if at == "source":
            pairs = pairs | "slow" >> df.Map(slow)
        pairs | "plain" >> df.Map(row) | write("rows", "key", "total")
        totals = pairs | "sum" >> df.CombinePerKey(sum)
        if at == "grouping":
            totals = totals | "slow" >> df.Map(slow)
        totals | "total" >> df.Map(row) | write("totals", "key", "total")

    result = cluster.run(BatchRunner, build, partitions=4)

    # On a busy machine the attempt that comes to user code first may be the one that took the range last: then it
    # commits, and Spark ends the other.
    assert notes(log) in (["first goes on", "second goes on"], ["first goes on"])
    assert sorted(row["total"] for row in result.read_table("rows")) == list(range(16))
    assert sorted(row["total"] for row in result.read_table("totals")) == [6, 22, 38, 54]
