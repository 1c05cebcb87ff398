"""Why on a real store, and of a real job: who looks changes nothing, and a commit that waits for a lock is named."""

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dataflow as df
from runners.errors import StoreError
from runners.millwheel.store.postgres import PostgresStore
from runners.observability.why.explanation import CauseKind
from runners.streaming import StreamingRunner
from runners.streaming.job_thread import StreamingJob
from runners.testing.store_conformance.world import JOB, LOW, Owner, cell, job_spec
from tests.gated_sources import Gate
from tests.streaming_jobs import read_on
from tests.waiting import Background, until

pytestmark = pytest.mark.postgres

RECORDS = 20_000


def test_nothing_can_be_written_while_somebody_looks(store_dsn: str) -> None:
    with closing(PostgresStore(store_dsn)) as store:
        store.open_job(job_spec())
        owner = Owner(store, LOW)
        with pytest.raises(StoreError, match="read-only"), store.at_one_moment():
            store.send_signal(JOB, "flush")
        assert list(store.read_signals(JOB, 0)) == []
        owner.commit(cells=[cell(b"k", b"v")])


def test_what_is_read_together_is_of_one_moment(store_dsn: str) -> None:
    with closing(PostgresStore(store_dsn)) as store, closing(PostgresStore(store_dsn)) as other:
        store.open_job(job_spec())
        owner = Owner(other, LOW)
        owner.commit(cells=[cell(b"k", b"before")])
        with store.at_one_moment():
            assert store.version().startswith("PostgreSQL ")
            first = store.read_key(JOB, "count", 7)
            owner.commit(cells=[cell(b"k", b"after")])
            second = store.read_key(JOB, "count", 7)
        third = store.read_key(JOB, "count", 7)

    assert first == second
    assert first is not None
    assert third is not None
    assert (dict(first.cells), dict(third.cells)) == ({b"k": b"before"}, {b"k": b"after"})


def test_a_session_that_waits_is_shown_with_what_it_waits_for(store_dsn: str) -> None:
    with (
        closing(PostgresStore(store_dsn)) as store,
        psycopg.connect(store_dsn) as holder,
        psycopg.connect(store_dsn) as waiting,
    ):
        store.open_job(job_spec())
        holder.execute("LOCK TABLE dataflow.fences IN EXCLUSIVE MODE")
        waits = Background(lambda: waiting.execute("LOCK TABLE dataflow.fences IN EXCLUSIVE MODE"))
        until(store.blocked_sessions)
        (found,) = store.blocked_sessions()
        holder.rollback()
        waits()
        waiting.rollback()

        assert (found.session, found.holder) == (
            waiting.info.backend_pid,
            holder.info.backend_pid,
        )
        assert "LOCK TABLE dataflow.fences" in found.query


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_that_runs_is_asked(store_dsn: str, spark_master: str, tmp_path: Path) -> None:
    """First its window waits for event time; then a session has a lock, and its worker's commit waits for that."""
    path = tmp_path / "numbers.csv"
    lines = [f"{number},{number}" for number in range(RECORDS)]
    path.write_text("\n".join(["number,time", *lines]))
    # One worker, so that no range is on its way to another one when the lock is taken: that is another reason.
    runner = StreamingRunner(
        job="asked", store=store_dsn, master=spark_master, workers=1, show_progress=False
    )
    gate = Gate(path=tmp_path / "gate", records_per_second=50)
    pipeline = df.Pipeline(gate.gated(runner))
    (
        pipeline
        | "read"
        >> df.ReadFromCsv(path, event_time=lambda row: float(row["time"]), max_disorder="1 minute")
        | df.Map(lambda row: (int(row["number"]) % 10, 1))
        | df.WindowInto(df.FixedWindows(1_000_000))
        | "count" >> df.CombinePerKey(sum)
        | df.Map(lambda pair: {"key": pair[0], "records": pair[1]})
        | df.WriteToPostgres("news", columns={"key": int, "records": int})
    )
    job = pipeline.run()
    assert isinstance(job, StreamingJob)
    try:
        read_on(job, 200)
        answers: list[Any] = []

        def is_at_the_split() -> bool:
            # Now and then what was read is still on its way.
            answers.append(job.why(key=5))
            leaf = answers[-1].leaf
            return leaf is not None and leaf.name == "read/Read(CsvSource)[0]"

        until(is_at_the_split, lambda: str(answers[-1]))
        found = answers[-1]
        assert found.awaited is not None
        assert found.asked.window == df.Window(0, 1_000_000_000_000)
        assert "it fires when event time reaches 1970-01-12T13:46:40+00:00" in found.sentence
        with psycopg.connect(store_dsn) as holder:
            holder.execute("LOCK TABLE dataflow.fences IN EXCLUSIVE MODE")
            until(lambda: job.why().cause is CauseKind.COMMIT_WAITS, lambda: str(job.why()))
            blocked = job.why()
            assert (
                f"for session {holder.info.backend_pid}, which runs: LOCK TABLE" in blocked.sentence
            )
    finally:
        job.cancel()
    assert job.why().cause is CauseKind.NOT_RUNNING
