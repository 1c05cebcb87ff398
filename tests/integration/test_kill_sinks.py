"""Kill whatever writes to another Postgres, and that Postgres, with -9: the rows there are right, once, at the end."""

import subprocess
import sys
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
import psycopg
import pytest

from runners.embedded.postgres import embedded_postgres
from runners.embedded.temporary import temporary_home
from tests.killing import kill_one_after_the_other, seeded
from tests.processes import descendants, kill
from tests.sink_job import WINDOW_S
from tests.streaming_jobs import write_events
from tests.waiting import RUN_MAX_S

ROOT = Path(__file__).parents[2]
KILLS = ("driver", "foreign server", "worker", "foreign server", "everything")


def expected(path: Path) -> dict[tuple[str, datetime], int]:
    """The sums, by Python alone."""
    found = Counter[tuple[str, datetime]]()
    for line in path.read_text().splitlines()[1:]:
        user, time, value = line.split(",")
        start = int(float(time)) // WINDOW_S * WINDOW_S
        found[user, datetime.fromtimestamp(start, UTC)] += int(value)
    return dict(found)


def command(path: Path, store: str, other: str) -> list[str]:
    return [sys.executable, "-m", "tests.sink_job", str(path), store, other]


def batches(other: str) -> int:
    """How many batches the other server has."""
    with suppress(psycopg.Error), psycopg.connect(other) as opened:
        row = opened.execute("SELECT sum(number) FROM dataflow_progress").fetchone()
        return int(row[0] or 0) if row else 0
    return 0


def kill_server(home: Path) -> None:
    """End a server at once, and start it again."""
    pid = int((home / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
    server = psutil.Process(pid)
    kill([server, *descendants(server)])
    embedded_postgres(home)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_rows_elsewhere_survive_any_kill(store_dsn: str, tmp_path: Path) -> None:
    """Whoever dies and is started again, the rows are those that Python computes, and nothing is left to send."""
    path, log = write_events(tmp_path / "events.csv"), tmp_path / "job.log"
    with temporary_home() as home:
        other = embedded_postgres(home)
        kill_one_after_the_other(
            command(path, store_dsn, other),
            log,
            KILLS,
            seeded(),
            lambda: [batches(other)],
            {"foreign server": lambda: kill_server(home)},
        )
        last = subprocess.run(
            command(path, store_dsn, other),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=RUN_MAX_S,
            check=False,
        )
        assert last.returncode == 0, last.stdout + last.stderr
        with psycopg.connect(other, options="-c TimeZone=UTC") as opened:
            rows = opened.execute('SELECT "user", start, total FROM totals').fetchall()
        assert {(user, start): total for user, start, total in rows} == expected(path)
        assert len(rows) == len(expected(path))
