"""What a batch run writes, it writes once, whatever is killed, interrupted and run again."""

import os
import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dataflow as df
from dataflow.io.memory import MemorySource
from dataflow.table import TableSpec, TableWrite
from runners.batch import BatchRunner, waves
from runners.batch.range_writer import RangeWriter
from runners.errors import TableOwnedError, UnrepeatableError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import Store
from runners.registry import forget_job, open_store
from tests.batch_jobs import POINTS, SCORES, Batch, Build, note, notes, once, windowed, write
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


def noted_rows(path: Path) -> Build:
    """A source straight into a table without a key, where a row written twice is seen twice."""

    def build(p: df.Pipeline) -> None:
        def row(value: int) -> Mapping[str, int]:
            note(path, value)
            return {"total": value}

        p | df.Create(range(8)) | df.Map(row) | write("rows", "total")

    return build


def totals(result: df.PipelineResult, table: str = "rows") -> list[int]:
    return sorted(row["total"] for row in result.read_table(table))


def test_a_finished_job_is_left_alone_unless_fresh(
    batch: Batch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    build = noted_rows(ran)

    assert totals(batch.run(build)) == list(range(8))
    assert len(notes(ran)) == 8
    capfd.readouterr()

    assert totals(batch.run(build)) == list(range(8))
    assert len(notes(ran)) == 8
    message = capfd.readouterr().err.strip()
    assert "'job' is finished" in message
    assert "fresh=True" in message
    assert "\n" not in message

    assert totals(batch.run(build, fresh=True)) == list(range(8))
    assert len(notes(ran)) == 16


class KillWorkerOnce(df.DoFn):
    """Passes pairs through; the first task to end is killed after it has committed."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def process(self, element: Any) -> Iterator[Any]:
        yield element

    def teardown(self) -> None:
        if once(self._flag):
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("at", ["source", "grouping"])
def test_a_task_killed_after_its_commit_writes_nothing_twice(
    batch: Batch, tmp_path: Path, at: str
) -> None:
    flag = tmp_path / "killed"

    def build(p: df.Pipeline) -> None:
        def maybe_killed(pairs: df.PCollection[Any], where: str) -> df.PCollection[Any]:
            if at != where:
                return pairs
            return pairs | f"kill {where}" >> df.ParDo(KillWorkerOnce(flag))

        pairs = maybe_killed(p | df.Create(SCORES), "source")
        pairs | "plain" >> df.Map(windowed) | write("plain", "user", "start", "total")
        sums = maybe_killed(pairs | "sum" >> df.CombinePerKey(sum), "grouping")
        sums | "sums" >> df.Map(windowed) | write("sums", "user", "start", "total")
        (
            sums
            | df.Map(lambda pair: ("all", pair[1]))
            | "total" >> df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("totals", "user", "start", "total")
        )

    result = batch.run(build)

    assert flag.exists()
    assert totals(result, "plain") == sorted(value for value, _, _ in POINTS)
    assert sum(totals(result, "sums")) == 51
    assert totals(result, "totals") == [51]


@pytest.mark.parametrize("is_grouped", [True, False])
def test_a_split_killed_between_its_commits_goes_on(
    batch: Batch, tmp_path: Path, is_grouped: bool
) -> None:
    flag, count = tmp_path / "killed", 120_000

    def build(p: df.Pipeline) -> None:
        def row(value: int) -> Mapping[str, int]:
            if value == 110_000 and once(flag):
                os.kill(os.getpid(), signal.SIGKILL)
            return {"total": value}

        rows = p | df.Create(range(count)) | df.Map(row)
        rows | write("rows", "total")
        if is_grouped:
            (
                rows
                | df.Map(lambda each: (each["total"] % 10, 1))
                | df.CombinePerKey(sum)
                | df.Map(lambda pair: {"total": pair[1]})
                | write("counts", "total")
            )

    result = batch.run(build, partitions=1)

    assert flag.exists()
    assert totals(result) == list(range(count))
    if is_grouped:
        assert totals(result, "counts") == [count // 10] * 10


def test_a_crashed_run_is_continued(batch: Batch, tmp_path: Path) -> None:
    ran, mended = tmp_path / "ran", tmp_path / "mended"

    def build(p: df.Pipeline) -> None:
        def row(value: int) -> Mapping[str, int]:
            note(ran, value)
            if value == 7 and not mended.exists():
                raise ValueError("not yet")
            return {"total": value}

        p | "values" >> df.Create(range(8)) | df.Map(row) | write("rows", "total")

    with pytest.raises(df.TransformError, match="not yet"):
        batch.run(build, partitions=4)

    ((_, finished),) = batch.finished().items()
    assert len(finished) == 4
    # Two at a time: the last one was started when two others had ended.
    assert sum(finished) >= 2
    assert not finished[3]
    mended.touch()
    ran.unlink()

    # The ranges of the first run are kept, also where this one would have made others.
    assert totals(batch.run(build, partitions=2)) == list(range(8))
    # On a busy machine a task of the first run is still ending, and may commit after it was asked what has finished.
    again = {str(value) for value in range(8) if not finished[value // 2]}
    assert {"6", "7"} <= set(notes(ran)) <= again


def test_what_nobody_needs_any_more_is_passed_over(batch: Batch, tmp_path: Path) -> None:
    ran, mended = tmp_path / "ran", tmp_path / "mended"

    def build(p: df.Pipeline) -> None:
        def checked(pair: tuple[str, int]) -> Mapping[str, Any]:
            note(ran, pair[0])
            if pair[0] == "bad" and not mended.exists():
                # The two are summed side by side.
                until(lambda: batch.finished()["sum good"] == [True])
                raise ValueError("not yet")
            return {"user": pair[0], "total": pair[1]}

        for name in ("good", "bad"):
            (
                p
                | f"read {name}" >> df.Create([(name, 1), (name, 2)])
                | f"sum {name}" >> df.CombinePerKey(sum)
                | f"check {name}" >> df.Map(checked)
                | write(name, "user", "total")
            )

    with pytest.raises(df.TransformError, match="not yet"):
        batch.run(build, partitions=1)
    assert batch.finished()["sum good"] == [True]
    mended.touch()
    ran.unlink()

    result = batch.run(build)

    assert totals(result, "good") == totals(result, "bad") == [3]
    assert notes(ran) == ["bad"]


def salted(batch: Batch, path: Path) -> Build:
    """A salt as key, in front of a table; one group fails as long as there is no such file."""

    def build(p: df.Pipeline) -> None:
        def salt(value: int) -> tuple[int, int]:
            return random.randrange(10_000), value

        def rows(pair: tuple[int, Sequence[int]]) -> Iterator[Mapping[str, int]]:
            if 7 in pair[1] and not path.exists():
                # Not before others are committed.
                until(lambda: any(batch.finished()["GroupByKey"]))
                raise ValueError("not yet")
            yield from ({"total": value} for value in pair[1])

        grouped = p | "read" >> df.Create(range(2_000)) | df.Map(salt) | df.GroupByKey()
        grouped | df.FlatMap(rows) | write("rows", "total")

    return build


def test_code_that_is_not_deterministic_does_not_go_on_behind_rows_that_it_made(
    batch: Batch, tmp_path: Path
) -> None:
    build = salted(batch, tmp_path / "mended")
    with pytest.raises(df.TransformError, match="not yet"):
        batch.run(build, partitions=8)
    assert sum(batch.finished()["GroupByKey"]) > 0
    (tmp_path / "mended").touch()

    with pytest.raises(UnrepeatableError) as caught:
        batch.run(build)

    assert "'read/" in str(caught.value)
    assert "'Map(salt)'" in str(caught.value)
    assert "fresh=True" in str(caught.value)
    assert totals(batch.run(build, fresh=True)) == list(range(2_000))


# --- errors -----------------------------------------------------------------------------------


class Flaky(df.Source):
    """One record, from a disk that fails the first few times."""

    def __init__(self, tries: Path, failures: int) -> None:
        self._tries, self._failures = tries, failures

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        note(self._tries, "open")
        if len(notes(self._tries)) <= self._failures:
            raise OSError("disk on holiday")
        return MemorySource([1]).open((0, 1), position, fence=0)


@pytest.mark.parametrize("failures", [2, 99])
def test_what_may_pass_is_tried_four_times(batch: Batch, tmp_path: Path, failures: int) -> None:
    tries = tmp_path / "tries"

    def build(p: df.Pipeline) -> None:
        rows = p | "flaky" >> df.Read(Flaky(tries, failures))
        rows | df.Map(lambda value: {"total": value}) | write("rows", "total")

    if failures == 2:
        assert totals(batch.run(build)) == [1]
        assert len(notes(tries)) == 3
    else:
        with pytest.raises(df.TransformError, match=r"'flaky'.*disk on holiday"):
            batch.run(build)
        assert len(notes(tries)) == 4


def test_a_worker_process_keeps_its_connection(batch: Batch) -> None:
    """Dozens of tasks, and hardly more sessions of the server than there are workers."""

    def build(p: df.Pipeline) -> None:
        for number in range(4):
            pairs = p | f"read {number}" >> df.Create([(key, 1) for key in range(20)])
            sums = pairs | f"sum {number}" >> df.CombinePerKey(sum)
            rows = sums | f"rows {number}" >> df.Map(lambda pair: {"total": pair[1]})
            rows | f"write {number}" >> write(f"rows_{number}", "total")

    with psycopg.connect(batch.store, autocommit=True) as admin:

        def sessions() -> int:
            asked = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
            (found,) = admin.execute(asked).fetchone() or (0,)
            return int(found)

        result = batch.run(build, partitions=4)
        assert [len(result.read_table(f"rows_{number}")) for number in range(4)] == [20] * 4
        assert len([each for several in batch.finished().values() for each in several]) >= 32
        assert sessions() <= 20


def test_an_older_attempt_is_fenced_by_the_store(batch: Batch, tmp_path: Path) -> None:
    # Two attempts at the one split of a job that a killed driver left behind.
    def build(p: df.Pipeline) -> None:
        def fail(value: int) -> Mapping[str, int]:
            raise ValueError(value)

        p | "read" >> df.Create([1]) | df.Map(fail) | write("rows", "total")

    with pytest.raises(df.TransformError):
        batch.run(build, partitions=1)
    (computation,) = batch.finished()
    table = TableSpec(name="rows", columns={"total": int})
    writes = [TableWrite(table=table, inserts=[(1,)])]

    def attempt(store: Store, owner: str) -> RangeWriter:
        return RangeWriter(store, "job", RangeId(computation, 0), owner)

    with (
        closing(open_store(batch.store)) as one,
        closing(open_store(batch.store)) as another,
        attempt(one, "first") as first,
        attempt(another, "second") as second,
    ):
        first.write(writes)
        second.write(writes)
        second.commit(is_last=True)
        first.commit(is_last=True)

    with closing(open_store(batch.store)) as store:
        assert store.read_table(table) == [(1,)]


def test_an_error_of_the_user_names_place_and_element_and_is_not_tried_again(
    batch: Batch, tmp_path: Path
) -> None:
    tried = tmp_path / "tried"

    def build(p: df.Pipeline) -> None:
        def divide(value: int) -> float:
            if value == 0:
                note(tried, value)
            return 1 / value

        (
            p
            | df.Create([5, 0, 7])
            | "divide" >> df.Map(divide)
            | df.Map(lambda value: ("k", value))
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total")
        )

    with pytest.raises(df.TransformError) as caught:
        batch.run(build)

    message = str(caught.value)
    assert "'divide'" in message
    assert "test_batch_exactly_once.py:" in message
    assert "ZeroDivisionError" in message
    assert "element: 0" in message
    assert "return 1 / value" in str(caught.value.__context__)
    assert notes(tried) == ["0"]
    finished = batch.finished()
    assert not any(finished["CombinePerKey(sum)"])


class Missing(df.Source):
    """An input that is not there."""

    def check(self) -> None:
        raise df.InputError("nothing to read")

    def splits(self, desired: int) -> Sequence[int]:
        raise AssertionError

    def open(self, split: int, position: None, *, fence: int) -> df.SourceReader:
        raise AssertionError


def test_a_missing_input_is_found_before_anything_is_started() -> None:
    pipeline = df.Pipeline(BatchRunner(job="job", store="host=nowhere.invalid", master="nonsense"))
    pipeline | df.Read(Missing())

    with pytest.raises(df.InputError, match="nothing to read"):
        pipeline.run()


def test_an_interrupt_stops_the_spark_job(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"

    def interrupted(watch: waves._Watch) -> None:
        if watch._tracker.getActiveJobsIds():
            raise KeyboardInterrupt

    monkeypatch.setattr(waves._Watch, "look", interrupted)

    def build(p: df.Pipeline) -> None:
        def slow(value: int) -> None:
            note(ran, value)
            signal.pause()

        p | df.Create(range(8)) | df.Map(slow)

    with pytest.raises(KeyboardInterrupt):
        batch.run(build)
    monkeypatch.undo()
    # Spark is free again: this would wait for ever behind the first.
    assert totals(batch.run(noted_rows(ran), job="another")) == list(range(8))


def test_a_job_starts_over_only_where_no_row_of_it_stays(batch: Batch) -> None:
    """Two jobs in one table, which neither of them can leave again without the other's rows."""

    def build(p: df.Pipeline, *, shared: bool = False) -> None:
        columns = {"total": int}
        rows = p | df.Create([1]) | df.Map(lambda value: {"total": value})
        rows | df.WriteToPostgres("rows", columns=columns, shared=shared)

    def sharing(p: df.Pipeline) -> None:
        build(p, shared=True)

    assert totals(batch.run(build, job="a")) == [1]
    with pytest.raises(TableOwnedError, match="belongs to another job"):
        batch.run(build, job="b")
    assert totals(batch.run(sharing, job="b")) == [1, 1]

    with pytest.raises(TableOwnedError, match="cannot start over"):
        batch.run(build, job="a", fresh=True)

    forget_job("b", store=batch.store)
    assert totals(batch.run(build, job="a", fresh=True)) == [1]
