"""The command of the benchmarks, as people run it: in batch and as a stream, beside a peer, with checked answers."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmark_command import ROOT, run_command
from tests.waiting import RUN_MAX_S


def printed(module: str, *options: str) -> str:
    """The output of a benchmark that records no runs."""
    done = subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_MAX_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.timeout(1800)
def test_command_measures_checks_and_compares(tmp_path: Path) -> None:
    picture = tmp_path / "ratios.svg"
    options = ["--case", "B2", "S1", "--size", "20000", "--peers", "ours", "spark-rdd"]

    printed, runs = run_command(
        "benchmarks.bench", tmp_path, *options, "--plot", str(picture), timeout_s=RUN_MAX_S
    )

    made = [(each["case"], each["peer"], each["check"]) for each in runs]
    assert made == [("B2", "ours", "ok"), ("B2", "spark-rdd", "ok"), ("S1", "ours", "ok")]
    for each in runs:
        assert 0 < each["seconds"] < each["wall_s"]
        assert 0 < each["cpu_s"] <= each["whole_cpu_s"]
        assert each["rss_mb"] > 100
    assert "| B2 | 20,000 | ours | spark-rdd |" in printed
    assert picture.read_text().startswith("<svg")


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.timeout(1800)
def test_latency_is_measured_beside_the_floor(tmp_path: Path) -> None:
    options = ["--case", "S2", "--peers", "ours", "floor", "--rate", "300", "--seconds", "1"]

    printed, runs = run_command(
        "benchmarks.bench", tmp_path, *options, "--warm-up", "1", timeout_s=RUN_MAX_S
    )

    made = [(each["peer"], each["variant"], each["check"]) for each in runs]
    assert made == [("ours", "", "ok"), ("ours", "weak", "ok"), ("floor", "", "ok")]
    assert all(0 < each["p50"] <= each["p99"] for each in runs)
    assert "S2 at 300 a second, ours by floor, 99 %" in printed


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.postgres
def test_costs_of_a_stream_are_measured_in_several_rounds() -> None:
    """By default, as people run it: each round has a table of its own."""
    out = printed("benchmarks.stream_costs", "--records", "300", "--steps", "50,300")

    assert "| 50 |" in out
    assert "a commit: " in out


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.postgres
def test_costs_under_a_snapshot_are_measured() -> None:
    options = ["--commits", "120", "--window", "60", "--shape", "sent", "cells"]
    out = printed("benchmarks.held_snapshot", *options)

    assert "| commits since | before | 60 | 120 | ended |" in out
    # The processor time of so few commits says nothing; the pages that overwriting looks at do.
    assert "| cells | cells |" in out


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.timeout(1800)
def test_a_stream_is_measured_under_a_snapshot() -> None:
    options = ["--rate", "200", "--seconds", "3", "--before", "1", "--under", "1", "--after", "1"]
    out = printed("benchmarks.stream_under_snapshot", *options)

    rows = [line.split(" | ") for line in out.splitlines() if line.startswith("| ")]
    assert [row[1] for row in rows[2:]] == ["before", "under", "after"]
    assert all(float(row[3]) > 0 for row in rows[2:])
    assert "goal: at least 0.9" in out


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.timeout(1800)
@pytest.mark.nightly
def test_a_program_is_killed_and_its_sink_is_counted(tmp_path: Path) -> None:
    options = ["--programs", "ours", "spark-foreach", "--kills", "2", "--windows", "24"]

    printed, runs = run_command("benchmarks.kills", tmp_path, *options, timeout_s=RUN_MAX_S)

    ours, other = runs
    assert (ours["check"], ours["lost"], ours["doubled"], ours["rows_again"]) == ("ok", 0, 0, 0)
    # What the other one promises is at least once.
    assert (other["check"], other["lost"]) == ("ok", 0)
    assert other["doubled"] >= other["rows_again"]
    assert "| exactly once | 2 | 0 | 0 | 0 |" in printed
