"""A script that fails prints at most twenty lines on Spark too: the user's own, with nothing of Spark above them."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

LINES_MAX = 20

SCRIPT = """
import os
import dataflow as df

def parse(line):
    return score_of(line.split(","))

def score_of(parts):
    return parts[0], int(parts[1])

class Returns(df.DoFn):
    def process(self, element):
        return "one value"

steps = {
    "function": "parse" >> df.Map(parse),
    "do_fn": "returns" >> df.ParDo(Returns()),
}
with df.Pipeline(os.environ["RUNNER"], job=os.environ["JOB"], master="local[2]") as p:
    p | df.Create(["red,5", "red,nine"]) | steps[os.environ["STEP"]] | df.Reshuffle()
"""


@pytest.mark.parametrize(
    ("runner", "step", "shown"),
    [
        (
            "batch",
            "function",
            [
                'script.py", line 6, in parse\n    return score_of(line.split(","))',
                'script.py", line 9, in score_of\n    return parts[0], int(parts[1])',
                "transform 'parse' (script.py:",
                "raised ValueError: invalid literal for int() with base 10: 'nine'\n",
                "  detail: element: 'red,nine'\n  what to do: ",
            ],
        ),
        (
            "streaming",
            "do_fn",
            [
                "transform 'returns' (script.py:",
                "returned one value from process, of type str, and not outputs\n",
                "  detail: it returned 'one value'; its parts would become the outputs\n",
            ],
        ),
    ],
    ids=["function", "do_fn"],
)
def test_a_script_prints_the_users_lines_and_what_to_do(
    runner: str, step: str, shown: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=os.environ | {"RUNNER": runner, "STEP": step, "JOB": f"failing-{uuid4().hex[:8]}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 1, done.stderr
    for part in shown:
        assert part in done.stderr
    assert len(done.stderr.splitlines()) <= LINES_MAX, done.stderr
    assert "pyspark" not in done.stderr
    assert "py4j" not in done.stderr
