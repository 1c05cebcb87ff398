"""The commands ``explain-row`` and ``plot``: where a row comes from, and the panes of a key."""

import argparse
import ast
import json
from collections.abc import Callable
from typing import Any

from dataflow.errors import DataflowError
from runners.cli.text import find_job
from runners.millwheel.store.port import Store
from runners.observability.lineage.explained_rows import RowExplanation, explain_row, not_recorded
from runners.observability.lineage.stored_lineage import finder, plot_stored_key


def show_row(store: Store, asked: argparse.Namespace) -> None:
    """Print where a row comes from.

    Args:
        store: that has the job which wrote it.
        asked: the parsed command line, with ``table``, ``key``, ``job`` and how to print.

    Raises:
        PipelineError: nothing is recorded of such a row.
    """
    jobs = [asked.job] if asked.job else [each.job for each in store.read_jobs()]
    for job in jobs:
        found: RowExplanation | None = explain_row(finder(store, job), asked.table, asked.key)
        if found is not None:
            print(json.dumps(found.as_json()) if asked.json else found)
            return
    raise not_recorded(asked.table, asked.key)


def plot(store: Store, asked: argparse.Namespace) -> None:
    """Draw the panes of a key into a file.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job``, ``key``, ``transform`` and ``out``.

    Raises:
        PipelineError: nothing is recorded of the key, or several groupings have it.
        DataflowError: the file cannot be written.
    """
    find_job(store, asked.job)
    picture = plot_stored_key(store, asked.job, _key(asked.key), transform=asked.transform)
    try:
        picture.save(asked.out)
    except OSError as error:
        raise DataflowError(
            f"{asked.out} cannot be written: {error.strerror}", hint="give another file with --out"
        ) from None
    print(asked.out)


def _key(text: str) -> Any:
    """The key that was written: as in Python, or a text without quotes."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def add_plot_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    plotting = add(
        "plot",
        "draw the panes of a key, with its records and the watermark, into an SVG file",
        "Of jobs that run with lineage='records'; event time is across, processing time up.",
        "dataflow plot scores --key red --out red.svg",
    )
    plotting.add_argument(
        "--key", required=True, metavar="KEY", help="the key, as Python writes it: red, 7, ('a', 1)"
    )
    plotting.add_argument(
        "--transform", metavar="LABEL", help="grouping; by default the one that has the key"
    )
    plotting.add_argument("-o", "--out", required=True, metavar="FILE", help="file to write")
    plotting.set_defaults(do=plot)


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    explaining = add(
        "explain-row",
        "show which pane a row of a result table is, why it fired, what it was made of, and what it replaced",
        "Of jobs that run with lineage='panes' or lineage='records'; the job may be running or not.",
        "dataflow explain-row totals red,2013-01-01T12:00:00Z",
    )
    explaining.add_argument("table", metavar="TABLE", help="name of the table, as in the pipeline")
    explaining.add_argument(
        "key",
        metavar="KEY",
        help="values of the columns of its key with commas between them, in their order, or a JSON array of them",
    )
    explaining.add_argument(
        "--job", metavar="JOB", help="job that writes the table; by default all are searched"
    )
    explaining.add_argument("--json", action="store_true", help="print one JSON object")
    explaining.set_defaults(do=show_row)
