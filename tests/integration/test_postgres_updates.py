"""Updates of jobs in Postgres that meet commits in flight."""

import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import pytest

from runners.errors import StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.store.port import JobSpec, JobUpdate, RangeSpec
from runners.millwheel.store.postgres import PostgresStore

pytestmark = pytest.mark.postgres

SPEC = JobSpec(
    job="job",
    mode="streaming",
    fingerprint="f",
    ranges=[RangeSpec(range_id=RangeId("count", 0), keys=even_ranges(1)[0])],
)
NEW = JobSpec(job="job", mode="streaming", fingerprint="g", ranges=[])


def test_a_commit_in_flight_is_waited_for_and_counted(store_dsn: str) -> None:
    """It lands although its computation was to go; so what was planned is not what there is, and nothing happens."""
    answers: list[Any] = []

    def update() -> None:
        with closing(PostgresStore(store_dsn)) as store:
            planned = JobUpdate(spec=NEW, kept={}, version=0, counts=store.count_state("job"))
            counted.set()
            begun.wait(10)
            try:
                answers.append(store.update_job(planned))
            except StoreError as error:
                answers.append(error)

    counted, begun = threading.Event(), threading.Event()
    with closing(PostgresStore(store_dsn)) as store, psycopg.connect(store_dsn) as owner:
        store.open_job(SPEC)
        thread = threading.Thread(target=update)
        thread.start()
        assert counted.wait(10)
        owner.execute("UPDATE dataflow.fences SET bundle = bundle + 1")
        owner.execute(
            "INSERT INTO dataflow.cells_1 SELECT computation_id, 7, 'k', 'v' FROM dataflow.computations"
        )
        begun.set()
        time.sleep(0.5)
        assert not answers
        owner.commit()
        thread.join(20)
        job = store.read_job("job")

    assert job is not None
    assert job.version == 0
    assert ["job job is not as it was when its update was planned"] == [
        answer.fact for answer in answers
    ]
