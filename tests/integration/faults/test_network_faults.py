"""The network between the workers and Postgres cuts, delays, and loses the answer to COMMIT."""

import time
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from runners.millwheel.store.postgres import PostgresStore
from tests.fault_harness import Watch, within
from tests.fault_proxy import FaultProxy
from tests.integration.faults.conftest import FaultJob
from tests.integration.faults.test_worker_faults import victim, wait_for_successor
from tests.processes import kill

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.faults]

RECOVERY_S = 5.0
LOST_COMMITS = 8
#: Each way; a commit takes two of them.
DELAY_S = 0.15


@pytest.mark.parametrize("writes", range(5))
def test_connection_cut_while_it_is_set_up_is_opened_again(
    fault_dsn: str, fault_proxy: FaultProxy, writes: int
) -> None:
    """Wherever it is cut between the login and the first answer, nobody notices."""
    fault_proxy.cut_after = [writes, writes]
    with closing(PostgresStore(fault_proxy.dsn)) as store:
        assert store.read_jobs() == []
    assert fault_proxy.connections == 3


def test_answers_that_are_lost_many_times_in_a_row_are_asked_for_again(
    fault_dsn: str, fault_proxy: FaultProxy
) -> None:
    """A network is given as long as a server that starts; being too late for a lock is given up sooner."""
    with closing(PostgresStore(fault_proxy.dsn)) as store:
        assert store.read_jobs() == []
        fault_proxy.lose_commits(LOST_COMMITS)
        assert store.read_job("nobody") is None
    assert fault_proxy.commits_lost == LOST_COMMITS


@pytest.fixture
def fault_proxy(fault_dsn: str) -> Iterator[FaultProxy]:
    """A proxy between the job and the test's database."""
    proxy = FaultProxy(fault_dsn)
    yield proxy
    proxy.close()


def wait_until_known(watch: Watch) -> set[str | None]:
    """Wait until no worker is replaced any more; return the owners.

    Who was cut off before its COMMIT arrived is fenced by its own question whether it had, and replaced.
    """
    while True:
        before = owners(watch)
        watch.wait_for_sources()
        if None not in before and owners(watch) == before:
            return before


def owners(watch: Watch) -> set[str | None]:
    return {row.owner for row in watch.fences().values()}


def hold_commit_of_a_worker(watch: Watch, fault_proxy: FaultProxy) -> tuple[str, psutil.Process]:
    """Let a worker not know of a commit of its own; what the worker is called in the store, and its process."""
    while True:
        port = fault_proxy.hold_commit()
        for owner, process in (victim(watch, slot) for slot in (0, 1)):
            if port in [socket.laddr.port for socket in process.net_connections()]:
                return owner, process
        # The driver's: it has a connection to the store as well.
        fault_proxy.release()


def test_network_that_cuts_delays_and_loses_answers(
    faulty: FaultJob, watch: Watch, fault_proxy: FaultProxy
) -> None:
    """After every fault the same job goes on, and every lost answer is found out without a second commit."""
    faulty.start(records=4_000, dsn=fault_proxy.dsn)
    recovery_s = {}

    for round_ in range(3):
        started_s = time.monotonic()
        assert fault_proxy.cut() >= 1
        before = wait_until_known(watch)
        recovery_s[f"cut {round_ + 1}"] = time.monotonic() - started_s

    fault_proxy.lose_commits(LOST_COMMITS)
    watch.wait(lambda: fault_proxy.commits_lost == LOST_COMMITS, what="lost answers")
    assert fault_proxy.productions_lost > 0
    recovery_s["lost answers"] = watch.wait_for_sources(1)
    # What had landed is found to have landed: the workers go on and nobody is replaced.
    assert owners(watch) == before

    fault_proxy.delay_s = DELAY_S
    recovery_s["delayed"] = watch.wait_for_sources(1)
    fault_proxy.delay_s = 0.0

    owner, process = hold_commit_of_a_worker(watch, fault_proxy)
    kill([process])
    killed_s = time.monotonic()
    fault_proxy.release()
    recovery_s["killed not knowing"] = wait_for_successor(watch, owner, killed_s)

    faulty.finish()
    print(f"recovery from a bad network, in seconds: {recovery_s}")
    assert max(recovery_s.values()) < within(RECOVERY_S), recovery_s
