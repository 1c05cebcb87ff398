"""What engines import: each process of a job, and there are many, waits for it."""

import subprocess
import sys

import pytest

#: A tenth of a second together: for texts of people, for what is shown, and for the columns of typed rows.
LATER = ("pandas", "pendulum", "pyarrow.compute", "rich")
PROGRAM = f"""
import sys
import dataflow, runners.batch, runners.streaming, runners.millwheel.worker.worker
print([each for each in {LATER} if each in sys.modules])
"""


@pytest.mark.slow
def test_engines_start_without_what_few_pipelines_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout == "[]\n"
