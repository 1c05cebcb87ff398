"""Options are the same wherever they come from, and on every runner that has them."""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, get_type_hints

import pytest

import dataflow as df
from dataflow.options import RunnerOptions
from dataflow.runner import create_runner
from runners.backfill_then_live import BackfillThenLiveRunner
from runners.batch import BackfillRunner, BatchRunner
from runners.direct import DirectRunner
from runners.streaming import StreamingRunner

RUNNERS: Sequence[type] = (
    DirectRunner,
    BatchRunner,
    StreamingRunner,
    BackfillRunner,
    BackfillThenLiveRunner,
)
#: What the SDK cannot name the types of: they are the runners' own.
_RUNNERS_OWN = ("guarantees", "update")


def options_of(runner: type) -> Mapping[str, Parameter]:
    return signature(runner).parameters


def test_each_option_of_a_runner_is_one_of_the_sdk_and_none_is_left_over() -> None:
    named = get_type_hints(RunnerOptions)
    theirs = {name for runner in RUNNERS for name in options_of(runner)}
    assert set(named) == theirs


@pytest.mark.parametrize("runner", [each for each in RUNNERS if each is not BackfillThenLiveRunner])
def test_types_are_those_of_the_sdk(runner: type) -> None:
    named = get_type_hints(RunnerOptions)
    types = get_type_hints(runner.__init__)  # type: ignore[misc] # of the class itself
    for name in set(options_of(runner)) - set(_RUNNERS_OWN):
        # A name may be left out of a run in memory.
        assert types[name] in (named[name], named[name] | None), name


@pytest.mark.parametrize("name", ["job", "fresh", "show_progress", "tries_per_record"])
def test_what_means_the_same_everywhere_is_taken_everywhere(name: str) -> None:
    assert all(name in options_of(runner) for runner in RUNNERS)


def test_a_run_in_memory_has_a_name() -> None:
    with df.Pipeline("direct", job="scores", fresh=True, show_progress=False) as p:
        p | df.Create([1])
    assert p.result is not None
    assert p.result.state is df.PipelineState.FINISHED is p.result.wait_until_finish(timeout=0)


def test_options_of_a_command_line() -> None:
    line = (
        "--runner streaming --job scores --workers 4 --fresh --no-balance --step-timeout 30s --input x.csv "
        "--spark-settings spark.executor.memory=4g --spark-settings a=b=c --code helpers.py --state-cache-bytes none "
        "--records-per-second 0.5 --until 2013-12-01T00:00Z"
    )
    options, rest = df.parse_options(line.split())
    assert ["--input", "x.csv"] == rest
    assert options == {
        "runner": "streaming",
        "job": "scores",
        "workers": 4,
        "fresh": True,
        "balance": False,
        "step_timeout": "30s",
        "spark_settings": {"spark.executor.memory": "4g", "a": "b=c"},
        "code": ["helpers.py"],
        "state_cache_bytes": None,
        "records_per_second": 0.5,
        "until": "2013-12-01T00:00Z",
    }


def test_options_of_a_command_line_are_taken_by_a_pipeline() -> None:
    options, _ = df.parse_options(["--job", "scores", "--tries-per-record", "3"])
    with df.Pipeline(**options) as p:
        p | df.Create([1, 0]) | df.Map(lambda x: 1 // x)
    assert p.result is not None
    assert ["3"] == [str(each["tries"]) for each in p.result.dead_letters()]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--workers many", "--workers: 'many' is no whole number"),
        ("--step-timeout soon", "--step-timeout: "),
        ("--until then", "--until: "),
        ("--records-per-second fast", "--records-per-second: 'fast' is no number"),
        ("--spark-settings memory", "--spark-settings: 'memory' is no NAME=VALUE"),
    ],
)
def test_a_value_that_cannot_be_read_is_one_line(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        df.parse_options(arguments.split())
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"error: argument {complaint}" in line


def test_the_environment_names_the_runner_and_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_RUNNER", "batch")
    monkeypatch.setenv("DATAFLOW_JOB", "of the shell")
    monkeypatch.setenv("DATAFLOW_BUNDLE_RECORDS", "not of this runner")
    assert _job(df.Pipeline()) == "of the shell"
    assert _job(df.Pipeline("batch")) == "of the shell"
    assert _job(df.Pipeline("direct", bundle_records=1)) == "of the shell"
    assert _job(df.Pipeline("batch", job="of the code")) == "of the code"
    monkeypatch.setenv("DATAFLOW_RUNNER", "")
    assert isinstance(df.Pipeline(bundle_records=1).runner, DirectRunner)


@pytest.mark.parametrize(
    ("option", "text", "fact"),
    [
        ("workers", "all", "'all' is no whole number"),
        ("fresh", "maybe", "'maybe' is neither true nor false"),
        ("step_timeout", "soon", "'soon'"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(
    option: str, text: str, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"DATAFLOW_{option.upper()}"
    monkeypatch.setenv(variable, text)
    with pytest.raises(
        df.PipelineError, match=f"variable {variable} cannot be read: .*{re.escape(fact)}"
    ):
        create_runner("streaming", job="scores")


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("0", False), ("TRUE", True)])
def test_yes_and_no_in_the_environment(
    text: str, value: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FRESH", text)
    seen: dict[str, Any] = {}

    class Engine:
        def __init__(self, *, fresh: bool = False) -> None:
            seen["fresh"] = fresh

    runners = import_module("dataflow.runner")
    monkeypatch.setattr(runners, "_runner_class", lambda name: Engine)
    create_runner("engine")
    assert seen == {"fresh": value}


def _job(pipeline: df.Pipeline) -> str:
    runner: Any = pipeline.runner
    name: str = runner.job
    return name
