"""Records that come twice, on real engines; and how Postgres goes about their ids."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dataflow as df
from dataflow.io.memory import MemorySource
from runners.batch import BatchRunner
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore
from runners.streaming import StreamingRunner
from tests.batch_jobs import Batch, once, write

SPLIT = RangeId("read", 0)
COUNT = 5_000


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.mark.postgres
def test_ids_are_asked_for_and_forgotten_by_index(store_dsn: str) -> None:
    """Neither a question nor a horizon reads the ids that it is not about, on tables that nobody has analyzed."""
    with closing(PostgresStore(store_dsn)) as store:
        ranges = [RangeSpec(range_id=SPLIT, split=b"")]
        store.open_job(JobSpec(job="job", mode="streaming", fingerprint="", ranges=ranges))
        token = store.acquire("job", [SPLIT], "me")[SPLIT].row.token

        def commit(bundle: int, **parts: Any) -> None:
            fence = Fence(range_id=SPLIT, token=token, bundle=bundle)
            production = Production(job="job", fences=[fence], **parts)
            assert Committed() == store.commit(production)

        ids = [(digest(number), number) for number in range(COUNT)]
        commit(1, record_ids={SPLIT: ids})
        known = store.known_record_ids("job", SPLIT, [digest(n) for n in (7, COUNT, 9)])
        assert known == {digest(7), digest(9)}
        assert store.read_record_ids("job", SPLIT, digest(9), 5) == ids[10:15]
        commit(2, record_id_horizons_us={SPLIT: 10})
        assert store.statistics("job")["record_ids"] == COUNT - 10
    counts = """SELECT sum(n_tup_del), sum(idx_tup_fetch) FROM pg_stat_user_tables
                WHERE schemaname = 'dataflow' AND relname LIKE 'record\\_ids\\_%'"""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        while (found := connection.execute(counts).fetchone() or (0, 0))[0] < 10:
            time.sleep(0.01)

    assert found[1] <= 100


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.parametrize(
    "engine", [partial(BatchRunner, partitions=2), StreamingRunner], ids=["batch", "streaming"]
)
def test_each_id_counts_once(
    engine: Callable[..., Any], store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    """In one of two files each record is there three times, in another order each time."""
    numbers = list(range(300))
    once, thrice = numbers[:100], numbers[100:]
    for name, listed in (("a", once), ("b", [*thrice, *thrice[::-1], *thrice])):
        lines = [f"{number},{1_000 + number % 60}\n" for number in listed]
        (tmp_path / f"{name}.csv").write_text("number,at\n" + "".join(lines))
    p = df.Pipeline(engine(job="ids", store=store_dsn, master=spark_master))
    (
        p
        | df.ReadFromCsv(
            tmp_path / "*.csv",
            event_time=lambda row: int(row["at"]),
            max_disorder=60,
            record_ids=df.RecordIds(of=lambda row: row["number"], slack=60),
        )
        | df.Map(lambda row: ("all", int(row["number"])))
        | df.WindowInto(df.FixedWindows(3_600))
        | df.GroupByKey()
        | df.Map(lambda pair: {"numbers": str(sorted(pair[1]))})
        | "write" >> df.WriteToPostgres("ids_seen", columns={"numbers": str})
    )
    result = p.run()
    result.wait_until_finish()

    assert [row["numbers"] for row in result.read_table("ids_seen")] == [str(numbers)]
    assert result.late_counts() == {}
    with closing(PostgresStore(store_dsn)) as store:
        assert store.statistics("ids")["record_ids"] == 0


@pytest.mark.spark
@pytest.mark.postgres
def test_a_batch_split_killed_between_its_commits_knows_what_it_has_read(
    batch: Batch, tmp_path: Path
) -> None:
    """The copies come behind a commit, the records are before it."""
    flag, count = tmp_path / "killed", 110_000
    numbers = [*range(count), *range(0, count, 7)]

    def build(p: df.Pipeline) -> None:
        def row(value: int) -> dict[str, int]:
            if value == count - 1 and once(flag):
                os.kill(os.getpid(), signal.SIGKILL)
            return {"total": value}

        source = MemorySource(numbers)
        record_ids = df.RecordIds(of=lambda value: value, slack=0)
        p | df.Read(source, record_ids=record_ids) | df.Map(row) | write("rows", "total")

    result = batch.run(build, partitions=1)

    assert flag.exists()
    assert sorted(row["total"] for row in result.read_table("rows")) == list(range(count))
