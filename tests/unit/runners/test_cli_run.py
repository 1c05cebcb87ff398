"""``dataflow run``: a pipeline of the user's, named as MODULE:PIPELINE, on the runner of the command line."""

import sys
from pathlib import Path

import pytest

import dataflow as df
from runners.cli import main

PROGRAM = """
import dataflow as df

def pipeline(p):
    p | df.Create([1, 2]) | df.Map(lambda x: 10 * x) | df.Map(print)

def fails(p):
    p | df.Create([0]) | "divide" >> df.Map(lambda x: 1 // x)

def interrupt(x):
    raise KeyboardInterrupt

def interrupted(p):
    p | df.Create([1]) | df.Map(interrupt)

number = 5
"""
BUILT = """
built = df.Pipeline(bundle_records=1)
pipeline(built)
"""
RUN = """
with df.Pipeline() as done:
    done | df.Create([3]) | df.Map(print)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module in this directory, of a name that no other test imports."""
    name = f"program_of_{request.node.name.partition('[')[0]}"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    (tmp_path / f"{name}_built.py").write_text(PROGRAM + BUILT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    return name


def test_a_function_is_called_with_a_pipeline(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{module}:pipeline"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("10\n20\n", f"{module}:pipeline: finished\n")
    assert main(["run", f"{module}:pipeline", "--runner", "direct", "--job", "tens"]) == 0
    assert capsys.readouterr().err == "job tens: finished\n"


def test_a_pipeline_is_run_on_its_runner_or_on_another(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{module}_built:built"]) == 0
    assert capsys.readouterr().out == "10\n20\n"


def test_a_pipeline_gets_the_runner_of_the_command_line(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["run", f"{module}_built:built", "--runner", "direct", "--bundle-records", "7"]) == 0
    )
    assert capsys.readouterr().out == "10\n20\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{}:nothing"], "there is no pipeline"),
        (["nowhere_at_all:p"], "No module named 'nowhere_at_all'"),
        (["{}:number"], "is no pipeline but 5"),
        (["{}_built:built", "--job", "x"], "was made with its runner, so job would be lost"),
        (["{}:pipeline", "--runner", "nowhere"], "there is no runner 'nowhere'"),
        (["{}:pipeline", "--workers", "2"], "runner 'direct' does not have the option workers"),
        (["{}:fails"], "ZeroDivisionError"),
        (["{}:pipeline", "--retract-removed"], "are about an update, and none was asked for"),
        (["{}:pipeline", "--former", "{}:pipeline"], "--former is about an update"),
    ],
)
def test_what_cannot_be_run_is_an_error(
    module: str, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *(each.format(module) for each in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert len(err.splitlines()) <= 20


def test_a_pipeline_that_its_module_has_run_is_not_run_again(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{module}.py").write_text(f"import dataflow as df\n{RUN}")
    assert main(["run", f"{module}:done"]) == 2
    out, err = capsys.readouterr()
    assert out == "3\n"
    assert "has been run already, when its module was imported" in err


def test_an_interruption_reports_what_stays(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{module}:interrupted"]) == 130
    assert capsys.readouterr().err == (
        "interrupted: nothing stays of a run in memory; run it again to begin anew\n"
    )


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"dataflow-model {df.__version__}\n"
