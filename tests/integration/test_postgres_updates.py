"""Updates of jobs in Postgres that meet commits in flight."""

import threading
from contextlib import closing
from typing import Any

import psycopg
import pytest

from runners.errors import StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.store.port import JobSpec, JobUpdate, RangeSpec
from runners.millwheel.store.postgres import PostgresStore
from tests.waiting import LONG_MS, WAIT_MAX_S, Background, blocked_sessions

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

    def update() -> Any:
        with closing(PostgresStore(store_dsn, lock_timeout_ms=LONG_MS)) as store:
            planned = JobUpdate(spec=NEW, kept={}, version=0, counts=store.count_state("job"))
            counted.set()
            begun.wait(WAIT_MAX_S)
            try:
                return store.update_job(planned)
            except StoreError as error:
                return error

    counted, begun = threading.Event(), threading.Event()
    with closing(PostgresStore(store_dsn)) as store, psycopg.connect(store_dsn) as owner:
        store.open_job(SPEC)
        updated = Background(update)
        assert counted.wait(WAIT_MAX_S)
        owner.execute("UPDATE dataflow.fences SET bundle = bundle + 1")
        owner.execute(
            "INSERT INTO dataflow.cells_1 SELECT computation_id, 7, 'k', 'v' FROM dataflow.computations"
        )
        begun.set()
        blocked_sessions(owner, updated)
        owner.commit()
        answer = updated()
        job = store.read_job("job")

    assert job is not None
    assert job.version == 0
    assert isinstance(answer, StoreError)
    assert answer.fact == "job job is not as it was when its update was planned"
