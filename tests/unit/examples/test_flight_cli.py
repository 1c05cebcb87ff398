"""The command line of the flights example: what it prints, its exit status, and its comparison."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples import flight_cli
from examples.flight_cli import main
from examples.flight_report import first_differences

HEADER = "time_hour,minute,origin,tailnum,dep_time,dep_delay,air_time\n"
FLIGHT = "2013-01-01T09:00:00Z,15,JFK,N1,1200,90,100\n"
LETTER = "2013-01-01T09:00:00Z,15,,N1,1200,90,100\n"


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "flights.csv"
    path.write_text(HEADER + FLIGHT * 12 + LETTER)
    monkeypatch.setattr(flight_cli, "flights_csv", lambda month: path)
    return path


def test_direct_run_shows_its_tables_and_how_long_it_took(
    flights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0

    out, err = capsys.readouterr()
    assert "JFK" in out
    assert "90.0 min" in out
    assert "20 h 00 min" in out
    assert "13 flights in" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--runner", "spork"], ["no runner 'spork'", "batch, direct"]),
        (["--rate", "5"], ["'direct'", "records_per_second"]),
        (["--runner", "streaming", "--rate", "-1"], ["records_per_second must be positive"]),
        (["--runner", "streaming", "--workers", "0"], ["at least one worker"]),
    ],
)
def test_what_the_sdk_refuses_is_reported_without_a_traceback(
    flights: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    assert main(arguments) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert all(part in err for part in parts)


def test_there_is_no_thirteenth_month(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--month", "13"]) == 2

    assert "There is no month 13." in capsys.readouterr().err


def test_malformed_file_is_named(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flights.write_text("")

    assert main([]) == 2

    assert "flights.csv has no CSV header" in capsys.readouterr().err


def test_job_names_its_tables() -> None:
    assert flight_cli._suffix("flight-delays-batch-1") == "batch_1"
    assert flight_cli._suffix("My job!") == "my_job"


def differences(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> tuple[int, str]:
    out = io.StringIO()
    console = Console(file=out, width=200)
    found = first_differences("batch", {"table": one}, "streaming", {"table": other}, console)
    return found, out.getvalue()


def test_same_rows_in_another_order_are_identical() -> None:
    at = datetime(2013, 1, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = [{"at": at, "mean": None}, {"at": None, "mean": 0.5}]

    assert differences(rows, rows[::-1]) == (0, "  table: 2 and 2 rows, identical\n")


def test_rows_are_counted_and_what_differs_is_shown() -> None:
    found, text = differences([{"n": 1}, {"n": 1}, {"n": None}], [{"n": 1}, {"n": 2}])

    assert found == 3
    assert text.splitlines() == [
        "  table: 3 and 2 rows, 3 differ",
        "    only in batch: n=None",
        "    only in batch: n=1",
        "    only in streaming: n=2",
    ]
