"""What `examples.flight_delays` shows: a few rows of each table, and where two runs differ.

Tables are sequences of mappings, as `PipelineResult.read_table` returns them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table

from examples.flight_delays import SESSION_GAP, TableNames

_SHOWN = 5
_FLIGHTS_MIN = 10

Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]


def print_report(tables: Tables, late: int, out: Console, *, is_short: bool = False) -> None:
    """The worst hours and the longest aircraft days (not if short), and how many rows there are."""
    names = TableNames()
    if not is_short:
        out.print(_worst_hours(tables[names.hours]))
        out.print(_longest_days(tables[names.sessions]))
    counts = Table("table", _right("rows"), box=box.SIMPLE_HEAD, title_justify="left")
    for name, rows in tables.items():
        counts.add_row(name, f"{len(rows):,}")
    counts.add_row("(dropped as too late)", f"{late:,}")
    out.print(counts)


def first_differences(
    one_name: str, one: Tables, other_name: str, other: Tables, out: Console
) -> int:
    """Print the first rows of each table that only one side has; returns how many there are."""
    differences = 0
    for name in one:
        ours, theirs = _counted(one[name]), _counted(other[name])
        only_ours, only_theirs = ours - theirs, theirs - ours
        found = only_ours.total() + only_theirs.total()
        out.print(
            f"  {name}: {ours.total():,} and {theirs.total():,} rows, "
            + (f"{found:,} differ" if found else "identical"),
            highlight=False,
        )
        for side, rows in ((one_name, only_ours), (other_name, only_theirs)):
            for row in islice(sorted(rows, key=_sortable), _SHOWN):
                text = ", ".join(f"{column}={value}" for column, value in row)
                out.print(f"    only in {side}: {text}", markup=False, highlight=False)
        differences += found
    return differences


def _counted(rows: Rows) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(row.items()) for row in rows)


def _sortable(row: tuple[tuple[str, Any], ...]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for _, value in row]


def _worst_hours(rows: Rows) -> Table:
    shown = Table(
        "airport",
        "hour (UTC)",
        _right("flights"),
        _right("cancelled"),
        _right("mean delay"),
        _right("longest"),
        title=f"The worst hours (of {_FLIGHTS_MIN} flights or more)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    candidates = [
        row for row in rows if row["flights"] >= _FLIGHTS_MIN and row["mean_delay"] is not None
    ]
    candidates.sort(key=lambda row: (-row["mean_delay"], row["window_start"], row["origin"]))
    for row in candidates[:_SHOWN]:
        shown.add_row(
            row["origin"],
            _time(row["window_start"]),
            str(row["flights"]),
            str(row["cancelled"]),
            f"{row['mean_delay']:.1f} min",
            f"{row['max_delay']} min",
        )
    return shown


def _longest_days(rows: Rows) -> Table:
    shown = Table(
        "aircraft",
        "first leg (UTC)",
        "last leg (UTC)",
        _right("legs"),
        _right("in the air"),
        _right("worst delay"),
        title="The longest days of an aircraft",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    ranked = sorted(rows, key=lambda row: (-row["air_minutes"], row["window_start"], row["tail"]))
    for row in ranked[:_SHOWN]:
        shown.add_row(
            row["tail"],
            _time(row["window_start"]),
            _time(row["window_end"] - SESSION_GAP),
            str(row["legs"]),
            _length(timedelta(minutes=row["air_minutes"])),
            f"{row['worst_delay']} min",
        )
    return shown


def _right(name: str) -> Any:
    return Column(name, justify="right")


def _time(instant: datetime) -> str:
    return f"{instant:%b %d %H:%M}"


def _length(span: timedelta) -> str:
    hours, minutes = divmod(span // timedelta(minutes=1), 60)
    return f"{hours} h {minutes:02} min"
