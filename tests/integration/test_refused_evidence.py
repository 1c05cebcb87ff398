"""What writes the documents of a driver, on a server that refuses them: in the log once, and there again afterwards."""

import logging
from contextlib import closing
from typing import Any

import psycopg
import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.store.postgres import PostgresStore
from runners.observability.evidence.snapshot_taker import SnapshotTaker
from runners.registry import open_store
from runners.streaming.evidence_writer import (
    SNAPSHOT_INTERVAL_MS,
    STATEMENT_TIMEOUT_MS,
    EvidenceWriter,
)
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from tests.refusing import REFUSALS, allow, refuse, tried
from tests.waiting import until

pytestmark = pytest.mark.postgres

JOB = "refused"


def test_it_is_reported_once_and_tried_each_second(
    store_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    p, clock = df.Pipeline(), ManualClock()
    p | df.Create([("k", 1)]) | df.GroupByKey()
    execution = plan(p.graph())
    spec = job_spec(JOB, "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    with (
        closing(PostgresStore(store_dsn)) as store,
        psycopg.connect(store_dsn, autocommit=True) as admin,
        caplog.at_level(logging.WARNING),
    ):
        master = Master(
            store.open_job(spec), execution, 1, LocalNetwork().endpoint("master"), clock
        )
        taker = SnapshotTaker(JOB, 0, "driver", clock.now_us())

        def open_own() -> Any:
            # As the thread of a job does: a disk that is full is waited for no longer than that.
            return open_store(
                store_dsn,
                connect_timeout_s=STATEMENT_TIMEOUT_MS / 1_000,
                statement_timeout_ms=STATEMENT_TIMEOUT_MS,
            )

        with EvidenceWriter(open_own, JOB, master.view, taker, clock) as writer:

            def written_us() -> int:
                clock.advance(SNAPSHOT_INTERVAL_MS)
                writer.pass_on()
                found = store.read_snapshot(JOB)
                return -1 if found is None else found.taken_us

            until(lambda: written_us() > 0)
            for error in REFUSALS:
                refuse(admin, error)

                def is_reported(error: str = error) -> bool:
                    written_us()
                    return any(f"refused: {error}" in each for each in reported(caplog))

                until(is_reported)
                # And goes on to try: what a disk is full for is tried several times before that is reported.
                before = tried(admin)

                def is_tried(before: int = before) -> bool:
                    written_us()
                    return tried(admin) > before + 3

                until(is_tried)
                allow(admin)
                before_us = clock.now_us()
                until(lambda before_us=before_us: written_us() > before_us)  # type: ignore[misc]
        messages = reported(caplog)

    assert len(messages) == len(REFUSALS), messages
    for error, message in zip(REFUSALS, messages, strict=True):
        assert f"refused: {error}" in message
        assert "it is tried again" in message


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if "cannot be written" in each.message]
