"""The spike and dip detector finds what is planted, on computations and in the SDK."""

from datetime import timedelta
from pathlib import Path

import pytest

from examples import zeitgeist_sdk
from examples.zeitgeist_cli import main
from examples.zeitgeist_model import expected_a_day_after, is_low, is_spike
from examples.zeitgeist_queries import BUCKET, PLANTED, START, write_logs


@pytest.mark.slow
def test_what_is_planted_is_found_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """Spikes before their bucket is over; dips after two; by both, which also count the same as late."""
    assert main([]) == 0

    out = capsys.readouterr().out
    assert "found and not planted: 0" in out
    assert "computations and SDK agree on" in out
    assert "15 by the computations, 15 by the SDK" in out
    rows = [line for line in out.splitlines() if line.startswith(("spike", "dip"))]
    assert len(PLANTED) == len(rows)
    for row in rows:
        assert "0:20:00" in row if row.startswith("dip") else "(0." in row


@pytest.mark.slow
def test_who_misses_something_is_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(zeitgeist_sdk, "is_low", lambda *_: False)

    assert main([]) == 1

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
