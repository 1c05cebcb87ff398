"""The store's password and the job's secret key are nowhere where they could be read: not printed, listed or stored."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.processes import descendants

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

PASSWORD = "c0rrect-h0rse"
#: A streaming job in which one worker meets an error, so that there is something to report about everything.
PROGRAM = """
import logging, os, sys
from pathlib import Path

logging.basicConfig(level=logging.DEBUG)
logging.getLogger("py4j").setLevel(logging.INFO)
import dataflow as df
from runners.millwheel.wire.zmq_transport import JobKeys
from runners.streaming import StreamingRunner

IS_WRONG = sys.argv[2] == "fails"
generate = JobKeys.generate

def remembered():
    keys = generate()
    Path(sys.argv[1]).write_bytes(keys.secret)
    return keys

JobKeys.generate = remembered

def fails(value):
    if value == 7_000 and IS_WRONG:
        raise ValueError("seven thousand")
    return value % 3, value

runner = StreamingRunner(job="secrets", store=os.environ["STORE"], workers=1, records_per_second=4_000)
p = df.Pipeline(runner)
(
    p
    | df.Create([df.TimestampedValue(n, n / 100) for n in range(8_000)])
    | df.Map(fails)
    | df.WindowInto(df.FixedWindows(10))
    | df.CombinePerKey(sum)
    | df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
    | df.WriteToPostgres("secret_totals", columns={"key": int, "total": int})
)
p.run().wait_until_finish()
print(runner, vars(runner))
"""


@pytest.mark.parametrize("outcome", ["fails", pytest.param("ends", marks=pytest.mark.nightly)])
def test_no_secret_can_be_read(store_dsn: str, tmp_path: Path, outcome: str) -> None:
    program, key_file = tmp_path / "job.py", tmp_path / "key"
    program.write_text(PROGRAM)
    # The embedded server asks for no password, and a client that has one does not mind.
    environment = os.environ | {"STORE": make_conninfo(store_dsn, password=PASSWORD)}
    commands: set[str] = set()
    output = tmp_path / "output"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, str(program), str(key_file), outcome],
            env=environment,
            cwd=Path(__file__).parents[2],
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        while process.poll() is None:
            commands |= _commands(psutil.Process(process.pid))
            time.sleep(0.1)
    printed = output.read_bytes()
    assert (process.returncode != 0) == (outcome == "fails"), printed.decode()
    assert any("pyspark" in command for command in commands), printed.decode()
    secret_key = key_file.read_bytes()

    for secret in (PASSWORD.encode(), secret_key):
        assert secret not in printed
        assert not [command for command in commands if secret.decode() in command]
        assert not [
            row for row in _stored(store_dsn) if secret in row or secret.hex().encode() in row
        ]


def _commands(process: psutil.Process) -> set[str]:
    commands = set()
    for each in [process, *descendants(process)]:
        try:
            commands.add(" ".join(each.cmdline()))
        except psutil.NoSuchProcess:
            continue
    return commands


def _stored(dsn: str) -> list[bytes]:
    """Every row of every table that there is, and what the server shows of its sessions, as text."""
    rows: list[bytes] = []
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        assert len(tables) > 10
        for table in [*tables, ("pg_catalog", "pg_stat_activity")]:
            query = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(*table))
            rows += [row.encode() for (row,) in connection.execute(query) if row is not None]
    return rows
