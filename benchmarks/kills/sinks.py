"""Readers of sinks: they return the rows of a run that another reader of the sink would see at that moment."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import attrs
import psycopg

from benchmarks.kills.feed import Row, Settings

Reader = Callable[[Settings], list[Row]]


def of_table(settings: Settings) -> list[Row]:
    """The rows of the table ``counts``."""
    with closing(psycopg.connect(settings.store, autocommit=True)) as connection:
        if connection.execute("SELECT to_regclass('counts')").fetchone() == (None,):
            return []
        return [Row(*row) for row in connection.execute("SELECT key, start_s, count FROM counts")]


def of_files(settings: Settings) -> list[Row]:
    """The rows of all files but those that are hidden, which are not final."""
    return _rows(_visible(settings))


def of_log(settings: Settings) -> list[Row]:
    """The rows of the files that the log of Spark's file sink names: others are of batches that were not committed."""
    named = set()
    for log in _by_number(Path(settings.rows, "_spark_metadata")):
        _, *entries = log.read_text().splitlines()
        named |= {Path(json.loads(entry)["path"]).name for entry in entries}
    return _rows(path for path in _visible(settings) if path.name in named)


def of_changes(settings: Settings) -> list[Row]:
    """Add up the changes of all starts of a program: each row as often as it was added and not retracted."""
    found: Counter[Row] = Counter()
    for path in sorted(Path(settings.rows).glob("rows-*.csv")):
        for change in csv.DictReader(_whole_lines(path)):
            row = Row(change["key"], int(change["start_s"]), int(change["count"]))
            found[row] += int(change["diff"])
    return list(found.elements())


def _visible(settings: Settings) -> list[Path]:
    found = sorted(Path(settings.rows).rglob("*"))
    return [path for path in found if path.is_file() and path.name[0] not in "._"]


def _by_number(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.name.partition(".")[0].isdigit()]


def _rows(paths: Iterable[Path]) -> list[Row]:
    found = []
    for path in paths:
        fields = [line.split(",") for line in _whole_lines(path)]
        found += [Row(key.strip('"'), int(start_s), int(count)) for key, start_s, count in fields]
    return found


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file; one without its end is still being written."""
    return path.read_text().rpartition("\n")[0].splitlines()


@attrs.frozen(kw_only=True)
class Verdict:
    """The errors in the rows of a sink: records that are lost or counted twice.

    Attributes:
        lost: records that no row counts.
        doubled: records that rows count beyond the first time.
        rows_again: rows of a key and window that there was one of already.
    """

    lost: int
    doubled: int
    rows_again: int


def verdict(right: Sequence[Row], found: Sequence[Row]) -> Verdict:
    """Compare the rows of a sink with the right ones, of which each key and window has one.

    Args:
        right: one for each key and window.
        found: any number of each.
    """
    expected, counted = _by_window(right), _by_window(found)
    differences = [
        counted.get(place, 0) - expected.get(place, 0) for place in {*expected, *counted}
    ]
    rows = Counter((row.key, row.start_s) for row in found)
    return Verdict(
        lost=-sum(each for each in differences if each < 0),
        doubled=sum(each for each in differences if each > 0),
        rows_again=sum(count - 1 for count in rows.values()),
    )


def _by_window(rows: Sequence[Row]) -> Mapping[tuple[str, int], int]:
    found: Counter[tuple[str, int]] = Counter()
    for row in rows:
        found[row.key, row.start_s] += row.records
    return found
