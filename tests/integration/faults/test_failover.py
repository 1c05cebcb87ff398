"""A Postgres that loses commits under a live job: a real primary, its standby, and a backup of it.

Each ends with the right rows, or with a job that has stopped with its reason, and has them when it is run again.
"""

import logging
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from runners.errors import LostCommitsError, UnsuitableStoreError
from runners.millwheel.store.port import JobSpec
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.job_lock import JobLock
from tests.fault_harness import FenceRow, Fences, Watch, prepare_database
from tests.integration.faults.conftest import FaultJob
from tests.replicated_postgres import ReplicatedServer, pooler

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.faults]

RECORDS = 2_000
_WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@attrs.define
class Pair:
    """A primary, and a standby that follows it."""

    primary: ReplicatedServer
    standby: ReplicatedServer

    @property
    def dsn(self) -> str:
        """The DSN of whichever server takes writes."""
        hosts = f"host={self.primary.home},{self.standby.home} port=5432,5432"
        return f"{hosts} user=postgres dbname=postgres target_session_attrs=read-write"

    def follow(self) -> None:
        """Have the standby follow the primary."""
        self.standby.back_up(self.primary, as_standby=True)
        self.standby.start()
        self.primary.wait_for(
            "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'", "no standby"
        )

    def cut(self) -> None:
        """Let the standby receive no more of the primary."""
        self.standby.configure("primary_conninfo", "")
        self.primary.wait_for("SELECT count(*) = 0 FROM pg_stat_replication", "it still follows")

    def fail_over(self) -> None:
        """End the primary, and promote the standby."""
        self.primary.stop()
        self.standby.promote()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary that runs, and its standby."""
    # Not tmp_path: a socket's path must be short.
    home = Path(tempfile.mkdtemp(prefix="dataflow-pg-"))
    home.chmod(0o755)
    servers = []
    for name in ("a", "b"):
        (home / name).mkdir()
        servers.append(ReplicatedServer(home / name))
    pair = Pair(*servers)
    pair.primary.initialise()
    pair.primary.start()
    yield pair
    for server in servers:
        server.stop(signal.SIGQUIT)
    shutil.rmtree(home)


@pytest.fixture
def fault_dsn(pair: Pair) -> str:
    """The DSN of the job's store, in place of the server of the other tests."""
    prepare_database(pair.dsn)
    return pair.dsn


def check_is_stopped(faulty: FaultJob, caplog: pytest.LogCaptureFixture) -> None:
    """It names the reason, with numbers, in its error and in the log; and run again it ends with the right rows."""
    with pytest.raises(LostCommitsError) as stopped:
        faulty.finish()
    numbers = (
        r"read\[\d\]: bundle \d+ under token \d+ was committed, the store has bundle \d+ under"
    )
    assert stopped.match(rf"(?s)lost commits of job 'faulty'.*{numbers}.*run the job again")
    assert "has lost commits" in caplog.text

    faulty.start(records=RECORDS)
    faulty.finish()


def pairs(watch: Watch, before: Fences) -> Iterator[tuple[FenceRow, FenceRow]]:
    """Each range as it is now, and as it was."""
    return ((row, before[name]) for name, row in watch.fences().items())


def test_a_standby_that_lags_is_promoted(
    faulty: FaultJob, watch: Watch, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.follow()
    faulty.start(records=RECORDS)
    pair.cut()
    watch.wait_for_sources(20)

    pair.fail_over()

    check_is_stopped(faulty, caplog)


def test_a_base_backup_is_restored(
    faulty: FaultJob, watch: Watch, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Without recovery to a later point, so that it goes on in the same timeline."""
    faulty.start(records=RECORDS)
    pair.standby.back_up(pair.primary, as_standby=False)
    watch.wait_for_sources(20)

    pair.primary.stop()
    pair.primary.take_data_of(pair.standby)
    pair.primary.start()

    check_is_stopped(faulty, caplog)


def test_a_standby_that_has_everything_is_promoted(
    faulty: FaultJob, watch: Watch, pair: Pair
) -> None:
    """A synchronous one: nothing is lost, and the job goes on by itself."""
    pair.follow()
    pair.primary.configure("synchronous_standby_names", "*")
    faulty.start(records=RECORDS)
    watch.wait_for_sources(10)

    pair.fail_over()

    faulty.finish()


def test_a_pooler_that_shares_sessions_is_refused(pair: Pair) -> None:
    """By its name, before anything is done; one that keeps a session for each client is not."""
    spec = JobSpec(job="job", mode="batch", fingerprint="f", ranges=())
    with pooler(pair.primary, "transaction") as dsn, closing(PostgresStore(dsn)) as store:
        with pytest.raises(UnsuitableStoreError, match="pool_mode=transaction"):
            store.open_job(spec)
        with pytest.raises(UnsuitableStoreError, match="pool_mode=transaction"):
            JobLock(dsn, "job").hold()
    with pooler(pair.primary, "session") as dsn, closing(PostgresStore(dsn)) as store:
        assert store.open_job(spec).job == "job"


def test_waits_for_a_standby_are_cancelled_before_it_is_promoted(
    faulty: FaultJob, watch: Watch, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """What is committed on the primary alone is not durable to anybody, so nobody misses it."""
    pair.follow()
    pair.primary.configure("synchronous_standby_names", "*")
    faulty.start(records=RECORDS)
    watch.wait_for_sources(5)
    with caplog.at_level(logging.WARNING):
        pair.cut()
        before, is_over = watch.fences(), threading.Event()

        def cancel() -> None:
            while not is_over.wait(0.05):
                pair.primary.ask(f"SELECT pg_cancel_backend(pid) {_WAITING}")

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            # They are visible on the primary, and nobody but it has them: commits, and takeovers by new workers.
            watch.wait(
                lambda: (
                    sum(new.bundle > old.bundle for new, old in pairs(watch, before)) > 0
                    and sum(new.token > old.token for new, old in pairs(watch, before)) > 0
                ),
                what="commits that no standby has confirmed",
            )
        finally:
            is_over.set()
            canceller.join()

        pair.fail_over()
        faulty.finish()
