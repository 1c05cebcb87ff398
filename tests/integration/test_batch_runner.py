"""The batch runner says what the direct runner says, once, whatever is killed and run again."""

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.io import files
from runners.batch import BatchRunner, waves
from runners.direct import DirectRunner
from runners.registry import open_store

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
#: The ten data points of the paper's figure 5: value, minute and second of event time.
POINTS = [
    (5, 0, 30), (7, 2, 10), (3, 3, 40), (4, 3, 55), (3, 4, 25),
    (8, 3, 0), (3, 6, 40), (9, 1, 20), (8, 7, 20), (1, 7, 45),
]  # fmt: skip
SCORES = [
    df.TimestampedValue(
        (f"user{value % 3}", value), NOON + timedelta(minutes=minute, seconds=second)
    )
    for value, minute, second in POINTS
]

Build = Callable[[df.Pipeline], object]


@attrs.frozen
class Batch:
    """Runs pipelines as the job "job" on this test's database."""

    store: str
    master: str

    def run(self, build: Build, **options: Any) -> df.PipelineResult:
        options = {"job": "job", "partitions": 3, "show_progress": False, **options}
        pipeline = df.Pipeline(BatchRunner(store=self.store, master=self.master, **options))
        build(pipeline)
        result = pipeline.run()
        result.wait_until_finish()
        return result

    def finished(self) -> dict[str, list[bool]]:
        with closing(open_store(self.store)) as store:
            job = store.read_job("job")
        assert job is not None
        found: dict[str, list[bool]] = {}
        for range_id, row in sorted(job.ranges.items()):
            found.setdefault(range_id.computation, []).append(row.is_finished)
        return found


@pytest.fixture
def batch(store_dsn: str, spark_master: str) -> Batch:
    return Batch(store_dsn, spark_master)


def write(table: str, *columns: str, key: Iterable[str] = ()) -> df.WriteToPostgres:
    kinds: dict[str, Any] = {"start": datetime, "user": str, "text": str}
    return df.WriteToPostgres(
        table, columns={name: kinds.get(name, int) for name in columns}, key=tuple(key)
    )


def windowed(pair: tuple[str, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"user": pair[0], "start": window.start, "total": pair[1]}


def rows_of(result: df.PipelineResult, table: str) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in result.read_table(table))


def assert_same(batch: Batch, build: Build, *tables: str, **options: Any) -> df.PipelineResult:
    """Both runners leave the same rows; nothing is ever late in a batch."""
    direct = df.Pipeline(DirectRunner(bundle_records=3))
    build(direct)
    expected = direct.run()
    result = batch.run(build, **options)
    for table in tables:
        assert rows_of(expected, table) == rows_of(result, table)
    assert list(result.late_records()) == []
    return result


# Notes that user code leaves in a file: appended, so that all processes can write them.


def note(path: Path, line: object) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def notes(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def once(path: Path) -> bool:
    """True for the first caller of all processes."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


# --- the same answers -------------------------------------------------------------------------


def test_sums_in_fixed_windows(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create(SCORES)
            | df.WindowInto(df.FixedWindows(120))
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total", key=["user", "start"])
        )

    result = assert_same(batch, build, "sums")
    assert sum(row["total"] for row in result.read_table("sums")) == 51


def test_lists_in_sessions(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create(SCORES)
            | df.WindowInto(df.Sessions(60))
            | df.GroupByKey()
            | df.Map(lambda pair: (pair[0], json.dumps(sorted(pair[1]))))
            | df.Map(
                lambda pair, window=df.DoFn.WindowParam: {
                    "user": pair[0],
                    "start": window.start,
                    "text": pair[1],
                }
            )
            | write("sessions", "user", "start", "text")
        )

    assert_same(batch, build, "sessions", partitions=4)


def test_two_branches_parse_once(batch: Batch, tmp_path: Path) -> None:
    parsed = tmp_path / "parsed"

    def build(p: df.Pipeline) -> None:
        def parse(pair: tuple[str, int]) -> tuple[str, int]:
            note(parsed, pair)
            return pair

        pairs = p | df.Create(SCORES) | df.Map(parse) | df.WindowInto(df.FixedWindows(120))
        pairs | df.CombinePerKey(sum) | df.Map(windowed) | write("sums", "user", "start", "total")
        pairs | df.CombinePerKey(max) | df.Map(windowed) | write("most", "user", "start", "total")
        pairs | df.Map(windowed) | write("plain", "user", "start", "total")

    batch.run(build)
    assert sorted(notes(parsed)) == sorted(str(score.value) for score in SCORES)
    assert_same(batch, build, "sums", "most", "plain", fresh=True)


def test_a_grouping_of_a_grouping_and_a_source(batch: Batch, tmp_path: Path) -> None:
    read = tmp_path / "read"

    def build(p: df.Pipeline) -> None:
        def seen(pair: tuple[str, int]) -> tuple[str, int]:
            note(read, pair)
            return pair

        scores = p | df.Create(SCORES) | df.Map(seen) | df.WindowInto(df.FixedWindows(120))
        sums = scores | "sums" >> df.CombinePerKey(sum)
        more = scores | "most" >> df.CombinePerKey(max)
        both = (sums, more) | df.Flatten[tuple[str, int]]()
        twice = both | "twice" >> df.CombinePerKey(sum) | df.Map(lambda pair: ("all", pair[1]))
        (
            twice
            | "total" >> df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("totals", "user", "start", "total", key=["user", "start"])
        )

    batch.run(build)
    assert len(notes(read)) == len(SCORES)
    assert_same(batch, build, "totals", fresh=True)


def test_a_source_is_carried_past_the_grouping_it_does_not_feed(
    batch: Batch, tmp_path: Path
) -> None:
    read = tmp_path / "read"

    def build(p: df.Pipeline) -> None:
        def seen(pair: tuple[str, int]) -> tuple[str, int]:
            note(read, pair)
            return pair

        scores = p | df.Create(SCORES) | df.Map(seen)
        sums = (
            scores
            | "most" >> df.CombinePerKey(max)
            | "into the same windows" >> df.WindowInto(df.GlobalWindows())
        )
        again = scores | "as they are" >> df.WindowInto(df.GlobalWindows())
        (
            (sums, again)
            | df.Flatten[tuple[str, int]]()
            | "total" >> df.CombinePerKey(sum)
            | df.Map(lambda pair: {"user": pair[0], "total": pair[1]})
            | write("totals", "user", "total", key=["user"])
        )

    batch.run(build)
    assert len(notes(read)) == len(SCORES)
    assert_same(batch, build, "totals", fresh=True)


class Sort(df.DoFn):
    """Even scores to the main output, odd ones to dead letters."""

    def process(self, element: tuple[str, int]) -> Iterator[Any]:
        if element[1] % 2:
            yield df.TaggedOutput("odd", element)
        else:
            yield element


def test_dead_letters_go_to_a_table_of_their_own(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        sorted_out = p | df.Create(SCORES) | df.ParDo(Sort()).with_outputs("odd", main="even")
        (
            sorted_out.even
            | df.WindowInto(df.FixedWindows(120))
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total", key=["user", "start"])
        )
        (
            sorted_out.odd
            | df.Map(lambda pair: {"user": pair[0], "total": pair[1]})
            | write("odd", "user", "total")
        )

    assert_same(batch, build, "sums", "odd")


def test_retracting_panes_into_a_keyed_table(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create(SCORES)
            | df.WindowInto(
                df.Sessions(60),
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            )
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sessions", "user", "start", "total", key=["user", "start"])
        )

    assert_same(batch, build, "sessions")


def test_no_input(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create([])
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total")
        )

    assert_same(batch, build, "sums")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_files_in_byte_ranges(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "SPLIT_BYTES_MIN", 100)
    path = tmp_path / f"scores.{kind}"
    records = [{"user": f'a, "b"\n{i % 7}', "total": i, "at": i * 13 % 600} for i in range(500)]
    if kind == "csv":
        quoted = [
            ",".join('"' + str(value).replace('"', '""') + '"' for value in record.values())
            for record in records
        ]
        path.write_text("\n".join(["user,total,at", *quoted]) + "\n")
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    reader = df.ReadFromCsv if kind == "csv" else df.ReadFromJsonLines

    def build(p: df.Pipeline) -> None:
        (
            p
            | "read"
            >> reader(path, event_time=lambda row: NOON + timedelta(seconds=int(row["at"])))
            | df.Map(lambda row: (row["user"], int(row["total"])))
            | df.WindowInto(df.FixedWindows(120))
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total", key=["user", "start"])
        )

    assert_same(batch, build, "sums", partitions=5)
    (splits,) = [each for name, each in batch.finished().items() if name.startswith("read")]
    assert len(splits) == 5


# --- once, whatever happens -------------------------------------------------------------------


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
    said = capfd.readouterr().err.strip()
    assert "'job' is finished" in said
    assert "fresh=True" in said
    assert "\n" not in said

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
    assert sorted(notes(ran)) == [str(value) for value in range(8) if not finished[value // 2]]


def test_what_nobody_needs_any_more_is_passed_over(batch: Batch, tmp_path: Path) -> None:
    ran, mended = tmp_path / "ran", tmp_path / "mended"

    def build(p: df.Pipeline) -> None:
        def checked(pair: tuple[str, int]) -> Mapping[str, Any]:
            note(ran, pair[0])
            if pair[0] == "bad" and not mended.exists():
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


# --- errors -----------------------------------------------------------------------------------


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

    said = str(caught.value)
    assert "'divide'" in said
    assert "test_batch_runner.py:" in said
    assert "ZeroDivisionError" in said
    assert "element: 0" in said
    assert "return 1 / value" in str(caught.value.__cause__)
    assert notes(tried) == ["0"]
    assert not any(any(finished) for finished in batch.finished().values())


class Missing(df.Source):
    """An input that is not there."""

    def check(self) -> None:
        raise df.InputError("nothing to read")

    def splits(self, desired: int) -> Sequence[int]:
        raise AssertionError

    def open(self, split: int, position: None) -> df.SourceReader:
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
