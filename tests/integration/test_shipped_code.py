"""Code that executors do not have: it is brought to them, or the error says what to do."""

import importlib
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark
import pytest

import dataflow as df
from runners.backfill_then_live import BackfillThenLiveRunner
from runners.batch import BackfillRunner, BatchRunner
from runners.errors import CodeMissingError
from runners.streaming import StreamingRunner
from tests.batch_jobs import write
from tests.streaming_jobs import rows_of

# Several Javas start at a time, which takes a machine with much else to do minutes.
pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

INIT = """
from .scores import Score

def score_of(row):
    return Score(row["team"], row["points"])

def team_of(score):
    return score.team, score
"""
SCORES = """
import attrs
import dataflow as df

@attrs.frozen
class Score:
    team: str
    points: int

class Points(df.DoFn):
    def process(self, pair):
        yield {"user": pair[0], "total": sum(score.points for score in pair[1])}
"""
RUNNERS = pytest.mark.parametrize(
    "runner",
    [
        BatchRunner,
        pytest.param(StreamingRunner, marks=pytest.mark.nightly),
        pytest.param(BackfillRunner, marks=pytest.mark.nightly),
        pytest.param(BackfillThenLiveRunner, marks=pytest.mark.nightly),
    ],
)


@pytest.fixture
def scores(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ModuleType, Path]]:
    """A package that the driver has imported and nobody can find where it was; and a copy of it."""
    name = f"scores_{abs(hash(request.node.name))}"
    package, copy = tmp_path / "driver" / name, tmp_path / "copy" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(INIT)
    (package / "scores.py").write_text(SCORES)
    shutil.copytree(package, copy)
    monkeypatch.syspath_prepend(package.parent)
    importlib.import_module(f"{name}.scores")
    shutil.rmtree(package.parent)
    yield sys.modules[name], copy
    for module in [each for each in sys.modules if each.startswith(name)]:
        del sys.modules[module]


def total_points(
    runner: Any, store: str, scores: tuple[ModuleType, Path], **options: Any
) -> list[str]:
    """Functions, classes and records of the user's package, across a shuffle: all of it in the first minute."""
    module, code = scores
    options = {"job": "job", "store": store, "show_progress": False, **options}
    if runner in (BackfillRunner, BackfillThenLiveRunner):
        options["until"] = 100
    points = [("red", 1, 10), ("blue", 2, 10), ("red", 3, 10), ("late", 0, 70), ("live", 0, 200)]
    path = code.parent / "points.jsonl"
    path.write_text(
        "".join(f'{{"team": "{team}", "points": {n}, "at": {at}}}\n' for team, n, at in points)
    )
    p = df.Pipeline(runner(**options))
    (
        p
        | df.ReadFromJsonLines(path, event_time=lambda row: row["at"], max_disorder=0)
        | df.Map(module.score_of)
        | df.Map(module.team_of)
        | df.WindowInto(df.FixedWindows(60))
        | df.GroupByKey()
        | "points" >> df.ParDo(module.scores.Points())
        | write("points", "user", "total")
    )
    result = p.run()
    result.wait_until_finish()
    return [row for row in rows_of(result, "points") if "'total': 0" not in row]


@RUNNERS
@pytest.mark.parametrize("form", ["package", pytest.param("archive", marks=pytest.mark.nightly)])
def test_a_package_that_only_the_driver_has_travels(
    runner: Any,
    form: str,
    scores: tuple[ModuleType, Path],
    store_dsn: str,
    local_cluster: str,
    tmp_path: Path,
) -> None:
    module, copy = scores
    code = copy
    if form == "archive":
        code = tmp_path / "scores.zip"
        with zipfile.ZipFile(code, "w") as archive:
            for file in sorted(copy.iterdir()):
                archive.write(file, f"{copy.name}/{file.name}")

    found = total_points(
        runner,
        store_dsn,
        (module, copy),
        master=local_cluster,
        code=[code],
        spark_settings={"spark.executor.memory": "512m"},
    )

    assert found == ["{'user': 'blue', 'total': 2}", "{'user': 'red', 'total': 4}"]


@RUNNERS
def test_a_module_that_workers_lack_is_named(
    runner: Any, scores: tuple[ModuleType, Path], store_dsn: str, local_cluster: str
) -> None:
    with pytest.raises(CodeMissingError) as caught:
        total_points(
            runner,
            store_dsn,
            scores,
            master=local_cluster,
            spark_settings={"spark.executor.memory": "512m"},
        )

    assert repr(scores[0].__name__) in str(caught.value)
    assert "code=[...]" in str(caught.value)


@pytest.mark.nightly
@RUNNERS
def test_workers_without_this_package_are_distinguished(
    runner: Any, store_dsn: str, spark_alone: None, tmp_path: Path
) -> None:
    context = pyspark.SparkContext._active_spark_context
    if context is not None:
        context.stop()
    bare = tmp_path / "python"
    spark = Path(pyspark.__file__).parents[1]
    bare.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for name in ("pyspark", "py4j"):
        (tmp_path / name).symlink_to(spark / name)
    p = df.Pipeline(
        runner(
            job="job",
            store=store_dsn,
            show_progress=False,
            master="local[2,4]",
            spark_settings={"spark.pyspark.python": str(bare)},
        )
    )
    p | df.Create([{"total": 1}]) | write("rows", "total")

    with pytest.raises(CodeMissingError, match="Spark's workers do not have dataflow-model"):
        p.run().wait_until_finish()


@RUNNERS
def test_code_that_is_not_there_is_found_before_anything_is_started(
    runner: Any, tmp_path: Path
) -> None:
    with pytest.raises(df.PipelineError, match=r"there is no code at .*missing\.py"):
        runner(job="job", code=[tmp_path / "missing.py"])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(df.PipelineError, match="is no code that can be sent to workers"):
        runner(job="job", code=[tmp_path / "notes.txt"])
    with pytest.raises(df.PipelineError, match=r"write code=\['helpers\.py'\]"):
        runner(job="job", code="helpers.py")
