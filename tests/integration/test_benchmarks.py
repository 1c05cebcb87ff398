"""The command of the benchmarks, as people run it: in batch and as a stream, beside a peer, with checked answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Four runs that start Spark each.
TIMEOUT_S = 400


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.timeout(TIMEOUT_S)
def test_command_measures_checks_and_compares(tmp_path: Path) -> None:
    results, picture = tmp_path / "results.jsonl", tmp_path / "ratios.svg"
    options = ["--case", "B2", "S1", "--size", "20000", "--peers", "ours", "spark-rdd"]
    places = ["--cache", str(tmp_path), "--results", str(results), "--plot", str(picture)]

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench", *options, *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    machine, *runs = [json.loads(line) for line in results.read_text().splitlines()]
    assert "cores" in machine["machine"]
    made = [(each["case"], each["peer"], each["check"]) for each in runs]
    assert made == [("B2", "ours", "ok"), ("B2", "spark-rdd", "ok"), ("S1", "ours", "ok")]
    for each in runs:
        assert 0 < each["seconds"] < each["wall_s"]
        assert 0 < each["cpu_s"] <= each["whole_cpu_s"]
        assert each["rss_mb"] > 100
    assert "| B2 | 20,000 | ours | spark-rdd |" in done.stdout
    assert picture.read_text().startswith("<svg")
