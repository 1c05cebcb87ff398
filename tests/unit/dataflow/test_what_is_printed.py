"""An error of the user's is printed in twenty lines: the user's own, and what to do."""

import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import dataflow as df
from runners.direct.job import Job

LINES_MAX = 20

FAILS_IN_A_FUNCTION = """
import json
import dataflow as df

def parse(line):
    return scored(line)

def scored(line):
    return score_of(line.split(","))

def score_of(parts):
    return number_of(parts[1])

def number_of(text):
    return level(text, 30)

def level(text, depth):
    return level(text, depth - 1) if depth else json.loads(text)

with df.Pipeline() as p:
    p | df.Create(["red,5", "red,nine"]) | "parse" >> df.Map(parse)
"""

FAILS_AT_LENGTH = """
import dataflow as df

def validate(record):
    raise ValueError(chr(10).join(f"field {number} is missing" for number in range(50)))

p = df.Pipeline()
p | df.Create([{"name": "x" * 5000}]) | "validate" >> df.Map(validate)
p.run().wait_until_finish()
"""

IS_BUILT_WRONGLY = """
import threading
import dataflow as df

lock = threading.Lock()

class Both(df.PTransform):
    def expand(self, pcoll):
        return pcoll | df.Map(lambda x: lock)

with df.Pipeline() as p:
    p | df.Create([1]) | "both" >> Both()
"""


IS_GIVEN_NO_INSTANT = """
import dataflow as df

def records():
    return [df.TimestampedValue(1, "yesterdayish")]

with df.Pipeline() as p:
    p | df.Create(records())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "shown"),
    [
        (IS_GIVEN_NO_INSTANT, ["in records", "return [df.Time", "is not a timestamp"]),
        (FAILS_IN_A_FUNCTION, ["in parse", "return scored(line)", "in level", "'parse' (", "JSON"]),
        pytest.param(
            FAILS_AT_LENGTH,
            ["in validate", "raise ValueError", "'validate' (", "46 more lines"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            IS_BUILT_WRONGLY,
            ["in expand", "return pcoll |", "'both/Map(<lambda>)' ("],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["constructor", "function", "long text", "built"],
)
def test_a_script_prints_the_users_lines_and_what_to_do(
    script: str, shown: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) <= LINES_MAX, done.stderr
    for part in [*shown, "what to do: "]:
        assert part in done.stderr
    assert "runners/core" not in done.stderr
    assert "windowing/" not in done.stderr


def fail(element: object) -> None:
    raise LookupError(element)


def run() -> None:
    p = df.Pipeline()
    p | df.Create([1]) | df.Map(fail)
    p.run()


def build() -> None:
    df.Pipeline() | df.Create([1]) | df.Map(lambda: 1)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize("mistake", [run, build])
def test_a_notebook_prints_what_a_script_does(mistake: Callable[[], None]) -> None:
    """IPython asks an error for its lines before it makes its own, of which there are five around each frame."""
    with pytest.raises(df.DataflowError) as failure:
        mistake()
    error: Any = failure.value
    lines = error._render_traceback_()

    assert len(lines) <= LINES_MAX
    assert "\n".join(lines) + "\n" == "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("cell", "shown"), [(FAILS_IN_A_FUNCTION, "in parse"), (IS_GIVEN_NO_INSTANT, "in records")]
)
def test_ipython_shows_the_error_so(
    cell: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell: Any = InteractiveShell()  # type: ignore[no-untyped-call]
    shell.run_cell(cell)
    printed = capsys.readouterr().out

    assert shown in printed
    assert "windowing/" not in printed
    assert len(printed.splitlines()) <= LINES_MAX


def test_what_user_code_raised_is_the_context_with_all_its_frames() -> None:
    with pytest.raises(df.TransformError) as failure:
        run()

    assert isinstance(failure.value.__context__, LookupError)
    frames = traceback.extract_tb(failure.value.__traceback__)
    assert [each.name for each in frames][-1] == "fail"
    assert len(traceback.extract_tb(failure.value.__context__.__traceback__)) > 1


def test_what_is_no_mistake_of_the_user_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Job, "run", broken)
    with pytest.raises(RuntimeError) as failure:
        run()

    assert "runner.py" in {
        Path(each.filename).name for each in traceback.extract_tb(failure.value.__traceback__)
    }
