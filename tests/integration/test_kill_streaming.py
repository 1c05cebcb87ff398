"""The promise of the README: kill the streaming job with -9 at random moments, and its rows equal the batch run's."""

import os
import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from runners.millwheel.store.postgres import PostgresStore
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.waiting import RUN_MAX_S, until

JOB = "killed"
#: Kills of the whole job: driver, Java and workers at once, or the driver alone, leaving the rest to notice.
JOB_KILLS = 3
#: Kills of one worker of a running job, which goes on without being started again.
WORKER_KILLS = 2
TABLES = ("flight_hours", "aircraft_sessions", "flight_dead_letters")
ROOT = Path(__file__).parents[2]


def command(runner: str, dsn: str, *more: str) -> list[str]:
    """The example as a user starts it."""
    flights = [sys.executable, "-m", "examples.flight_delays", "--month", "1"]
    return [*flights, "--runner", runner, "--store", dsn, "--job", f"{JOB}-{runner}", *more]


def position(dsn: str) -> tuple[int, bool]:
    """Bundles that the job's source has committed, and whether it has read everything."""
    with closing(PostgresStore(dsn)) as store:
        job = store.read_job(f"{JOB}-streaming")
    if job is None:
        return 0, False
    sources = [each for each in job.ranges.values() if each.split is not None]
    return sum(each.bundle for each in sources), all(each.is_finished for each in sources)


def wait_for_progress(dsn: str, log: Path) -> None:
    """Until the source has committed more than it had."""
    before, _ = position(dsn)
    until(lambda: position(dsn)[0] > before, log.read_text)


def rows(dsn: str, table: str) -> list[tuple[object, ...]]:
    """All rows of a table, in an order of their own."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"SELECT * FROM {table}").fetchall()
    return sorted(found, key=repr)


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_rows_survive_any_number_of_kills(store_dsn: str, tmp_path: Path) -> None:
    """Driver and workers die at random moments; restarted under its name the job ends with the batch's rows."""
    seed = int(os.environ.get("KILL_SEED", "0")) or random.randrange(1, 1 << 32)
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    log = tmp_path / "job.log"
    kinds = ["everything", "driver only"] * JOB_KILLS
    plans = [*kinds[:JOB_KILLS], *["a worker"] * WORKER_KILLS]
    chance.shuffle(plans)
    in_the_middle = 0
    while plans:
        with in_a_group(command("streaming", store_dsn, "--rate", "6000"), log) as family:
            while plans:
                wait_for_progress(store_dsn, log)
                time.sleep(chance.uniform(0.0, 0.5))
                in_the_middle += not position(store_dsn)[1]
                kind = plans.pop()
                if kind == "a worker":
                    # Progress may still be that of workers whose driver was killed before.
                    kill([chance.choice(workers_of(family, log.read_text))])
                    continue
                kill([*descendants(family), family] if kind == "everything" else [family])
                break
    print(
        f"{in_the_middle} of {JOB_KILLS + WORKER_KILLS} kills came before the input had been read"
    )
    last = subprocess.run(
        command("streaming", store_dsn),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        check=False,
    )
    assert last.returncode == 0, last.stdout + last.stderr
    subprocess.run(
        command("batch", store_dsn),
        cwd=ROOT,
        capture_output=True,
        timeout=RUN_MAX_S,
        check=True,
    )

    assert in_the_middle >= JOB_KILLS
    for table in TABLES:
        expected, actual = (
            rows(store_dsn, f"{table}_{JOB}_batch"),
            rows(store_dsn, f"{table}_{JOB}_streaming"),
        )
        assert expected, f"{table} is empty"
        assert expected == actual, f"{table} differs; replay with KILL_SEED={seed}"
    with closing(PostgresStore(store_dsn)) as store:
        left = store.statistics(f"{JOB}-streaming")
    assert {"cells": 0, "timers": 0, "checkpoints": 0, "late": 0} == {
        kind: left[kind] for kind in ("cells", "timers", "checkpoints", "late")
    }
