"""Large records through a real Postgres: steps and what they write stay of a size, and nothing kills the worker."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.model.production import Production
from runners.millwheel.store.port import UnderWay
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.system_clock import SystemClock
from runners.testing.local_network import LocalNetwork

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(1800)]

RECORDS, RECORD_BYTES, KEYS = 600, 210_000, 300
#: An entry of the journal is of about half of it; all that a range has would be many times that.
PIECE_BYTES_MAX = 8_000_000
ROUNDS_MAX = 100_000


class Watched(PostgresStore):
    """Notes the largest value that it is given."""

    largest = 0

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        values = [each.value or b"" for each in production.cells]
        values += [each.payload for each in production.journal]
        values += [each.payload for each in production.checkpoints]
        self.largest = max([self.largest, *map(len, values)])
        return super().submit(production, ready)


class Grown(df.DoFn):
    """A record becomes one of 210 KB."""

    def process(self, element: int, /) -> Any:
        noise = element.to_bytes(8, "big") * (RECORD_BYTES // 8)
        yield element % KEYS, noise


def run(p: df.Pipeline, dsn: str, **options: Any) -> int:
    """The whole job, by a master and a worker in this process; the bytes of the largest value that was stored."""
    execution, clock, network = plan(p.graph()), SystemClock(), LocalNetwork()
    with closing(Watched(dsn)) as store:
        spec = job_spec("large", "streaming", execution, splits_desired=1, ranges_per_grouping=2)
        master = Master(store.open_job(spec), execution, 1, network.endpoint("master"), clock)
        worker_spec = WorkerSpec(
            job="large",
            slot=0,
            worker="w",
            master="master",
            options=WorkerOptions(state_cache_bytes=64 << 20, **options),
        )
        worker = Worker(worker_spec, execution, store, network.endpoint("w"), clock)
        worker.start()
        for _ in range(ROUNDS_MAX):
            master.step()
            worker.step()
            if master.failure:
                raise master.failure
            if master.is_done:
                return store.largest
    raise AssertionError("the job does not come to its end")


@pytest.mark.nightly
def test_many_records_of_210_kb_are_stored_in_pieces(store_dsn: str) -> None:
    """A gigabyte in two ranges was once in one entry of the journal, which Postgres never answered."""
    p = df.Pipeline()
    (
        p
        | "read" >> df.Create(range(RECORDS))
        | "grow" >> df.ParDo(Grown())
        | "group" >> df.GroupByKey()
        | "count"
        >> df.Map(lambda pair: {"key": pair[0], "count": len(pair[1]), "first": len(pair[1][0])})
        | df.WriteToPostgres("large", columns={"key": int, "count": int, "first": int}, key=["key"])
    )
    largest = run(p, store_dsn)

    assert RECORD_BYTES < largest < PIECE_BYTES_MAX
    with psycopg.connect(store_dsn) as connection:
        rows = connection.execute('SELECT key, count, first FROM "large" ORDER BY key').fetchall()
    assert rows == [(key, RECORDS // KEYS, RECORD_BYTES) for key in range(KEYS)]


@pytest.mark.nightly
def test_rows_of_a_megabyte(store_dsn: str) -> None:
    """More in one bundle than one statement has."""
    rows = 120
    p = df.Pipeline()
    (
        p
        | "read" >> df.Create([("all", number) for number in range(rows)])
        | "group" >> df.GroupByKey()
        | "each"
        >> df.FlatMap(lambda pair: [{"number": n, "text": "x" * 1_000_000} for n in pair[1]])
        | df.WriteToPostgres("wide", columns={"number": int, "text": str}, key=["number"])
    )
    run(p, store_dsn)

    with psycopg.connect(store_dsn) as connection:
        found = connection.execute("SELECT count(*), min(length(text)) FROM wide").fetchone()
    assert found == (rows, 1_000_000)


def test_a_value_above_the_limit_is_refused_by_name(
    store_dsn: str,
) -> None:
    """The error names the key, and nothing of it is in the store."""
    p = df.Pipeline()
    (
        p
        | "read" >> df.Create(range(100))
        | "grow" >> df.ParDo(Grown())
        | "one key" >> df.Map(lambda pair: ("hot", pair[1]))
        | "group" >> df.GroupByKey()
        | "count" >> df.Map(lambda pair: {"count": len(pair[1])})
        | df.WriteToPostgres("counts", columns={"count": int})
    )
    with pytest.raises(
        df.TransformError,
        match=r"(?s)'group'.*cannot keep the state of key 'hot'.*may have 18,000,000",
    ):
        run(p, store_dsn, value_bytes_max=18_000_000, steps=StepLimits(first=10))

    with psycopg.connect(store_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM counts").fetchone() == (0,)
