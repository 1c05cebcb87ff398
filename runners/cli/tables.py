"""The command that shows the rows of a result table."""

import argparse
import json
from collections.abc import Callable
from datetime import date, datetime, time

from runners.cli.text import print_table
from runners.millwheel.store.port import Store


def show_rows(store: Store, asked: argparse.Namespace) -> None:
    """Print the rows of a result table.

    Args:
        store: that has the table.
        asked: the parsed command line, with ``table``, ``limit`` and how to print.

    Raises:
        StoreError: no job of the store writes to it.
    """
    rows = store.read_rows(asked.table, asked.limit)
    if asked.json:
        for row in rows:
            print(json.dumps({name: _plain(value) for name, value in row.items()}))
        return
    if not rows:
        print(f"table {asked.table} has no rows")
        return
    print_table(rows[0], (map(_shown, row.values()) for row in rows))


def _plain(value: object) -> object:
    """What JSON has for a value; for what it does not have, its text."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if value is None or isinstance(value, (bool, int, float, str, dict, list)):
        return value
    return str(value)


def _shown(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return "-" if value is None else value


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    rows = add(
        "rows",
        "show the rows of a result table",
        "In the order of its key. What is committed is shown, also while a job goes on writing.",
        "dataflow rows totals --json",
    )
    rows.add_argument("table", metavar="TABLE", help="its name, as the pipeline has it")
    rows.add_argument("--limit", type=int, metavar="N", help="at most so many rows; by default all")
    rows.add_argument("--json", action="store_true", help="print one JSON object per line")
    rows.set_defaults(do=show_rows)
