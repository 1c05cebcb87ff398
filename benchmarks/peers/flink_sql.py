"""Flink SQL through PyFlink, on its cluster in one process: three cases in batch, and S1.

In S1 there is a checkpoint every second, and files are final with the checkpoint that they belong to.
"""

import sys
from os import environ
from typing import Any

# The Python that Flink starts is this one, as a process of its own.
environ["_python_worker_execution_mode"] = "process"

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.cases import PERIOD_MS, WINDOW_MS
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import NexmarkCase
from benchmarks.peers import nexmark_sql
from benchmarks.task import Task

#: Some more than `benchmarks.workloads.WATERMARK_BOUND_S`: SQL has whole minutes.
WATERMARK_BOUND_MINUTES = 7
SETTINGS = {
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.task.heap.size": "1g",
    "table.local-time-zone": "UTC",
    "execution.batch.adaptive.auto-parallelism.enabled": "false",
}
_SECONDS, _PERIOD_S = WINDOW_MS // 1_000, PERIOD_MS // 1_000
_TOTALS = f"""
    SELECT user_id, 1000 * unix_timestamp(CAST(window_start AS STRING)), count(*), sum(`value`)
    FROM TABLE({{window}}(TABLE events, DESCRIPTOR(ts), {{period}}INTERVAL '{_SECONDS}' SECOND))
    GROUP BY user_id, window_start, window_end"""
BY_WINDOW = _TOTALS.format(window="TUMBLE", period="")
QUERIES = {
    "B1": "SELECT count(*), sum(`value` * 3) FROM events WHERE MOD(`value`, 2) = 0",
    "B2": BY_WINDOW,
    "B3": _TOTALS.format(window="HOP", period=f"INTERVAL '{_PERIOD_S}' SECOND, "),
    "S1": BY_WINDOW,
}
#: Cases that are run as streams: of q11, whose sessions batch does not have, the end of the input closes the last.
STREAMS = ("S1", "q11")
EVENTS = f"""
    CREATE TABLE events (
        user_id BIGINT, event_time BIGINT, `value` BIGINT, ts AS TO_TIMESTAMP_LTZ(event_time, 3),
        WATERMARK FOR ts AS ts - INTERVAL '{WATERMARK_BOUND_MINUTES}' MINUTE
    ) WITH ('connector' = 'filesystem', 'path' = 'file://{{two}}', 'format' = 'json')"""
ANSWERS = """CREATE TABLE answers ({columns}) {partitioned}
    WITH ('connector' = 'filesystem', 'path' = 'file://{rows}', 'format' = 'csv',
        'csv.disable-quote-character' = 'true')"""


def nexmark(tables: Any, task: Task) -> None:
    """A query of Nexmark; its bids are in order, so the watermark is the newest."""
    case = NEXMARK[task.case]
    tables.execute_sql(
        f"CREATE TABLE events ({nexmark_sql.FIELDS}, ts AS TO_TIMESTAMP_LTZ(date_time_ms, 3), WATERMARK FOR ts AS "
        f"ts - INTERVAL '4' SECOND) WITH ('connector' = 'filesystem', 'path' = 'file://{task.two}', 'format' = 'json')"
    )
    for name, query in nexmark_sql.VIEWS.items():
        tables.execute_sql(f"CREATE VIEW {name} AS {query}")
    if case.name == "q13":
        tables.execute_sql(nexmark_sql.FLINK_NUMBERS)
        table = nexmark_sql.SIDE_INPUT.format(numbers="numbers")
        tables.execute_sql(f"CREATE VIEW side_input AS {table}")
    tables.execute_sql(answers(case, task))
    tables.execute_sql(f"INSERT INTO answers {nexmark_sql.FLINK[case.name]}").wait()


def answers(case: NexmarkCase, task: Task) -> str:
    """The statement for the table of the answer, which in q10 is files in folders."""
    names, partitioned = case.columns, ""
    if case.is_in_folders:
        names = (*case.columns[1:], *nexmark_sql.FOLDERS)
        partitioned = f"PARTITIONED BY ({', '.join(nexmark_sql.FOLDERS)})"
    texts = {*case.text, *nexmark_sql.FOLDERS}
    columns = ", ".join(f"`{name}` {'STRING' if name in texts else 'BIGINT'}" for name in names)
    return ANSWERS.format(columns=columns, partitioned=partitioned, rows=task.rows)


def environment(task: Task) -> Any:
    """Of batch or of streams."""
    settings = dict(SETTINGS)
    if task.case in STREAMS:
        settings |= {
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.dir": f"file://{task.scratch}/checkpoints",
        }
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    mode = EnvironmentSettings.new_instance()
    mode = mode.in_streaming_mode() if task.case in STREAMS else mode.in_batch_mode()
    return TableEnvironment.create(mode.with_configuration(configuration).build())


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    tables = environment(task)
    if task.case in NEXMARK:
        with task.measured():
            nexmark(tables, task)
        return
    columns = ("count", "sum") if task.case == "B1" else ("user_id", "start_ms", "count", "sum")
    types = ", ".join(f"`{name}` BIGINT" for name in columns)
    with task.measured():
        tables.execute_sql(EVENTS.format(two=task.two))
        tables.execute_sql(ANSWERS.format(columns=types, partitioned="", rows=task.rows))
        tables.execute_sql(f"INSERT INTO answers {QUERIES[task.case]}").wait()


if __name__ == "__main__":
    main()
