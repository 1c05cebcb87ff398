"""What a run of ours has written to its store, as text for the check; happens when the run has been measured."""

from pathlib import Path

import psycopg

from benchmarks.task import Task


def export(task: Task, query: str) -> None:
    """Leave the rows of a query as the answer of a task."""
    task.rows.mkdir()
    copying = f"COPY ({query}) TO STDOUT (FORMAT csv)".encode()
    with (
        psycopg.connect(task.store) as connection,
        connection.cursor() as cursor,
        cursor.copy(copying) as copy,
        Path(task.rows, "rows.csv").open("wb") as file,
    ):
        file.writelines(copy)
