"""Changes of a table are counted exactly once, though job, workers and the source's server are killed at random."""

import os
import random
import sys
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import psycopg
import pytest

from tests.changes_job import SLOT
from tests.changing_postgres import ChangingPostgres, changing_postgres
from tests.processes import descendants, in_a_group, is_gone, kill, workers_of
from tests.waiting import until

ORDERS = 3_000
KILLS = ["everything", "driver only", "a worker", "the server", "the walsender"]
#: Of one transaction: more than a step of a worker reads.
LARGE = 20_000
_SUMS = "SELECT customer, count(*), sum(amount)::int8 FROM orders GROUP BY customer ORDER BY 1"
_TOTALS = "SELECT customer, orders, amount FROM totals ORDER BY 1"


class Writer:
    """Inserts, updates and deletes orders, in transactions of a few, some of which are rolled back, until stopped."""

    def __init__(self, dsn: str, chance: random.Random) -> None:
        self._dsn, self._chance = dsn, chance
        self._next = ORDERS
        self._is_stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                with psycopg.connect(self._dsn) as connection:
                    while not self._is_stopped.wait(0.005):
                        self._transaction(connection)
            except psycopg.OperationalError:  # the server was killed
                time.sleep(0.05)

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        chance = self._chance
        for _ in range(chance.randrange(1, 6)):
            number, customer = chance.randrange(self._next), f"c{chance.randrange(20)}"
            kind = chance.choice(["insert", "insert", "amount", "customer", "key", "delete"])
            self._next += 1
            query, values = {
                "insert": (
                    "INSERT INTO orders VALUES (%s, %s, %s)",
                    (self._next, customer, chance.randrange(100)),
                ),
                "amount": (
                    "UPDATE orders SET amount = %s WHERE id = %s",
                    (chance.randrange(100), number),
                ),
                "customer": ("UPDATE orders SET customer = %s WHERE id = %s", (customer, number)),
                "key": ("UPDATE orders SET id = %s WHERE id = %s", (self._next, number)),
                "delete": ("DELETE FROM orders WHERE id = %s", (number,)),
            }[kind]
            connection.execute(query, values)
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()


def make_orders(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE orders (id int8 PRIMARY KEY, customer text, amount int4)")
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute(
            "INSERT INTO orders SELECT n, 'c' || n %% 20, n %% 97 FROM generate_series(1, %s) n",
            [ORDERS],
        )


def answer(dsn: str, query: str) -> list[tuple[Any, ...]]:
    try:
        with psycopg.connect(dsn) as connection:
            return connection.execute(query).fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.OperationalError):
        return []


def command(source: str, store: str) -> list[str]:
    return [sys.executable, "-m", "tests.changes_job", source, store, "changes"]


def makes_progress(store: str, log: Path, server: ChangingPostgres, family: psutil.Process) -> bool:
    """Wait for other totals; False: the job has ended, as it began while the server was away."""
    before = answer(store, _TOTALS)
    until(
        lambda: answer(store, _TOTALS) not in ([], before) or is_gone(family),
        lambda: f"{log.read_text()}\n{(server.home / 'log').read_text()[-5_000:]}",
    )
    if is_gone(family):
        assert "cannot be reached" in log.read_text().rpartition("Traceback")[2], log.read_text()
    return not is_gone(family)


def kill_walsender(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s",
            [SLOT],
        )


def strike(
    kind: str, server: ChangingPostgres, source: str, family: psutil.Process, chance: random.Random
) -> bool:
    """Kill something; returns whether the job is to be started again."""
    if kind == "a worker":
        kill([chance.choice(workers_of(family))])
    elif kind == "the server":
        server.crash()
    elif kind == "the walsender":
        kill_walsender(source)
    else:
        kill([*descendants(family), family] if kind == "everything" else [family])
        return True
    return False


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_totals_survive_kills_of_job_and_source(store_dsn: str, tmp_path: Path) -> None:
    """In the end they are those of the table; the first kill may come while it is still copied."""
    seed = int(os.environ.get("KILL_SEED", "0")) or random.randrange(1, 1 << 32)
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    log = tmp_path / "job.log"
    plans = chance.sample(KILLS, len(KILLS))
    with changing_postgres() as server, server.database() as source:
        make_orders(source)
        writer = Writer(source, random.Random(seed + 1))
        writer.start()
        while plans:
            with in_a_group(command(source, store_dsn), log) as family:
                while plans:
                    if not makes_progress(store_dsn, log, server, family):
                        break
                    time.sleep(chance.uniform(0.0, 0.5))
                    print(plans[-1])
                    if strike(plans.pop(), server, source, family, chance):
                        break
        with in_a_group(command(source, store_dsn), log) as family:
            assert makes_progress(store_dsn, log, server, family)
            writer.stop()
            with psycopg.connect(source) as connection:
                connection.execute(
                    "INSERT INTO orders SELECT n, 'large', 1 FROM generate_series(-%s, -1) n",
                    [LARGE],
                )
            expected = answer(source, _SUMS)
            until(
                lambda: answer(store_dsn, _TOTALS) == expected,
                lambda: (
                    f"KILL_SEED={seed}\n{answer(store_dsn, _TOTALS)}\n{expected}\n{log.read_text()}"
                ),
            )
            assert ("large", LARGE, LARGE) in expected
