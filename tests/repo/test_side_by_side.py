"""What `make test` and `make check` run side by side is run to its end, and each part is reported."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Prints which half it is asked for, and how it is to end.
PYTEST = """#!/bin/sh
case "$*" in
  *"-m not (a or b) and not nightly"*) half=others ;;
  *"-m (a or b) and not faults and not nightly"*) half=servers ;;
esac
echo "$half have run with $*"
case "$ENDS" in *$half*) echo "FAILED tests/test_of_$half.py::test_it"; exit 1 ;; esac
"""


#: Prints its name and arguments, and how it is to end; of the static checks each has its own.
PROGRAM = """#!/bin/sh
name=$(basename "$0")
echo "$name has run with $*"
case " $ENDS " in *" $name "*) exit 1 ;; esac
"""
CHECKS = {"ruff": ["format", "lint"], "mypy": ["types"], "lint-imports": ["architecture"]}


def run(
    words: Sequence[str], folder: Path, ends: str, pytest: str = PROGRAM
) -> subprocess.CompletedProcess[str]:
    """Run a script of the tools with programs that do nothing but end as it is asked for.

    Args:
        words: the script and its arguments.
        folder: gets the programs.
        ends: what is to fail.
        pytest: the program of that name.
    """
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in (*CHECKS, "pytest"):
        (programs / name).write_text(pytest if name == "pytest" else PROGRAM)
        (programs / name).chmod(0o755)
    (folder / "tools").symlink_to(ROOT / "tools")
    return subprocess.run(
        words,
        cwd=folder,
        env={"ENDS": ends, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "ends", ["", "others", "servers", "others servers", "mypy", "mypy others servers"]
)
def test_each_half_is_run_and_reported_whatever_becomes_of_the_other(
    ends: str, tmp_path: Path
) -> None:
    words = ["tools/test.sh", "a or b", "-n 3", "-n 2 --dist x"]
    done = run(words, tmp_path, ends, PYTEST)

    assert "servers have run with -q -n 3 -m" in done.stdout
    assert "others have run with -q -n 2 --dist x -m" in done.stdout
    for half in ("others", "servers"):
        assert (f"tests/test_of_{half}.py::test_it" in done.stdout) == (half in ends)
    assert ("FAILED: types" in done.stderr) == ("mypy" in ends)
    assert done.returncode == (1 if ends else 0)
    assert done.stdout.splitlines()[-1].count("FAILED") == len(ends.split())


@pytest.mark.parametrize("ends", ["", "ruff", "mypy", "lint-imports", "pytest", "mypy pytest ruff"])
def test_static_checks_and_tests_are_run_and_reported_whatever_becomes_of_the_others(
    ends: str, tmp_path: Path
) -> None:
    done = run(["tools/check.sh", "-n", "2"], tmp_path, ends)

    red = ends.split()
    failed = [f"FAILED: {check}" for name in red for check in CHECKS.get(name, [])]
    assert sorted(each for each in done.stderr.splitlines() if "FAILED" in each) == sorted(failed)
    assert {name for name in CHECKS if f"{name} has run" in done.stderr} == {*red} & {*CHECKS}
    assert "pytest has run with -q -n 2" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert ("static checks FAILED" in last) == bool(failed)
    assert ("tests FAILED" in last) == ("pytest" in red)
    assert done.returncode == (1 if ends else 0)
