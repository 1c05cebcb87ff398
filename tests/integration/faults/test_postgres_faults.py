"""Postgres is killed, restarted again and again, and ends sessions, under a running job."""

import random
import signal
import time

import pytest

from tests.fault_harness import FaultServer, Watch, within
from tests.integration.faults.conftest import FaultJob

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.faults]

#: From the death of the server, which is started again at once, until every source has committed.
SERVER_RECOVERY_S = 10.0
RESTARTS = 6
RESTART_INTERVAL_S = 5.0


def test_killed_server_is_survived(
    faulty: FaultJob, watch: Watch, fault_server: FaultServer
) -> None:
    """SIGKILL of the postmaster at any moment, and while commits are inside COMMIT; crash recovery each time."""
    faulty.start(records=2_000)
    recovery_s = {}

    started_s = time.monotonic()
    fault_server.kill()
    fault_server.start()
    server_s = time.monotonic() - started_s
    watch.wait_for_sources(1)
    recovery_s["at any moment"] = time.monotonic() - started_s

    watch.wait_for_sources()
    with watch.closed_gate():
        watch.wait_for_commits(2)
        started_s = time.monotonic()
        fault_server.kill()
    fault_server.start()
    watch.wait_for_sources(1)
    recovery_s["inside COMMIT"] = time.monotonic() - started_s

    faulty.finish()
    print(f"recovery from kill -9 of Postgres, in seconds: {recovery_s}")
    print(f"of the first, until the server answered: {server_s:.2f}")
    assert max(recovery_s.values()) < within(SERVER_RECOVERY_S), recovery_s


def test_restarts_again_and_again_are_survived(
    faulty: FaultJob, watch: Watch, fault_server: FaultServer
) -> None:
    """A restart every five seconds for half a minute: fast, immediate or by kill, in an order of chance."""
    chance = random.Random(5)
    faulty.start(records=2_200)
    for _ in range(RESTARTS):
        started_s = time.monotonic()
        fault_server.stop(chance.choice([signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]))
        fault_server.start()
        time.sleep(max(0.0, started_s + RESTART_INTERVAL_S - time.monotonic()))
    recovery_s = time.monotonic() - started_s + watch.wait_for_sources(1)

    faulty.finish()
    print(f"recovery from the last of {RESTARTS} restarts of Postgres: {recovery_s:.2f} s")
    assert recovery_s < within(SERVER_RECOVERY_S)


def test_ended_sessions_are_opened_again(faulty: FaultJob, watch: Watch) -> None:
    """pg_terminate_backend of workers' sessions, at moments of chance and inside COMMIT."""
    chance = random.Random(11)
    faulty.start(records=4_000)
    recovery_s = []
    for round_ in range(6):
        if round_ % 2:
            with watch.closed_gate():
                pids = watch.wait_for_commits(1)
                for pid in pids:
                    watch.terminate(pid)
                started_s = time.monotonic()
        else:
            started_s = time.monotonic()
            watch.terminate(chance.choice(watch.job_sessions()))
        watch.wait_for_sources(1)
        recovery_s.append(round(time.monotonic() - started_s, 2))
        time.sleep(chance.uniform(0, 0.3))

    faulty.finish()
    print(f"recovery from pg_terminate_backend, in seconds: {recovery_s}")
    assert max(recovery_s) < within(SERVER_RECOVERY_S), recovery_s
