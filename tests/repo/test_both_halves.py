"""`make test` runs the tests with servers and those without side by side, and reports both."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Prints which half it is asked for, and how it is to end.
PYTEST = """#!/bin/sh
case "$*" in
  *"-m not (a or b)"*) half=others ;;
  *"-m (a or b) and not faults and not nightly"*) half=servers ;;
esac
echo "$half have run with $*"
case "$ENDS" in *$half*) echo "FAILED tests/test_of_$half.py::test_it"; exit 1 ;; esac
"""


@pytest.mark.parametrize("ends", ["", "others", "servers", "others servers"])
def test_each_half_is_run_and_reported_whatever_becomes_of_the_other(
    ends: str, tmp_path: Path
) -> None:
    program = tmp_path / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True)
    program.write_text(PYTEST)
    program.chmod(0o755)

    done = subprocess.run(
        [ROOT / "tools" / "test.sh", "a or b", "-n 3", "-n 2 --dist x"],
        cwd=tmp_path,
        env={"ENDS": ends, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "servers have run with -q -n 3 -m" in done.stdout
    assert "others have run with -q -n 2 --dist x -m" in done.stdout
    for half in ("others", "servers"):
        assert (f"tests/test_of_{half}.py::test_it" in done.stdout) == (half in ends)
    assert done.returncode == (1 if ends else 0)
    assert done.stdout.splitlines()[-1].count("FAILED") == len(ends.split())
