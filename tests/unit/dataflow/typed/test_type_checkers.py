"""Types flow through pipelines under mypy and pyright, and a wrong function is refused at its own line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
CHECKED = [str(HERE / "accepted.py"), str(HERE / "refused.py")]

pytestmark = pytest.mark.slow  # a type checker reads the whole package first


def wrong_lines() -> dict[str, set[int]]:
    lines = (HERE / "refused.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}
    assert len(wrong) == 30
    return {"accepted.py": set(), "refused.py": wrong}


def test_under_mypy() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--output", "json", *CHECKED],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    found: dict[str, set[int]] = {"accepted.py": set(), "refused.py": set()}
    for each in map(json.loads, ran.stdout.splitlines()):
        if each["severity"] == "error":
            found[Path(each["file"]).name].add(each["line"])
    assert wrong_lines() == found, ran.stdout + ran.stderr


def test_under_pyright(tmp_path: Path) -> None:
    """In its own strictness: basedpyright is pyright with a Node that comes as a wheel."""
    settings = {"typeCheckingMode": "standard", "include": CHECKED, "extraPaths": [str(ROOT)]}
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings))

    ran = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--outputjson"),
            *("--project", str(project), "--pythonpath", sys.executable),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    found: dict[str, set[int]] = {"accepted.py": set(), "refused.py": set()}
    for each in json.loads(ran.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found[Path(each["file"]).name].add(each["range"]["start"]["line"] + 1)
    assert wrong_lines() == found, ran.stdout + ran.stderr
