"""DuckDB on two threads: what one machine can do when nothing is distributed and no record is seen by Python."""

import duckdb

from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS
from benchmarks.task import Task

TOTALS = "count(*), sum(value)"
QUERIES = {
    "B1": "SELECT count(*), sum(value * 3) FROM events WHERE value % 2 = 0",
    "B2": f"""
        SELECT user_id, event_time - event_time % {WINDOW_MS} AS start_ms, {TOTALS}
        FROM events GROUP BY ALL""",
    "B3": f"""
        SELECT user_id, event_time - event_time % {PERIOD_MS} - back * {PERIOD_MS} AS start_ms, {TOTALS}
        FROM events, range({WINDOW_MS // PERIOD_MS}) AS windows(back) GROUP BY ALL""",
    "B4": f"""
        WITH gaps AS (
            SELECT *, event_time - lag(event_time) OVER (PARTITION BY user_id ORDER BY event_time) AS gap
            FROM events
        ), numbered AS (
            SELECT *, count(*) FILTER (WHERE gap >= {GAP_MS}) OVER (
                PARTITION BY user_id ORDER BY event_time RANGE UNBOUNDED PRECEDING) AS number
            FROM gaps
        )
        SELECT user_id, min(event_time), max(event_time) + {GAP_MS}, {TOTALS}
        FROM numbered GROUP BY user_id, number""",
    "B5": "SELECT unnest(string_split(line, ' ')) AS word, count(*) FROM lines GROUP BY word",
}
EVENTS = """CREATE VIEW events AS SELECT * FROM read_ndjson('{two}/*.jsonl', columns =
    {{user_id: 'BIGINT', event_time: 'BIGINT', value: 'BIGINT'}})"""
#: The separator is a byte that is in no text: a row is a line.
LINES = """CREATE VIEW lines AS SELECT * FROM read_csv('{two}/*.txt', header = false, delim = '\x01', quote = '',
    columns = {{line: 'VARCHAR'}})"""


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    task.rows.mkdir()
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    with task.measured():
        connection.execute((LINES if task.case == "B5" else EVENTS).format(two=task.two))
        connection.execute(f"COPY ({QUERIES[task.case]}) TO '{task.rows}/rows.csv' (HEADER false)")


if __name__ == "__main__":
    main()
