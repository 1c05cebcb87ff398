"""Flink SQL through PyFlink, on its cluster in one process: a checkpoint each second, and its file sink.

Nobody restores a job that was killed with its cluster: as its guide says, it is started from the newest checkpoint that
is complete.
"""

import sys
from os import environ
from pathlib import Path

environ["_python_worker_execution_mode"] = "process"

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.kills.feed import DISORDER_S, WINDOW_S, Settings

RECORDS = f"""
    CREATE TABLE records (
        `key` STRING, `at` BIGINT, ts AS TO_TIMESTAMP_LTZ(`at`, 3),
        WATERMARK FOR ts AS ts - INTERVAL '{DISORDER_S}' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'file://{{files}}', 'format' = 'json',
            'source.monitor-interval' = '200 ms')"""
COUNTS = """
    CREATE TABLE counts (`key` STRING, start_s BIGINT, `count` BIGINT)
    WITH ('connector' = 'filesystem', 'path' = 'file://{rows}', 'format' = 'csv')"""
INSERT = f"""
    INSERT INTO counts
    SELECT `key`, unix_timestamp(CAST(window_start AS STRING)), count(*)
    FROM TABLE(TUMBLE(TABLE records, DESCRIPTOR(ts), INTERVAL '{WINDOW_S}' SECOND))
    GROUP BY `key`, window_start, window_end"""


def main() -> None:
    """Count until it is killed."""
    settings = Settings.from_command_line()
    checkpoints = Path(settings.scratch) / "checkpoints"
    configured = {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "parallelism.default": "1",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    complete = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda each: each.stat().st_mtime)
    if complete:
        configured["execution.state-recovery.path"] = f"file://{complete[-1].parent}"
    configuration = Configuration()
    for name, value in configured.items():
        configuration.set_string(name, value)
    mode = EnvironmentSettings.new_instance().in_streaming_mode()
    tables = TableEnvironment.create(mode.with_configuration(configuration).build())
    tables.execute_sql(RECORDS.format(files=settings.files))
    tables.execute_sql(COUNTS.format(rows=settings.rows))
    tables.execute_sql(INSERT).wait()


if __name__ == "__main__":
    main()
