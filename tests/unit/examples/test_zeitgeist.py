"""The spike and dip detector finds what is planted, on computations and in the SDK."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from examples import zeitgeist_cli
from examples.zeitgeist_cli import BY_SDK, main
from examples.zeitgeist_model import expected_a_day_after, is_low, is_spike
from examples.zeitgeist_queries import BUCKET, PLANTED, START, write_logs


@pytest.fixture(scope="module")
def ran() -> tuple[int, str, df.PipelineResult]:
    """The exit status of a run, which takes ten seconds, what it prints, and its result."""
    results = list[df.PipelineResult]()
    report = zeitgeist_cli._report

    def reported(result: df.PipelineResult, prefix: str) -> int:
        results.append(result)
        return report(result, prefix)

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setattr(zeitgeist_cli, "_report", reported)
        status = main([])
    (result,) = results
    return status, out.getvalue(), result


@pytest.mark.nightly
@pytest.mark.slow
def test_what_is_planted_is_found_and_nothing_else(
    ran: tuple[int, str, df.PipelineResult],
) -> None:
    """Spikes before their bucket is over; dips after two; by both, which also count the same as late."""
    status, out, _ = ran

    assert status == 0
    assert "found and not planted: 0" in out
    assert "computations and SDK agree on" in out
    assert "15 by the computations, 15 by the SDK" in out
    rows = [line for line in out.splitlines() if line.startswith(("spike", "dip"))]
    assert len(PLANTED) == len(rows)
    for row in rows:
        assert "0:20:00" in row if row.startswith("dip") else "(0." in row


class WithoutDips:
    """A result in which the SDK has found no dips."""

    def __init__(self, result: df.PipelineResult) -> None:
        self._result = result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)

    def read_table(self, name: str) -> Sequence[Any]:
        rows = self._result.read_table(name)
        return [row for row in rows if row["kind"] != "dip"] if name.endswith(BY_SDK) else rows


@pytest.mark.slow
def test_who_misses_something_is_caught(
    ran: tuple[int, str, df.PipelineResult], capsys: pytest.CaptureFixture[str]
) -> None:
    missing: Any = WithoutDips(ran[2])

    assert zeitgeist_cli._report(missing, "zeitgeist_direct_") == 1

    out = capsys.readouterr().out
    assert "DISAGREE" in out
    assert "NOT FOUND" in out


def test_what_is_normal_is_not_reported() -> None:
    counts = {START + number * BUCKET: 10 + number for number in range(5)}
    middle = START + 2 * BUCKET

    assert 12 == expected_a_day_after(counts, middle)
    assert expected_a_day_after(counts, middle + BUCKET) is None
    assert not is_spike(25, 12)
    assert is_spike(60, 12)
    assert not is_low(0, 12)
    assert is_low(5, 30)


@pytest.mark.slow
def test_queries_are_those_of_the_seed(tmp_path: Path) -> None:
    """And a log is in the order of arrival: a few are late."""
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        (tmp_path / name).mkdir()
        write_logs(tmp_path / name, seed)
    a, b, c = ((tmp_path / name / "asia.jsonl").read_text() for name in "abc")

    assert a == b != c
    assert all(each.end - each.start > timedelta(0) for each in PLANTED)
