"""The command line of `examples.orders_cdc`: follow a shop, or, as a demonstration, one of its own, and kill the job.

Exit status: 0; 1 when the tables are not what the queries say; 2 when what was asked for cannot be done; 130 when
interrupted.
"""

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import psutil
import psycopg
from rich import box
from rich.console import Console
from rich.table import Column, Table

import dataflow as df
from examples.orders_cdc import GATHERED_S, SESSIONS_QUERY, TOTALS_QUERY, build
from examples.orders_shop import CITIES, Changes, open_shop
from runners.embedded.temporary import FOLLOWED, temporary_postgres

JOB = "orders-cdc"
TOTALS = "SELECT city, orders, amount FROM city_totals"
SESSIONS = "SELECT customer, first_order, window_end, orders, amount FROM sessions"
ROUNDS, ROUND_S = 4, 6.0
#: How long the job may take until its tables are right, in seconds.
RIGHT_WITHIN_S = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job, or the demonstration; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.orders_cdc", description="Follow the changes of a shop."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--demo", action="store_true", help="with a server and a shop of its own")
    what.add_argument("--shop", metavar="DSN", help="the database with the tables to follow")
    parser.add_argument("--store", metavar="DSN", help="the store; default: that of this user")
    parser.add_argument("--seed", type=int, help="of the demonstration")
    asked = parser.parse_args(arguments)
    try:
        if asked.demo:
            return demo(Console(), random.randrange(1 << 32) if asked.seed is None else asked.seed)
        follow(asked.shop, asked.store)
    except df.DataflowError as error:
        Console(stderr=True).print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt as interruption:
        print(f"\n{interruption or 'interrupted'}", file=sys.stderr)
        return 130
    return 0


def follow(shop: str, store: str | None) -> None:
    """Run the job until it is stopped.

    Args:
        shop: the address of the database with the tables.
        store: where the results and the state of the job are; None: the default.
    """
    options: dict[str, Any] = {} if store is None else {"store": store}
    p = df.Pipeline(runner="streaming", job=JOB, **options)
    build(p, shop)
    p.run().wait_until_finish()


def demo(out: Console, seed: int) -> int:
    """Change a shop, kill the job that follows it again and again, and compare its tables with what SQL says.

    Args:
        out: where to print.
        seed: of the changes.
    """
    out.print(
        f"One Postgres server has the shop, the state of the job, and its results; seed {seed}.",
        highlight=False,
        soft_wrap=True,
    )
    chance = random.Random(seed)
    with temporary_postgres(FOLLOWED) as dsn, TemporaryDirectory() as directory:
        log = Path(directory) / "job.log"
        open_shop(dsn, chance)
        out.print(
            "To look, or to change something yourself, type elsewhere:\n"
            f"  psql '{dsn}'\nThe tables: customers, orders; city_totals, sessions.\n",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        changes, stop = Changes(dsn, chance), Event()
        changing = Thread(target=changes.run, args=[stop], daemon=True)
        changing.start()
        try:
            for number in range(1, ROUNDS):
                with _job(dsn, log):
                    _wait_for_change(dsn, log)
                    time.sleep(ROUND_S)
                out.print(f"kill -9 {number}: {changes.transactions:,} transactions in the shop")
            with _job(dsn, log):
                _wait_for_change(dsn, log)
                stop.set()
                changing.join()
                out.print(f"the changes end: {changes.transactions:,} transactions in the shop")
                _wait_until_right(dsn)
                delays_ms = sorted(_delay_ms(dsn, log, city) for city in CITIES * 5)
                verdict = _verdict(dsn, out)
        finally:
            stop.set()
        middle, worst = delays_ms[len(delays_ms) // 2], delays_ms[-1]
        out.print(
            f"From the commit of an order to the new total: {middle:.0f} ms as a median of {len(delays_ms)}, "
            f"{worst:.0f} ms at worst, {GATHERED_S * 1000:.0f} ms of which changes are gathered for, twice.",
            soft_wrap=True,
        )
        return verdict


@contextmanager
def _job(dsn: str, log: Path) -> Iterator[None]:
    """The job, in processes of its own, all of which are killed in the end."""
    words = [sys.executable, "-m", "examples.orders_cdc", "--shop", dsn, "--store", dsn]
    with log.open("ab") as output:
        job = subprocess.Popen(words, stdout=output, stderr=output, start_new_session=True)
    try:
        yield
        if job.poll() is not None:
            raise df.DataflowError("the job has ended", detail=log.read_text()[-2_000:])
    finally:
        driver = psutil.Process(job.pid)
        for process in [*driver.children(recursive=True), driver]:
            process.kill()
        job.wait()


def _rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    try:
        with psycopg.connect(dsn) as connection:
            return sorted(connection.execute(query.encode()).fetchall())
    except psycopg.errors.UndefinedTable:  # the job has not made it yet
        return []


def _wait_for_change(dsn: str, log: Path) -> None:
    """Wait until the job works: until the totals are others than they were."""
    before = _rows(dsn, TOTALS)
    _wait(lambda: _rows(dsn, TOTALS) != before, log)


def _wait_until_right(dsn: str) -> None:
    wanted = [_rows(dsn, query) for query in (TOTALS_QUERY, SESSIONS_QUERY)]
    deadline = time.monotonic() + RIGHT_WITHIN_S
    while [_rows(dsn, query) for query in (TOTALS, SESSIONS)] != wanted:
        if time.monotonic() > deadline:
            return  # what differs is printed
        time.sleep(0.1)


def _wait(is_so: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + RIGHT_WITHIN_S
    while not is_so():
        if time.monotonic() > deadline:
            raise df.DataflowError("the job does nothing", detail=log.read_text()[-2_000:])
        time.sleep(0.01)


def _delay_ms(dsn: str, log: Path, city: str) -> float:
    """Place an order, and wait until the total of its city has it."""
    query = f"SELECT orders FROM city_totals WHERE city = '{city}'"
    before = _rows(dsn, query)
    with psycopg.connect(dsn) as connection:
        customer = connection.execute(
            "SELECT id FROM customers WHERE city = %s LIMIT 1", [city]
        ).fetchone()
        if customer is None:
            return 0.0
        connection.execute(
            "INSERT INTO orders (customer, amount, placed_at) VALUES (%s, 1, now())", customer
        )
    started = time.perf_counter()
    _wait(lambda: _rows(dsn, query) != before, log)
    return (time.perf_counter() - started) * 1000


def _verdict(dsn: str, out: Console) -> int:
    """Print the totals, and whether both tables are what SQL says."""
    table = Table(
        "city",
        Column("orders", justify="right"),
        Column("amount", justify="right"),
        box=box.SIMPLE_HEAD,
    )
    for city, orders, amount in _rows(dsn, TOTALS):
        table.add_row(city, f"{orders:,}", f"{amount:,}")
    out.print(table)
    is_wrong = False
    for name, kept, query in (
        ("city_totals", TOTALS, TOTALS_QUERY),
        ("sessions", SESSIONS, SESSIONS_QUERY),
    ):
        found, wanted = _rows(dsn, kept), _rows(dsn, query)
        is_same = found == wanted
        is_wrong |= not is_same
        out.print(
            f"{name}: {len(found):,} rows, "
            + (
                "[bold green]identical[/] to the query of the shop"
                if is_same
                else "[bold red]WRONG[/]"
            )
        )
        for row in sorted(set(found) ^ set(wanted))[:10]:
            side = "only here" if row in found else "missing"
            out.print(f"  {side}: {row}", markup=False, soft_wrap=True)
    return int(is_wrong)
