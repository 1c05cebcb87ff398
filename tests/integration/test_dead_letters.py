"""Dead letters are the same on every runner, and once each, whatever is killed."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from runners.batch import BatchRunner
from runners.cli import main
from runners.direct import DirectRunner
from runners.errors import UnrepeatableError
from runners.streaming import StreamingRunner
from tests.batch_jobs import Batch, note, notes, once, write
from tests.poisonous import build, outcome

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


@pytest.mark.parametrize(
    "engine", [partial(BatchRunner, partitions=3), StreamingRunner], ids=["batch", "streaming"]
)
def test_every_runner_leaves_the_same_rows_and_letters(
    engine: Callable[..., df.Runner],
    store_dsn: str,
    spark_master: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = {}
    on_spark = engine(
        job="job", store=store_dsn, master=spark_master, show_progress=False, tries_per_record=2
    )
    for runner in (DirectRunner(tries_per_record=2), on_spark):
        pipeline = df.Pipeline(runner)
        build(pipeline)
        left[runner] = outcome(pipeline.run())
    expected, found = left.values()
    capsys.readouterr()

    assert expected.rows == found.rows
    assert expected.letters == found.letters
    assert main(["dead", "job", "--store", store_dsn, "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(each[0] for each in found.letters) == sorted(each["stage"] for each in printed)


ENGINES = pytest.mark.parametrize(
    "engine", [partial(BatchRunner, partitions=3), StreamingRunner], ids=["batch", "streaming"]
)


def write_lines(path: Path) -> int:
    """Lines of which every hundredth is malformed, has no event time, or one that raises; the sum of the others."""
    lines, total = [], 0
    for number in range(30_000):
        if number % 100 == 99:
            lines.append([b"{no", b'{"at": null, "n": 1}', b'{"at": "x\xff"}'][number // 100 % 3])
        else:
            lines.append(json.dumps({"at": number, "n": number}).encode())
            total += number
    path.write_bytes(b"\r".join(lines))
    return total


def read_numbers(p: df.Pipeline, path: Path, event_time: Callable[[Any], Any]) -> None:
    """A table of the sums of every thousand seconds."""
    (
        p
        | "read" >> df.ReadFromJsonLines(path, event_time=event_time, max_disorder=60)
        | "pair" >> df.Map(lambda record: ("n", record["n"]))
        | "windows" >> df.WindowInto(df.FixedWindows(1000))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"n": pair[1]})
        | "sums" >> df.WriteToPostgres("sums", columns={"n": int})
    )


@ENGINES
def test_lines_that_are_none_are_the_same_letters_on_every_runner(
    engine: Callable[..., df.Runner], store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    """Each with its place in the file, and the others have their effect."""
    path = tmp_path / "numbers.jsonl"
    total = write_lines(path)
    on_spark = engine(
        job="job", store=store_dsn, master=spark_master, show_progress=False, tries_per_record=1
    )
    left = []
    for runner in (DirectRunner(tries_per_record=1), on_spark):
        pipeline = df.Pipeline(runner)
        read_numbers(pipeline, path, lambda record: float(record["at"]))
        result = pipeline.run()
        result.wait_until_finish()
        letters = sorted(result.dead_letters(), key=lambda each: each["origin"]["line"])
        left.append([(each["origin"], each["error"], each["text"]) for each in letters])

        assert total == sum(row["n"] for row in result.read_table("sums"))
    assert left[0] == left[1]
    assert 300 == len(left[0])
    assert [*range(100, 30_001, 100)] == [origin["line"] for origin, _, _ in left[0]]


@ENGINES
def test_when_the_code_of_a_read_is_corrected_the_job_goes_on(
    engine: Callable[..., df.Runner], store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    """The file stays as it is; and what only dead letters can take is such once they are switched on."""
    path = tmp_path / "numbers.jsonl"
    lines = [json.dumps({"at": number, "n": 1}) for number in range(20_000)]
    lines[15_000] = '{"at": "never", "n": 1}'
    lines[17_000] = "nope"
    path.write_text("\n".join(lines))

    def run(event_time: Callable[[Any], Any], tries: int | None) -> df.PipelineResult:
        pipeline = df.Pipeline(
            engine(
                job="job",
                store=store_dsn,
                master=spark_master,
                show_progress=False,
                tries_per_record=tries,
            )
        )
        read_numbers(pipeline, path, event_time)
        result = pipeline.run()
        result.wait_until_finish()
        return result

    def corrected(record: Any) -> float:
        return 15_000.0 if record["at"] == "never" else record["at"]

    with pytest.raises(df.InputError, match="without an event time") as caught:
        run(lambda record: float(record["at"]), None)
    assert "line 15001, bytes " in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(df.InputError, match="line 17001, bytes "):
        run(corrected, None)
    result = run(corrected, 1)

    assert 19_999 == sum(row["n"] for row in result.read_table("sums"))
    assert [17_001] == [each["origin"]["line"] for each in result.dead_letters()]


def reciprocals(*, flag: Path, at: str, count: int = 300) -> Callable[[df.Pipeline], None]:
    """Rows of numbers and of their groups; every tenth fails; a task is killed after its first commit."""

    class KillOnce(df.DoFn):
        def process(self, element: Any) -> Any:
            yield element

        def teardown(self) -> None:
            if once(flag):
                os.kill(os.getpid(), signal.SIGKILL)

    def checked(value: int) -> int:
        if value % 10 == 3:
            raise ValueError(value)
        return value

    def group(pair: tuple[int, int]) -> dict[str, int]:
        if pair[0] == 2:
            raise ValueError(pair)
        return {"total": pair[1]}

    def build(p: df.Pipeline) -> None:
        def maybe_killed(values: df.PCollection[Any], where: str) -> df.PCollection[Any]:
            return values | f"kill {where}" >> df.ParDo(KillOnce()) if at == where else values

        values = maybe_killed(p | "values" >> df.Create(range(count)), "source")
        pairs = values | "checked" >> df.Map(checked) | df.Map(lambda value: (value % 7, 1))
        sums = maybe_killed(pairs | "sum" >> df.CombinePerKey(sum), "grouping")
        sums | "group" >> df.Map(group) | write("groups", "total")

    return build


@pytest.mark.parametrize("at", ["source", "grouping"])
def test_a_task_killed_after_its_commit_leaves_no_letter_twice(
    batch: Batch, tmp_path: Path, at: str
) -> None:
    """The source has no table: its letters are all that it commits."""
    flag = tmp_path / "killed"
    result = batch.run(reciprocals(flag=flag, at=at), tries_per_record=2)
    letters = result.dead_letters()
    dead = sorted(letter["element"].value for letter in letters if letter["stage"] != "sum")

    assert flag.exists()
    assert list(range(3, 300, 10)) == dead
    (group,) = [letter["element"].value for letter in letters if letter["stage"] == "sum"]
    assert group[0] == 2
    assert 300 - 30 == group[1] + sum(each["total"] for each in result.read_table("groups"))


@pytest.mark.nightly
def test_a_split_that_goes_on_keeps_the_letters_before(batch: Batch, tmp_path: Path) -> None:
    """It is killed between its commits; and it has only letters to commit."""
    # Its first commit is of 50,000 letters; what comes after it is tried again, in a process for each record.
    flag, count = tmp_path / "killed", 101_000

    def build(p: df.Pipeline) -> None:
        def fail(value: int) -> None:
            if value == 100_500 and once(flag):
                os.kill(os.getpid(), signal.SIGKILL)
            if value % 2:
                raise ValueError(value)

        p | "values" >> df.Create(range(count)) | df.Map(fail)

    result = batch.run(build, partitions=1, tries_per_record=1)
    dead = [letter["element"].value for letter in result.dead_letters()]

    assert flag.exists()
    assert list(range(1, count, 2)) == dead


def test_a_record_that_fails_only_when_it_is_repeated_is_not_lost(
    batch: Batch, tmp_path: Path
) -> None:
    """Its letter can not be written any more, so the attempt is given up, and the run when all are."""
    killed, tried = tmp_path / "killed", tmp_path / "tried"

    def build(p: df.Pipeline) -> None:
        class KillOnce(df.DoFn):
            def process(self, element: int) -> Any:
                note(tried, element)
                if killed.exists():
                    raise ValueError(element)
                yield element, 1

            def teardown(self) -> None:
                if once(killed):
                    os.kill(os.getpid(), signal.SIGKILL)

        counts = p | "values" >> df.Create([1]) | df.ParDo(KillOnce()) | df.CombinePerKey(sum)
        counts | df.Map(lambda pair: {"total": pair[1]}) | write("rows", "total")

    with pytest.raises(UnrepeatableError, match="emitted other records when it was run again"):
        batch.run(build, partitions=1, tries_per_record=1)
    # Four attempts: the first one runs it as it is, the others on trial as well, as it may be what ends the process.
    assert len(notes(tried)) == 1 + 3 * 2
