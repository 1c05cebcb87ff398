"""A shuffle that can be read in part only: its tasks see all of their input, or an error, and Spark runs them again."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

import dataflow as df
from runners.spark.session import spark_context
from runners.spark.whole_input import BrokenInputError, whole
from tests.batch_jobs import Batch, assert_same, note, notes, once, write
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

RECORDS, MAPS = 4_000, 4
MASTER = "local[2,4]"


@pytest.fixture(scope="module")
def local_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark puts the files of shuffles."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def context(spark_alone: None, local_dir: Path) -> SparkContext:
    """When the small shuffle of Spark's start has ended: no other is the latest then but a test's own."""
    context = spark_context("broken input", master=MASTER, settings=settings(local_dir))
    jobs = context.statusTracker()
    until(lambda: jobs.getJobIdsForGroup() and not jobs.getActiveJobsIds())
    return context


def settings(local_dir: Path) -> dict[str, str]:
    return {"spark.local.dir": str(local_dir)}


class Counted:
    """Counts the input of a task, and notes what an attempt that comes to the end of it would commit.

    Args:
        ended: file for the counts.
        broken: file with a line for each attempt whose input broke off.
    """

    def __init__(self, ended: Path, broken: Path) -> None:
        self._ended, self._broken = ended, broken

    def __call__(self, records: Iterable[tuple[int, bytes]]) -> Iterator[int]:
        try:
            count = sum(1 for _ in records)
        except BrokenInputError:
            note(self._broken, "broken off")
            raise
        note(self._ended, count)
        yield count


def damage_last(local_dir: Path) -> None:
    """Make one of the files of the latest shuffle unreadable, which is read after others."""
    data = [(each.name.split("_"), each) for each in local_dir.rglob("shuffle_*.data")]
    number = max(int(name[1]) for name, _ in data)
    found = [(int(name[2]), each) for name, each in data if int(name[1]) == number]
    assert len(found) == MAPS
    _, last = max(found)
    last.write_bytes(bytes(last.stat().st_size))


def run(
    context: SparkContext, local_dir: Path, noted: Path, *, is_guarded: bool
) -> tuple[list[str], list[str]]:
    """Run a task behind a damaged shuffle.

    Returns:
        What the attempts noted that came to an end of their input, and those whose input broke off.
    """
    records = context.parallelize([(0, bytes(500))] * RECORDS, MAPS)
    shuffled = records.partitionBy(1, int)
    assert shuffled.count() == RECORDS
    damage_last(local_dir)
    guarded = whole(shuffled) if is_guarded else shuffled
    ended, broken = noted / "ended", noted / "broken"

    assert guarded.mapPartitions(Counted(ended, broken)).collect() == [RECORDS]
    return notes(ended), notes(broken)


def test_a_task_does_not_end_with_a_part_of_its_input(
    context: SparkContext, local_dir: Path, tmp_path: Path
) -> None:
    ended, broken = run(context, local_dir, tmp_path, is_guarded=True)

    assert ended == [str(RECORDS)]
    assert broken


def test_without_the_guard_it_would(context: SparkContext, local_dir: Path, tmp_path: Path) -> None:
    """Or the test above would be about nothing.  Spark does run it again, but what was committed is committed."""
    ended, broken = run(context, local_dir, tmp_path, is_guarded=False)

    assert 0 <= int(ended[0]) < RECORDS == int(ended[-1])
    assert broken == []


class DamageOnce(df.DoFn):
    """Passes elements through; the first task to end behind another makes the output of that one unreadable."""

    def __init__(self, local_dir: Path, flag: Path) -> None:
        self._local_dir, self._flag = local_dir, flag
        self._before = [*local_dir.rglob("shuffle_*.data")]

    def process(self, element: Any) -> Iterator[Any]:
        yield element

    def teardown(self) -> None:
        data = [
            each for each in self._local_dir.rglob("shuffle_*.data") if each not in self._before
        ]
        if data and once(self._flag):
            data[0].write_bytes(bytes(data[0].stat().st_size))


def test_a_batch_counts_all_of_a_shuffle_that_is_damaged(
    store_dsn: str, context: SparkContext, local_dir: Path, tmp_path: Path
) -> None:
    """The last grouping sends nothing on, so only its own input tells it that something is missing."""
    flag = tmp_path / "damaged"

    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create([(f"key {number % 7}", bytes(900)) for number in range(RECORDS)])
            | df.ParDo(DamageOnce(local_dir, flag))
            | df.GroupByKey()
            | df.Map(lambda pair: {"user": pair[0], "total": len(list(pair[1]))})
            | write("counts", "user", "total")
        )

    batch = Batch(store_dsn, MASTER)
    assert_same(batch, build, "counts", partitions=MAPS, spark_settings=settings(local_dir))

    assert flag.exists()
