"""Classes that a script or a notebook defines: as typed rows, as records across a shuffle, as keys' state."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.processes import descendants, kill, workers_of
from tests.waiting import WAIT_MAX_S, until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SALES = 3_000

SCRIPT = """
import enum
import os
from typing import NamedTuple

import attrs

import dataflow as df

class Kind(enum.Enum):
    ODD = 1
    EVEN = 0

class Sale(NamedTuple):
    shop: str
    amount: int
    at: float

@attrs.frozen
class Best:
    sale: Sale
    kind: Kind

    class Count(NamedTuple):
        sales: int

BEST = df.ReadModifyWriteStateSpec("best")

class KeepBest(df.DoFn):
    def process(self, element, best=df.DoFn.StateParam(BEST)):
        shop, sale = element
        kept, count = best.read() or (Best(sale, Kind.EVEN), Best.Count(0))
        if sale.amount > kept.sale.amount:
            kept = Best(sale, Kind(sale.amount % 2))
        best.write((kept, Best.Count(count.sales + 1)))
        yield shop, kept, count.sales + 1

def best_row(result):
    shop, best, count = result
    return {"shop": shop, "amount": best.sale.amount, "kind": best.kind.name, "count": count}

def total_row(pair):
    return {"shop": pair[0], "total": sum(sale.amount for sale in pair[1])}

runner = os.environ["RUNNER"]
more = {"records_per_second": int(os.environ["RATE"])} if runner == "streaming" else {}
with df.Pipeline(runner, job="sales", show_progress=False, **more) as p:
    sales = p | "read" >> df.ReadFromJsonLines(
        os.environ["SALES"], rows=Sale, event_time="at", max_disorder=0
    )
    pairs = sales | "by shop" >> df.Map(lambda sale: (sale.shop, sale))
    (
        pairs
        | "best" >> df.ParDo(KeepBest())
        | "best row" >> df.Map(best_row)
        | df.WriteToPostgres(
            "best", columns={"shop": str, "amount": int, "kind": str, "count": int}
        )
    )
    (
        pairs
        | "group" >> df.GroupByKey()
        | "total row" >> df.Map(total_row)
        | df.WriteToPostgres("totals", columns={"shop": str, "total": int})
    )
"""


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    path = tmp_path / "sales.jsonl"
    lines = [
        {"shop": f"shop{number % 7}", "amount": number * 37 % 1_009, "at": float(number)}
        for number in range(SALES)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@contextmanager
def started(
    how: str, runner: str, sales: Path, dsn: str, rate: int = 100_000
) -> Iterator[tuple[psutil.Process, Path]]:
    """The script, as a file or from standard input, which is a `__main__` without a file; and its log."""
    log, script = sales.with_name("log"), sales.with_name("job.py")
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DATAFLOW_STORE": dsn,
        "RUNNER": runner,
        "RATE": str(rate),
        "SALES": str(sales),
    }
    with log.open("ab") as output, script.open() as given:
        process = subprocess.Popen(
            [sys.executable, str(script) if how == "script" else "-"],
            stdin=None if how == "script" else given,
            cwd=sales.parent,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        family = psutil.Process(process.pid)
        try:
            yield family, log
        finally:
            kill([*descendants(family), family])
            process.wait()


def rows_of(dsn: str, table: str) -> list[tuple[Any, ...]]:
    """What is in a result table; nothing if there is none yet."""
    with psycopg.connect(dsn) as connection:
        if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
            return []
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def assert_right(dsn: str, log: Path) -> None:
    best, totals = rows_of(dsn, "best"), dict(rows_of(dsn, "totals"))
    expected: dict[str, list[int]] = {}
    for number in range(SALES):
        expected.setdefault(f"shop{number % 7}", []).append(number * 37 % 1_009)
    assert totals == {shop: sum(amounts) for shop, amounts in expected.items()}, log.read_text()
    running = set()
    for shop, amounts in expected.items():
        for count in range(1, len(amounts) + 1):
            most = max(amounts[:count])
            kind = "EVEN" if most == amounts[0] else ["EVEN", "ODD"][most % 2]
            running.add((shop, most, kind, count))
    assert sorted(best) == sorted(running)


@pytest.mark.parametrize(
    ("how", "runner"),
    [
        ("script", "batch"),
        pytest.param("without a file", "streaming", marks=pytest.mark.nightly),
        pytest.param("script", "streaming", marks=pytest.mark.nightly),
        pytest.param("without a file", "batch", marks=pytest.mark.nightly),
    ],
)
def test_they_are_records_rows_and_state(
    how: str, runner: str, sales: Path, store_dsn: str
) -> None:
    with started(how, runner, sales, store_dsn) as (family, log):
        assert family.wait(WAIT_MAX_S) == 0, log.read_text()
        assert_right(store_dsn, log)


def wait_for_rows(dsn: str, more_than: int, log: Path) -> int:
    until(lambda: len(rows_of(dsn, "best")) > more_than, log.read_text)
    return len(rows_of(dsn, "best"))


@pytest.mark.nightly
def test_what_was_stored_is_read_after_kills(sales: Path, store_dsn: str) -> None:
    """A worker is killed, and another takes its state over; then the whole job is, and run again."""
    with started("script", "streaming", sales, store_dsn, rate=400) as (family, log):
        rows = wait_for_rows(store_dsn, 20, log)
        kill(workers_of(family, log.read_text)[:1])
        rows = wait_for_rows(store_dsn, rows + 100, log)
    with started("script", "streaming", sales, store_dsn) as (family, log):
        assert family.wait(WAIT_MAX_S) == 0, log.read_text()
        assert rows < SALES
        assert_right(store_dsn, log)
