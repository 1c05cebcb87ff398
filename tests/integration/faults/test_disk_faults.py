"""The disk of Postgres is full for a while: first tables cannot grow, then the log cannot, and the server is gone."""

import contextlib
import time
from pathlib import Path

import psycopg
import pytest

from tests.fault_harness import FaultServer, Watch, prepare_database, within
from tests.full_disks import full
from tests.integration.faults.conftest import FaultJob

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.faults]

#: With a worker that dies at each refused commit, Spark and the driver would have given the job up by then.
FULL_S = 23.0
RECOVERY_S = 10.0


@pytest.fixture
def small_server(small_disk: Path) -> FaultServer:
    """A server on it that keeps little log."""
    server = FaultServer(small_disk)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for name, value in (("min_wal_size", "32MB"), ("max_wal_size", "48MB")):
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        connection.execute("SELECT pg_reload_conf()")
    prepare_database(server.dsn)
    return server


def exhaust_log(dsn: str) -> None:
    """Write to the server's log until the server gives up."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(200):
            connection.execute("SELECT pg_logical_emit_message(FALSE, 'x', repeat('x', 1000000))")
    raise AssertionError("there was space left")


def has_panicked(error: psycopg.Error) -> bool:
    """Whether the server gave up, not only refused; its log may be on the disk that is full, so that is no witness."""
    return error.sqlstate is None or error.diag.severity_nonlocalized == "PANIC"


def test_full_disk_is_waited_out(
    small_disk: Path, small_server: FaultServer, spark_master: str, tmp_path: Path
) -> None:
    """Refused commits and a panic, each until there is space again; the job is never started again."""
    watch = Watch(small_server.dsn)
    job = FaultJob(small_server.dsn, spark_master, watch, tmp_path / "gate")
    recovery_s = {}
    with contextlib.closing(watch):
        running = job.start(records=1_600)
        try:
            with full(small_disk):
                time.sleep(FULL_S)
            recovery_s["refused"] = watch.wait_for_sources()
            assert "could not extend" in (small_disk / "log").read_text()

            with full(small_disk):
                with pytest.raises(psycopg.OperationalError) as caught:
                    exhaust_log(small_server.dsn)
                time.sleep(1)
                assert has_panicked(caught.value), caught.value
            started_s = time.monotonic()
            small_server.start()
            watch.wait_for_sources(1)
            recovery_s["panic"] = time.monotonic() - started_s
            job.finish()
        finally:
            running.cancel()
    print(f"recovery from a full disk, in seconds: {recovery_s}")
    assert max(recovery_s.values()) < within(RECOVERY_S), recovery_s
