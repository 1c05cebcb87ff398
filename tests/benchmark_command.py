"""A benchmark's command, run as a person would."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def run_command(
    module: str, folder: Path, *options: str, timeout_s: float
) -> tuple[str, list[dict[str, Any]]]:
    """Run a command; return what it prints, and its records of the runs, all of which must have succeeded."""
    results = folder / "results.jsonl"
    places = ["--cache", str(folder), "--results", str(results)]
    done = subprocess.run(
        [sys.executable, "-m", module, *options, *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    machine, *runs = [json.loads(line) for line in results.read_text().splitlines()]
    assert "cores" in machine["machine"]
    return done.stdout, runs
