"""The queries of Nexmark by this project: of `examples.nexmark`, over lines of JSON, into a table.

A row is written as it is emitted; of columns as columns, where the query emits rows with the names of the table.
q10 writes files instead.
"""

from collections.abc import Mapping
from typing import Any

import dataflow as df
from benchmarks.nexmark import CASES, IN_EUROS
from benchmarks.peers.ours_pipelines import TABLE
from benchmarks.task import Task
from examples.nexmark.column_queries import COLUMN_QUERIES
from examples.nexmark.events import KINDS, Event
from examples.nexmark.queries import QUERIES
from examples.nexmark.single_bids import write_files

#: What is a float in the table, and an integer in the answer.
SELECTED: Mapping[str, str] = {"price": "round((1000 * price)::numeric)::bigint"}


def selected(query: str) -> Mapping[str, str]:
    """Expressions in SQL for those columns of the answer that are stored as another type, by name."""
    return SELECTED if query in IN_EUROS else {}


def build(p: df.Pipeline, task: Task) -> None:
    """A query in functions."""
    events = (
        p
        | "read" >> df.ReadFromJsonLines(f"{task.two}/*.jsonl", event_time=event_time)
        | "event" >> df.Map(event_of)
    )
    if CASES[task.case].is_in_folders:
        events | QUERIES[task.case]() | write_files(task.rows)
    else:
        answer(events, task.case)


def build_columns(p: df.Pipeline, task: Task) -> None:
    """A query in columns."""
    query = COLUMN_QUERIES[task.case]
    lines = f"{task.two}/*.jsonl"
    if query.by_arrival:
        read = df.ReadFromJsonLines(lines, rows=query.row_type, event_time=df.ARRIVAL_TIME)
    else:
        read = df.ReadFromJsonLines(
            lines, rows=query.row_type, event_time="date_time_ms", event_time_unit="ms"
        )
    answer_in_columns(p | "read" >> read, task.case)


def event_time(fields: dict[str, Any]) -> float:
    """In seconds."""
    return float(fields["date_time_ms"] / 1_000)


def event_of(fields: dict[str, Any]) -> Event:
    """An event of the members of a line."""
    row_type: Any = KINDS[fields.pop("kind")]
    event: Event = row_type(**fields)
    return event


def answer(events: df.PCollection[Any], query: str) -> None:
    """Write the rows of a query in functions."""
    _write(events | QUERIES[query](), query, are_named=False)


def answer_in_columns(events: df.PCollection[Any], query: str) -> None:
    """Write the rows of a query in columns."""
    are_named = query in {"q0", "q1", "q2", "q12", "q14", "q21", "q22"}
    _write(events | COLUMN_QUERIES[query].build(), query, are_named=are_named)


def _write(rows: df.PCollection[Any], query: str, *, are_named: bool) -> None:
    case = CASES[query]
    types: dict[str, Any] = {name: str if name in case.text else int for name in case.columns}
    if query in IN_EUROS:
        types["price"] = float
    if not are_named:
        rows = rows | "row" >> df.Map(lambda row: dict(zip(case.columns, row, strict=True)))
    rows | df.WriteToPostgres(TABLE, columns=types)
