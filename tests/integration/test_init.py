"""The project that ``dataflow init`` begins: its tests pass, and it runs."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


def test_a_new_project_passes_its_tests_and_runs(
    installed: Path, store_dsn: str, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"DATAFLOW_STORE": store_dsn, "PATH": f"{installed}:{os.environ['PATH']}"}

    def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    made = run(tmp_path, "dataflow", "init", "team_points")
    assert (made.returncode, made.stderr) == (0, "")
    project = tmp_path / "team_points"
    # In place of what `make setup` would install from an index, which has no version of this checkout.
    (project / ".venv").symlink_to(installed.parent)
    (installed.parent / ".ready").touch()

    tested = run(project, "make", "test")
    assert "4 passed" in tested.stdout, tested.stdout + tested.stderr
    batch = run(project, "make", "batch")
    assert batch.stdout.splitlines()[-6:] == [
        "team  minute                     points",
        "blue  2026-03-02T12:01:00+00:00  7",
        "blue  2026-03-02T12:05:00+00:00  4",
        "blue  2026-03-02T12:07:00+00:00  1",
        "red   2026-03-02T12:00:00+00:00  14",
        "red   2026-03-02T12:03:00+00:00  3",
    ], batch.stderr
    stream = run(project, "make", "stream")
    assert stream.returncode == 0, stream.stderr
    assert run(project, "make", "rows").stdout.splitlines()[-5:] == batch.stdout.splitlines()[-5:]
    # A second one of that name would overwrite what somebody has written.
    again = run(tmp_path, "dataflow", "init", "team_points")
    assert again.returncode == 2
    assert "there is a folder team_points already" in again.stderr


@pytest.mark.parametrize("name", ["Team", "2teams", "team-scores", "class", "dataflow", "a/b", ""])
def test_a_name_that_is_no_module_is_refused(installed: Path, name: str, tmp_path: Path) -> None:
    refused = subprocess.run(
        [installed / "dataflow", "init", name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert list(tmp_path.iterdir()) == []
