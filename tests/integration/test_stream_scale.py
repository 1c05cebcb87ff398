"""The command about scale at a tiny size: real Spark, workers and Postgres, every answer checked."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale.faults import COUNTER, RESTART
from tests.benchmark_command import run_command
from tests.waiting import RUN_MAX_S

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(1800)]


def results_of(folder: Path, *options: str) -> list[dict[str, Any]]:
    """What the command writes down of its runs."""
    _, runs = run_command("benchmarks.stream_scale", folder, *options, timeout_s=RUN_MAX_S)
    assert [each["check"] for each in runs] == ["ok"] * len(runs)
    return runs


@pytest.mark.nightly
def test_latency_with_keys_that_have_state(tmp_path: Path) -> None:
    (run,) = results_of(
        tmp_path,
        *("--case", "latency", "--rate", "300", "--seconds", "2", "--warm-up", "1"),
        *("--ranges", "8", "--workers", "2", "--keys", "10000"),
    )

    assert (run["ranges"], run["workers"], run["keys"]) == (8, 2, 10_000)
    assert 0 < run["p50"] <= run["p95"] <= run["p99"]


@pytest.mark.nightly
def test_many_keys_behind_a_small_cache(tmp_path: Path) -> None:
    (run,) = results_of(
        tmp_path,
        *("--case", "keys", "--many-keys", "8000", "--value-bytes", "500", "--caches-mb", "1"),
    )

    # Two workers with a grouping each.
    assert 0 < run["cache_bytes"] <= 2 << 20
    assert run["store_bytes"] > 8_000 * 500
    assert run["evictions"] > 0
    assert run["worker_bytes"] > 50e6


@pytest.mark.nightly
def test_a_day_of_backlog_is_drained_on_time(tmp_path: Path) -> None:
    stream, batch = results_of(tmp_path, "--case", "backlog", "--size", "20000")

    assert (stream["variant"], batch["variant"]) == ("stream", "batch")
    for run in (stream, batch):
        assert (run["late"], run["dropped"]) == (0, 0)
        assert run["panes"] > 10_000


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [COUNTER, RESTART])
def test_nothing_is_lost_when_something_dies_under_load(tmp_path: Path, fault: str) -> None:
    """How long it takes is measured elsewhere, on a quiet machine."""
    (run,) = results_of(
        tmp_path,
        *("--case", "recovery", "--fault", fault, "--fault-rate", "300"),
        *("--warm-up", "1", "--after", "8", "--bound-ms", "100000"),
    )

    assert run["most_ms"] > run["before_ms"]
    assert run["recovered_s"] is not None
    assert (run["server_s"] is not None) == (fault == RESTART)
